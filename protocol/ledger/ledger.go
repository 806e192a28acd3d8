// Package ledger keeps the privacy budgets of tasks and of the population they share. It
// records events, never a running ε; a dp.Accountant computes the cost of the events.
//
// A round is charged, and the charge is durable, before any of its reports is opened. A round
// that is run again after a crash is charged once, because it releases the same bytes.
//
// A Ledger is the ledger of one task, in memory. A Book is the ledger of a population with
// all its tasks, and a Journal is a Book with its storage.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// ErrBudget is wrapped by the refusal of a round that would exceed the budget.
var ErrBudget = errors.New("budget exceeded")

// Config is a budget. Delta and Accountant are required. A population of several tasks needs
// an Accountant that also has EpsAdaptive, see adaptive.
type Config struct {
	Accountant dp.Accountant
	Delta      float64 // δ at which ε is computed
	// Tail is the share of Delta that pays for losses outside events, such as the tails of
	// vector sums' noise; ε is computed at the rest.
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

// Entry is one charged round.
type Entry struct {
	Round int64
	Event dp.Round
	Times int64 // how often the event is charged: the number of a client's messages; 0 means once
}

// Charged returns what the entry charges.
func (e Entry) Charged() dp.Repeat { return dp.Repeat{Event: e.Event, Times: max(1, e.Times)} }

// check returns an error unless the event can be charged as often as Times says.
func (e Entry) check() error {
	if e.Times < 0 || e.Times == 1 || e.Times > wire.MaxTimes {
		return fmt.Errorf("ledger: times = %d must be 0, for once, or lie between 2 and %d", e.Times, int64(wire.MaxTimes))
	}
	return e.Event.Validate()
}

// Charge is a coordinator's request before it opens any report of a closed round: the event
// to charge, and the batch that the charge pays for.
type Charge struct {
	Task         [32]byte
	Round        int64
	Announcement [32]byte // digest of the announcement
	Batch        [32]byte // digest, which covers the order of its reports
	Event        dp.Round
	Times        int64 // how often to charge the event; 0 means once
}

// Ledger is the budget of one task, in memory. It stores the Round and Event of a Charge; a
// Journal stores all of it. Not safe for concurrent use: a budget has one writer.
type Ledger struct {
	counter
	entries []Entry
}

// Unprotected is the ledger of a run without privacy, so that leaving privacy out has
// to be asked for. It records nothing, and its ε is +Inf.
var Unprotected = &Ledger{}

// New returns an empty ledger.
func New(c Config) (*Ledger, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &Ledger{counter: counter{config: c}}, nil
}

// Charge records a round before its reports are opened. Charging the last round again with
// the same event changes nothing; with another event, or out of order, it is an error. If the
// error is ErrBudget nothing was recorded.
func (l *Ledger) Charge(_ context.Context, c Charge) error {
	if l == Unprotected {
		return nil
	}
	e := Entry{Round: c.Round, Event: c.Event, Times: c.Times}
	if n := len(l.entries); n > 0 && e.Round <= l.entries[n-1].Round {
		if l.entries[n-1] == e {
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
	b, ok, err := l.fits(e, count{share: 1})
	if err != nil {
		return fmt.Errorf("ledger: round %d: %w", e.Round, err)
	}
	if !ok {
		return fmt.Errorf("ledger: round %d would bring epsilon to %.4g, above %.4g: %w",
			e.Round, b.Eps, l.config.MaxEps, ErrBudget)
	}
	return nil
}

// record adds e. The caller has checked that it fits the budget, or reads a charge that was
// accepted before.
func (l *Ledger) record(e Entry) {
	l.entries = append(l.entries, e)
	l.add(e, 1)
}

// Spent returns the bound on everything charged so far.
func (l *Ledger) Spent() (dp.Bound, error) {
	if l == Unprotected {
		return dp.Bound{Method: dp.NoMethod, Kind: dp.Upper, Status: dp.Proved,
			Guarantee: dp.Guarantee{Eps: math.Inf(1), Adjacency: dp.ReplaceOne}}, nil
	}
	return l.cost(count{share: 1})
}

// Entries returns the charges, oldest first. The caller must not change the list.
func (l *Ledger) Entries() []Entry { return slices.Clip(l.entries) }

// Restore replays entries into an empty ledger. It does not check the budget again: the
// entries were accepted once and are spent.
func (l *Ledger) Restore(entries []Entry) error {
	if l == Unprotected && len(entries) != 0 {
		return fmt.Errorf("ledger: %d charged rounds in a run without privacy", len(entries))
	}
	if len(l.entries) != 0 {
		return errors.New("ledger: restore into a ledger that is not empty")
	}
	for i, e := range entries {
		if err := e.check(); err != nil {
			return fmt.Errorf("ledger: entry %d: %w", i, err)
		}
		if i > 0 && e.Round <= entries[i-1].Round {
			return fmt.Errorf("ledger: entry %d: round %d after round %d", i, e.Round, entries[i-1].Round)
		}
	}
	for _, e := range entries {
		l.record(e)
	}
	return nil
}
