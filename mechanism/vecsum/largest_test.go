package vecsum

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// Honest clients' means stay below MeanBound, a false alarm having a chance of 1e-9
// each, and are not far below it.
func TestMeanBound(t *testing.T) {
	for _, noise := range []Noise{{Kind: Binomial, Bits: 64}, {Kind: Binomial, Bits: 200, P: .1}, {Kind: Skellam, Variance: 9}, {Kind: DiscreteGaussian, Variance: 9}} {
		for _, split := range []bool{false, true} {
			for _, dim := range []int{1, 3, 500} {
				p := Params{Users: 30, Dim: dim, Radius: 2, Grid: 64, Noise: noise, Split: split}
				p.Norm = Norm(dim, p.Grid, 0)
				e, err := NewEncoder(p)
				if err != nil {
					t.Fatal(err)
				}
				src := rng.Replay(5, uint64(dim))
				x, counts, sum := make([]float32, dim), make([]int64, p.Streams()), make([]int64, p.Streams())
				for j := range x {
					x[j] = float32(2 / math.Sqrt(float64(dim)) * .999)
				}
				for range p.Users {
					if err := e.Encode(src, x, counts); err != nil {
						t.Fatal(err)
					}
					for j, c := range counts {
						sum[j] += c
					}
				}
				mean := make([]float64, dim)
				if err := p.Estimate(mean, sum, p.Users); err != nil {
					t.Fatal(err)
				}
				var square float64
				for _, v := range mean {
					square += v * v
				}
				got, bound := math.Sqrt(square)/float64(p.Users), p.MeanBound(p.Users, 1e-9)
				if !(got <= bound) || dim == 500 && !(bound < 3*got) {
					t.Errorf("%+v, d = %d, split %t: a mean of length %v, at most %v", noise, dim, split, got, bound)
				}
				// Whatever one client puts into a sum that is in its range: no farther.
				wide := p.Largest() * p.Radius / float64(p.Users)
				far := make([]int64, len(sum))
				below, above := p.Noise.reach(p.Users)
				for j := range far {
					far[j] = int64(above) + p.Users*p.top()
					if split && j >= dim {
						far[j] = -int64(below)
					}
				}
				if err := p.Estimate(mean, far, p.Users); err != nil {
					t.Fatal(err)
				}
				square = 0
				for _, v := range mean {
					square += v * v
				}
				if shift := math.Sqrt(square) / float64(p.Users); !(shift <= wide*(1+1e-9)) {
					t.Errorf("%+v, d = %d, split %t: a sum at its end is %v off, at most %v", noise, dim, split, shift, wide)
				}
			}
		}
	}
}
