package amplify_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/amplify"
)

// Binary randomized response on every dataset of n clients, all k of n: the
// supremum is a bound, and it is attained without sampling.
func TestBinaryAgainstEveryDataset(t *testing.T) {
	worst, spread, trap := math.Inf(-1), 0., 0.
	for _, eps0 := range []float64{.1, 1, 2, 4} {
		m := krr(2, eps0)
		f := must(amplify.RR2(eps0))
		for n := 1; n <= 10; n++ {
			for k := 1; k <= n; k++ {
				if n > 6 && k < n {
					continue
				}
				claim := familyRound(t, f, n, k)
				blanket := familyRound(t, must(amplify.ClonesFamily(eps0, amplify.Blanket(eps0))), n, k)
				most := map[float64]float64{}
				for ones := range n {
					others := make([]int, n-1)
					for i := range ones {
						others[i] = 1
					}
					a, b := m.neighbours(1, 0, others)
					d := sampledPair(a, b, k)
					gap, at := excess(d, eps0, claim)
					worst = max(worst, gap)
					if gap > tolerance {
						t.Errorf("eps0=%v n=%d k=%d ones=%d eps=%v: truth exceeds by %v", eps0, n, k, ones, at, gap)
					}
					for _, s := range []float64{-.4, 0, .1, .3, .6} {
						for _, o := range []pair{d, d.swap()} {
							most[s] = max(most[s], o.hockey(s*eps0))
						}
					}
				}
				for s, v := range most {
					got := claim(s * eps0)
					if b := blanket(s * eps0); got > b*(1+1e-6) {
						t.Errorf("eps0=%v n=%d k=%d eps=%v: %v above the blanket %v", eps0, n, k, s*eps0, got, b)
					}
					if k == n {
						spread = max(spread, got/v-1)
						a, b := m.neighbours(1, 0, make([]int, n-1))
						d := pair{histogram(a), histogram(b)}
						trap = max(trap, v/max(d.hockey(s*eps0), d.swap().hockey(s*eps0))-1)
					}
				}
			}
		}
	}
	t.Logf("largest truth - bound %.3g; the bound is at most %.3g relative above the supremum; all others equal falls short by %.3g", worst, spread, trap)
	if spread > 5e-3 {
		t.Errorf("without sampling the bound is attained, but it lies %v above", spread)
	}
	if trap < .1 {
		t.Errorf("all others equal is within %v of the worst: the trap is not sprung", trap)
	}
}

// Larger rounds, datasets at random, against plain convolution.
func TestBinaryAgainstConvolution(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for _, k := range []int{60, 700, 1500} {
		for _, eps0 := range []float64{.3, 1.5, 4} {
			claim := familyRound(t, must(amplify.RR2(eps0)), k, k)
			E := math.Exp(eps0)
			hi, lo := E/(E+1), 1/(E+1)
			near := 0.
			for rep := range 12 {
				ones := r.IntN(k)
				if rep < 4 {
					ones = rep
				}
				law := []float64{1}
				add := func(p float64) {
					next := make([]float64, len(law)+1)
					for i, w := range law {
						next[i] += w * (1 - p)
						next[i+1] += w * p
					}
					law = next
				}
				for i := range k - 1 {
					if i < ones {
						add(hi)
					} else {
						add(lo)
					}
				}
				keep := law
				add(hi)
				one := law
				law = keep
				add(lo)
				d := pair{one, law}
				for _, s := range []float64{0, .02, .05, .1, .2} {
					for _, o := range []pair{d, d.swap()} {
						v, c := o.hockey(s*eps0), claim(s*eps0)
						if v > c*(1+1e-12)+1e-15 {
							t.Errorf("k=%d eps0=%v ones=%d eps=%v: truth %.15g above %.15g", k, eps0, ones, s*eps0, v, c)
						}
						if v > 1e-9 {
							near = max(near, v/c)
						}
					}
				}
			}
			t.Logf("k=%d eps0=%v: reaches %.5f of the bound", k, eps0, near)
			if near < .99 {
				t.Errorf("k=%d eps0=%v: reaches only %v of the bound", k, eps0, near)
			}
		}
	}
}
