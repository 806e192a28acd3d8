// Package ledger keeps a task's privacy budget. It records events, never a
// running ε: what the events cost is asked of a dp.Accountant.
//
// The step order is the one a durable ledger keeps: a round is charged, and
// the charge stands, before any of its reports is opened. A round that is run
// again after a crash is charged once, because it releases identical bytes.
package ledger

import (
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// ErrBudget is wrapped by the refusal of a round that would exceed the budget.
var ErrBudget = errors.New("budget exceeded")

// Config says what may be spent. Delta and Accountant are required.
type Config struct {
	Accountant dp.Accountant
	Delta      float64 // δ at which ε is counted
	// Tail is the share of Delta that is kept for what events do not show, such as
	// the tails of vector sums' noise; ε is counted at the rest.
	Tail float64
	// MaxEps is the budget in nats; +Inf records without a limit. Zero is an error.
	MaxEps float64
}

func (c Config) check() error {
	if c.Accountant == nil {
		return errors.New("ledger: an accountant is required")
	}
	if err := dp.CheckDelta(c.Delta); err != nil {
		return err
	}
	if !(c.Tail >= 0 && c.Tail < 1) {
		return fmt.Errorf("ledger: tail = %v must be at least 0 and below 1", c.Tail)
	}
	if math.IsNaN(c.MaxEps) || c.MaxEps <= 0 {
		return fmt.Errorf("ledger: budget epsilon = %v must be above 0", c.MaxEps)
	}
	return nil
}

// Eps bounds ε at Delta for rounds whose parameters do not depend on releases.
func (c Config) Eps(ev dp.Event) (dp.Bound, error) { return c.eps(ev, false, 1) }

// Entry is one charged round.
type Entry struct {
	Round int64
	Event dp.Round
}

// Ledger is not safe for concurrent use: a budget has one writer.
type Ledger struct {
	config  Config
	entries []Entry
	history dp.Sequence // entries, with equal neighbours folded into a Repeat
	// What the accountant said of history, and of history with asked added.
	spent, next *dp.Bound
	asked       dp.Round
}

// New returns an empty ledger.
func New(c Config) (*Ledger, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Ledger{config: c}, nil
}

// Charge records a round before its reports are opened. Charging the last
// round again with the same event changes nothing; with another event, or
// out of order, it is an error. On ErrBudget nothing was recorded.
func (l *Ledger) Charge(e Entry) error {
	if err := e.Event.Validate(); err != nil {
		return err
	}
	if n := len(l.entries); n > 0 && e.Round <= l.entries[n-1].Round {
		if e == l.entries[n-1] {
			return nil
		}
		return fmt.Errorf("ledger: round %d was charged before or is out of order (last is %d)",
			e.Round, l.entries[n-1].Round)
	}
	if err := l.afford(e); err != nil {
		return err
	}
	l.record(e)
	return nil
}

// afford returns an error unless e may be charged within the budget.
func (l *Ledger) afford(e Entry) error {
	if err := e.Event.Validate(); err != nil {
		return err
	}
	if math.IsInf(l.config.MaxEps, 1) {
		return nil
	}
	if l.next == nil || l.asked != e.Event {
		b, err := l.config.Eps(appendEvent(l.history, e.Event))
		if err != nil {
			return fmt.Errorf("ledger: round %d: %w", e.Round, err)
		}
		l.next, l.asked = &b, e.Event
	}
	b := *l.next
	// Negated so that a NaN refuses.
	if !(b.Eps <= l.config.MaxEps) {
		return fmt.Errorf("ledger: round %d would bring epsilon to %.4g, above %.4g: %w",
			e.Round, b.Eps, l.config.MaxEps, ErrBudget)
	}
	return nil
}

// record adds e, which was afforded or spent before.
func (l *Ledger) record(e Entry) {
	l.entries = append(l.entries, e)
	l.history = appendEvent(l.history, e.Event)
	if l.spent = nil; l.next != nil && l.asked == e.Event {
		l.spent = l.next
	}
	l.next = nil
}

// Spent returns the bound on everything charged so far.
func (l *Ledger) Spent() (dp.Bound, error) {
	if len(l.history) == 0 {
		return l.config.nothing(), nil
	}
	if l.spent == nil {
		b, err := l.config.Eps(l.history)
		if err != nil {
			return b, err
		}
		l.spent = &b
	}
	return *l.spent, nil
}

// Entries returns a copy of what was charged, oldest first.
func (l *Ledger) Entries() []Entry { return append([]Entry(nil), l.entries...) }

// Restore replays entries into an empty ledger without asking for the budget
// again: they were accepted once, and what is spent is spent.
func (l *Ledger) Restore(entries []Entry) error {
	if len(l.entries) != 0 {
		return errors.New("ledger: restore into a ledger that is not empty")
	}
	var history dp.Sequence
	for i, e := range entries {
		if err := e.Event.Validate(); err != nil {
			return fmt.Errorf("ledger: entry %d: %w", i, err)
		}
		if i > 0 && e.Round <= entries[i-1].Round {
			return fmt.Errorf("ledger: entry %d: round %d after round %d", i, e.Round, entries[i-1].Round)
		}
		history = appendEvent(history, e.Event)
	}
	l.entries = append([]Entry(nil), entries...)
	l.history, l.spent, l.next = history, nil, nil
	return nil
}

// appendEvent returns h with ev added and never writes to h's elements, so
// that a refused charge leaves no trace.
func appendEvent(h dp.Sequence, ev dp.Round) dp.Sequence {
	if n := len(h); n > 0 {
		if last := h[n-1].(dp.Repeat); last.Event == dp.Event(ev) {
			out := append(dp.Sequence(nil), h...)
			out[n-1] = dp.Repeat{Event: ev, Times: last.Times + 1}
			return out
		}
	}
	return append(h[:len(h):len(h)], dp.Repeat{Event: ev, Times: 1})
}

// Unprotected stands where a ledger would in a run without privacy, so that
// leaving privacy out has to be said. Its ε is +Inf.
type Unprotected struct{}

// Charge records nothing.
func (Unprotected) Charge(Entry) error { return nil }

// Spent returns ε = +Inf.
func (Unprotected) Spent() (dp.Bound, error) {
	return dp.Bound{Method: "none", Kind: dp.Upper, Status: dp.Proved,
		Guarantee: dp.Guarantee{Eps: math.Inf(1), Adjacency: dp.ReplaceOne}}, nil
}

// Entries is empty.
func (Unprotected) Entries() []Entry { return nil }

// Restore takes nothing but an empty list.
func (Unprotected) Restore(entries []Entry) error {
	if len(entries) != 0 {
		return fmt.Errorf("ledger: %d charged rounds in a run without privacy", len(entries))
	}
	return nil
}
