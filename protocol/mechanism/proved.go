package mechanism

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// aggregatedName is the name of the sum whose noise the aggregators add, apartName of that to which clients
// add it, each in a vector of its own.
const (
	aggregatedName = sumPrefix + "by-" + string(vecsum.ByAggregators)
	apartName      = sumPrefix + "by-" + string(vecsum.ByClients)
)

// MostEps is the largest ε for which sums with proofs are counted: what a proof may show adds to δ
// in proportion to e^ε. See AggregatedSum.Tail.
const MostEps = dp.MaxEps0

// mostShown bounds log2 of what a proof may show of a vector (pine's ZeroKnowledge). Beyond it
// AggregatedSum.Tail could not be neglected.
const mostShown = -200

// mostHeld bounds the numbers that an aggregator holds, of sums of earlier rounds, where noise is correlated: 1 GiB.
const mostHeld = 1 << 27

// newProvedSum is New for a sum whose noise is no part of the vectors.
func newProvedSum(w wire.Mechanism) (*AggregatedSum, error) {
	s := w.Sum
	only := wire.Sum{Users: s.Users, Sigma: s.Sigma, NoiseBy: s.NoiseBy, Proofs: s.Proofs, Steps: s.Steps, Bound: s.Bound, Variance: s.Variance, Ones: s.Ones}
	by := wire.NoiseByAggregators
	if w.Name == apartName {
		by, only.MinUsers, only.Honest = wire.NoiseByClients, s.MinUsers, s.Honest
	}
	switch {
	case s.NoiseBy != by:
		return nil, fmt.Errorf("mechanism: %q with noise by %q", w.Name, s.NoiseBy)
	case s.Proofs != wire.ProofsPine:
		// Shares are numbers modulo that of a large field, so a client could add anything to the sum.
		return nil, fmt.Errorf("mechanism: noise by %s, apart from the vectors, needs proofs %q of each vector's norm over a network, not %q", by, wire.ProofsPine, s.Proofs)
	case s != only:
		return nil, fmt.Errorf("mechanism: %q with the noise of clients in their vectors", w.Name)
	case w.Name == apartName && len(w.Weights) == 0:
		return nil, fmt.Errorf("mechanism: %q without the weights of correlated noise", w.Name)
	case w.Name == apartName && s.MinUsers < 1:
		return nil, fmt.Errorf("mechanism: %q with noise of %d clients", w.Name, s.MinUsers)
	case w.Eps0 != 0 || w.Bits != 0 || w.ClipMode != "norm":
		return nil, fmt.Errorf("mechanism: %q with eps0 = %v, bits = %d, clip mode %q", w.Name, w.Eps0, w.Bits, w.ClipMode)
	}
	p := vecsum.Aggregated{Users: s.Users, Dim: int(w.Dim), Radius: w.Clip, Steps: s.Steps, Bound: s.Bound, Variance: s.Variance, Ones: int(s.Ones), MinUsers: s.MinUsers, Honest: s.Honest}
	strategy := toeplitz.Strategy{Bits: int(min(w.WeightBits, toeplitz.MostBits+1)), Weights: w.Weights}
	if len(w.Weights) == 0 && w.WeightBits != 0 || len(w.Weights) > wire.MaxWeights {
		return nil, fmt.Errorf("mechanism: %d weights of %d bits: at most %d", len(w.Weights), w.WeightBits, wire.MaxWeights)
	}
	if len(w.Weights) > 0 {
		if s.Ones != 0 {
			return nil, fmt.Errorf("mechanism: counts with correlated noise")
		}
		if w.Dim*int64(len(w.Weights)) > mostHeld {
			return nil, fmt.Errorf("mechanism: sums of %d rounds of %d coordinates would be held, more than %d numbers", len(w.Weights), w.Dim, mostHeld)
		}
		if err := strategy.Validate(); err != nil {
			return nil, fmt.Errorf("mechanism: %w", err)
		}
		p = p.Weighted(strategy)
	}
	if _, _, err := p.Sigma(1); err != nil { // it checks p
		return nil, err
	}
	if err := dp.CheckSigma(s.Sigma); err != nil {
		return nil, fmt.Errorf("mechanism: %w", err)
	}
	m, err := NewAggregatedSum(p, s.Sigma, s.Users)
	if err == nil && len(w.Weights) > 0 {
		m, err = NewCorrelatedSum(p, strategy, s.Sigma, s.Users)
	}
	if err != nil {
		return nil, err
	}
	r, err := m.Proved([32]byte{})
	if err != nil {
		return nil, err
	}
	if shown := r.ZeroKnowledge(); !(shown <= mostShown) {
		return nil, fmt.Errorf("mechanism: with norm bound %d a proof may show 2^%.0f of a vector, more than 2^%d: %w", p.Bound, shown, mostShown, dp.ErrNoBound)
	}
	return m, nil
}

