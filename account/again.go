package account

import (
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// againShare is the share of δ that pays for the chance of more void rounds than assumed.
const againShare = 1e-4

// Again returns the question about a protocol that replaces void rounds. The protocol announces
// rounds until q.Rounds of them brought minReports reports each, or until the number of
// announced rounds is last. An upper bound on its answer is an upper bound for the protocol.
//
// Needs: a void round reveals only that it is void. If others is true (honest below 1), some
// clients are not relied on and may decide which rounds are void; then all rounds up to last
// are counted.
//
// A bound that relies on a random number of reports is proved for an announced round, which may
// turn out void. So Again counts announced rounds: R of them, where fewer than q.Rounds of R
// rounds bring enough reports with probability at most τ. Stopping early is post-processing;
// the rest costs τ of δ. A round whose cost does not rely on chance costs no more if it is
// known not to be void.
//
// Source: account/again.md.
func (q Query) Again(minReports, last int64, others bool) Query {
	asked, rate := q.Population, 1-q.Dropout
	switch q.Participation {
	case dp.Sampled:
		asked = q.Reports
	case dp.CheckIn:
		rate *= q.Gamma
	case dp.Once:
		return q
	}
	if q.Trust.Is(dp.Alone) || rate >= 1 || last <= q.Rounds {
		return q
	}
	if others {
		q.Rounds = last
		return q
	}
	// void bounds P(fewer than minReports of the asked clients report), computed from the
	// number that do not.
	void := min(1, tail.Survival(asked, asked-minReports+1, 1-rate, rate)*(1+1e-9))
	tau := againShare * q.Delta
	enough := func(rounds int64) bool {
		return tail.Survival(rounds, rounds-q.Rounds+1, void, 1-void)*(1+1e-9) <= tau
	}
	low, high := q.Rounds-1, last // enough(low) is false, and last always suffices
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
