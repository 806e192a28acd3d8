package toeplitz

import (
	"fmt"
	"math"
	"slices"
)

// mostWork bounds rounds times weights of Banded: one step of the search is three times as many
// multiplications.
const mostWork = 1 << 24

// Banded returns the strategy with at most `every` weights (and at most `rounds`) that has the least
// rms error of `rounds` prefix sums at equal sensitivity, for clients that take part in one of any
// `every` rounds: a local minimum that a fixed iteration from squareRoot reaches, with weights
// rounded to 2^-bits. It is valid for any other number of rounds too.
//
// The result is the same on every platform: the search adds, multiplies, divides and takes square
// roots, each rounded by itself, and nothing else. Rounds times weights may be at most 2^24.
// Source: toeplitz.md, section 5; banded strategies are of Choquette-Choo et al. 2023 (arXiv:2306.08153).
func Banded(rounds, every int64, bits int) (Strategy, error) {
	if rounds < 1 || every < 1 {
		return Strategy{}, fmt.Errorf("toeplitz: rounds = %d and every = %d must be at least 1", rounds, every)
	}
	n := min(rounds, every)
	if n > MostWeights || rounds > mostWork/n {
		return Strategy{}, fmt.Errorf("toeplitz: %d rounds with %d weights are too much work", rounds, n)
	}
	return rounded(optimal(rounds, every, n), bits)
}

// optimal returns n coefficients 1 = c_0 ≥ c_1 ≥ … ≥ 0 that minimise the mean squared error of
// prefix sums times the squared sensitivity.
func optimal(rounds, every, n int64) []float64 {
	t := newTrial(rounds, every, n)
	q := t.start()
	minimise(q, t.value)
	t.set(q)
	return t.c
}

// trial is a strategy that Banded tries. A search's numbers are q: c_k is the sum of p_j over j > k,
// p_j = q_j²/Σq². Any q but 0 gives 1 = c_0 ≥ c_1 ≥ … ≥ 0.
type trial struct {
	rounds, every int64
	p, c          []float64 // p_j is at j−1
	back          []float64 // p backwards
	b, adjoint    []float64 // first column of A·C⁻¹; what E changes by for a change in it
	m, slope      []float64 // for sensitivity
}

// newTrial is for n weights, at most as many as rounds.
func newTrial(rounds, every, n int64) *trial {
	band := func() []float64 { return make([]float64, n) }
	long := func() []float64 { return make([]float64, rounds) }
	return &trial{rounds: rounds, every: every, p: band(), c: band(), back: band(), slope: band(), b: long(), adjoint: long(), m: long()}
}

// start returns the square root's numbers.
func (t *trial) start() []float64 {
	q := root(len(t.p))
	last := len(q) - 1
	for k := range last {
		q[k] = math.Sqrt(q[k] - q[k+1])
	}
	q[last] = math.Sqrt(q[last])
	return q
}

// set takes p and c from q, and returns Σq².
func (t *trial) set(q []float64) float64 {
	var all float64
	for _, v := range q {
		all += float64(v * v)
	}
	var c float64
	for j := len(q) - 1; j >= 0; j-- {
		t.p[j] = float64(q[j]*q[j]) / all
		c += t.p[j]
		t.c[j] = c
	}
	return all
}

// value returns E·S, E = Σ (rounds−t)·b_t² and S = Σ m_t², and sets grad to the slope of its logarithm.
func (t *trial) value(q, grad []float64) float64 {
	all := t.set(q)
	e := t.errors()
	s := sensitivity(t.c, t.every, t.m, t.slope)
	// By p_j: of log E, and of log S, whose slope is that by c_0 + … + c_{j−1}.
	var sum, mean float64
	for j := range t.p {
		sum += t.slope[j] / s
		grad[j] = sum + dot(t.adjoint[j+1:], t.b)/e // E's is Σ_t λ_t·b_{t−j}
		mean += float64(t.p[j] * grad[j])
	}
	for j := range q {
		grad[j] = 2 * q[j] * (grad[j] - mean) / all
	}
	return e * s
}

// errors computes b, the renewal sequence of p, and the adjoint λ_t = 2(rounds−t)·b_t + Σ_j p_j·λ_{t+j}.
func (t *trial) errors() (e float64) {
	n := int64(len(t.p))
	copy(t.back, t.p)
	slices.Reverse(t.back)
	t.b[0] = 1
	e = float64(t.rounds)
	for i := int64(1); i < t.rounds; i++ {
		b := dot(t.back[max(0, n-i):], t.b[max(0, i-n):i])
		t.b[i] = b
		e += float64(float64(t.rounds-i) * float64(b*b))
	}
	for i := t.rounds - 1; i >= 0; i-- {
		after := min(t.rounds-1-i, n)
		t.adjoint[i] = float64(float64(2*(t.rounds-i))*t.b[i]) + dot(t.p[:after], t.adjoint[i+1:])
	}
	return e
}

// sensitivity computes m, the rows of the worst pattern of c, returns S, the sum of their squares,
// and sets slope to its slopes by c_k, 2·Σ_j m_{k+j·every}. It overwrites m, which is as long as
// there are rounds.
func sensitivity(c []float64, every int64, m, slope []float64) (s float64) {
	rounds := int64(len(m))
	clear(m)
	copy(m, c)
	for i := range rounds {
		if i >= every {
			m[i] += m[i-every]
		}
		s += float64(m[i] * m[i])
	}
	for i := rounds - 1; i >= 0; i-- {
		if every < rounds-i {
			m[i] += m[i+every]
		}
	}
	for k := range slope {
		slope[k] = 2 * m[k]
	}
	return s
}
