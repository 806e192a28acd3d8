package ledger

import (
	"math"
	"sort"

	"github.com/riffle-dp/riffle/dp"
)

// Prospect is what a task that was charged nothing could be charged, as a book stood.
type Prospect struct {
	task  [32]byte
	limit Config
	whole whole
}

// Prospect looks ahead for a task with a budget of its own. It changes nothing. An
// error that wraps ErrBudget says that what it keeps for tails does not fit.
func (b *Book) Prospect(task [32]byte, limit Config) (*Prospect, error) {
	if err := limit.check(); err != nil {
		return nil, err
	}
	if err := b.CheckTail(task, limit); err != nil {
		return nil, err
	}
	w := b.whole // its history's elements are never written to
	return &Prospect{task: task, limit: limit, whole: whole{config: w.config, count: w.count, first: w.first, several: w.several, history: w.history}}, nil
}

// Fits returns how many charges of one event, at most most, both budgets would take,
// and what refuses the next (nil if none does). It is a plan: what counts is each
// charge.
func (p *Prospect) Fits(event dp.Round, most int64) (n int64, next error) {
	fits := func(n int64) error {
		own := &Ledger{config: p.limit, history: times(nil, event, n-1)}
		if err := own.afford(Entry{Round: n, Event: event}); err != nil {
			return err
		}
		all := p.whole
		if n > 1 {
			all.several = all.many(p.task)
			if all.count == 0 {
				all.first = p.task
			}
			all.count += n - 1
			all.history = times(all.history, event, n-1)
		}
		return all.afford(p.task, event)
	}
	if most < 1 {
		return 0, nil
	}
	// A cost only grows with the rounds.
	if next = fits(most); next == nil {
		return most, nil
	}
	n = int64(sort.Search(int(min(most, math.MaxInt32)), func(i int) bool { return fits(int64(i)+1) != nil }))
	return n, fits(n + 1)
}

// times returns h with n more of an event.
func times(h dp.Sequence, event dp.Round, n int64) dp.Sequence {
	if n < 1 {
		return h
	}
	h = appendEvent(h, event)
	last := h[len(h)-1].(dp.Repeat)
	out := append(dp.Sequence(nil), h...)
	out[len(out)-1] = dp.Repeat{Event: event, Times: last.Times + n - 1}
	return out
}
