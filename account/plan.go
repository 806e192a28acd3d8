package account

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// Plan solves for one value of a query so that the tightest proved bound on ε at q.Delta is
// at most target: the largest "eps0", "k", "gamma" or "rounds", or the smallest "sigma". It
// returns the completed query and its answer, whose ε never exceeds target.
//
// Of a vector sum it solves for "noise": the Sum of least noise of the kind q.Sum.Noise.Kind.
// It ignores the rest of Noise, and Grid and Norm. If the aggregators add the noise it solves for
// "sigma".
//
// ε rises with eps0 and rounds, and falls with sigma, so a bisection finds the value. In k and gamma it may
// rise, fall and rise again: few reports are rare, many hide each other. These are scanned from above, and
// each dip is searched; see search. The answer is in any case a value that was seen to meet the target.
func Plan(ctx context.Context, target float64, q Query, solve string) (Query, Reply, error) {
	if !(target > 0) || math.IsInf(target, 1) {
		return q, Reply{}, fmt.Errorf("account: target epsilon = %v must be above 0 and finite", target)
	}
	if q.AskDelta {
		return q, Reply{}, errors.New("account: planning needs delta; eps is what is planned for")
	}
	if q.isSum() {
		return designSum(ctx, target, q, solve)
	}
	k, ok := knobs()[solve]
	if !ok {
		return q, Reply{}, fmt.Errorf("account: cannot solve for %q: want eps0, k, gamma, rounds or sigma", solve)
	}
	if q.Messages > 1 && (solve == "k" || solve == "gamma") {
		return q, Reply{}, fmt.Errorf("account: with %d messages a larger %s costs less, because no chance is credited: nothing to solve", q.Messages, solve)
	}
	if q.Participation == dp.Once {
		switch {
		case solve == "k":
			return q, Reply{}, errors.New("account: with participation once a larger k costs less: k = n/rounds is best, nothing to solve")
		case solve == "rounds" && q.Reports > 0:
			// With disjoint batches more rounds cost nothing, but need more clients.
			k.high = func(q Query) float64 { return math.Max(1, float64(q.Population/q.Reports)) }
		}
	}
	var last Reply
	find := search{knob: k, target: target, cost: func(u float64) (float64, error) {
		trial := q
		k.set(&trial, u)
		r, err := Answer(ctx, trial, "best")
		switch {
		case err != nil:
			return 0, err
		case r.Upper == nil:
			return math.Inf(1), nil
		case r.Upper.Eps <= target:
			last = r
		}
		return r.Upper.Eps, nil
	}}
	_, found, err := find.largest(k.low, k.high(q))
	switch {
	case err != nil:
		return q, Reply{}, err
	case !found && find.least < math.Inf(1):
		return q, Reply{}, fmt.Errorf("account: no %s meets epsilon = %v: the best is %s with epsilon = %.4g: %w", solve, target, k.show(find.at), find.least, dp.ErrNoBound)
	case !found:
		return q, Reply{}, fmt.Errorf("account: no %s meets epsilon = %v: even %s does not: %w", solve, target, k.show(k.low), dp.ErrNoBound)
	}
	return last.Query, last, nil
}

// designSum is Plan for a vector sum.
func designSum(ctx context.Context, target float64, q Query, solve string) (Query, Reply, error) {
	if q.aggregated() {
		return planAggregated(ctx, target, q, solve)
	}
	if solve != "noise" {
		return q, Reply{}, fmt.Errorf("account: cannot solve for %q of a vector sum: want noise", solve)
	}
	design, err := planSum(ctx, target, q, q.Sum.Noise.Kind)
	if err != nil {
		return q, Reply{}, err
	}
	q.Sum = design
	r, err := Answer(ctx, q, "best")
	if err != nil {
		return q, Reply{}, err
	}
	if r.Upper == nil || !(r.Upper.Eps <= target) {
		return q, Reply{}, fmt.Errorf("the design does not meet epsilon = %v", target)
	}
	return q, r, nil
}
