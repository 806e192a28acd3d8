package solve

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// aggregatedSum sums rounded gradients; each of two aggregators adds the whole noise to its share of
// the sum, so the released noise has twice the variance that is charged.
type aggregatedSum struct {
	config Config
	dim    int
	mu     float64
	stages
}

// twofold is the released variance beyond what the budget needs, as a share of it: that of the
// second aggregator, and what rounding and the longer norm bound add.
const twofold = 1 + overhead

func (m *aggregatedSum) noise() optimize.Noise {
	return optimize.GaussianNoise{Lipschitz: m.config.Clip, Mu: m.mu, Overhead: twofold}
}

// prepare designs a round for each stage, all with the same noise on the sum. With gd a client is
// in every round; with the other methods it is in one.
func (m *aggregatedSum) prepare(p *optimize.Plan) (eps, delta float64, err error) {
	uses := p.Batches.Uses
	sigma := 2 * math.Sqrt(float64(uses)) / m.mu
	for _, s := range p.Stages {
		most := s.Batch + 1 // sizes of a stage's batches differ by at most one
		params, err := vecsum.NewAggregated(most, m.dim, m.config.Clip, sigma)
		if err != nil {
			return 0, 0, err
		}
		worth, tail, err := params.Sigma(uses)
		if err != nil {
			return 0, 0, err
		}
		need := 2 * m.config.Clip / m.mu * math.Sqrt(float64(uses))
		if has := params.NoiseVariance(most); !(has <= need*need*(1+twofold)) {
			return 0, 0, fmt.Errorf("solve: rounds of %d clients in dimension %d: rounding adds more than %g of the noise's variance", most, m.dim, overhead)
		}
		rest := (m.config.Delta - tail) * (1 - 0x1p-50)
		if dp.CheckDelta(rest) != nil {
			return 0, 0, fmt.Errorf("solve: what rounded noise adds to delta, %v, leaves nothing of it: %w", tail, dp.ErrNoBound)
		}
		eps = math.Max(eps, gdp.Mu(2/worth*(1+1e-14)).Repeat(uses).Epsilon(rest))
		sum, err := mechanism.NewAggregatedSum(params, worth, s.Batch)
		if err != nil {
			return 0, 0, err
		}
		m.stages = append(m.stages, sum)
	}
	return eps, m.config.Delta, nil
}
