package randomizer

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// It has no pure guarantee, so it must not satisfy Randomizer: the type system
// is what keeps it out of the pure accounting.
func TestDiscreteGaussianIsNotPure(t *testing.T) {
	var m any = must(NewDiscreteGaussian(DiscreteGaussianConfig{3, 1, 1}))
	if _, ok := m.(Mechanism); !ok {
		t.Error("the discrete Gaussian is no Mechanism")
	}
	if _, ok := m.(Randomizer); ok {
		t.Error("the discrete Gaussian passes for a pure Randomizer")
	}
}

// In one dimension, two inputs at the ends of the ball: the Rényi divergence,
// summed over all integers within 12σ, is at most λρ and not far below.
func TestDiscreteGaussianZCDP(t *testing.T) {
	t.Parallel()
	for _, sigma := range longtest.Pick([]float64{.5, 1}, []float64{.5, 1, 4}) {
		m := must(NewDiscreteGaussian(DiscreteGaussianConfig{1, 3, sigma}))
		v := float64(m.variance)
		const shift = 2 * gaussianUnit
		for _, order := range []float64{1.5, 2, 5} {
			// log Σ p^λ q^(1−λ) − log Σ p, each over 12σ around its own peak; the
			// first one's lies at (1−λ)·shift.
			wide := int64(12*math.Sqrt(v)) + 1
			middle := (1 - order) * shift
			exponent := func(x float64) float64 { return (order*x*x + (1-order)*(x-shift)*(x-shift)) / (2 * v) }
			peak := exponent(middle)
			var a, b float64
			for k := -wide; k <= wide; k++ {
				a += math.Exp(peak - exponent(middle+float64(k)))
				b += math.Exp(-float64(k) * float64(k) / (2 * v))
			}
			d := (math.Log(a/b) - peak) / (order - 1)
			if d > order*m.zcdp() || d < .99*order*m.zcdp() {
				t.Errorf("sigma = %v, order %v: divergence %.9g, bound %.9g", sigma, order, d, order*m.zcdp())
			}
		}
	}
}

// Two inputs at the ends of a diameter, rounded with the same coins, lie up to
// 2·2^16 + √d steps apart: each coordinate of one falls by just less than a
// step where the other's rises.
func TestZCDPCoversTheRounding(t *testing.T) {
	for _, dim := range []int{1, 100, 4420, 1 << 20} {
		m := must(NewDiscreteGaussian(DiscreteGaussianConfig{dim, 3, 1}))
		far := 2*gaussianUnit + math.Sqrt(float64(dim))
		if want := far * far / (2 * float64(m.variance)); !(m.zcdp() >= want && m.zcdp() <= want*1.0001) {
			t.Errorf("d = %d: rho %.9g, the rounded inputs need %.9g", dim, m.zcdp(), want)
		}
	}
}

// The noise on a grid point is the discrete Gaussian with the stated variance,
// in cells of σ/4.
func TestDiscreteGaussianReportLaw(t *testing.T) {
	t.Parallel()
	n := 200_000
	if testing.Short() {
		n /= 8
	}
	m := must(NewDiscreteGaussian(DiscreteGaussianConfig{1, 1, .5}))
	r, src := m.NewReport(), source(40)
	counts, probs := make([]int64, 26), make([]float64, 26)
	for range n {
		m.Randomize(src, []float32{.25}, r)
		z := (float64(r.Value[0]) - .25*gaussianUnit + .5) / math.Sqrt(float64(m.variance))
		counts[int(math.Max(0, math.Min(25, math.Floor(4*z)+13)))]++
	}
	for c := range probs {
		lo, hi := float64(c-13)/4, float64(c-12)/4
		if c == 0 {
			lo = math.Inf(-1)
		}
		if c == 25 {
			hi = math.Inf(1)
		}
		probs[c] = (math.Erfc(-hi/math.Sqrt2) - math.Erfc(-lo/math.Sqrt2)) / 2
	}
	chiSquare(t, "discrete Gaussian report", counts, probs)
}
