package audit

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/internal/tail"
)

// Both limits by their definition for all outcomes of few trials: for every p
// the outcomes whose limit misses p have probability at most alpha, and for the
// limit itself nearly alpha (it is not needlessly wide).
func TestLimitsCover(t *testing.T) {
	for _, n := range []int64{1, 5, 30} {
		for _, alpha := range []float64{.5, .05, 1e-6} {
			low, high := make([]float64, n+1), make([]float64, n+1)
			for k := range low {
				low[k], high[k] = lowerLimit(int64(k), n, alpha), upperLimit(int64(k), n, alpha)
				if !(0 <= low[k] && low[k] < high[k] || alpha == .5) || high[k] > 1 {
					t.Fatalf("n = %d, k = %d: limits %v and %v", n, k, low[k], high[k])
				}
			}
			for p := .001; p < 1; p += .0037 {
				var below, above float64 // p is below the lower, above the upper limit
				for k := range low {
					mass := math.Exp(tail.LogPMF(n, int64(k), p, 1-p))
					if p < low[k] {
						below += mass
					}
					if p > high[k] {
						above += mass
					}
				}
				if below > alpha || above > alpha {
					t.Errorf("n = %d, p = %v: missed with %v and %v, allowed %v", n, p, below, above, alpha)
				}
			}
			for k := int64(1); k <= n; k++ {
				if got := tail.Survival(n, k, low[k], 1-low[k]); got > alpha || got < alpha*(1-1e-6) {
					t.Errorf("n = %d, k = %d: lower limit has tail %v, want %v", n, k, got, alpha)
				}
			}
		}
	}
}

// Values of scipy.stats.beta.ppf (scipy 1.x, double precision): alpha = 5e-7.
func TestLimitsGolden(t *testing.T) {
	for _, c := range []struct {
		k, n      int64
		low, high float64
	}{
		{0, 1000, 0, 0.01440391433776},
		{1, 1000, 5.00000124875e-10, 0.01727990526121},
		{7, 100, 0.004628454098002, 0.2679251479701},
		{500, 1000, 0.4226439240004, 0.5773560759996},
		{99, 100, 0.8393624310007, 0.999999995},
		{250000, 500000, 0.4965401324069, 0.5034598675931},
		{3, 500000, 2.89495811312e-08, 4.42959944448e-05},
		{499990, 500000, 0.9999292310405, 0.9999976377902},
		{12345, 1000000000, 1.180912453786e-05, 1.289718211539e-05},
	} {
		low, high := lowerLimit(c.k, c.n, 5e-7), upperLimit(c.k, c.n, 5e-7)
		if math.Abs(low-c.low) > 1e-7*c.low || math.Abs(high-c.high) > 1e-7*c.high {
			t.Errorf("%d of %d: %.12g … %.12g, want %.12g … %.12g", c.k, c.n, low, high, c.low, c.high)
		}
	}
}

func TestLowerBound(t *testing.T) {
	if got := lowerBound(0, 0, 100, .01); got != 0 {
		t.Errorf("nothing seen gives %v", got)
	}
	if got := lowerBound(40, 60, 100, .01); got != 0 {
		t.Errorf("an event that is rarer gives %v", got)
	}
	// Of n sure against n impossible: (α/2)^(1/n) against 1−(α/2)^(1/n).
	p := math.Pow(.005, .01)
	if got, want := lowerBound(100, 0, 100, .01), math.Log(p/(1-p)); math.Abs(got-want) > 1e-7 {
		t.Errorf("a sure event gives %v, want %v", got, want)
	}
	last := -1.
	for n := int64(100); n <= 1e12; n *= 10 { // more of the same says more
		got := lowerBound(n/5, n/20, n, 1e-6)
		if got < last || got > math.Log(4) {
			t.Errorf("n = %d gives %v after %v", n, got, last)
		}
		last = got
	}
	if last < math.Log(4)*.9999 {
		t.Errorf("1e12 reports give only %v", last)
	}
}
