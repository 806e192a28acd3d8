package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
)

// correlated is a mechanism whose noise may be correlated over rounds. What is released of a round
// is then made of its sum and those of earlier rounds: *mechanism.AggregatedSum.
type correlated interface {
	Correlation() (toeplitz.Strategy, bool)
	Charged(from, to, every int64) (dp.Report, error)
	Recovered(mean, sum []float64, n int64)
}

// correlation returns the mechanism and its strategy if the noise is correlated.
func (c Config) correlation() (m correlated, s toeplitz.Strategy, ok bool) {
	if m, ok = c.Mechanism.(correlated); ok {
		s, ok = m.Correlation()
	}
	return m, s, ok
}

// estimate computes the mean of n messages.
func (c *Coordinator) estimate(sum []int64, n int64) error {
	if c.recovery == nil {
		c.config.Mechanism.Estimate(c.mean, sum, n)
		return nil
	}
	if c.recovered {
		c.recovery.Undo()
		c.recovered = false
	}
	recovered, err := c.recovery.Recover(c.opened, sum)
	if err != nil {
		return fmt.Errorf("coordinator: %w", err)
	}
	c.recovered = true
	c.config.Mechanism.(correlated).Recovered(c.mean, recovered, n)
	return nil
}

// Earlier returns the rounds, ascending, that the release of the open or the coming round may be made of
// besides its own sum: those that were recovered, and have a weight in it. Where noise is not
// correlated there are none.
func (c *Coordinator) Earlier() (rounds []int64) {
	if c.recovery == nil {
		return nil
	}
	_, s, _ := c.config.correlation()
	for _, round := range c.recovery.Rounds() {
		if c.Round+1-round < int64(len(s.Weights)) {
			rounds = append(rounds, round)
		}
	}
	return rounds
}

// Forget drops what was recovered of earlier rounds: the sums of the coming ones are without them.
func (c *Coordinator) Forget() error {
	_, s, ok := c.config.correlation()
	if !ok {
		return nil
	}
	r, err := toeplitz.RestoreRecovery(s, len(c.mean), toeplitz.State{Next: c.Round + 1})
	if err == nil {
		c.recovery = r
	}
	return err
}

// recoveredPrefix begins the names of the vectors of a State that are not the learner's but what was
// recovered of a round, whose number follows.
const recoveredPrefix = "recovered."

// withRecovered adds what was recovered to a learner's state.
func (c *Coordinator) withRecovered(s optimize.State) optimize.State {
	if c.recovery == nil {
		return s
	}
	s.Vectors = maps.Clone(s.Vectors)
	if s.Vectors == nil {
		s.Vectors = map[string][]float64{}
	}
	r := *c.recovery
	if c.recovered {
		r.Undo() // whoever restores the open round ends it anew
	}
	for _, v := range r.State().Kept {
		s.Vectors[recoveredPrefix+strconv.FormatInt(v.Round, 10)] = v.Values
	}
	return s
}

// split is the inverse of withRecovered.
func split(s optimize.State) (learner optimize.State, recovered map[string][]float64) {
	recovered = map[string][]float64{}
	for name, v := range s.Vectors {
		if strings.HasPrefix(name, recoveredPrefix) {
			recovered[name] = v
		}
	}
	if len(recovered) > 0 {
		s.Vectors = maps.Clone(s.Vectors)
		for name := range recovered {
			delete(s.Vectors, name)
		}
	}
	return s, recovered
}

// restored returns the learner's state, and the recovery that goes on from s.
func (c *Coordinator) restored(s State) (optimize.State, *toeplitz.Recovery, error) {
	learner, vectors := split(s.Optimizer)
	_, strategy, ok := c.config.correlation()
	if !ok {
		if len(vectors) > 0 {
			return learner, nil, fmt.Errorf("%d recovered rounds, but the noise is not correlated", len(vectors))
		}
		return learner, nil, nil
	}
	from := toeplitz.State{Next: s.Round + 1}
	for name, values := range vectors {
		round, err := strconv.ParseInt(name[len(recoveredPrefix):], 10, 64)
		if err != nil {
			return learner, nil, fmt.Errorf("recovered round %q", name)
		}
		from.Kept = append(from.Kept, toeplitz.Vector{Round: round, Values: values})
	}
	slices.SortFunc(from.Kept, func(a, b toeplitz.Vector) int { return int(a.Round - b.Round) })
	// Of void rounds that came last, older ones may be kept than the next needs.
	from.Kept = slices.DeleteFunc(from.Kept, func(v toeplitz.Vector) bool { return v.Round <= s.Round+1-int64(len(strategy.Weights)) })
	r, err := toeplitz.RestoreRecovery(strategy, len(c.mean), from)
	return learner, r, err
}
