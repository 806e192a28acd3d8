package ledger

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// ErrChain is wrapped if entries are not the ones that were written: changed, removed,
// inserted, or of another population.
var ErrChain = errors.New("ledger: entries do not form one chain")

// ErrCharged is wrapped by the refusal of a charge for a round that was charged for another
// batch, or after which a later round was charged.
var ErrCharged = errors.New("ledger: round was charged for something else")

// Book is the ledger of a population: the entries of all its tasks in the order of their
// charges, each with the digest of the one before. It keeps each task's budget. Because a
// person is in the population and not in a task, it also keeps a budget for all tasks
// together, which is computed differently (adaptive.md).
//
// It does not read or write: next returns what has to be written, and apply takes what was
// written. Not safe for concurrent use.
type Book struct {
	population wire.ID
	entries    []wire.Entry
	head       [32]byte
	total      *total
	tasks      map[[32]byte]*taskBook
}

// taskBook is a task's part of a book. Its config is the argument of setTask; it is zero
// until setTask is called.
type taskBook struct {
	Ledger
	last wire.Entry
	part *part // nil: not computed yet
}

// part is what a task's first entries cost by themselves, at its share of the population's δ.
type part struct {
	entries int
	bound   dp.Bound
}

func (t *taskBook) hasBudget() bool { return t.config.Accountant != nil }

// newBook returns the empty book of a population; limit is its budget over all tasks.
func newBook(p wire.ID, limit Config) (*Book, error) {
	if err := limit.check(); err != nil {
		return nil, err
	}
	return &Book{population: p, total: &total{counter: counter{config: limit}}, tasks: map[[32]byte]*taskBook{}}, nil
}

// setTask gives a task its own budget. Earlier charges of the task count.
func (b *Book) setTask(task [32]byte, limit Config) error {
	if err := limit.check(); err != nil {
		return err
	}
	a := b.of(task)
	a.counter = counter{config: limit, history: a.history}
	return nil
}

func (b *Book) of(task [32]byte) *taskBook {
	a := b.tasks[task]
	if a == nil {
		a = &taskBook{}
		b.tasks[task] = a
	}
	return a
}

// next returns the entry to write for a charge, or the entry that was already written for it.
// It changes nothing. The error wraps ErrBudget if the task's or the population's budget
// would be exceeded, and ErrCharged if the round, or a later one of the task, was charged for
// something else.
func (b *Book) next(c Charge) (e wire.Entry, written bool, err error) {
	a := b.tasks[c.Task]
	if a == nil || !a.hasBudget() {
		return wire.Entry{}, false, fmt.Errorf("ledger: task %x has no budget", c.Task[:8])
	}
	e = wire.Entry{Before: b.head, Population: b.population, Task: c.Task, Round: c.Round,
		Announcement: c.Announcement, Batch: c.Batch, Event: c.Event, Times: c.Times}
	if len(a.entries) > 0 && c.Round <= a.last.Round {
		again := a.last
		again.Before = e.Before
		if again == e {
			return a.last, true, nil
		}
		return wire.Entry{}, false, fmt.Errorf("%w: task %x is charged up to round %d, not again for round %d",
			ErrCharged, c.Task[:8], a.last.Round, c.Round)
	}
	entry := Entry{Round: c.Round, Event: c.Event, Times: c.Times}
	if c.Event.Report.Class == dp.GaussianSum {
		err = a.config.sumsUpTo()
	}
	if err == nil {
		err = a.afford(entry)
	}
	if err != nil {
		return wire.Entry{}, false, fmt.Errorf("task %x: %w", c.Task[:8], err)
	}
	if _, err := b.tails(c.Task, a.config, false); err != nil {
		return wire.Entry{}, false, err
	}
	if err := b.total.afford(c.Task, entry); err != nil {
		return wire.Entry{}, false, fmt.Errorf("population %x: %w", b.population[:4], err)
	}
	// An entry that cannot be read back must not be written.
	if _, err := wire.Decode[wire.Entry](wire.Encode(e)); err != nil {
		return wire.Entry{}, false, fmt.Errorf("ledger: round %d: %w", c.Round, err)
	}
	return e, false, nil
}

// apply adds the next entry as it was written. If it returns an error the book is unchanged.
// It does not check budgets again: the entry is spent.
func (b *Book) apply(e wire.Entry) error {
	n := len(b.entries) + 1
	switch {
	case e.Population != b.population:
		return fmt.Errorf("%w: entry %d is of population %x, not %x", ErrChain, n, e.Population[:4], b.population[:4])
	case e.Before != b.head:
		return fmt.Errorf("%w: entry %d does not follow entry %d", ErrChain, n, n-1)
	case e.Round < 1:
		return fmt.Errorf("%w: entry %d is of round %d", ErrChain, n, e.Round)
	}
	entry := Entry{Round: e.Round, Event: e.Event, Times: e.Times}
	if err := entry.check(); err != nil {
		return fmt.Errorf("%w: entry %d: %v", ErrChain, n, err)
	}
	a := b.tasks[e.Task]
	if a != nil && len(a.entries) > 0 && e.Round <= a.last.Round {
		return fmt.Errorf("%w: entry %d is of round %d, after round %d of the same task", ErrChain, n, e.Round, a.last.Round)
	}
	a = b.of(e.Task)
	a.record(entry)
	a.last = e
	b.total.record(e.Task, entry, 1)
	b.entries, b.head = append(b.entries, e), wire.Digest(e)
	return nil
}

