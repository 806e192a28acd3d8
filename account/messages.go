package account

import (
	"context"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// maxMessages bounds the messages of one client in a round, as the protocol does.
const maxMessages = 1 << 12

// missingShare is the share of δ that pays for rounds with fewer reports than counted. Where δ is
// asked for it is first bounded with missingMass for them.
const (
	missingShare = 1e-3
	missingMass  = 1e-30
)

// validateMessages refuses a number of messages out of range, or that a client cannot send.
func (q Query) validateMessages() error {
	switch m := q.Messages; {
	case m < 0 || m > maxMessages:
		return fmt.Errorf("account: messages = %d must lie between 1 and %d", m, maxMessages)
	case m <= 1:
		return nil
	case q.Trust.Is(dp.SumsOnly) || !q.withDefaults().Class.LDP():
		return fmt.Errorf("account: %d messages of each client go with reports that are locally private", m)
	case float64(m)*float64(q.Rounds) > maxRounds:
		return fmt.Errorf("account: %d rounds of %d messages must be at most 1e12 together", q.Rounds, m)
	}
	return nil
}

// alone returns the question about single messages that a query of several asks: m times as many
// rounds, in which all of the clients take part that a round surely has. A client's messages come
// or stay away together, so no chance is credited; protocol/coordinator/messages.md.
//
// Where the number of reports is random, some round has fewer with a probability of at most
// missing, whatever the client's data. If none has, the answer holds for the numbers that come, and
// so for their mixture. paid is missing, or 0 if the number is not random; exact says that the two
// mechanisms are the same.
func (q Query) alone(missing float64) (one Query, paid float64, exact bool) {
	one = q
	one.Messages, one.Rounds = 0, q.Rounds*q.Messages
	if q.Participation == dp.Once { // a client is in one round
		one.Rounds = q.Messages
	}
	least, rate := q.cohort()
	if q.Least > 0 {
		least, rate = q.Least, 1
	}
	least = max(1, least-q.Colluders)
	exact = q.Participation == dp.All && rate == 1
	if q.Trust.Is(dp.Alone) { // every report stands by itself
		rate, exact = 1, true
	}
	if rate < 1 {
		if paid = missing; !q.AskDelta {
			one.Delta = (q.Delta - missing) * (1 - 0x1p-50)
		}
		low, _ := tail.Window(least, rate, 1-rate, missing/float64(one.Rounds), 1)
		least = max(1, low)
	}
	one.Participation, one.Population, one.Reports, one.Gamma, one.Dropout, one.Colluders, one.Least = dp.All, least, 0, 0, 0, 0, 0
	return one, paid, exact
}

// answerMessages answers a query of several messages.
func (a *Accountant) answerMessages(ctx context.Context, q Query, which string, each func(method string, done, of int)) (Reply, error) {
	missing := missingShare * q.Delta
	if q.AskDelta {
		missing = missingMass
		one, _, _ := q.alone(missing)
		first, err := a.answer(ctx, one, "best", nil)
		if err != nil {
			return Reply{}, err
		}
		if first.Upper != nil {
			missing = max(missing, missingShare*first.Upper.Delta)
		}
	}
	one, paid, exact := q.alone(missing)
	got, err := a.answer(ctx, one, which, each)
	if err != nil {
		return Reply{}, err
	}
	r := Reply{Query: q}
	for _, l := range got.Bounds {
		switch {
		case !q.AskDelta && l.Delta == one.Delta:
			l.Delta = q.Delta
		case paid > 0 && l.Kind == dp.Upper:
			l.Delta = math.Min(1, (l.Delta+paid)*(1+0x1p-50))
		}
		if l.Kind == dp.Lower && !exact {
			l.Applies = false
			l.Note = fmt.Sprintf("it is one of %d rounds in which all take part, and these may reveal less: %v", one.Rounds, dp.ErrNoBound)
		}
		r.Bounds = append(r.Bounds, l)
		r.choose(l)
	}
	return r, nil
}