// Describe is the inverse of New for a sum with proofs.
func (m *AggregatedSum) Describe() wire.Mechanism {
	p := m.Aggregated
	by := wire.NoiseByAggregators
	if p.ByClients() {
		by = wire.NoiseByClients
	}
	return wire.Mechanism{Name: m.facts.Name, Dim: int64(p.Dim), Clip: p.Radius, ClipMode: "norm",
		Weights: m.Strategy.Weights, WeightBits: int64(m.Strategy.Bits), Sum: wire.Sum{
			Users: p.Users, Sigma: m.promise.Sigma, NoiseBy: by, Proofs: wire.ProofsPine, MinUsers: p.MinUsers, Honest: p.Honest,
			Steps: p.Steps, Bound: p.Bound, Variance: p.Variance, Ones: int64(p.Ones)}}
}

// Proved returns the code that makes, checks and sums the reports of a round.
func (m *AggregatedSum) Proved(announcement [32]byte) (*proved.Round, error) {
	return proved.New(proved.Config{Dim: m.Dim, Bound: m.Bound, Users: m.Users, Noise: m.NoiseBound(), Announcement: announcement})
}

// Tail bounds what so many rounds add to δ in all, on top of what the event's Gaussian noise
// costs: the noise is rounded, and what one aggregator sees of a report is not quite independent
// of the vector. It holds for ε up to MostEps of all rounds together. See vecsum.md, sections 9 and 12.
func (m *AggregatedSum) Tail(rounds int64) (float64, error) {
	_, tail, err := m.Sigma(rounds)
	if err != nil {
		return 0, err
	}
	r, err := m.Proved([32]byte{})
	if err != nil {
		return 0, err
	}
	of := 1. // the client's vector, or also the noise of each client that may be there
	if m.ByClients() {
		of += float64(m.Users)
	}
	shown := (1 + math.Exp(MostEps)) * float64(rounds) * of * math.Exp2(r.ZeroKnowledge())
	return (tail + shown) * (1 + 0x1p-40), nil
}

func (m *AggregatedSum) checkSigma(delta float64, rounds int64) error {
	sigma, _, err := m.Sigma(rounds)
	if err != nil {
		return err
	}
	tail, err := m.Tail(rounds)
	if err != nil {
		return err
	}
	if !(tail <= vecsum.TailShare*delta) {
		return fmt.Errorf("mechanism: tails of %v are above %v of delta: %w", tail, vecsum.TailShare, dp.ErrNoBound)
	}
	if claimed := m.promise.Sigma; !(claimed <= sigma) {
		return fmt.Errorf("mechanism: the noise is worth sigma = %v, the task claims %v", sigma, claimed)
	}
	return nil
}

// contents is Contents for a sum with proofs: the coordinator's part is short, the aggregator's has
// the vector's share and the proof.
func (m *AggregatedSum) contents(src rng.Source, announcement [32]byte, r *randomizer.Report) (part, share []byte, err error) {
	p, err := m.Proved(announcement)
	if err != nil {
		return nil, nil, err
	}
	x := make([]int64, len(r.Value))
	for j, v := range r.Value {
		x[j] = int64(v)
	}
	vectors := [][]int64{x}
	if m.ByClients() {
		noise, err := m.draw(src)
		if err != nil {
			return nil, nil, err
		}
		defer clear(noise)
		vectors = append(vectors, noise)
	}
	share, part, err = p.Report(src, vectors...)
	return part, share, err
}
