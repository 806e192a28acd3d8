package account

import (
	"context"

	"github.com/riffle-dp/riffle/dp"
)

// KnowsWho returns the question about the same rounds against somebody who knows who takes part in each and sees what is
// released, as a shuffler does that follows the protocol and fetches models. It is about a client that is in every round, each
// of the fewest reports that make one: n-min, or what surely comes if that is not given. differs is false where no chance is
// credited, so that both questions are one.
//
// Result: upper bound, as of All; replace-one. Needs that nothing published depends on a report's place, and that taking part
// does not depend on data. Source: absence.md, "All of m".
func (q Query) KnowsWho() (known Query, differs bool) {
	if q.Participation != dp.Sampled && q.Participation != dp.CheckIn || q.Trust.Is(dp.Alone) || q.Messages > 1 || q.Every != 0 {
		return q, false
	}
	known = q
	if q.isSum() && !q.aggregated() {
		known = known.withSumDefaults()
	}
	asked, rate := q.cohort()
	least := q.Least
	if least == 0 {
		least = min(asked, Surely(asked, rate))
	}
	known.Adjacency = dp.ReplaceOne // a removed client is seen to be missing
	known.Participation, known.Population, known.Reports, known.Gamma, known.Dropout, known.Least = dp.All, max(least, q.Colluders+1), 0, 0, 0, 0
	if q.isSum() {
		known.Population = asked // the noise is of Sum.MinUsers, or the aggregators'
	}
	return known, true
}

// AnswerKnowsWho returns the tightest proved bound on what rounds cost against somebody who knows who takes part; nil if there is
// none, or if it is what everybody else is promised.
func AnswerKnowsWho(ctx context.Context, q Query) (*dp.Bound, error) {
	return new(Accountant).answerKnowsWho(ctx, q)
}

func (a *Accountant) answerKnowsWho(ctx context.Context, q Query) (*dp.Bound, error) {
	known, differs := q.KnowsWho()
	if !differs {
		return nil, nil
	}
	r, err := a.answer(ctx, known, "best", nil)
	if err != nil || r.Upper == nil {
		return nil, err
	}
	b := *r.Upper
	b.Seconds = 0 // it is no row of a list
	return &b, nil
}
