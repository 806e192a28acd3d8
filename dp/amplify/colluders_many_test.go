package amplify

import (
	"math"
	"runtime"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/tail"
)

// Long blocks of a law are summed as term by term, to 1e-10, at every distance from the mean.
func TestSumSmooth(t *testing.T) {
	const n = int64(1) << 38 // a deviation of 262,144
	for _, p := range []float64{.5, .2} {
		mean, deviation := float64(n)*p, math.Sqrt(float64(n)*p*(1-p))
		f := func(h int64) float64 { return math.Exp(tail.LogPMF(n, h, p, 1-p)) }
		for z := -30.; z <= 30; z += longtest.Pick(3, 1.5) {
			length := int64(deviation/4*math.Min(1, 9/math.Abs(z))) / 32 * 32
			first := int64(mean+z*deviation) - length/2
			var want float64
			for h := first; h <= first+length; h++ {
				want += f(h)
			}
			if got := sumSmooth(first, first+length, 32, f); !(math.Abs(got/want-1) < 1e-10) {
				t.Errorf("p = %v, z = %v: %.15g, sum %.15g (off by %.2g)", p, z, got, want, got/want-1)
			}
		}
	}
}

// Colluders and drop-outs among 2^52 clients: weights add up to 1 or hardly more, ends cover the number, and
// neither time nor memory grows as its deviation (400 million terms, several GB).
func TestColludersAmongVeryMany(t *testing.T) {
	for _, asked := range []int64{1 << 51, 1<<52 - 1<<40, 1<<52 - 1000} {
		colludersAmong(t, asked)
	}
}

func colludersAmong(t *testing.T, asked int64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a := FamilyArrival{Population: 1 << 52, Asked: asked, Gamma: .5, Colluders: 1 << 51}
	blocks := a.spans(blockWidth(arrivalError))
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1<<28 {
		t.Errorf("%d MB were used", used>>20)
	}
	var sum, low float64
	for _, b := range blocks {
		sum += b.Weight
		if float64(b.Last) < a.mean()-3e8 || float64(b.First) > a.mean()+3e8 {
			low += b.Weight // beyond ten deviations
		}
	}
	if !(sum >= 1 && sum < 1+1e-8) || !(low < 1e-15) {
		t.Errorf("%d blocks hold 1 + %.3g, %.3g of it far away", len(blocks), sum-1, low)
	}
}
