package ledger

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// Adaptive is an accountant that can also count rounds which were chosen upon what
// others released.
type Adaptive interface {
	dp.Accountant
	// EpsAdaptive bounds ε at delta for a sequence of rounds each of which may have
	// been chosen upon all that those before it released. As long as its answer
	// stays within maxEps, all of them are (maxEps, delta)-DP.
	EpsAdaptive(ev dp.Event, maxEps, delta float64) (dp.Bound, error)
}

// adaptiveShare is the share of δ for populations of several tasks; the rest is
// for those that stay with one (adaptive.md, §3).
const adaptiveShare = 0.01

// whole counts what all tasks of a population cost together. One task's parameters
// stand in its signed terms, so it is counted as tightly as can be. A second one
// may have been planned upon what the first released: from then on all is counted
// as if every round had been (adaptive.md).
type whole struct {
	config  Config
	history dp.Sequence
	count   int64
	first   [32]byte // task of the first entry
	several bool     // tasks were charged
	spent   *dp.Bound
	// What was found to be affordable last.
	next      *dp.Bound
	asked     dp.Round
	askedMany bool
}

func newWhole(c Config) (*whole, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return &whole{config: c}, nil
}

// many says whether several tasks are charged once this one is.
func (w *whole) many(task [32]byte) bool { return w.several || w.count > 0 && task != w.first }

// afford returns an error unless a task's event fits the budget.
func (w *whole) afford(task [32]byte, event dp.Round) error {
	if err := event.Validate(); err != nil {
		return err
	}
	if math.IsInf(w.config.MaxEps, 1) {
		return nil
	}
	many := w.many(task)
	if w.next == nil || w.asked != event || w.askedMany != many {
		share := 1 - adaptiveShare
		if many {
			share = adaptiveShare
		}
		b, err := w.config.eps(appendEvent(w.history, event), many, share)
		if err != nil {
			return fmt.Errorf("ledger: entry %d: %w", w.count+1, err)
		}
		w.next, w.asked, w.askedMany = &b, event, many
	}
	// Negated so that a NaN refuses.
	if b := *w.next; !(b.Eps <= w.config.MaxEps) {
		also := ""
		if many && !w.several {
			also = "; it is the second task, and all tasks are counted as if they had been planned upon each other's releases"
		}
		return fmt.Errorf("ledger: entry %d would bring epsilon to %.4g (%s), above %.4g: %w%s",
			w.count+1, b.Eps, b.Method, w.config.MaxEps, ErrBudget, also)
	}
	return nil
}

// record adds what was afforded or spent before.
func (w *whole) record(task [32]byte, event dp.Round) {
	w.several = w.many(task)
	if w.count == 0 {
		w.first = task
	}
	w.count++
	w.history = appendEvent(w.history, event)
	w.spent = nil
	if w.several && w.next != nil && w.asked == event && w.askedMany {
		w.spent = w.next // of one task it was asked at less than all of δ
	}
	w.next = nil
}

// Spent returns the figure for what was charged: of one task its tightest bound, of
// several that of adaptive choice.
func (w *whole) Spent() (dp.Bound, error) {
	if w.count == 0 {
		return w.config.nothing(), nil
	}
	if w.spent == nil {
		share := 1.
		if w.several {
			share = adaptiveShare
		}
		b, err := w.config.eps(w.history, w.several, share)
		if err != nil {
			return b, err
		}
		w.spent = &b
	}
	return *w.spent, nil
}

// eps asks the accountant with a share of the δ that is counted.
func (c Config) eps(ev dp.Event, adaptive bool, share float64) (b dp.Bound, err error) {
	delta := dp.Counted(c.Delta, c.Tail)
	if share < 1 {
		delta *= share * (1 - 0x1p-50)
	}
	if !adaptive {
		b, err = c.Accountant.Eps(ev, delta)
	} else if a, ok := c.Accountant.(Adaptive); ok {
		b, err = a.EpsAdaptive(ev, c.MaxEps, delta)
	} else {
		err = fmt.Errorf("the accountant counts no rounds that were planned upon each other: %w", dp.ErrNoBound)
	}
	b.Delta = c.Delta
	return b, err
}

// nothing is the bound before any charge.
func (c Config) nothing() dp.Bound {
	return dp.Bound{Kind: dp.Upper, Status: dp.Proved, Guarantee: dp.Guarantee{Delta: c.Delta, Adjacency: dp.ReplaceOne}}
}
