package statistic

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// of returns the law of K-RR's counts for one symbol.
func kary(n int64, k int, eps0 float64) response {
	e := math.Exp(eps0)
	d := e + float64(k) - 1
	return response{n: n, truth: e / d, untruth: float64(k-1) / d, lie: 1 / d, unlie: (e + float64(k) - 2) / d}
}

// enumerated returns the law of the count, by adding one client after another.
func (r response) enumerated(t int64) []float64 {
	law := []float64{1}
	for i := range r.n {
		p, q := r.lie, r.unlie
		if i < t {
			p, q = r.truth, r.untruth
		}
		next := make([]float64, len(law)+1)
		for c, mass := range law {
			next[c] += mass * q
			next[c+1] += mass * p
		}
		law = next
	}
	return law
}

func TestResponseAgainstEnumeration(t *testing.T) {
	for _, r := range []response{kary(1, 2, .5), kary(7, 3, 2), kary(60, 2, 1), kary(60, 20, 4), kary(300, 5, 6)} {
		for of := int64(0); of <= r.n; of += max(1, r.n/7) {
			law := r.enumerated(of)
			var under float64
			for c, mass := range law {
				if got, want := r.below(of, int64(c), .5), under+mass/2; math.Abs(got-want) > 1e-12 {
					t.Errorf("%+v: below(%d, %d) = %.15g, want %.15g", r, of, c, got, want)
				}
				if got := r.below(of, int64(c), 1); math.Abs(got-under-mass) > 1e-12 {
					t.Errorf("%+v: below(%d, %d) with the whole chance = %.15g, want %.15g", r, of, c, got, under+mass)
				}
				if got := r.below(of, int64(c), 0); math.Abs(got-under) > 1e-12 {
					t.Errorf("%+v: below(%d, %d) without the chance = %.15g, want %.15g", r, of, c, got, under)
				}
				under += mass
			}
		}
	}
}

// The interval is the set of all numbers of clients that are not refused.
func TestResponseIntervalInverts(t *testing.T) {
	for _, r := range []response{kary(1, 2, .5), kary(40, 2, 1), kary(90, 20, 4), kary(150, 5, 6)} {
		for _, alpha := range []float64{.05, .001} {
			for c := int64(0); c <= r.n; c++ {
				low, high := int64(-1), int64(-1)
				for of := int64(0); of <= r.n; of++ {
					if b := r.below(of, c, .5); b >= alpha/2 && 1-b >= alpha/2 {
						if low < 0 {
							low = of
						}
						high = of
					}
				}
				gotLow, gotHigh := r.countInterval(c, alpha)
				if low < 0 {
					if end := gotLow; gotLow != gotHigh || end != 0 && end != r.n {
						t.Errorf("%+v: count %d, alpha %g: [%d, %d], want an end", r, c, alpha, gotLow, gotHigh)
					}
				} else if gotLow != low || gotHigh != high {
					t.Errorf("%+v: count %d, alpha %g: [%d, %d], want [%d, %d]", r, c, alpha, gotLow, gotHigh, low, high)
				}
			}
		}
	}
}

// What a law's surely promises holds for each number of clients, by enumeration; mid-p's intervals
// break it for some, else this test shows nothing.
func TestResponseSurelyCovers(t *testing.T) {
	broken := 0
	for _, r := range append([]response{kary(1, 2, .5), kary(40, 2, 1), kary(90, 20, 4)}, longtest.Pick(nil, []response{kary(150, 5, 6)})...) {
		for _, chance := range []float64{.95, .999} {
			covers := func(law Law, of int64) float64 {
				var covered float64
				for c, mass := range r.enumerated(of) {
					if low, high := law.interval(r.estimate(int64(c)), chance); low <= float64(of) && float64(of) <= high {
						covered += mass
					}
				}
				return covered
			}
			for of := range r.n + 1 {
				if covered := covers(r.surely(), of); covered < chance-1e-9 {
					t.Errorf("%+v: %d is in %.6f of the intervals, want %g", r, of, covered, chance)
				}
				if covers(r, of) < chance-1e-9 {
					broken++
				}
			}
		}
	}
	if broken == 0 {
		t.Error("mid-p holds everywhere")
	}
}

// The expansion and the sum agree where one takes over from the other.
func TestResponseExpansion(t *testing.T) {
	for _, r := range []response{kary(20_000_000, 2, 1), kary(100_000_000, 20, 3), kary(2_000_000_000, 100, 9)} {
		for _, of := range []int64{0, r.n / 10, r.n / 2} {
			v := r.countVariance(float64(of))
			for _, z := range []float64{-4, -2, -.3, 0, 1, 1.96, 4.5} {
				c := int64(math.Round(float64(of)*r.truth + float64(r.n-of)*r.lie + z*math.Sqrt(v)))
				near := r.expansion(float64(of), v, float64(c))
				var exact float64
				if v <= exactUpTo*exactUpTo {
					exact = r.below(of, c, .5)
				} else {
					continue
				}
				if math.Abs(near-exact) > 2e-8*math.Pow(exactUpTo/math.Sqrt(v), 3) {
					t.Errorf("%+v: t = %d, z = %g: expansion %.12g, sum %.12g, deviation %.4g", r, of, z, near, exact, math.Sqrt(v))
				}
			}
		}
	}
}

// TestResponseCoverage repeats a count many times. The chance of a false alarm is below 1e-6: 4,000
// draws of a share in [.93, .97] err by 5 standard deviations of .0035 at most.
func TestResponseCoverage(t *testing.T) {
	for i, c := range []struct {
		r  response
		of int64
	}{
		{kary(1000, 2, 3.68), 500}, {kary(1000, 20, 3.86), 30}, {kary(1_000_000, 1024, 10.348), 900},
		{kary(1_000_000, 2, 10.53), 250_000}, {kary(10_000, 20, 1), 400},
	} {
		src := rng.Replay(19, uint64(i))
		const times = 4000
		truths, err := sample.NewBinomial(c.of, c.r.truth)
		if err != nil {
			t.Fatal(err)
		}
		lies, err := sample.NewBinomial(c.r.n-c.of, c.r.lie)
		if err != nil {
			t.Fatal(err)
		}
		var holds int
		var sum float64
		held := map[int64]bool{} // by the count, of which few are likely
		for range times {
			counted := truths.Draw(src) + lies.Draw(src)
			hold, known := held[counted]
			if !known {
				low, high := c.r.countInterval(counted, .05)
				hold = low <= c.of && c.of <= high
				held[counted] = hold
			}
			if hold {
				holds++
			}
			sum += c.r.estimate(counted)
		}
		if share := float64(holds) / times; share < .935 || share > .97 {
			t.Errorf("%+v: %d is in %.4f of the intervals", c.r, c.of, share)
		}
		deviation := math.Sqrt(c.r.countVariance(float64(c.of))/times) / (c.r.truth - c.r.lie)
		if mean := sum / times; math.Abs(mean-float64(c.of)) > 5*deviation {
			t.Errorf("%+v: estimates have the mean %.4f, not %d; deviation %.4f", c.r, mean, c.of, deviation)
		}
	}
}
