package ledger

import (
	"math"
	"sort"

	"github.com/riffle-dp/riffle/dp"
)

// Prospect says what a task without charges could be charged, by the state of a book.
type Prospect struct {
	task  [32]byte
	limit Config
	total total
}

// Prospect returns the prospect of a task with a budget of its own. It changes nothing. An
// error that wraps ErrBudget says that the task's tail does not fit.
func (b *Book) Prospect(task [32]byte, limit Config) (*Prospect, error) {
	if err := limit.check(); err != nil {
		return nil, err
	}
	if err := b.CheckTail(task, limit); err != nil {
		return nil, err
	}
	return &Prospect{task: task, limit: limit, total: *b.total}, nil
}

// Fits returns how many charges of one event, at most most, both budgets allow, and the
// refusal of the next charge (nil if there is none). It is a plan; each charge is checked
// again.
func (p *Prospect) Fits(event dp.Round, most int64) (n int64, next error) {
	fits := func(n int64) error {
		own := Ledger{counter: counter{config: p.limit}}
		own.add(event, n-1)
		if err := own.afford(Entry{Round: n, Event: event}); err != nil {
			return err
		}
		all := p.total
		all.record(p.task, event, n-1)
		return all.afford(p.task, event)
	}
	if most < 1 {
		return 0, nil
	}
	// The cost only grows with the rounds.
	if next = fits(most); next == nil {
		return most, nil
	}
	n = int64(sort.Search(int(min(most, math.MaxInt32)), func(i int) bool { return fits(int64(i)+1) != nil }))
	return n, fits(n + 1)
}
