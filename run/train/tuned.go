package train

import (
	"math"
	"strconv"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

// tuned is a clip, a learning rate and a momentum, chosen on a validation split
// (docs/SEARCHES.md). noise is the noise at which they were chosen: the mean square of the noise
// in a coordinate of the mean, in units of the squared clip; 0: no noise. More noise lowers the rate. Less noise
// raises it, at most by the factor most (0 stands for 1).
type tuned struct{ clip, rate, momentum, noise, most float64 }

// histogramMomentum is that of models of gradient histograms whose rate is chosen too,
// usualMomentum that of all others.
const histogramMomentum, usualMomentum = .5, .9

var (
	// Single reports with a noise of 1.05: 60,000 a round.
	tunedEuclidean = tuned{clip: 0.2, rate: 20, momentum: histogramMomentum, noise: 1.05 / 60000, most: 4}
	// The same for shape-linear on Fashion-MNIST.
	tunedShape = tuned{clip: 0.2, rate: 40, momentum: histogramMomentum, noise: 1.05 / 60000, most: 4}
	// R∞ with coordinate clipping: ε₀ = 3, 50,000 reports, 1,930 parameters.
	tunedInf = tuned{clip: 0.02, rate: 2, momentum: usualMomentum, noise: 1.22 * 1930 / 50000}
	// R_1: ε₀ = 3, 50,000 reports.
	tunedAbsolute = tuned{clip: 1, rate: 2, momentum: usualMomentum, noise: 1.22 / 50000}
	// The papers' network: sums of about 1,000 reports at ε = 2, 400 rounds.
	tunedCNN = tuned{clip: 5, rate: 0.05, momentum: usualMomentum, noise: 0.0769 * 0.0769 / 1000}
	// pca-mlp: the best of few rates; PrivUnit, ε₀ = 3, 45,000 reports.
	tunedMLP = tuned{clip: 0.2, rate: 3, momentum: usualMomentum, noise: 0.743 / 45000}
	// Any model of a program: the rate of the papers' network for another clip.
	tunedExternal = tuned{clip: 1, rate: 0.25, momentum: .9, noise: 0.0769 * 0.0769 / 1000}
	// Networks without privacy, by small batches: clipping hardly matters.
	tunedPlain = tuned{clip: 10, rate: 0.05, momentum: usualMomentum}
)

// network says whether the model has hidden layers.
func (c LearningConfig) network() bool { return c.Model == cnn || c.Model == pcaMLP }

func (c Config) tuned() tuned {
	switch p := c.norm(); {
	case !c.Trust.Is(dp.Protecting) && c.network():
		return tunedPlain
	case math.IsInf(p, 1):
		return tunedInf
	case p == 1:
		return tunedAbsolute
	case c.Model == external:
		return tunedExternal
	case c.Model == cnn:
		return tunedCNN
	case c.network():
		return tunedMLP
	case c.Model == shapeLinear:
		return tunedShape
	}
	return tunedEuclidean
}

// defaultRate returns the learning rate for a mechanism: the tuned one at the noise it was
// tuned for, otherwise inversely proportional to the noise. The best rates for single reports,
// with one to eight messages, and vector sums at ε = .5 and 1 follow that rule; docs/SEARCHES.md.
func (c Config) defaultRate(m randomizer.Mechanism) string {
	t := c.tuned()
	rate := t.rate * (1 - c.Momentum.Value) / (1 - t.momentum) // a step acts for 1/(1 − momentum) rounds
	if t.noise > 0 {
		noise := c.clientMSE(m) / (c.Clip * c.Clip * float64(m.Facts().Dim) * c.expectedReports())
		rate *= t.clip / c.Clip * math.Min(math.Max(1, t.most), math.Sqrt(t.noise/noise))
	}
	return strconv.FormatFloat(rate, 'g', 2, 64)
}
