package mechanism

import (
	"fmt"
	"math/bits"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// AggregatedSum is a round of a vector sum whose noise the aggregators add, as a mechanism. A
// client's report is its rounded vector, without noise: it is private only as a part of the sum,
// after noise of the aggregators was added. Over a network it goes with proofs of its norm.
type AggregatedSum struct {
	vecsum.Aggregated // of the round; it does not change

	facts   randomizer.Facts
	promise dp.Report
}

var _ randomizer.Randomizer = (*AggregatedSum)(nil)

// NewAggregatedSum returns the mechanism of a round. sigma is the σ of the sum's noise that is
// charged, in units of the clip norm: see vecsum.Aggregated.Sigma, which also checks p. The facts hold for a round of
// the given number of reports, of which each has its share of the noise; privacy does not depend
// on it.
func NewAggregatedSum(p vecsum.Aggregated, sigma float64, reports int64) (*AggregatedSum, error) {
	if reports < 1 {
		return nil, fmt.Errorf("mechanism: %d reports of a round must be at least 1", reports)
	}
	m := &AggregatedSum{Aggregated: p, promise: dp.Report{Class: dp.GaussianSum, Sigma: sigma}}
	each := bits.Len64(uint64(2 * p.Bound))
	m.facts = randomizer.Facts{
		Name: aggregatedName,
		Dim:  p.Dim,
		MSE:  float64(p.Dim) * p.NoiseVariance(reports) / float64(reports),
		Bits: p.Dim * each, Bytes: (p.Dim*each + 7) / 8, // of a rounded vector; its shares are larger
		Largest: float64(p.Bound) / float64(p.Steps),
	}
	if p.Ones != 0 {
		m.facts.Largest /= p.Radius
	}
	return m, nil
}

// Facts returns the constants of the round. Largest is that of a rounded vector within the bound.
func (m *AggregatedSum) Facts() randomizer.Facts { return m.facts }

// Event is the promise of the sum with its noise. It says nothing about a single report.
func (m *AggregatedSum) Event() dp.Report { return m.promise }

// NewReport returns a report of one count per coordinate.
func (m *AggregatedSum) NewReport() *randomizer.Report {
	return &randomizer.Report{Value: make([]int32, m.Dim)}
}

// Randomize writes a client's rounded vector. It adds no noise. An input that is not finite counts
// as zero.
func (m *AggregatedSum) Randomize(src rng.Source, x []float32, r *randomizer.Report) {
	m.Round(src, x, r.Value)
}

// AddOnes adds what Randomize writes of a vector that has ones at places, each named once, and zeros
// elsewhere. It says whether the mechanism counts ones; if not it adds nothing.
func (m *AggregatedSum) AddOnes(sum []int64, places []int) bool {
	return addOnes(sum, places, m.Ones, m.Steps)
}

// Check bounds the norm of a client's counts.
func (m *AggregatedSum) Check(r *randomizer.Report) error {
	if len(r.Value) != m.Dim || len(r.Index) != 0 {
		return fmt.Errorf("mechanism: report with %d counts must have %d", len(r.Value), m.Dim)
	}
	var square float64 // of integers: sums below 2^53 are exact, and larger ones stay above the bound
	for _, v := range r.Value {
		square += float64(int64(v) * int64(v))
	}
	if !(square <= float64(m.Bound)*float64(m.Bound)) {
		return fmt.Errorf("mechanism: counts of squared norm %g above %d squared", square, m.Bound)
	}
	return nil
}

// Add adds checked counts.
func (m *AggregatedSum) Add(sum []int64, r *randomizer.Report) {
	sum = sum[:len(r.Value)]
	for j, v := range r.Value {
		sum[j] += int64(v)
	}
}

// MeanBound implements randomizer.Mechanism.
func (m *AggregatedSum) MeanBound(n int64) float64 {
	return m.Aggregated.MeanBound(n, randomizer.MeanChance)
}

// Estimate stores the unbiased mean of n inputs; zeros if no n clients have the sum.
func (m *AggregatedSum) Estimate(mean []float64, sum []int64, n int64) {
	if m.CheckSum(sum, n) != nil {
		clear(mean)
		return
	}
	for j, c := range sum {
		mean[j] = m.Step() * float64(c) / float64(n)
	}
}
