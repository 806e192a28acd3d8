package mechanism

import (
	"fmt"
	"math/bits"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// AggregatedSum is a round of a vector sum whose noise is no part of the vectors, as a mechanism: the
// aggregators add it, or clients send it apart. A client's report is its rounded vector, without
// noise: it is private only as a part of the sum, after noise was added. Over a network it goes with
// proofs of its norm.
type AggregatedSum struct {
	vecsum.Aggregated // of the round; it does not change
	// Strategy says how the noise is correlated over rounds; without weights it is not. What is released
	// of a round is then of earlier ones, too: Recovered.
	Strategy toeplitz.Strategy

	deviation float64 // toeplitz.Strategy.Deviation; 1 if the noise is not correlated
	facts     randomizer.Facts
	promise   dp.Report
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
	m := &AggregatedSum{Aggregated: p, deviation: 1, promise: dp.Report{Class: dp.GaussianSum, Sigma: sigma}}
	each := bits.Len64(uint64(2 * p.Bound))
	name := aggregatedName
	if p.ByClients() {
		name = apartName
		each += bits.Len64(uint64(2 * p.NoiseBound()))
	}
	m.facts = randomizer.Facts{
		Name: name,
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

// NewCorrelatedSum returns the mechanism of rounds whose noise is correlated by the strategy that p was
// made for. sigma is that of one round's release (vecsum.Aggregated.Sigma). What rounds cost together is what
// Charged returns for them; Event is the promise of a release for a client that takes part in no other round.
func NewCorrelatedSum(p vecsum.Aggregated, strategy toeplitz.Strategy, sigma float64, reports int64) (*AggregatedSum, error) {
	m, err := NewAggregatedSum(p, sigma, reports)
	if err != nil {
		return nil, err
	}
	if err := strategy.Validate(); err != nil {
		return nil, fmt.Errorf("mechanism: %w", err)
	}
	var weight int64
	for _, w := range strategy.Weights {
		weight += w
	}
	if strategy.Bits != p.Bits || weight != p.Weight {
		return nil, fmt.Errorf("mechanism: weights of %d bits and %d in all, the noise is for %d and %d", strategy.Bits, weight, p.Bits, p.Weight)
	}
	m.Strategy, m.deviation = strategy, strategy.Deviation()
	return m, nil
}

// Correlation returns how the noise is correlated over rounds; ok says whether it is.
func (m *AggregatedSum) Correlation() (s toeplitz.Strategy, ok bool) {
	return m.Strategy, len(m.Strategy.Weights) > 0
}

// Charged returns the report as which rounds from < t ≤ to (from 1) are charged together, once, for clients
// that take part in one of any every rounds at most: all rounds up to `to`, of which those up to
// `from` were charged before. Rounds that add nothing to what those before cost are charged as
// dp.MaxSigma. Upper bound, proved: vecsum.md, section 11.
func (m *AggregatedSum) Charged(from, to, every int64) (dp.Report, error) {
	r := m.promise
	r.Sigma = min(m.Strategy.Together(r.Sigma, from, to, every), dp.MaxSigma)
	if to <= from || dp.CheckSigma(r.Sigma) != nil {
		return dp.Report{}, fmt.Errorf("mechanism: rounds %d to %d, every %d, have no noise that can be charged: %w", from+1, to, every, dp.ErrNoBound)
	}
	return r, nil
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
	return m.Aggregated.MeanBound(n, randomizer.MeanChance, m.deviation)
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

// Recovered stores the mean of n inputs of a round, of the sum that toeplitz.Recovery makes of what
// was released.
func (m *AggregatedSum) Recovered(mean, sum []float64, n int64) {
	for j, c := range sum {
		mean[j] = m.Step() * c / float64(n)
	}
}
