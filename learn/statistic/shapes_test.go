package statistic

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// Intervals of values hold for values of many shapes: what is left out of their variance because
// monotony evens it out is not proved.
func TestQuantileShapes(t *testing.T) {
	longtest.Only(t, "simulates 100 trees 400 times each")
	const n, reps = 3000, 400
	src := rng.Replay(19, 51)
	normal := make([]float64, n)
	sample.Gaussian(src, normal)
	shapes := map[string]func(u, z float64) float64{
		"normal":     func(_, z float64) float64 { return 30 + 12*z },
		"uniform":    func(u, _ float64) float64 { return 64 * u },
		"whole":      func(_, z float64) float64 { return math.Floor(30 + 6*z) },
		"falling":    func(u, _ float64) float64 { return -10 * math.Log(u) },
		"two values": func(u, _ float64) float64 { return 10.1 + 39.9*math.Ceil(u-.27) },
		"a gap":      func(u, z float64) float64 { return 20 + z + 24*math.Ceil(u-.5) },
		"heavy tail": func(_, z float64) float64 { return math.Exp(1.5 * z) },
		"crowded":    func(u, _ float64) float64 { return 64 * u * u * u * u },
	}
	least, sum, cases := 1., 0., 0.
	for name, value := range shapes {
		for _, levels := range []int{8, 10, 12} {
			for _, noise := range []float64{5, 18, 60} {
				q := quantiles{Question{Measure: "quantiles", Column: "t", High: 64, Ranks: []float64{.05, .25, .5, .9}, Levels: levels}}
				leaves := q.leaves()
				counts, left := make([]float64, q.dim()), make([]float64, leaves+1)
				for i, z := range normal {
					leaf := q.part(value((float64(i)+.5)/n, z), leaves)
					for l := 1; l <= levels; l++ {
						counts[1<<l-2+leaf>>(levels-l)]++
					}
					left[leaf+1]++
				}
				for j := range leaves {
					left[j+1] += left[j]
				}
				missed := make([]int, len(q.Ranks))
				y, e := make([]float64, len(counts)), make([]float64, len(counts))
				for range reps {
					sample.Gaussian(src, e)
					for i := range y {
						y[i] = counts[i] + noise*e[i]
					}
					b := consistent(y, levels, math.NaN(), noise*noise)
					b.edge = func(j int) float64 { return float64(j) }
					for i, p := range q.Ranks {
						leaf := 0.
						for left[int(leaf)+1] <= p*n {
							leaf++
						}
						if low, high := b.values(p, single); low > leaf || high < leaf+1 {
							missed[i]++
						}
					}
				}
				for i, m := range missed {
					share := 1 - float64(m)/reps
					least, sum, cases = math.Min(least, share), sum+share, cases+1
					if share < .95-3*.011 { // three standard errors
						t.Errorf("%s, %d levels, noise %v, rank %v: the interval holds in %.1f %%", name, levels, noise, q.Ranks[i], 100*share)
					}
				}
			}
		}
	}
	t.Logf("intervals hold in %.1f %% at least, in %.1f %% on average", 100*least, 100*sum/cases)
}
