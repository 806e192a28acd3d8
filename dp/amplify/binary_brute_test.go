package amplify_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/longtest"
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
	for _, k := range longtest.Pick([]int{60, 700}, []int{60, 700, 1500}) {
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

// At large ε₀ one term of one dataset, all others holding 1, is exact and nearly
// everything.
func TestBinaryAtLargeEps0(t *testing.T) {
	for _, c := range []struct {
		eps0 float64
		k    int64
		eps  float64
	}{
		{18.07340571126094, 348914, 16.266065140134845}, {26.55873829989548, 111, 23.902864469905932},
		{15.931176990524113, 147151, 7.965588495262057}, {13.810215007365796, 10375, 13.800215007365797},
		{9.47, 2211, 9.4},
	} {
		f, err := amplify.RR2(c.eps0)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := f.Round(amplify.FamilyRound{Population: c.k, Reports: c.k, Included: c.k})
		if err != nil {
			t.Fatal(err)
		}
		delta := pair.Dropped()
		for _, a := range pair.Atoms {
			if a.Loss > c.eps {
				delta += a.Q * math.Exp(a.Loss) * -math.Expm1(c.eps-a.Loss)
			}
		}
		truth := -math.Expm1(c.eps-c.eps0) / (1 + math.Exp(-c.eps0)) * math.Exp(-float64(c.k-1)*math.Log1p(math.Exp(-c.eps0)))
		if !(delta >= truth*(1-1e-12)) {
			t.Errorf("%+v: delta %v, truly %v at least", c, delta, truth)
		}
	}
}

// No outcome leaves its range, whatever ε₀.
func TestFamiliesAtLargeEps0(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and one goroutine: nothing for the race detector")
	}
	src := rand.New(rand.NewPCG(3, 5))
	for range longtest.Pick(6, 60) {
		eps0, k := 20+30*src.Float64(), 2+int64(60*src.Float64())
		families := map[string]func() (amplify.Family, error){
			"rr2": func() (amplify.Family, error) { return amplify.RR2(eps0) }, "laplace": func() (amplify.Family, error) { return amplify.Laplace(eps0) },
			"krr": func() (amplify.Family, error) { return amplify.KRR(eps0, 2+int(1e6*src.Float64())) },
			"tv": func() (amplify.Family, error) {
				return amplify.KnownTV(eps0, src.Float64()/(math.Exp(eps0)+1))
			},
		}
		for name, make := range families {
			f, err := make()
			if err != nil {
				t.Fatal(err)
			}
			round, err := f.Round(amplify.FamilyRound{Population: k, Reports: k, Included: k})
			if err != nil {
				t.Fatal(err)
			}
			arrival, err := f.Arrival(amplify.FamilyArrival{Population: k, Asked: k, Gamma: .2 + .7*src.Float64()})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range append(round.Atoms, arrival.Atoms...) {
				if !(a.Q >= 0 && a.Loss > 0 && a.Loss <= eps0*(1+1e-9)) {
					t.Fatalf("%s, eps0 = %v, k = %d: outcome %+v", name, eps0, k, a)
				}
			}
		}
	}
}
