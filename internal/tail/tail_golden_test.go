package tail

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/internal/golden"
)

func TestGoldenBinomial(t *testing.T) {
	for _, v := range golden.Table(t, "binomial.tsv", 150) {
		n, p, x, pmf, sf := int64(v[0]), v[1], int64(v[2]), v[3], v[4]
		z := (v[2] - v[0]*p) / math.Sqrt(v[0]*p*(1-p))
		// The promise in the package comment.
		if got := LogPMF(n, x, p, 1-p); math.Abs(got-pmf) > 1e-13+4e-16*math.Abs(pmf)+3e-16*z*z {
			t.Errorf("n=%d p=%v x=%d: log pmf %.17g, true %.17g, off by %.3g", n, p, x, got, pmf, got-pmf)
		}
		// Survival: LogPMF's error and 1e-12 more.
		if got := Survival(n, x, p, 1-p); sf > -690 {
			allow := 2e-12 + 4e-16*math.Abs(pmf) + 3e-16*z*z
			if want := math.Exp(sf); math.Abs(got-want) > want*allow+1e-320 {
				t.Errorf("n=%d p=%v x=%d: survival %.17g, true %.17g, relative %.3g", n, p, x, got, want, got/want-1)
			}
		}
		// Tail bounds must lie above the true tail.
		if got := UpperTail(n, x, p, 1-p); sf > -700 && !(math.Log(got) >= sf-1e-12*math.Abs(sf)-1e-12) {
			t.Errorf("n=%d p=%v x=%d: upper tail bound e^%v below the true e^%v", n, p, x, math.Log(got), sf)
		}
		// A window that may lose the exact tail above x must reach x-1 at least.
		if sf > -600 && sf < -1e-3 {
			if _, hi := Window(n, p, 1-p, 1e-300, math.Exp(sf)*0.999); hi < x {
				t.Errorf("n=%d p=%v: window loses Pr[X > %d], allowed less than Pr[X >= %d]", n, p, hi, x)
			}
		}
		// The mirrored tail, Pr[n - X' >= x] with X' ~ Bin(n, 1-p).
		if sf > -600 && sf < -1e-3 {
			if lo, _ := Window(n, 1-p, p, math.Exp(sf)*0.999, 1e-300); n-lo < x {
				t.Errorf("n=%d p=%v: lower window end %d loses too much", n, 1-p, lo)
			}
		}
	}
}

// PMF's recurrence against LogPMF, across fresh starts and in the far tail.
func TestPMFMatchesLogPMF(t *testing.T) {
	for _, c := range []struct {
		n int64
		p float64
	}{{50, .3}, {100000, .5}, {1000000, .01}, {1 << 40, .25}} {
		lo, hi := Window(c.n, c.p, 1-c.p, 1e-30, 1e-30)
		if hi-lo > 60000 {
			lo, hi = (lo+hi)/2-30000, (lo+hi)/2+30000
		}
		var sum float64
		next := lo
		PMF(c.n, c.p, 1-c.p, lo, hi, func(k int64, mass float64) {
			if k != next {
				t.Fatalf("visited %d, want %d", k, next)
			}
			next++
			sum += mass
			if want := math.Exp(LogPMF(c.n, k, c.p, 1-c.p)); math.Abs(mass-want) > want*3e-12 {
				t.Fatalf("n=%d k=%d: %v, want %v", c.n, k, mass, want)
			}
		})
		if next != hi+1 || sum > 1+1e-11 {
			t.Errorf("n=%d: stopped at %d of %d, mass %v", c.n, next-1, hi, sum)
		}
	}
}
