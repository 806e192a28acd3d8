package toeplitz

import (
	"fmt"
	"math"
)

const (
	// MostBuffers bounds the buffers of bufferedStrategy.
	MostBuffers = 4
	// mostBuffered bounds its rounds.
	mostBuffered = 1 << 15
)

// bufferedStrategy returns a buffered linear Toeplitz strategy: c_k = Σ_i ω_i·λ_i^(k−1) for k ≥ 1, with so
// many terms, as explicit weights for all rounds. Ω and λ are a local minimum of the rms error at
// equal sensitivity, as in Banded, of a fixed iteration, the same on every platform.
//
// With real numbers a row is made from as many sums as there are buffers. Shares and counts are
// integers modulo something and cannot be multiplied by λ, so here whoever makes rows holds every
// round's sum, as with any other weights. At most 2^15 rounds. Source: Dvijotham, McMahan,
// Pillutla, Steinke, Thakurta 2024 (arXiv:2404.16706); toeplitz.md, section 5.
func bufferedStrategy(rounds, every int64, buffers, bits int) (Strategy, error) {
	if rounds < 1 || rounds > mostBuffered || every < 1 {
		return Strategy{}, fmt.Errorf("toeplitz: rounds = %d must lie between 1 and %d, and every = %d be at least 1", rounds, mostBuffered, every)
	}
	if buffers < 1 || buffers > MostBuffers {
		return Strategy{}, fmt.Errorf("toeplitz: buffers = %d must lie between 1 and %d", buffers, MostBuffers)
	}
	t := newBlt(rounds, every, buffers)
	z := t.start()
	minimise(z, t.value)
	t.set(z)
	return rounded(t.c, bits)
}

// blt is a strategy that bufferedStrategy tries. A search's numbers are z_0 … for ω_i = z_i²/(1+Σz²), then
// as many for λ_i = z²/(1+z²): any z gives 1 ≥ c_1 ≥ c_2 ≥ … ≥ 0.
type blt struct {
	every         int64
	omega, lambda []float64
	c, m, slope   []float64 // one for each round
	y, b, adjoint []float64 // first columns of C⁻¹ and A·C⁻¹; what E changes by for a change in y
}

func newBlt(rounds, every int64, buffers int) *blt {
	long := func() []float64 { return make([]float64, rounds) }
	return &blt{
		every: every, omega: make([]float64, buffers), lambda: make([]float64, buffers),
		c: long(), m: long(), slope: long(), y: long(), b: long(), adjoint: long(),
	}
}

// start returns decays over times from 1 to all rounds, in about the shares that (1−x)^(−1/2) has.
func (t *blt) start() []float64 {
	n := len(t.omega)
	z := make([]float64, 2*n)
	ratio := float64(len(t.c)) + 1
	for range 3 { // the eighth root of the rounds, for four buffers
		ratio = math.Sqrt(ratio)
	}
	slow := 1.
	var sum float64
	for i := range n {
		slow = float64(slow * ratio)
		z[n+i] = math.Sqrt(slow) // 1 − λ = 1/(1 + slow)
		z[i] = 1 / math.Sqrt(1+slow)
		sum += z[i]
		slow *= ratio
	}
	for i := range n {
		z[i] = math.Sqrt(z[i] / sum) // Σω = ½
	}
	return z
}

// set takes ω, λ and c from z, and returns 1 + Σz² over those of ω.
func (t *blt) set(z []float64) float64 {
	n := len(t.omega)
	all := 1 + dot(z[:n], z[:n])
	for i := range n {
		t.omega[i] = float64(z[i]*z[i]) / all
		square := float64(z[n+i] * z[n+i])
		t.lambda[i] = square / (1 + square)
	}
	clear(t.c)
	for i, w := range t.omega {
		for k := 1; k < len(t.c); k++ {
			t.c[k] += w
			w *= t.lambda[i]
		}
	}
	t.c[0] = 1
	for k := range t.c[1:] { // rounding must not make them rise
		t.c[k+1] = min(t.c[k], t.c[k+1])
	}
	return all
}

// value returns E·S and sets grad to the slope of its logarithm, as trial.value does.
func (t *blt) value(z, grad []float64) float64 {
	all := t.set(z)
	e := t.errors()
	s := sensitivity(t.c, t.every, t.m, t.slope)
	n := len(t.omega)
	var mean float64
	for i := range n {
		byOmega, byLambda := t.slopes(i, e, s)
		mean += float64(t.omega[i] * byOmega)
		grad[i] = byOmega
		x := 1 + float64(z[n+i]*z[n+i])
		grad[n+i] = 2 * float64(byLambda*t.omega[i]) * z[n+i] / float64(x*x) // 2·(a·b) may be compiled as a·b + a·b
	}
	for i := range n {
		grad[i] = 2 * z[i] * (grad[i] - mean) / all
	}
	return e * s
}

// errors computes y and b, the adjoint ζ_t = Σ_{u≥t} 2(rounds−u)·b_u − Σ_{j≥1} c_j·ζ_{t+j}, and
// returns E. Sums over c run by buffers: σ_i(t) = Σ_k λ_i^(k−1)·y_{t−k}.
func (t *blt) errors() (e float64) {
	var sums [MostBuffers]float64
	rounds := len(t.c)
	var b float64
	for k := range rounds {
		y := 1.
		if k > 0 {
			y = -t.step(&sums, t.y[k-1])
		}
		b += y
		t.y[k], t.b[k] = y, b
		e += float64(float64(rounds-k) * float64(b*b))
	}
	clear(sums[:])
	var above, after float64
	for k := rounds - 1; k >= 0; k-- {
		above += float64(float64(2*(rounds-k)) * t.b[k])
		after = above - t.step(&sums, after)
		t.adjoint[k] = after
	}
	return e
}

// step takes one value into the buffers and returns Σ ω_i·σ_i.
func (t *blt) step(sums *[MostBuffers]float64, v float64) (out float64) {
	for i, w := range t.omega {
		sums[i] = float64(t.lambda[i]*sums[i]) + v
		out += float64(w * sums[i])
	}
	return out
}

// slopes returns the slopes of log E + log S by ω_i, and by λ_i over ω_i.
func (t *blt) slopes(i int, e, s float64) (byOmega, byLambda float64) {
	l := t.lambda[i]
	var sum, derived float64   // σ_i, and its slope by λ_i
	power, less := 1., 0.      // λ^(k−1), and its slope
	var e1, e2, s1, s2 float64 // of E and S
	for k := 1; k < len(t.c); k++ {
		derived = float64(l*derived) + sum
		sum = float64(l*sum) + t.y[k-1]
		e1 -= float64(t.adjoint[k] * sum)
		e2 -= float64(t.adjoint[k] * derived)
		s1 += float64(power * t.slope[k])
		s2 += float64(less * t.slope[k])
		less = float64(l*less) + power
		power *= l
	}
	return e1/e + s1/s, e2/e + s2/s
}
