package optimize

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/schedule"
)

// given are rounds whose clients the caller chooses.
type given struct {
	count int64 // T
	batch int64 // the least number of reports that a mean is over
}

// planFor chooses the method's parameters for the given rounds, by minimising its bound. It
// interpolates costly noise, for comparing choices.
func planFor(method string, p Problem, r given, o Overrides) (*Plan, error) {
	m, err := FindMethod(method)
	if err != nil {
		return nil, err
	}
	if err := p.validate(); err != nil {
		return nil, err
	}
	if r.count < 1 || r.batch < 1 || r.batch > p.Clients {
		return nil, fmt.Errorf("optimize: %d rounds of %d of n = %d clients: rounds must be at least 1, clients between 1 and n", r.count, r.batch, p.Clients)
	}
	uses := m.uses
	if uses.Batch, uses.Rounds = 0, 0; m.Participation == dp.All {
		uses.Phases = 0 // groups cannot be used when all clients are in every round
	}
	if err := o.check(method, uses); err != nil {
		return nil, err
	}
	p.Start = clone(p.Start)
	stages, err := m.stages(p, o, r)
	if err != nil {
		return nil, fmt.Errorf("optimize: %s: %w", method, err)
	}
	plan := newPlan(schedule.Batches{}, stages)
	plan.Method, plan.Problem = method, p
	return plan, nil
}

// ChooseBatch returns the batch size, of one pass over all clients in at most MaxRounds
// batches, that minimises the bound of NewPlan with Given rounds. Every batch has at least that many clients.
// reports returns how many of a batch's clients surely report; nil: all of them.
func ChooseBatch(method string, p Problem, o Overrides, reports func(asked int64) int64) (int64, error) {
	if reports == nil {
		reports = func(asked int64) int64 { return asked }
	}
	// One batch of all clients shows any error in the arguments.
	if _, err := planFor(method, p, given{1, reports(p.Clients)}, o); err != nil {
		return 0, err
	}
	batch := least(p.smallestBatch(p.Clients), p.Clients, func(size int64) float64 {
		t := p.Clients / size
		return p.boundOf(method, o, given{t, reports(p.Clients / t)})
	})
	if batch == 0 {
		return 0, fmt.Errorf("optimize: %s: %w", method, errNoPlan)
	}
	return batch, nil
}

// ChooseRounds returns the smallest number of rounds, up to the required p.MaxRounds, whose
// bound is within a tenth of the least. Every round has at least batch reports, and every
// client may be in all rounds.
func ChooseRounds(method string, p Problem, o Overrides, batch int64) (int64, error) {
	if p.MaxRounds < 1 {
		return 0, fmt.Errorf("optimize: %s: most rounds = %d must be at least 1", method, p.MaxRounds)
	}
	if _, err := planFor(method, p, given{1, batch}, o); err != nil {
		return 0, err
	}
	rounds := fewest(p.MaxRounds, func(t int64) float64 {
		q := p
		q.Noise = everyRound{p.Noise, t}
		return q.boundOf(method, o, given{t, batch})
	})
	if rounds == 0 {
		return 0, fmt.Errorf("optimize: %s: %w", method, errNoPlan)
	}
	return rounds, nil
}

// boundOf returns the bound of planFor, +Inf if there is no plan.
func (p Problem) boundOf(method string, o Overrides, r given) float64 {
	plan, err := planFor(method, p, r, o)
	if err != nil {
		return math.Inf(1)
	}
	return plan.Bound
}

// everyRound is noise for the case that every client takes part in a fixed number of rounds,
// uses. Its method deviation ignores the number of rounds that its caller gives.
type everyRound struct {
	Noise
	uses int64
}

// deviation puts the field uses in the place of its second argument.
func (e everyRound) deviation(clients, _ int64) float64 { return e.Noise.deviation(clients, e.uses) }

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
