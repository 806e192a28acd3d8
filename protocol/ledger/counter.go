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
	next    *answer     // cost of history with one more charge; nil: not computed yet
	charge  dp.Repeat   // the charge that next includes
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

// fits returns the cost with one more entry, and whether it is within the budget. It charges
// nothing. If the budget has no limit it computes nothing.
func (c *counter) fits(e Entry, how count) (b dp.Bound, ok bool, err error) {
	if err := e.check(); err != nil {
		return b, false, err
	}
	if math.IsInf(c.config.MaxEps, 1) {
		return b, true, nil
	}
	if charge := e.Charged(); c.next == nil || c.charge != charge || c.next.count != how {
		if b, err = c.config.eps(repeated(c.history, charge, 1), how); err != nil {
			return b, false, err
		}
		c.next, c.charge = &answer{how, b}, charge
	}
	b = c.next.bound
	return b, b.Eps <= c.config.MaxEps, nil // false for NaN
}

// add records n entries of a charge. The caller has checked that they fit the budget, or reads
// charges that were accepted before.
func (c *counter) add(e Entry, n int64) {
	charge := e.Charged()
	c.history = repeated(c.history, charge, n)
	if c.spent = nil; n == 1 && c.charge == charge {
		c.spent = c.next
	}
	c.next = nil
}

// nothingCharged is the method of a bound on nothing, such as on rounds that were all void.
const nothingCharged = "nothing-charged"

// cost bounds the cost of the history.
func (c *counter) cost(how count) (dp.Bound, error) {
	if len(c.history) == 0 {
		return dp.Bound{Method: nothingCharged, Kind: dp.Upper, Status: dp.Proved, Source: "nothing was released",
			Guarantee: dp.Guarantee{Delta: c.config.Delta, Adjacency: dp.ReplaceOne}}, nil
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

// repeated returns h with a charge added n ≥ 0 times. It never writes to h's elements, so that a
// refused charge changes nothing.
func repeated(h dp.Sequence, charge dp.Repeat, n int64) dp.Sequence {
	if n == 0 {
		return h
	}
	charge.Times *= n
	if last := len(h) - 1; last >= 0 {
		if r := h[last].(dp.Repeat); r.Event == charge.Event {
			charge.Times += r.Times
			return append(append(dp.Sequence(nil), h[:last]...), charge)
		}
	}
	return append(h[:len(h):len(h)], charge)
}
