package amplify

import (
	"fmt"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/rdp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/tail"
)

// TestRoundAboveExact: merging outcomes may only lose, and next to nothing.
// Lost is measured in ε at equal δ.
func TestRoundAboveExact(t *testing.T) {
	worst := 0.
	for _, eps0 := range []float64{.01, .5, 1, 2, 5, 12, 40} {
		for _, k := range []int64{1, 2, 3, 7, 40, 300, 1500} {
			if k > 300 && (!longtest.On || testing.Short() || eps0 != 1 && eps0 != 5) {
				continue
			}
			for _, n := range []int64{k, 5 * k, 1000 * k} {
				if k >= 300 && n != 5*k && !longtest.On {
					continue
				}
				c := RoundConfig{Eps0: eps0, Population: n, Reports: k, Rate: Blanket(eps0)}
				p, err := Round(c)
				if err != nil {
					t.Fatal(err)
				}
				exact := exactPair(t, c)
				top := SampledLoss(eps0, float64(k)/float64(n))
				for _, share := range []float64{-.8, -.1, 0, .001, .01, .05, .2, .5, .9} {
					eps := share * top
					got, want := atomsDelta(p, eps), atomsDelta(exact, eps)
					if want < 1e-12 && eps > 0 {
						continue
					}
					if !(got >= want*(1-1e-9)-1e-16) {
						t.Errorf("eps0=%v k=%d n=%d eps=%v: merged %.17g below exact %.17g", eps0, k, n, eps, got, want)
					}
					if back := atomsDelta(exact, eps*(1-math.Copysign(1e-3, eps))); !(got <= back*(1+2e-3)+1e-15) {
						t.Errorf("eps0=%v k=%d n=%d eps=%v: merged %.9g costs more than .1 %% of eps (exact %.9g, there %.9g)", eps0, k, n, eps, got, want, back)
					}
				}
				for _, order := range []float64{1.1, 2, 5.5, 20} {
					got, want := rdp.Divergence(p, order), rdp.Divergence(exact, order)
					if !(got >= want*(1-1e-7)) || !(got <= want*1.003) {
						t.Errorf("eps0=%v k=%d n=%d order %v: merged %.12g, exact %.12g", eps0, k, n, order, got, want)
					}
					if order < 6 {
						worst = math.Max(worst, got/want-1)
					}
				}
			}
		}
	}
	t.Logf("largest relative excess in divergence of order < 6: %.2g", worst)
}

// TestRoundLarge: closed-form cells agree with the closed-form curve, at sizes
// where outcomes cannot be listed.
func TestRoundLarge(t *testing.T) {
	for _, k := range []int64{1e5, 3e8, 1e10, 1e12} {
		for _, eps0 := range []float64{.5, 3} {
			c := RoundConfig{Eps0: eps0, Population: 2 * k, Reports: k, Rate: Clones(eps0)}
			p, err := Round(c)
			if err != nil {
				t.Fatal(err)
			}
			curve, err := NewCurve(c)
			if err != nil {
				t.Fatal(err)
			}
			for _, delta := range []float64{.1, 1e-4, 1e-9, 1e-14} {
				eps, err := curve.Epsilon(delta)
				if err != nil {
					t.Fatal(err)
				}
				// The curve's own blocks lose up to 2e-4 of ε.
				if d := atomsDelta(p, eps*.9995); !(d >= curve.Delta(eps)*(1-1e-6)) {
					t.Errorf("k=%d eps0=%v delta=%v: merged pair has %v at .9995 eps", k, eps0, delta, d)
				}
				if d := atomsDelta(p, eps*1.0005); !(d <= delta) {
					t.Errorf("k=%d eps0=%v delta=%v: merged pair has %v at 1.0005 eps", k, eps0, delta, d)
				}
			}
		}
	}
}

