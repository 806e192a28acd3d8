package account

import (
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// againShare is the share of δ that pays for more void rounds than are counted on.
const againShare = 1e-4

// Again returns the question about a protocol that announces void rounds again, until
// q.Rounds of them brought minReports or last were announced. An upper bound on its
// answer is one on the protocol.
//
// Needs: void rounds show no more than that they are void. With others, who are asked
// nothing (honest below 1), chance may be theirs: then all up to last are counted.
//
// Where a round's cost counts on chance, it is that of a round which may be void, so
// what is counted is rounds announced: R of them, of which fewer than q.Rounds bring
// enough with a probability of τ at most. To stop early is post-processing; the rest
// costs τ of δ. Other rounds cost no more if they are known not to be void.
// Source: account/again.md.
func (q Query) Again(minReports, last int64, others bool) Query {
	asked, rate := q.Population, 1-q.Dropout
	switch q.Participation {
	case dp.Sampled:
		asked = q.Reports
	case dp.CheckIn:
		rate *= q.Rate
	case dp.Once:
		return q
	}
	if q.Trust.Alone() || rate >= 1 || last <= q.Rounds {
		return q
	}
	if others {
		q.Rounds = last
		return q
	}
	// P(fewer than minReports of the asked), by those who do not come.
	void := min(1, tail.Survival(asked, asked-minReports+1, 1-rate, rate)*(1+1e-9))
	tau := againShare * q.Delta
	enough := func(rounds int64) bool {
		return tail.Survival(rounds, rounds-q.Rounds+1, void, 1-void)*(1+1e-9) <= tau
	}
	low, high := q.Rounds-1, last // enough(low) is not, and last always is
	for high-low > 1 {
		if middle := low + (high-low)/2; enough(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	q.Rounds = high
	if high < last {
		q.Delta -= tau
	}
	return q
}
