//go:build soak

package optimize_test

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/learn/dataset"
	. "github.com/riffle-dp/riffle/learn/optimize"
)

// Default parameters at ε = 1 as n grows, with D the radius and, as in the
// paper, the diameter. About two minutes.
func TestExcessInN(t *testing.T) {
	const seeds = 3
	for _, kind := range []dataset.SyntheticKind{dataset.SyntheticLogistic, dataset.SyntheticHinge, dataset.SyntheticAbsolute} {
		for _, distance := range []float64{8, 16} {
			for _, n := range []int64{1e4, 1e5, 1e6} {
				e := newExperiment(t, kind, n, 0)
				accelerated, smoothness := "agd-smooth", 0.
				if kind == dataset.SyntheticLogistic {
					accelerated, smoothness = "agd", .2501
				}
				got := map[string]float64{}
				for _, method := range []string{"psgd", accelerated} {
					p := problem(n, smoothness)
					p.Distance = distance
					plan, err := NewPlan(method, p, Overrides{})
					if err != nil {
						t.Fatal(err)
					}
					var sum, square float64
					for seed := range uint64(seeds) {
						v := e.excess(t, e.run(t, plan, seed), 0)
						sum, square = sum+v/seeds, square+v*v/seeds
					}
					got[method] = sum
					t.Logf("%s n = %.0e D = %v %s: T = %d, smoothing %.3g, bound %.4f, excess %.5f ± %.5f", kind, float64(n), distance, method,
						plan.Batches.Rounds, plan.Stages[0].Smoothing, plan.Bound, sum, math.Sqrt(math.Max(0, square-sum*sum)*seeds/(seeds-1)))
				}
				// On the absolute loss, whose population is locally strongly
				// convex, untuned averaged SGD catches up by n = 1e6.
				if kind != dataset.SyntheticAbsolute && got[accelerated] > got["psgd"]*.8 {
					t.Errorf("%s, n = %d: %v", kind, n, got)
				}
				if kind == dataset.SyntheticLogistic && n == 1e6 && got[accelerated] > got["psgd"]/3 {
					t.Errorf("%s, n = %d: %v", kind, n, got)
				}
			}
		}
	}
}
