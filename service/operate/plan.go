package operate

import (
	"context"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	round "github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// taskPlan is what a task's rounds cost if as many clients take part as it expects.
type taskPlan struct {
	cost   dp.Bound // cost of all its rounds, without other tasks
	known  dp.Bound // the same to somebody who knows who takes part; zero: no chance is credited
	rounds int64
	fit    int64 // how many rounds the task's and the population's budgets allow
	limit  error // why no more rounds fit; nil if all do
	// more is how many further tasks with the same budget find room for their noise's tails after this one; nil
	// if its noise has none.
	more *int64
}

// setup is a task that can be run: *train.Setup or *measure.Plan.
type setup interface {
	// Coordinator returns the configuration with which a coordinator starts.
	Coordinator() (round.Config, error)
}

// charges returns what a task is charged if no round is void: one entry, and the number of entries.
func charges(t setup, w wire.Task, limit ledger.Config, colluders int64) (entry ledger.Entry, times int64, err error) {
	c, err := t.Coordinator()
	if err != nil {
		return entry, 0, err
	}
	c.Colluders, c.Tokens = colluders, w.Tokens != (wire.Tokens{})
	if c.Ledger, err = ledger.New(limit); err != nil {
		return entry, 0, err
	}
	pure, err := round.New(c)
	if err != nil {
		return entry, 0, err
	}
	times = w.Rounds
	if c.Participation == dp.Once { // one charge for an epoch
		times = c.Blocks.Epochs(times)
	}
	if entry, _, err = pure.Planned(); err != nil || w.Every == 0 {
		return entry, times, err
	}
	// Rounds of correlated noise cost together what the mechanism says; here each has an equal part.
	sum, ok := c.Mechanism.(*mechanism.AggregatedSum)
	if !ok {
		return entry, 0, fmt.Errorf("operate: %q with clients in one of %d rounds", c.Mechanism.Facts().Name, w.Every)
	}
	all, err := sum.Charged(0, times, w.Every)
	all.Sigma = min(all.Sigma*math.Sqrt(float64(times))*(1-0x1p-49), dp.MaxSigma)
	entry.Event.Report = all
	return entry, times, err
}

// cost bounds what all of a task's rounds cost if none is void.
func cost(limit ledger.Config, entry ledger.Entry, times int64) (dp.Bound, error) {
	all := entry.Charged()
	all.Times *= times
	return limit.Eps(dp.Sequence{all})
}

// costKnown bounds the same to somebody who knows who takes part, for a client in every round; 0 where no chance is credited, so that
// it is the same.
func costKnown(limit ledger.Config, entry ledger.Entry, times int64) (dp.Bound, error) {
	e := &entry.Event
	if e.Least == 0 {
		return dp.Bound{}, nil
	}
	e.Participation, e.Population, e.Reports, e.Gamma, e.Least = dp.All, e.Least, 0, 0, 0
	return cost(limit, entry, times)
}

// plan prices a task. It refuses one whose first round does not fit, with an error that
// wraps ledger.ErrBudget or says that there is no bound.
func (r *coordinatorProcess) plan(ctx context.Context, t setup, w wire.Task, limit ledger.Config) (p taskPlan, err error) {
	p.rounds = w.Rounds
	entry, times, err := charges(t, w, limit, r.config.Colluders)
	if err != nil {
		return p, err
	}
	if p.cost, err = cost(limit, entry, times); err != nil {
		return p, err
	}
	if p.known, err = costKnown(limit, entry, times); err != nil {
		return p, err
	}
	if err := r.journal.Refresh(ctx); err != nil {
		return p, err
	}
	var fits func(e ledger.Entry, most int64) (n int64, next error)
	var more int64
	r.journal.View(func(b *ledger.Book) { fits, more, err = b.Prospect(wire.Digest(w), limit) })
	if limit.Tail > 0 {
		p.more = &more
	}
	if err != nil {
		return p, err
	}
	if p.fit, p.limit = fits(entry, times); p.fit == 0 && p.limit != nil {
		return p, fmt.Errorf("operate: not one round fits: %w", p.limit)
	}
	if w.Participation == dp.Once {
		c, err := t.Coordinator()
		if err != nil {
			return p, err
		}
		p.fit = min(p.rounds, p.fit*c.Blocks.PerEpoch)
	}
	return p, nil
}