// affords returns nil if the task's next round could be charged now with the event and times of
// an entry, otherwise an error that says why it could not. It charges nothing.
func (b *Book) affords(task [32]byte, e Entry) error {
	round := int64(1)
	if a := b.tasks[task]; a != nil && len(a.entries) > 0 {
		round = a.last.Round + 1
	}
	_, _, err := b.next(Charge{Task: task, Round: round, Event: e.Event, Times: e.Times})
	return err
}

// checkTail returns an error that wraps ErrBudget unless a task's tail would fit the population's δ beside
// the tails of all tasks that were charged or have a budget. more is as of tails.
func (b *Book) checkTail(task [32]byte, limit Config) (more int64, err error) {
	return b.tails(task, limit, true)
}

// tails refuses a task whose tail, together with those of all charged tasks, exceeds the share
// of δ that the population keeps for tails. If planned is set, tasks that have a budget and no
// charge yet count, too. ε is computed at the remaining δ. more is how many tasks with the same
// budget would find room besides; 0 without a tail.
func (b *Book) tails(task [32]byte, limit Config, planned bool) (more int64, err error) {
	if limit.Tail == 0 {
		return 0, nil // whatever others take
	}
	own, others := limit.Tail*limit.Delta, 0.
	for id, a := range b.tasks {
		switch {
		case id == task || len(a.entries) == 0 && !planned:
		case a.hasBudget():
			others += a.config.Tail * a.config.Delta
		case a.last.Event.Trust.Is(dp.SumsOnly):
			return 0, fmt.Errorf("ledger: the tail of task %x is not known: %w", id[:8], dp.ErrNoBound)
		}
	}
	kept := b.total.config.Tail * b.total.config.Delta
	room := kept*(1+0x1p-41) - others
	// The condition is negated so that it refuses a NaN.
	if !(own <= room) {
		return 0, fmt.Errorf("%w: the tails of all tasks take %g of delta, the population keeps %g for them", ErrBudget, own+others, kept)
	}
	return int64(math.Min(room/own, 1e9)) - 1, nil
}

// withoutBudget returns the tasks that were charged and have no budget.
func (b *Book) withoutBudget() (out [][32]byte) {
	for id, a := range b.tasks {
		if !a.hasBudget() {
			out = append(out, id)
		}
	}
	return out
}

// tip returns the number of entries and the digest of the last one.
func (b *Book) tip() (entries int64, digest [32]byte) { return int64(len(b.entries)), b.head }

// Entries returns all entries, oldest first. The caller must not change the list.
func (b *Book) Entries() []wire.Entry { return slices.Clip(b.entries) }

// TaskEntries returns a task's charges, oldest first. The caller must not change the list.
func (b *Book) TaskEntries(task [32]byte) []Entry {
	if a := b.tasks[task]; a != nil {
		return a.Entries()
	}
	return nil
}

// Last returns a task's last entry.
func (b *Book) Last(task [32]byte) (e wire.Entry, ok bool) {
	if a := b.tasks[task]; a != nil && len(a.entries) > 0 {
		return a.last, true
	}
	return wire.Entry{}, false
}

// MaxParts is the number of tasks up to which Spent adds up what each costs by itself.
const MaxParts = 16

// Spent bounds the cost of all tasks together: of a single task as tightly as possible, of
// several as if each round had been chosen after seeing what was released before, or by the sum of what each task costs at a
// MaxParts-th of δ, whichever is smaller (adaptive.md, section 7).
func (b *Book) Spent() (dp.Bound, error) {
	all, err := b.total.spentEps()
	if err != nil || !b.total.several {
		return all, err
	}
	sum, tasks := 0., 0
	for _, a := range b.tasks {
		if len(a.entries) == 0 {
			continue
		}
		if tasks++; tasks > MaxParts {
			return all, nil
		}
		if a.part == nil || a.part.entries != len(a.entries) {
			one, err := b.total.config.eps(a.history, count{share: (1 - adaptiveShare) / MaxParts})
			if err != nil {
				return all, err
			}
			a.part = &part{len(a.entries), one}
		}
		if sum += a.part.bound.Eps; !(sum < all.Eps) {
			return all, nil
		}
	}
	all.Eps, all.Order, all.Method = sum*(1+MaxParts*0x1p-52), 0, "tasks-basic"
	all.Source = fmt.Sprintf("basic composition of %d tasks, each at delta/%d by its own bound, if none was ended upon what was released (protocol/ledger/adaptive.md, section 7)", tasks, MaxParts)
	return all, nil
}

// spentOn bounds what a task with a budget cost by itself.
func (b *Book) spentOn(task [32]byte) (dp.Bound, error) {
	a := b.tasks[task]
	if a == nil || !a.hasBudget() {
		return dp.Bound{}, fmt.Errorf("ledger: task %x has no budget", task[:8])
	}
	return a.Spent()
}

// Head returns how far the book was written.
func (b *Book) Head() wire.Head { return wire.Head{Entries: int64(len(b.entries)), Digest: b.head} }

// Had says whether the book was written as far as h once: the entry h.Entries has its digest.
func (b *Book) Had(h wire.Head) bool {
	switch n := int64(len(b.entries)); {
	case h.Entries < 0 || h.Entries > n:
		return false
	case h.Entries == n:
		return h.Digest == b.head
	}
	return b.entries[h.Entries].Before == h.Digest
}
