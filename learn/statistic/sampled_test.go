package statistic

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// Intervals by cumulants are those by the exact law of drawing and noise.
func TestSampledByCumulants(t *testing.T) {
	worst := 0.
	for _, clients := range []int64{3000, 100_000} {
		for _, share := range []float64{.1, .5, .9} {
			for _, kind := range []vecsum.Noise{{Kind: vecsum.Skellam, Variance: 15}, {Kind: vecsum.Skellam, Variance: 2}, {Kind: vecsum.Skellam, Variance: 300}} {
				reports := int64(share * float64(clients))
				kind.Variance /= float64(reports)
				law, err := OfClients(vecsum.Params{Users: reports, Dim: 2, Ones: 1, Radius: 1, Grid: 1, Noise: kind}, reports)
				if err != nil {
					t.Fatal(err)
				}
				r := Release{Reports: reports, Clients: clients, Law: law}
				for _, sum := range []float64{fewDrawn, 120, float64(reports) - 120, someDrawn - 1} {
					if math.Min(sum, float64(reports)-sum) < fewDrawn {
						continue
					}
					for _, chance := range []float64{.95, .99995} {
						low, high := r.ones(sum, chance)
						least, most := r.fewOnes(law.(*noise), sum, chance)
						// Exact ends are whole numbers of clients.
						unit := (most - least) / 2
						off := math.Max(math.Abs(low-least), math.Abs(high-most))
						worst = math.Max(worst, (off-1)/unit)
						if off > 1+.01*unit {
							t.Errorf("%v of %d of %d, noise %v, chance %v: %.1f..%.1f, exactly %.1f..%.1f", sum, reports, clients, kind.Variance*float64(reports), chance, low, high, least, most)
						}
					}
				}
			}
		}
	}
	t.Logf("off by %.2g of half an interval at most, beyond one client", worst)
}
