package ledger

import (
	"math"
	"sort"

	"github.com/riffle-dp/riffle/dp"
)

// Prospect returns a function that says how many charges of one event, at most most, a task
// with a budget of its own and without charges could be charged, by the present state of the
// book, and the refusal of the next charge (nil if there is none). It is a plan; each charge is
// checked again. Nothing changes. An error that wraps ErrBudget says that the task's tail does
// not fit.
func (b *Book) Prospect(task [32]byte, limit Config) (fits func(event dp.Round, most int64) (n int64, next error), err error) {
	if err := limit.check(); err != nil {
		return nil, err
	}
	if err := b.CheckTail(task, limit); err != nil {
		return nil, err
	}
	before := *b.total
	return func(event dp.Round, most int64) (n int64, next error) {
		refused := func(n int64) error {
			own := Ledger{counter: counter{config: limit}}
			own.add(event, n-1)
			if err := own.afford(Entry{Round: n, Event: event}); err != nil {
				return err
			}
			all := before
			all.record(task, event, n-1)
			return all.afford(task, event)
		}
		if most < 1 {
			return 0, nil
		}
		// The cost only grows with the rounds.
		if next = refused(most); next == nil {
			return most, nil
		}
		n = int64(sort.Search(int(min(most, math.MaxInt32)), func(i int) bool { return refused(int64(i)+1) != nil }))
		return n, refused(n + 1)
	}, nil
}
