package train

import (
	"math"
	"strconv"

	"github.com/riffle-dp/riffle/randomizer"
)

// tuned is a clip and a learning rate, chosen on a validation split
// (EXPERIMENTS.md), and the noise they were chosen at: the squared noise of a
// coordinate of the mean, in units of the squared clip; 0: no noise.
type tuned struct{ clip, rate, noise float64 }

var (
	// PrivUnit: ε₀ = 3, 60,000 reports a round.
	tunedEuclidean = tuned{clip: 0.2, rate: 10, noise: 0.743 / 60000}
	// R∞ with coordinate clipping: ε₀ = 3, 50,000 reports, 1,930 parameters.
	tunedInf = tuned{clip: 0.02, rate: 2, noise: 1.22 * 1930 / 50000}
	// R_1: ε₀ = 3, 50,000 reports.
	tunedAbsolute = tuned{clip: 1, rate: 2, noise: 1.22 / 50000}
	// Networks: the best of few rates; PrivUnit, ε₀ = 3, 45,000 reports.
	tunedMLP = tuned{clip: 0.2, rate: 3, noise: 0.743 / 45000}
	// Networks without privacy, by small batches: clipping hardly matters.
	tunedPlain = tuned{clip: 10, rate: 0.05}
)

// network says whether the model has hidden layers.
func (c Config) network() bool { return c.Model == "cnn" || c.Model == "pca-mlp" }

func (c Config) tuned() tuned {
	switch p := c.norm(); {
	case c.Trust == "none" && c.network():
		return tunedPlain
	case math.IsInf(p, 1):
		return tunedInf
	case p == 1:
		return tunedAbsolute
	case c.network():
		return tunedMLP
	}
	return tunedEuclidean
}

// defaultRate is the learning rate for a mechanism: the tuned one for the
// noise it was tuned at, and a smaller one for more noise. The power was read
// off PrivUnit's best rates at ε₀ = 3 and ε₀ = 2; EXPERIMENTS.md.
func (c Config) defaultRate(m randomizer.Mechanism) string {
	t := c.tuned()
	rate := t.rate
	if t.noise > 0 {
		noise := m.MSE() / (c.Clip * c.Clip * float64(m.Dim()) * c.ExpectedReports())
		rate *= t.clip / c.Clip * math.Min(1, math.Pow(noise/t.noise, -0.7))
	}
	return strconv.FormatFloat(rate, 'g', 2, 64)
}
