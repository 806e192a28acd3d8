// Package toeplitz holds strategies of the matrix mechanism for sums over rounds: noise that is
// correlated between rounds, so that a model that adds up all rounds has less of it.
//
//	Identity, squareRoot, Banded, bufferedStrategy → Strategy    integer weights w_0 ≥ w_1 ≥ … ≥ 0
//	Strategy.Squared, Between                            what the rounds cost
//	Strategy.Errors, Gain                                what they are worth
//	NewRecovery → Recovery.Recover                       rounds' sums from what was released
//
// Round t of 0, 1, 2, … releases Y_t = Σ_s w_s·X_{t−s} + Z_t: X_t is the sum of the vectors of the
// clients of round t, Z_t fresh independent noise. Dividing by C, the lower-triangular Toeplitz
// matrix of c_s = w_s/2^Bits, gives X_t with noise that cancels in sums over rounds.
//
// Rounds are numbered as they were announced. A round that releases nothing (void) keeps its number,
// counts as X_t = 0, and costs as if it had released. A client takes part in at most one of any
// `every` rounds that follow each other.
//
// toeplitz.md has the proofs.
package toeplitz

import (
	"fmt"
	"math"
	"math/big"
)

const (
	// MostBits bounds Strategy.Bits.
	MostBits = 16
	// MostWeights bounds the length of a strategy.
	MostWeights = 1 << 16
)

// Strategy is a lower-triangular Toeplitz matrix whose first column is c_k = Weights[k]/2^Bits,
// and 0 beyond. Valid strategies have Bits from 0 to 16, from 1 to 2^16 weights, and
// 2^Bits = Weights[0] ≥ Weights[1] ≥ … ≥ 0. So all weights together are at most 2^32.
type Strategy struct {
	Bits    int
	Weights []int64
}

// Validate returns an error that names the first value out of range.
func (s Strategy) Validate() error {
	switch {
	case s.Bits < 0 || s.Bits > MostBits:
		return fmt.Errorf("toeplitz: bits = %d must lie between 0 and %d", s.Bits, MostBits)
	case len(s.Weights) < 1 || len(s.Weights) > MostWeights:
		return fmt.Errorf("toeplitz: %d weights must lie between 1 and %d", len(s.Weights), MostWeights)
	case s.Weights[0] != 1<<s.Bits:
		return fmt.Errorf("toeplitz: weight 0 is %d, it must be 2^bits = %d", s.Weights[0], 1<<s.Bits)
	}
	for k, w := range s.Weights {
		if w < 0 || k > 0 && w > s.Weights[k-1] {
			return fmt.Errorf("toeplitz: weight %d is %d, it must lie between 0 and the weight before, %d", k, w, s.Weights[max(0, k-1)])
		}
	}
	return nil
}

// row returns m_t = Σ w_{t−j·every}, over j ≥ 0 with j·every ≤ t: what a client of length 1 adds to
// round t if it takes part in rounds 0, every, 2·every and so on, in units of 2^-Bits. That is the
// worst pattern for the sum of squares over rounds 0 to t. In round t alone a client may add more,
// up to Row(t − t%every, every). A t below 0 gives 0; an invalid strategy, or every below 1, MaxInt64.
func (s Strategy) row(t, every int64) int64 {
	if s.Validate() != nil || every < 1 {
		return math.MaxInt64
	}
	if t < 0 {
		return 0
	}
	n := int64(len(s.Weights))
	var m int64
	for i := t % every; i < n && i <= t; i += min(every, n) {
		m += s.Weights[i]
	}
	return m
}

// Squared returns Σ Row(t, every)²/4^Bits over t < rounds, exactly and then rounded up: the squared
// sensitivity of rounds 0 to rounds−1 together. One client that takes part in at most one of any
// `every` rounds changes Y_t/2^Bits by Δ_t, and Σ|Δ_t|² ≤ D²·Squared over these rounds, in two
// cases: its vectors have length at most D/2, whatever its data; or two data sets have it take part
// in the same rounds, with vectors at most D apart. It does not matter which rounds were void, nor
// how all that depends on earlier releases. With noise σ in each coordinate of Z_t the rounds are
// D·√Squared·2^Bits/σ in Gaussian privacy.
//
// Upper bound, proved: toeplitz.md, Theorem 1; equality for the rounds 0, every, 2·every and so on. An
// invalid strategy, rounds below 0 or every below 1 give +Inf.
func (s Strategy) Squared(rounds, every int64) float64 {
	return s.Between(0, rounds, every)
}

