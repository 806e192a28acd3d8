package ledger

import (
	"math"
	"sort"
)

// Prospect returns a function for planning a task that has a budget of its own and no charges
// yet. fits says how many entries like e, but of different rounds, the present book allows; it
// counts no further than most. It also returns the refusal of the next entry, or nil if most
// entries are allowed. It reserves nothing: each charge is checked again. An error that wraps
// ErrBudget says that the task's tail does not fit; more is the number of tasks with the same
// budget whose tails would fit besides, 0 without tails.
func (b *Book) Prospect(task [32]byte, limit Config) (fits func(e Entry, most int64) (n int64, next error), more int64, err error) {
	if err := limit.check(); err != nil {
		return nil, 0, err
	}
	if more, err = b.checkTail(task, limit); err != nil {
		return nil, 0, err
	}
	before := *b.total
	return func(e Entry, most int64) (n int64, next error) {
		refused := func(n int64) error {
			own := Ledger{counter: counter{config: limit}}
			e.Round = n
			own.add(e, n-1)
			if err := own.afford(e); err != nil {
				return err
			}
			all := before
			all.record(task, e, n-1)
			return all.afford(task, e)
		}
		if most < 1 {
			return 0, nil
		}
		// The cost never falls when rounds are added: if the last charge fits, all do.
		if next = refused(most); next == nil {
			return most, nil
		}
		n = int64(sort.Search(int(min(most, math.MaxInt32)), func(i int) bool { return refused(int64(i)+1) != nil }))
		return n, refused(n + 1)
	}, more, nil
}
