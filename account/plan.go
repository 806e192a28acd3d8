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
// The search is a bisection that always keeps a value known to meet the target. So it is safe
// even if the bound is not monotone; it may then miss a larger value.
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
	lo, hi := k.low, k.high(q)
	var last Reply
	meets := func(u float64) (bool, error) {
		trial := q
		k.set(&trial, u)
		r, err := Answer(ctx, trial, "best")
		if err != nil {
			return false, err
		}
		if r.Upper == nil || !(r.Upper.Eps <= target) {
			return false, nil
		}
		last = r
		return true, nil
	}
	good, err := meets(lo)
	if err != nil {
		return q, Reply{}, err
	}
	if !good {
		return q, Reply{}, fmt.Errorf("account: no %s meets epsilon = %v: even %s does not: %w", solve, target, k.show(lo), dp.ErrNoBound)
	}
	if good, err = meets(hi); err != nil {
		return q, Reply{}, err
	} else if good {
		lo = hi
	}
	for !k.close(lo, hi) {
		mid := k.middle(lo, hi)
		if good, err = meets(mid); err != nil {
			return q, Reply{}, err
		} else if good {
			lo = mid
		} else {
			hi = mid
		}
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

// knob is a value that Plan can turn. Larger values cost more.
type knob struct {
	low  float64
	high func(Query) float64
	set  func(*Query, float64)
	// middle returns a value between two. close says whether two values are so close that the
	// search ends: neighbours for whole numbers, equal to four digits for others.
	middle func(lo, hi float64) float64
	close  func(lo, hi float64) bool
	name   string
	// shown returns the displayed value for u; nil: u itself.
	shown func(u float64) float64
}

func (k knob) show(u float64) string {
	if k.shown != nil {
		u = k.shown(u)
	}
	return fmt.Sprintf("%s = %g", k.name, u)
}

func knobs() map[string]knob {
	whole := func(name string, high func(Query) float64, set func(*Query, int64)) knob {
		return knob{low: 1, high: high, name: name,
			set:    func(q *Query, u float64) { set(q, int64(u)) },
			middle: func(lo, hi float64) float64 { return math.Floor(math.Sqrt(lo) * math.Sqrt(hi)) },
			close:  func(lo, hi float64) bool { return hi-lo <= 1 || math.Floor(math.Sqrt(lo)*math.Sqrt(hi)) <= lo }}
	}
	real := func(name string, low float64, high func(Query) float64, set func(*Query, float64)) knob {
		return knob{low: low, high: high, name: name, set: set,
			middle: func(lo, hi float64) float64 { return math.Sqrt(lo) * math.Sqrt(hi) },
			close:  func(lo, hi float64) bool { return hi-lo <= 1e-4*lo }}
	}
	// Less noise costs more, so the knob is the inverse of the noise.
	noise := real("sigma", 1/dp.MaxSigma, func(Query) float64 { return 1e3 }, func(q *Query, u float64) { q.Sigma = 1 / u })
	noise.shown = func(u float64) float64 { return 1 / u }
	return map[string]knob{
		"sigma":  noise,
		"eps0":   real("eps0", 1e-3, mostEps0, func(q *Query, u float64) { q.Eps0 = u }),
		"gamma":  real("gamma", 1e-9, func(Query) float64 { return 1 }, func(q *Query, u float64) { q.Gamma = u }),
		"k":      whole("k", func(q Query) float64 { return float64(q.Population) }, func(q *Query, u int64) { q.Reports = u }),
		"rounds": whole("rounds", func(Query) float64 { return 1e9 }, func(q *Query, u int64) { q.Rounds = u }),
	}
}

// mostEps0 returns the largest ε₀ that a query can have: a ≤ 1/(e^ε₀+1) for a known total
// variation.
func mostEps0(q Query) float64 {
	if q.TV > 0 && q.TV < .5 {
		return math.Min(dp.MaxEps0, math.Log(1/q.TV-1))
	}
	return dp.MaxEps0
}
