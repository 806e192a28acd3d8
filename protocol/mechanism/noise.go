package mechanism

import (
	"fmt"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// Noise draws the noise that one aggregator adds to its share of a sum. For one sum each aggregator
// draws once: a second draw on the same reports is a second round. It is nil if clients add the noise.
func (m *AggregatedSum) Noise(src rng.Source) ([]int64, error) {
	if m.ByClients() {
		return nil, nil
	}
	return m.draw(src)
}

// draw draws the noise of an aggregator or a client.
func (m *AggregatedSum) draw(src rng.Source) ([]int64, error) {
	g, err := sample.NewDiscreteGaussian(sample.Ratio{Num: m.Variance, Den: 1})
	if err != nil {
		return nil, fmt.Errorf("mechanism: %w", err)
	}
	out := make([]int64, m.Dim)
	g.Fill(src, out)
	return out, nil
}