// Between returns what rounds from ≤ t < to add to Squared, rounded up. It is an increment: it bounds
// what these rounds cost only together with all rounds before them, for a client's largest
// effect on some rounds alone may be larger.
func (s Strategy) Between(from, to, every int64) float64 {
	if s.Validate() != nil || from < 0 || to < from || every < 1 {
		return math.Inf(1)
	}
	m := s.rows(every)
	sum := s.squares(m, to, every)
	sum.Sub(sum, s.squares(m, from, every))
	up := new(big.Float).SetPrec(53).SetMode(big.ToPositiveInf).SetInt(sum)
	f, _ := up.SetMantExp(up, -2*s.Bits).Float64()
	return f
}

// Together returns the σ of one release, in sigma's unit, that costs what rounds from ≤ t < to add to what those
// before cost, where sigma is the σ of a round's release over the weight of its own vectors: one release has
// μ = 2/σ. +Inf: they add nothing.
//
// Rounded down. As Between it holds only together with all rounds before; what it refuses gives 0.
func (s Strategy) Together(sigma float64, from, to, every int64) float64 {
	return sigma / math.Sqrt(s.Between(from, to, every)) * (1 - 0x1p-49)
}

// rows returns m_t for t < len(Weights). Later ones repeat: m_t = m_{t−every}.
func (s Strategy) rows(every int64) []int64 {
	m := append([]int64(nil), s.Weights...)
	for t := every; t < int64(len(m)); t++ {
		m[t] += m[t-every]
	}
	return m
}

// squares returns Σ m_t² over t < rounds, m from rows.
func (s Strategy) squares(m []int64, rounds, every int64) *big.Int {
	n := int64(len(m))
	var sum, square, times big.Int
	for t := range min(n, rounds) {
		count := int64(1)
		if t >= n-every { // of the last period: rows t+every, t+2·every, … are alike
			count += (rounds - 1 - t) / every
		}
		square.SetInt64(m[t])
		square.Mul(&square, &square)
		sum.Add(&sum, square.Mul(&square, times.SetInt64(count)))
	}
	return &sum
}

// Identity is independent noise: one weight.
func Identity(bits int) Strategy {
	return Strategy{Bits: bits, Weights: []int64{1 << max(0, min(bits, MostBits))}}
}

// squareRoot returns the first `band` coefficients of (1−x)^(−1/2), the square root of the matrix of
// prefix sums: c_k = c_{k−1}·(2k−1)/(2k). Fichtenberger, Henzinger, Upadhyay 2022
// (arXiv:2202.11205); banded, Kalinin and Lampert 2024 (arXiv:2405.13763).
func squareRoot(band, bits int) (Strategy, error) {
	if band < 1 || band > MostWeights {
		return Strategy{}, fmt.Errorf("toeplitz: band = %d must lie between 1 and %d", band, MostWeights)
	}
	return rounded(root(band), bits)
}

// root returns n coefficients of (1−x)^(−1/2).
func root(n int) []float64 {
	c := make([]float64, n)
	c[0] = 1
	for k := 1; k < n; k++ {
		c[k] = c[k-1] * (float64(2*k-1) / float64(2*k))
	}
	return c
}

// rounded returns the strategy of the weights 2^bits·c_k, each rounded to the nearest integer.
// Zeros at the end are left out.
func rounded(c []float64, bits int) (Strategy, error) {
	if bits < 0 || bits > MostBits {
		return Strategy{}, fmt.Errorf("toeplitz: bits = %d must lie between 0 and %d", bits, MostBits)
	}
	w := make([]int64, 0, len(c))
	for _, v := range c {
		k := int64(math.Floor(float64(v*float64(int64(1)<<bits)) + .5))
		if k == 0 {
			break
		}
		w = append(w, k)
	}
	s := Strategy{Bits: bits, Weights: w}
	return s, s.Validate()
}
