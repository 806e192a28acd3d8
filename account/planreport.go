package account

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/riffle-dp/riffle/dp"
)

// PlanReport solves for the largest eps0, of five digits, so that the tightest proved bound on ε
// at q.Delta is at most target, where a randomizer made for eps0 promises report(eps0). What it
// promises may be a little more than eps0, and its law may depend on eps0. It returns the
// completed query and its answer, whose ε never exceeds target; Eps0 of the query is what is
// promised.
//
// An eps0 that report refuses counts as too large. The search keeps a value known to meet the
// target, so it is safe even if the bound is not monotone. It ends within 2e-4 of the largest
// value, or of the target. Time: some 8 answers.
func PlanReport(ctx context.Context, target float64, q Query, report func(eps0 float64) (dp.Report, error)) (eps0 float64, _ Query, _ Reply, _ error) {
	if !(target > 0) || math.IsInf(target, 1) {
		return 0, q, Reply{}, fmt.Errorf("account: target epsilon = %v must be above 0 and finite", target)
	}
	if q.AskDelta || q.isSum() {
		return 0, q, Reply{}, errors.New("account: planning reports needs delta and single reports")
	}
	s := planner{target: target, bad: math.Inf(1), atBad: math.Inf(1)}
	var last Reply
	var refused error
	ask := func(x float64) (float64, error) {
		trial := q
		r, err := report(x)
		if err != nil {
			refused = err
			return math.Inf(1), nil
		}
		trial = trial.Of(r)
		reply, err := Answer(ctx, trial, "best")
		switch {
		case err != nil:
			return 0, err
		case reply.Upper == nil:
			return math.Inf(1), nil
		case reply.Upper.Eps <= target:
			last = reply
		}
		return reply.Upper.Eps, nil
	}
	for x := s.next(); x > 0; x = s.next() {
		eps, err := ask(x)
		if err != nil {
			return 0, q, Reply{}, err
		}
		s.told(x, eps)
	}
	switch {
	case s.good > 0:
		return s.good, last.Query, last, nil
	case refused != nil:
		return 0, q, Reply{}, refused
	}
	return 0, q, Reply{}, fmt.Errorf("account: no eps0 meets epsilon = %v: even eps0 = %g does not: %w", target, s.bad, dp.ErrNoBound)
}

// Of returns the query about reports of which all is known that r promises.
func (q Query) Of(r dp.Report) Query {
	q.Class, q.Symbols, q.TV, q.Steps, q.Eps0, q.Sigma = r.Class, r.Symbols, r.TV, r.Steps, r.Eps0, r.Sigma
	return q
}

// planner looks for the largest eps0 that meets a target. It knows ε, which is about a power of
// eps0, at the largest value known to meet it and at the smallest known not to.
type planner struct {
	target       float64
	good, atGood float64 // 0: none yet
	bad, atBad   float64 // +Inf: none yet
	// moved counts how often good has moved since bad did, or with a negative sign the other
	// way round.
	moved int
}

const (
	leastEps0 = 1e-3
	// nearTarget is the share of the target at which the search ends.
	nearTarget = 1 - 2e-4
)

// told takes the ε at x, a value between good and bad.
func (s *planner) told(x, eps float64) {
	if eps <= s.target {
		s.good, s.atGood, s.moved = x, eps, max(0, s.moved)+1
	} else {
		s.bad, s.atBad, s.moved = x, eps, min(0, s.moved)-1
	}
}

// next returns the next value to try; 0 if the search ends.
func (s *planner) next() float64 {
	switch {
	case s.good == 0 && math.IsInf(s.bad, 1):
		return 1
	case s.good == dp.MaxEps0, s.good > 0 && s.atGood >= s.target*nearTarget:
		return 0
	case s.good == 0 && s.bad <= leastEps0:
		return 0
	case s.good == 0:
		return math.Max(leastEps0, fiveDigits(s.bad*math.Max(.1, math.Min(.5, s.target/s.atBad))))
	case math.IsInf(s.bad, 1):
		return math.Min(dp.MaxEps0, fiveDigits(s.good*math.Max(1.5, math.Min(4, s.target/s.atGood))))
	}
	share := .5
	if !math.IsInf(s.atBad, 1) {
		// Aim a little below the target. While one end keeps moving, the distance of the other
		// counts half as much each time, so that it moves too (the Illinois rule).
		aim := s.target * (1 + nearTarget) / 2
		low, high := math.Log(aim/s.atGood), math.Log(s.atBad/aim)
		if s.moved > 1 {
			high = math.Ldexp(high, 1-s.moved)
		} else if s.moved < -1 {
			low = math.Ldexp(low, 1+s.moved)
		}
		share = low / (low + high)
	}
	for _, share := range []float64{share, .5} {
		x := fiveDigits(s.good * math.Pow(s.bad/s.good, share))
		if x > s.good && x < s.bad {
			return x
		}
	}
	return 0
}

// fiveDigits rounds x down to a number of five digits.
func fiveDigits(x float64) float64 {
	exponent := int(math.Floor(math.Log10(x))) - 4
	whole := math.Floor(x / math.Pow10(exponent) * (1 + 1e-12))
	x, _ = strconv.ParseFloat(fmt.Sprintf("%.0fe%d", whole, exponent), 64)
	return x
}
