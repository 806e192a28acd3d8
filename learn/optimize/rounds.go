package optimize

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// Rounds are rounds whose clients somebody else chooses.
type Rounds struct {
	Count int64 // T. Required.
	// Batch is the least number of reports that a mean is over. Required.
	Batch int64
}

// NewPlanFor chooses the named method's parameters for the given rounds, by
// minimising its bound as NewPlan does; Batch and Rounds of o must be 0. The
// plan's Batches are empty: who reports is the caller's.
//
// What the Bound is of depends on who that is. If no client reports twice it is
// the population's loss, and for gd it always is. If every round draws its
// clients anew, without looking at the past, a mean is an unbiased estimate of
// all n clients' mean gradient, and the Bound is of the mean loss of these n.
func NewPlanFor(method string, p Problem, r Rounds, o Overrides) (*Plan, error) {
	plan, err := planFor(method, p.exact(), r, o)
	if err != nil {
		return nil, err
	}
	plan.Problem.Noise = p.Noise
	return plan, nil
}

// planFor is NewPlanFor with the noise as it is, for a choice.
func planFor(method string, p Problem, r Rounds, o Overrides) (*Plan, error) {
	m, err := FindMethod(method)
	if err != nil {
		return nil, err
	}
	if err := p.validate(); err != nil {
		return nil, err
	}
	if r.Count < 1 || r.Batch < 1 || r.Batch > p.Clients {
		return nil, fmt.Errorf("optimize: %d rounds of %d of n = %d clients: rounds must be at least 1, clients between 1 and n", r.Count, r.Batch, p.Clients)
	}
	uses := m.uses
	if uses.Batch, uses.Rounds = 0, 0; m.Participation == dp.All {
		uses.Phases = 0 // groups are no rounds of all
	}
	if err := o.check(method, uses); err != nil {
		return nil, err
	}
	p.Start = clone(p.Start)
	stages, err := m.stages(p, o, r)
	if err != nil {
		return nil, fmt.Errorf("optimize: %s: %w", method, err)
	}
	return &Plan{Method: method, Problem: p, Stages: stages}, nil
}

// ChooseBatch returns the size of the batches of one pass over all clients, so
// many that each has at least it, for which NewPlanFor's bound is least.
// reports says how many of a batch's clients surely report; nil: all of them.
// At most MaxRounds rounds.
func ChooseBatch(method string, p Problem, o Overrides, reports func(asked int64) int64) (int64, error) {
	if reports == nil {
		reports = func(asked int64) int64 { return asked }
	}
	// What is wrong is said for one batch of all.
	if _, err := planFor(method, p, Rounds{1, reports(p.Clients)}, o); err != nil {
		return 0, err
	}
	batch := least(p.smallestBatch(p.Clients), p.Clients, func(size int64) float64 {
		rounds := p.Clients / size
		return p.boundOf(method, o, Rounds{rounds, reports(p.Clients / rounds)})
	})
	if batch == 0 {
		return 0, fmt.Errorf("optimize: %s: %w", method, errNoPlan)
	}
	return batch, nil
}

// ChooseRounds returns the smallest number of rounds with a bound within a tenth
// of the least up to p.MaxRounds, which is required, if every round has at least
// batch reports and every client may be in all.
func ChooseRounds(method string, p Problem, o Overrides, batch int64) (int64, error) {
	if p.MaxRounds < 1 {
		return 0, fmt.Errorf("optimize: %s: most rounds = %d must be at least 1", method, p.MaxRounds)
	}
	if _, err := planFor(method, p, Rounds{1, batch}, o); err != nil {
		return 0, err
	}
	rounds := fewest(p.MaxRounds, func(t int64) float64 {
		q := p
		q.Noise = everyRound{p.Noise, t}
		return q.boundOf(method, o, Rounds{t, batch})
	})
	if rounds == 0 {
		return 0, fmt.Errorf("optimize: %s: %w", method, errNoPlan)
	}
	return rounds, nil
}

// boundOf is that of NewPlanFor, +Inf without a plan.
func (p Problem) boundOf(method string, o Overrides, r Rounds) float64 {
	plan, err := planFor(method, p, r, o)
	if err != nil {
		return math.Inf(1)
	}
	return plan.Bound()
}

// everyRound is noise for clients who take part in so many rounds.
type everyRound struct {
	Noise
	uses int64
}

// Deviation ignores what it is told about uses.
func (e everyRound) Deviation(clients, _ int64) float64 { return e.Noise.Deviation(clients, e.uses) }

// fewest returns the smallest of the candidates up to last whose value is within
// a tenth of the least, 0 if none is finite.
func fewest(last int64, value func(int64) float64) (best int64) {
	low := math.Inf(1)
	candidates(1, last, func(t int64) { low = math.Min(low, value(t)) })
	if math.IsInf(low, 1) {
		return 0
	}
	candidates(1, last, func(t int64) {
		if best == 0 && value(t) <= 1.1*low {
			best = t
		}
	})
	return best
}
