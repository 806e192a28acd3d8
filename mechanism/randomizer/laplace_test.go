package randomizer

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// scale ≥ 2·unit/ε₀ in exact arithmetic: then two inputs, at most 2·unit steps
// apart, have a ratio of at most e^(2·unit/scale) ≤ E. And little is wasted.
func TestLaplaceScale(t *testing.T) {
	for _, eps0 := range []float64{0x1p-20, 1e-5, .001, 1. / 128, math.Nextafter(1./128, 0), .1, 1, math.Ln2, 2, 3, 7.7, 49, dp.MaxEps0} {
		m := as[*laplace](newLaplace(Config{Dim: 3, Radius: 1, Eps0: eps0}))
		spent := new(big.Rat).SetFrac(big.NewInt(2*m.unit), big.NewInt(1))
		spent.Mul(spent, new(big.Rat).SetFrac(new(big.Int).SetUint64(m.spread.Den), new(big.Int).SetUint64(m.spread.Num)))
		claim := new(big.Rat).SetFloat64(eps0)
		claim.Mul(claim, big.NewRat(1<<53-1, 1<<53)) // laplace.md, step 5, needs that much
		if spent.Cmp(claim) > 0 {
			t.Errorf("eps0 = %v: spends %v", eps0, spent.FloatString(20))
		}
		if got, _ := spent.Float64(); got < eps0*(1-1e-11) {
			t.Errorf("eps0 = %v: spends only %v", eps0, got)
		}
		if s := float64(m.spread.Num) / float64(m.spread.Den); s > 1<<24*(1+1e-9) || float64(m.limit) < 120*s {
			t.Errorf("eps0 = %v: scale %v does not fit, limit %d", eps0, s, m.limit)
		}
	}
}

// The rounded vector never leaves the ball of integers, whatever the floats;
// every coordinate goes to one of its two neighbours, and its mean is right.
func TestLaplaceRounding(t *testing.T) {
	top, inf, nan := float32(math.MaxFloat32), float32(math.Inf(1)), float32(math.NaN())
	for _, dim := range []int{1, 3, 1000} {
		m := as[*laplace](newLaplace(Config{Dim: dim, Radius: 1, Eps0: 2}))
		fill := func(f func(i int) float32) []float32 {
			x := make([]float32, dim)
			for i := range x {
				x[i] = f(i)
			}
			return x
		}
		for c, x := range [][]float32{
			fill(func(int) float32 { return top }),
			fill(func(i int) float32 { return []float32{inf, nan, -inf}[i%3] }),
			fill(func(i int) float32 { return float32(1/(3+float64(i))) * []float32{-1, 1}[i%2] }),
			fill(func(int) float32 { return float32(1 / float64(dim)) }),
			fill(func(int) float32 { return math.Nextafter32(float32(1/float64(dim)), 2) }),
			fill(func(i int) float32 { return .3 / float32(dim) }),
		} {
			clean := make([]float32, dim)
			sanitize(clean, x)
			size := math.Max(1, norm(clean, 1))
			k, src := make([]int32, dim), source(65, uint64(dim), uint64(c))
			var mean float64
			const n = 2000
			for range n {
				m.round(src, x, k)
				var all int64
				for i, v := range k {
					all += int64(max(v, -v))
					y := float64(clean[i]) * float64(m.unit) / size
					if math.Abs(float64(v)-y) > 1+1e-9 {
						t.Fatalf("d = %d, input %d: %v steps became %d", dim, c, y, v)
					}
				}
				if all > m.unit {
					t.Fatalf("d = %d, input %d: length %d of %d steps", dim, c, all, m.unit)
				}
				mean += float64(k[dim-1]) / n
			}
			// The last coordinate is two-valued: 7 standard errors of at most
			// half a step.
			y := float64(clean[dim-1]) * float64(m.unit) / size
			if math.Abs(mean-y) > 7*.5/math.Sqrt(n) {
				t.Errorf("d = %d, input %d: mean %v steps, want %v", dim, c, mean, y)
			}
		}
	}
}

// The noise of a whole report has the discrete Laplace law, in 40 cells.
func TestLaplaceLaw(t *testing.T) {
	t.Parallel()
	n := longtest.Pick(100_000, 300_000)
	if testing.Short() {
		n = 37_500
	}
	for i, eps0 := range []float64{1e-4, .5, 4, 40} {
		m := as[*laplace](newLaplace(Config{Dim: 2, Radius: 1, Eps0: eps0}))
		s := float64(m.spread.Num) / float64(m.spread.Den)
		x := []float32{-.25, .5} // whole steps
		at := float64(m.unit) / 2
		// P[noise ≤ k] for the law ∝ e^(−|k|/s).
		cdf := func(k float64) float64 {
			if k < 0 {
				return math.Exp(k/s) / (1 + math.Exp(-1/s))
			}
			return 1 - math.Exp(-(k+1)/s)/(1+math.Exp(-1/s))
		}
		const cells = 40
		counts, probs := make([]int64, cells), make([]float64, cells)
		edge := func(b int) float64 { return math.Round((float64(b) - cells/2) * s / 5) }
		last := 0.
		for b := range probs {
			p := 1.
			if b < cells-1 {
				p = cdf(edge(b + 1))
			}
			probs[b], last = p-last, p
		}
		r, src := m.NewReport(), source(66, uint64(i))
		for range n {
			m.Randomize(src, x, r)
			noise := float64(r.Value[1]) - at
			b := 0
			for b < cells-1 && noise > edge(b+1) {
				b++
			}
			counts[b]++
		}
		chiSquare(t, fmt.Sprintf("eps0 = %v", eps0), counts, probs)
	}
}

func TestLaplaceVariance(t *testing.T) {
	for _, eps0 := range []float64{.01, 1, 10} {
		m := as[*laplace](newLaplace(Config{Dim: 7, Radius: 3, Eps0: eps0}))
		want := 8 * 7 * 9 / (eps0 * eps0)
		if got := m.Facts().MSE; math.Abs(got/want-1) > 1e-6 {
			t.Errorf("eps0 = %v: error %v, want about %v", eps0, got, want)
		}
	}
}
