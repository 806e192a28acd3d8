package ledger

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// counter keeps a history of charged events and asks the accountant for its cost.
type counter struct {
	config  Config
	history dp.Sequence // neighbouring equal events are one Repeat
	spent   *answer     // cost of history; nil: not computed yet
	next    *answer     // cost of history with one more event; nil: not computed yet
	event   dp.Round    // the event that next includes
}

// count says how the accountant computes the cost of a history.
type count struct {
	// adaptive says that each round may have been chosen after seeing what earlier rounds
	// released.
	adaptive bool
	share    float64 // share of the accountant's δ at which ε is computed
}

// answer is the accountant's answer, and its question.
type answer struct {
	count count
	bound dp.Bound
}

// fits returns the cost with one more event, and whether it is within the budget. It charges
// nothing. If the budget has no limit it computes nothing.
func (c *counter) fits(event dp.Round, how count) (b dp.Bound, ok bool, err error) {
	if err := event.Validate(); err != nil {
		return b, false, err
	}
	if math.IsInf(c.config.MaxEps, 1) {
		return b, true, nil
	}
	if c.next == nil || c.event != event || c.next.count != how {
		if b, err = c.config.eps(repeated(c.history, event, 1), how); err != nil {
			return b, false, err
		}
		c.next, c.event = &answer{how, b}, event
	}
	b = c.next.bound
	return b, b.Eps <= c.config.MaxEps, nil // false for NaN
}

// add records n charges of an event. The caller has checked that they fit the budget, or reads
// charges that were accepted before.
func (c *counter) add(event dp.Round, n int64) {
	c.history = repeated(c.history, event, n)
	if c.spent = nil; n == 1 && c.event == event {
		c.spent = c.next
	}
	c.next = nil
}

// cost bounds the cost of the history.
func (c *counter) cost(how count) (dp.Bound, error) {
	if len(c.history) == 0 {
		return dp.Bound{Kind: dp.Upper, Status: dp.Proved, Guarantee: dp.Guarantee{Delta: c.config.Delta, Adjacency: dp.ReplaceOne}}, nil
	}
	if c.spent == nil || c.spent.count != how {
		b, err := c.config.eps(c.history, how)
		if err != nil {
			return b, err
		}
		c.spent = &answer{how, b}
	}
	return c.spent.bound, nil
}

// Eps bounds ε at Delta for rounds whose parameters do not depend on releases.
func (c Config) Eps(ev dp.Event) (dp.Bound, error) { return c.eps(ev, count{share: 1}) }

func (c Config) eps(ev dp.Event, how count) (b dp.Bound, err error) {
	delta := dp.Counted(c.Delta, c.Tail)
	if how.share < 1 {
		delta *= how.share * (1 - 0x1p-50)
	}
	if !how.adaptive {
		b, err = c.Accountant.Eps(ev, delta)
	} else if a, ok := c.Accountant.(adaptive); ok {
		b, err = a.EpsAdaptive(ev, c.MaxEps, delta)
	} else {
		err = fmt.Errorf("the accountant counts no rounds that were planned upon each other: %w", dp.ErrNoBound)
	}
	b.Delta = c.Delta
	return b, err
}

// repeated returns h with an event added n ≥ 0 times. It never writes to h's elements, so
// that a refused charge changes nothing.
func repeated(h dp.Sequence, event dp.Round, n int64) dp.Sequence {
	if n == 0 {
		return h
	}
	if last := len(h) - 1; last >= 0 {
		if r := h[last].(dp.Repeat); r.Event == dp.Event(event) {
			out := append(dp.Sequence(nil), h...)
			out[last] = dp.Repeat{Event: event, Times: r.Times + n}
			return out
		}
	}
	return append(h[:len(h):len(h)], dp.Repeat{Event: event, Times: n})
}