// TestArrivalAboveExact holds the merged mixture against every k told apart.
func TestArrivalAboveExact(t *testing.T) {
	for _, c := range []ArrivalConfig{
		{Eps0: 1, Population: 1, Asked: 1, Gamma: .3}, {Eps0: 2, Population: 5, Asked: 5, Gamma: .2},
		{Eps0: 3, Population: 5, Asked: 2, Gamma: .9}, {Eps0: .7, Population: 300, Asked: 300, Gamma: .05},
		{Eps0: 2, Population: 1000, Asked: 250, Gamma: .5}, {Eps0: 2, Population: 400, Asked: 400, Gamma: 1},
	} {
		if c.Population == 1000 && !longtest.On {
			continue
		}
		c.Rate = Blanket(c.Eps0)
		p, err := Arrival(c)
		if err != nil {
			t.Fatal(err)
		}
		exact, err := CheckIn(CheckInConfig{Eps0: c.Eps0, Population: c.Population, Asked: c.Asked, Gamma: c.Gamma,
			Rate: c.Rate, Tail: 1e-40, Blocks: 4000})
		if err != nil {
			t.Fatal(err)
		}
		for _, share := range []float64{-.3, -.02, 0, .002, .01, .03, .1, .3} {
			eps := share * c.Eps0
			got, want := atomsDelta(p, eps), atomsDelta(exact, eps)
			if want < 1e-12 {
				continue
			}
			if !(got >= want*(1-1e-8)-1e-15) {
				t.Errorf("%+v eps=%v: merged %.17g below exact %.17g", c, eps, got, want)
			}
			if back := atomsDelta(exact, eps-math.Abs(eps)*1e-2); !(got <= back*1.02+1e-15) {
				t.Errorf("%+v eps=%v: merged %.9g costs more than 1 %% of eps (exact %.9g, there %.9g)", c, eps, got, want, back)
			}
		}
	}
}

// TestArrivalsCover: the blocks hold all of Bin(n, p).
func TestArrivalsCover(t *testing.T) {
	for _, n := range []int64{1, 2, 9, 1000, 1e6, 1e10} {
		for _, p := range []float64{1e-12, 1e-3, .4, .999, 1} {
			var sum float64
			next := map[int64]bool{}
			for _, b := range Arrivals(n, p) {
				if b.First > b.Last || b.First < 0 || b.Last > n || !(b.Weight >= 0) {
					t.Fatalf("n=%d p=%v: block %+v", n, p, b)
				}
				next[b.First] = true
				next[b.Last+1] = !next[b.Last+1] || true
				sum += b.Weight
			}
			if sum < 1-1e-12 || sum > 1+1e-9 {
				t.Errorf("n=%d p=%v: weights add to %v", n, p, sum)
			}
			if !next[0] || !next[n+1] {
				t.Errorf("n=%d p=%v: 0 or n is in no block", n, p)
			}
		}
	}
}

// TestCloneBlocksCover: for every c the weights at or below c cover Pr[C ≤ c].
func TestCloneBlocksCover(t *testing.T) {
	for _, n := range []int64{0, 1, 2, 30, 4000} {
		for _, p := range []float64{1e-9, .02, .5, .97, 1} {
			for _, width := range []int64{1, 3, 100} {
				blocks := cloneBlocks(n, p, width)
				exact := make([]float64, n+1)
				for c := range exact {
					exact[c] = math.Exp(logPMF(n, int64(c), p))
				}
				below := 0.
				for c := int64(0); c <= n; c++ {
					below += exact[c]
					var sum float64
					for _, b := range blocks {
						if b.clones <= c {
							sum += b.weight
						}
					}
					if !(sum >= below*(1-1e-12)) {
						t.Errorf("n=%d p=%v width=%d: blocks up to %d hold %v of %v", n, p, width, c, sum, below)
						break
					}
				}
			}
		}
	}
}

func FuzzRound(f *testing.F) {
	f.Add(1.0, int64(100), int64(10), .5)
	f.Add(50.0, int64(1e6), int64(1e6), 1.0)
	f.Add(1e-200, int64(3), int64(3), 1e-9)
	f.Fuzz(func(t *testing.T, eps0 float64, n, k int64, gamma float64) {
		check := func(p dp.Pair, err error) {
			if err != nil {
				return
			}
			for _, a := range p.Atoms {
				if !(a.Q > 0) || !(a.Loss >= 0) || !(a.Loss <= eps0*(1+1e-9)) {
					t.Errorf("atom %+v", a)
				}
			}
		}
		check(Round(RoundConfig{Eps0: eps0, Population: n, Reports: k, Rate: Blanket(eps0)}))
		if n < 1e6 {
			check(Arrival(ArrivalConfig{Eps0: eps0, Population: n, Asked: k, Gamma: gamma, Rate: Blanket(eps0)}))
		}
	})
}

func BenchmarkRound(b *testing.B) {
	for _, k := range []int64{1e3, 1e4, 6e4, 1e6, 1e9, 1e12} {
		b.Run(fmt.Sprintf("k=%g", float64(k)), func(b *testing.B) {
			for b.Loop() {
				if _, err := Round(RoundConfig{Eps0: 2, Population: k, Reports: k, Rate: Blanket(2)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkArrival(b *testing.B) {
	for b.Loop() {
		if _, err := Arrival(ArrivalConfig{Eps0: 1, Population: 1e7, Asked: 1e7, Gamma: 1e-3, Rate: Blanket(1)}); err != nil {
			b.Fatal(err)
		}
	}
}

func logPMF(n, k int64, p float64) float64 { return tail.LogPMF(n, k, p, 1-p) }
