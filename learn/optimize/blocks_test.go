package optimize

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// clientsOracle is the mean of Σ(θ − c_i) + Laplace noise over the reporters.
func clientsOracle(src rng.Source, centres []float64, reporters func() []uint32) oracle {
	return func(theta, mean []float64) error {
		members := reporters()
		mean[0] = 0
		for _, i := range members {
			noise := float64(sample.Laplace(src, sample.Ratio{Num: 64, Den: 1})) / 64
			mean[0] += theta[0] - centres[i] + noise
		}
		mean[0] /= float64(len(members))
		return nil
	}
}

// TestBlockSGDFindsTheMean minimises the clients' mean squared distance, one
// block and its noisy reports at a time.
func TestBlockSGDFindsTheMean(t *testing.T) {
	const n, epochs = 1000, 40
	blocks, err := schedule.NewBlocks(n, 50)
	if err != nil {
		t.Fatal(err)
	}
	centres := make([]float64, n)
	for i := range centres {
		centres[i] = float64(i) / n // mean .4995
	}
	var order []uint32
	round := int64(0)
	oracle := clientsOracle(rng.Replay(5), centres, func() []uint32 {
		round++
		epoch, block := blocks.Of(round)
		if block == 0 {
			order = blocks.Draw(rng.Replay(6, uint64(epoch)), order)
		}
		from, to := blocks.Range(block)
		return order[from:to]
	})
	// Averaged over whole epochs, from the 11th on.
	o := newSGD(t, CLDPSGDConfig{Dim: 1, Schedule: constant(.05), AverageFrom: 10*blocks.PerEpoch + 1})
	if err := drive(o, oracle, epochs*blocks.PerEpoch); err != nil {
		t.Fatal(err)
	}
	got := make([]float64, 1)
	o.Model(got)
	// Noise of variance 2 in each of 30,000 reports that are averaged, about
	// .008 in the mean; .05 is six deviations (< 1e-8) and the seeds are fixed.
	if math.Abs(got[0]-.4995) > .05 {
		t.Errorf("reached %v, want .4995", got[0])
	}
}
