// Package audit tries to refute what a local randomizer claims. It draws reports for pairs of
// inputs, looks for an event that one input makes likelier than the other by more than e^ε₀,
// and bounds the ratio from below with a stated confidence.
//
// The event is chosen on one part of the reports and tested once on another part, so the
// number of events tried needs no allowance: if the randomizer is ε₀-LDP, it is refuted with
// probability at most 1 − Confidence, whatever the choice was. An audit that refutes nothing
// proves nothing: it tries only some events and some inputs. It sees single reports with
// independent randomness, so it misses noise shared between clients, timing, and a ratio that
// is off by less than a few standard errors of the counts.
package audit

import (
	"context"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

// Config describes an audit.
type Config struct {
	Mechanism randomizer.Mechanism // Required
	// Claimed is the ε₀ in nats to refute; required, above 0. A randomizer claims its Event's
	// ε₀.
	Claimed float64
	// Trials is the number of reports to draw, at least MinTrials; required.
	// Half of them choose the event, half test it.
	Trials int64
	// Confidence is the confidence of LowerBound; 0 means DefaultConfidence.
	Confidence float64
	// Seed fixes all randomness: equal seeds give equal results, for any Workers.
	Seed    uint64
	Workers int // goroutines; 0 means 1
	// Pairs are the inputs to compare; nil means pairs(Mechanism.Dim()).
	Pairs []Pair
	// Progress is called, by one goroutine at a time, with the number of reports
	// drawn so far; may be nil.
	Progress func(done int64)
}

const (
	// MinTrials is the smallest number of reports that gives a test any power.
	MinTrials = 10_000
	// DefaultConfidence leaves one false alarm in a million audits.
	DefaultConfidence = 1 - 1e-6
)

// Result is the result of an audit.
type Result struct {
	Claimed float64
	// LowerBound is below the true ε₀, in nats, with probability at least
	// Confidence; 0 if nothing was seen.
	LowerBound float64
	Confidence float64
	Refuted    bool // LowerBound > Claimed
	// Witness names the pair of inputs and the event that gave the bound.
	Witness string
	// Of Draws reports of each input, Hits fell into the event.
	Hits  [2]int64
	Draws int64
}

// Shares of Trials for each stage. The remaining reports test the chosen event.
const (
	pilotShare  = 1. / 32 // places the cells
	rankShare   = 3. / 32 // ranks the cells of a pair
	sieveShare  = 3. / 32 // ranks the pairs
	chooseShare = 9. / 32 // chooses the event, among the best pairs
	finalists   = 3       // number of the best pairs
	pilotMost   = 4096
)

// Run runs an audit. It returns ctx's error if cancelled; all other errors name a field of c
// out of range.
func Run(ctx context.Context, c Config) (Result, error) {
	if err := c.complete(); err != nil {
		return Result{}, err
	}
	s := newSampler(ctx, c)
	inputs := 2 * float64(len(c.Pairs))
	trials := float64(c.Trials)
	pilot := min(pilotMost, max(1, int64(trials*pilotShare/inputs)))
	rank := max(1, int64(trials*rankShare/inputs))
	sieve := max(1, int64(trials*sieveShare/inputs))
	kept := min(finalists, len(c.Pairs))
	choose := max(1, int64(trials*chooseShare/float64(2*kept)))
	test := (c.Trials - 2*int64(len(c.Pairs))*(pilot+rank+sieve) - 2*int64(kept)*choose) / 2
	alpha := 1 - c.Confidence

	// First find, for each pair, the edges of its cells and which cells are evidence for
	// which input.
	studies := make([]*study, len(c.Pairs))
	for i, p := range c.Pairs {
		st, err := s.study(i, p, pilot)
		if err != nil {
			return Result{}, err
		}
		if st.ranks, err = s.count(stageRank, st, rank); err != nil {
			return Result{}, err
		}
		// These counts are fresh: the counts that ranked the cells would flatter the ranking.
		fresh, err := s.count(stageSieve, st, sieve)
		if err != nil {
			return Result{}, err
		}
		st.promise = st.best(fresh, sieve, test, alpha).bound
		st.ranks.add(fresh)
		studies[i] = st
	}
	// The most promising pairs get fresh reports.
	var chosen choice
	for _, st := range top(studies, kept) {
		counts, err := s.count(stageChoose, st, choose)
		if err != nil {
			return Result{}, err
		}
		if got := st.best(counts, choose, test, alpha); chosen.study == nil || got.bound > chosen.bound {
			chosen = got
		}
	}
	// One event is tested once, on reports that had no part in the choice.
	counts, err := s.count(stageTest, chosen.study, test)
	if err != nil {
		return Result{}, err
	}
	r := Result{Claimed: c.Claimed, Confidence: c.Confidence, Draws: test, Witness: chosen.describe()}
	for side := range r.Hits {
		r.Hits[side] = chosen.hits(counts, side)
	}
	likelier, other := r.Hits[0], r.Hits[1]
	if chosen.swapped {
		likelier, other = other, likelier
	}
	r.LowerBound = lowerBound(likelier, other, test, alpha)
	r.Refuted = r.LowerBound > c.Claimed
	return r, nil
}

// complete fills in defaults and validates.
func (c *Config) complete() error {
	if c.Mechanism == nil {
		return fmt.Errorf("audit: no mechanism given")
	}
	if !(c.Claimed > 0 && c.Claimed <= math.MaxFloat64) {
		return fmt.Errorf("audit: claimed eps0 = %v must be above 0 and finite", c.Claimed)
	}
	if c.Trials < MinTrials {
		return fmt.Errorf("audit: trials = %d must be at least %d", c.Trials, MinTrials)
	}
	if c.Confidence == 0 {
		c.Confidence = DefaultConfidence
	}
	if !(c.Confidence > 0 && c.Confidence < 1) {
		return fmt.Errorf("audit: confidence = %v must lie strictly between 0 and 1", c.Confidence)
	}
	if c.Workers < 0 {
		return fmt.Errorf("audit: workers = %d must not be negative", c.Workers)
	}
	c.Workers = max(1, c.Workers)
	dim := c.Mechanism.Facts().Dim
	if c.Pairs == nil {
		c.Pairs = pairs(dim)
	}
	if n := int64(len(c.Pairs)); n == 0 || n > c.Trials/1000 {
		return fmt.Errorf("audit: %d pairs must be at least 1 and at most a thousandth of the trials = %d", n, c.Trials)
	}
	for _, p := range c.Pairs {
		if len(p.X) != dim || len(p.Y) != dim {
			return fmt.Errorf("audit: pair %q of lengths %d and %d given to a mechanism of dimension %d", p.Name, len(p.X), len(p.Y), dim)
		}
	}
	return nil
}
