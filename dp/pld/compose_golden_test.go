package pld_test

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/pld"
	"github.com/riffle-dp/riffle/internal/golden"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// threePoint is a pair with losses ±L of equal total weight 1 − w and 0.
func threePoint(L, w float64) dp.Pair {
	return dp.Pair{Atoms: []dp.Atom{{Q: (1 - w) / (1 + math.Exp(L)), Loss: L}}}
}

// gaussPair is N(mu, 1) against N(0, 1) cut into cells of equal width in x;
// within a cell the loss is not constant, so the cell's own (p, q) would lose
// information. Each cell's ends carry its p and q instead: that dominates.
func gaussPair(mu float64) dp.Pair {
	const cells = 4000
	cdf := func(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
	upper := func(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }
	var p dp.Pair
	width := 9.0 / cells
	for i := range cells {
		a, b := mu/2+float64(i)*width, mu/2+float64(i+1)*width
		q := upper(a) - upper(b)
		pm := cdf(b-mu) - cdf(a-mu)
		la, lb := mu*a-mu*mu/2, mu*b-mu*mu/2
		// Split q so that q = qa + qb and pm = qa e^la + qb e^lb.
		qb := (pm - q*math.Exp(la)) / (math.Exp(lb) - math.Exp(la))
		qb = math.Max(0, math.Min(q, qb))
		if la > 0 {
			p.Atoms = append(p.Atoms, dp.Atom{Q: q - qb, Loss: la})
		}
		p.Atoms = append(p.Atoms, dp.Atom{Q: qb, Loss: lb})
	}
	p.Remainders = []dp.Remainder{{Mass: 4e-19, MaxLoss: math.Inf(1)}}
	return p
}

// Exact answers: the composition must lie above them for every step and tilt,
// and close for a fine step. Below means below by more than the golden value's
// own rounding.
func TestGoldenCompositions(t *testing.T) {
	count := 0
	for _, c := range golden.Rows(t, "compose.tsv", 1) {
		v := golden.Numbers(t, c[1:])
		L, w, times, eps, want := v[0], v[1], int64(v[2]), v[3], v[4]
		if eps < 0 {
			continue
		}
		if count++; !longtest.On && count%4 != 0 {
			continue
		}
		pair, steps := threePoint(L, w), []float64{L / 3, L / 1.7, L / 10.3}
		if c[0] == "gauss" {
			pair, steps = gaussPair(L), []float64{L / 3, L / 10.3}
		}
		// The tilt that is sharp at eps is near eps/variance; any must be sound.
		sharp := math.Max(0, eps/(float64(times)*(1-w)*L*L)-0.5)
		if c[0] == "rr" { // losses almost on the grid: nearly exact at some tilt
			best := 1.0
			for _, f := range []float64{0, 0.25, 0.5, 0.75, 1} {
				loss, err := pld.Discretize(pair, L/100.3)
				if err != nil {
					t.Fatal(err)
				}
				comp, err := pld.Compose([]pld.Part{{Loss: loss, Times: times}}, f*sharp)
				if err != nil {
					t.Fatal(err)
				}
				best = math.Min(best, comp.Delta(eps))
			}
			if !(best <= want*1.03+1e-17) {
				t.Errorf("%v: %.6g far above the true %.6g", c, best, want)
			}
		}
		for _, step := range steps {
			for _, tilt := range []float64{0, sharp, 2 * sharp} {
				loss, err := pld.Discretize(pair, step)
				if err != nil {
					t.Fatal(err)
				}
				comp, err := pld.Compose([]pld.Part{{Loss: loss, Times: times}}, tilt)
				if err != nil {
					t.Fatalf("%v step %v tilt %v: %v", c, step, tilt, err)
				}
				got := comp.Delta(eps)
				if !(got >= math.Min(1, want)*(1-1e-9)) {
					t.Errorf("%v step %v tilt %v: %.17g below the true %.17g", c, step, tilt, got, want)
				}
				// One composition split in two parts is the same composition.
				if times > 1 && step == steps[0] {
					two, err := pld.Compose([]pld.Part{{Loss: loss, Times: 1}, {Loss: loss, Times: times - 1}}, tilt)
					if err != nil {
						t.Fatal(err)
					}
					if d := two.Delta(eps); !(d >= math.Min(1, want)*(1-1e-9)) {
						t.Errorf("%v in two parts: %v below %v", c, d, want)
					}
				}
				// ε(δ) inverts δ(ε) on the safe side.
				if e := comp.Epsilon(want); !(e >= eps*(1-1e-7)) {
					t.Errorf("%v step %v tilt %v: epsilon(true delta) = %v below %v", c, step, tilt, e, eps)
				}
			}
		}
	}
	if count < 40 {
		t.Fatalf("%d rows", count)
	}
}

// What plain floor rounding of losses would give is too small, and this
// comparison sees it.
func TestFloorRoundingIsCaught(t *testing.T) {
	const L, times = 0.01, 10000
	const eps, want = 3.5, 0.00030051833167320945 // compose.tsv
	step := L / 1.7                               // floor moves L to step; the masses under Q are kept
	low := pld.Loss{Step: step, Upper: make([]float64, 3)}
	low.Upper[1] = math.Exp(step) / (1 + math.Exp(L))
	low.Upper[0] = 1 - low.Upper[1]*(1+math.Exp(-step))
	comp, err := pld.Compose([]pld.Part{{Loss: low, Times: times}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got := comp.Delta(eps); got >= want*0.9 {
		t.Errorf("floor rounding gives %v, truth %v: the golden comparison is blind", got, want)
	}
}
