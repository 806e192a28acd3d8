package toeplitz

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// twoRows returns δ(ε) of two rows with N(0, σ²) added: the first moves by first, the second by
// second(y) where the first row was y·σ. The order is with the client against without.
func twoRows(eps, sigma, first float64, second func(y float64) float64) (delta float64) {
	const step, reach = 1e-2, 12
	mu := first / sigma
	for y := -reach + step/2; y < reach; y += step {
		density := math.Exp(-(y-mu)*(y-mu)/2) / math.Sqrt(2*math.Pi)
		delta += step * density * gdp.Mu(math.Abs(second(y))/sigma).Delta(eps-(mu*y-mu*mu/2))
	}
	return delta
}

// The client is in round 0, perhaps in round 1, and what row 1 has of it depends on the first release.
func TestAdaptiveRowsAreGaussian(t *testing.T) {
	s := Strategy{Bits: 1, Weights: []int64{2, 1}}
	moves := func(every int64) []float64 { // of row 1, in units of one vector
		if every > 1 {
			return []float64{0, .5}
		}
		return []float64{0, .5, -.5, 1, -1, 1.5}
	}
	src := rng.Replay(6)
	var words [24]uint64
	for _, sigma := range []float64{.7, 2} {
		for every := int64(1); every <= 2; every++ {
			bound := gdp.Mu(math.Sqrt(s.Squared(2, every)) / sigma)
			largest := math.Sqrt(s.Between(1, 2, every))
			for _, eps := range []float64{0, .3, 1, 4} {
				most := bound.Delta(eps)
				if full := twoRows(eps, sigma, 1, func(float64) float64 { return largest }); math.Abs(full-most) > 1e-5 {
					t.Errorf("sigma %v, every %d, ε = %v: the worst pattern has δ %v, the bound is %v", sigma, every, eps, full, most)
				}
				for range 10 {
					src.Fill(words[:])
					choice := moves(every)
					got := twoRows(eps, sigma, 1, func(y float64) float64 {
						cell := max(0, min(len(words)-1, int((y+3)*4)))
						return choice[words[cell]%uint64(len(choice))]
					})
					if got > most+1e-5 {
						t.Errorf("sigma %v, every %d, ε = %v: δ %v above %v", sigma, every, eps, got, most)
					}
				}
			}
		}
	}
	// The sum of squares must keep to the bound surely: on average is not enough.
	const sigma, eps = 2, 2
	spend := func(y float64) float64 { // 1.5² in half of the cases where the client is not there, else 0
		if y > 0 {
			return 1.5
		}
		return 0
	}
	mean := 1 + 1.5*1.5/2
	if got, most := twoRows(eps, sigma, 1, spend), gdp.Mu(math.Sqrt(mean)/sigma).Delta(eps); got <= most {
		t.Errorf("δ %v with %v on average, whose bound is %v: the test is blind", got, mean, most)
	}
}
