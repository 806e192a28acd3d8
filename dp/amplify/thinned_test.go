package amplify

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// Spans of the number of honest reports that arrive cover its law: all of the chance of each
// number fits into spans that hold it. The law is summed over all draws.
func TestThinnedCoversAllNumbers(t *testing.T) {
	choose := func(n, k int64) float64 {
		log := func(x int64) float64 { l, _ := math.Lgamma(float64(x + 1)); return l }
		if k < 0 || k > n {
			return math.Inf(-1)
		}
		return log(n) - log(k) - log(n-k)
	}
	type setting struct {
		n, c, k int64
		gamma   float64
	}
	settings := []setting{{4000, 2000, 2000, .9}, {20000, 19000, 10000, .5}, {5000, 1, 100, .01}, {30, 29, 30, .5}}
	if longtest.On {
		settings = append(settings, setting{20000, 8000, 10000, .999})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		n := 2 + r.Int64N(400)
		settings = append(settings, setting{n, 1 + r.Int64N(n-1), 1 + r.Int64N(n), []float64{.01, .3, .9, .999, 1 - 1e-9}[r.IntN(5)]})
	}
	wide := int64(0)
	for _, s := range settings {
		honest := s.n - s.c
		chance := make([]float64, honest+1)
		for h := max(0, s.k-s.c); h <= min(s.k, honest); h++ {
			drawn := choose(honest, h) + choose(s.c, s.k-h) - choose(s.n, s.k)
			if drawn < -80 {
				continue
			}
			for a := range h + 1 {
				if l := drawn + choose(h, a) + float64(a)*math.Log(s.gamma) + float64(h-a)*math.Log1p(-s.gamma); l > -80 {
					chance[a] += math.Exp(l)
				}
			}
		}
		a := FamilyArrival{Population: s.n, Asked: s.k, Gamma: s.gamma, Colluders: s.c}
		spans := a.spans(blockWidth(arrivalError))
		for _, b := range spans {
			if b.First == 0 && b.Last > 0 && b.Weight > 1e-15 {
				t.Errorf("%+v: no report and some are in one span of weight %v", s, b.Weight)
			}
			if b.Weight > 1e-6 {
				wide = max(wide, b.Last-b.First)
			}
		}
		// The smallest numbers first, into the span that ends first: if anything fits, this does.
		slices.SortFunc(spans, func(x, y spanned) int { return int(x.Last - y.Last) })
		for k, w := range chance {
			w *= 1 - 1e-8 // what this law itself may err by
			for i := range spans {
				if b := &spans[i]; b.First <= int64(k) && int64(k) <= b.Last && w > 0 {
					take := min(w, b.Weight)
					b.Weight -= take
					w -= take
				}
			}
			if w > 1e-22 {
				t.Fatalf("%+v: of the chance %v that %d reports arrive, %v is in no span", s, chance[k], k, w)
			}
		}
	}
	if wide < 10 {
		t.Errorf("no span is wider than %d: nothing was joined", wide)
	}
}
