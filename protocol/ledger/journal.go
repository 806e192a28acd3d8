package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Errors of a Journal's storage.
var (
	// ErrConflict is wrapped if a Log does not end where its writer expected.
	ErrConflict = errors.New("ledger: log was continued by another")
	// ErrMark is wrapped if a log disagrees with its high-water mark: it was lost, edited, or
	// restored from an older copy.
	ErrMark = errors.New("ledger: entries do not agree with the high-water mark")
	// ErrUncounted is wrapped by the refusal of a charge whose cost cannot be computed.
	ErrUncounted = errors.New("ledger: cost cannot be counted")
)

// Log stores a book's entries. Nothing in it is ever changed.
type Log interface {
	// Append adds data as entry after+1 and returns nil once it is durable. If there are not
	// exactly after entries it adds nothing and returns an error that wraps ErrConflict.
	// After any other error data may or may not have been added.
	Append(ctx context.Context, after int64, data []byte) error
	// Read yields all entries, oldest first. A log that is missing is an error, not
	// an empty one.
	Read(ctx context.Context) iter.Seq2[[]byte, error]
}

// Mark records how far a book was written.
type Mark struct {
	Entries int64
	Digest  [32]byte // digest of the last entry
	Eps     float64  // cost of the entries, for people to read; +Inf if there is no bound
}

// markStore stores the high-water mark, in another place than the log.
type markStore interface {
	// Load returns the mark. The mark of a new book has no entries; a missing mark is an
	// error.
	Load() (Mark, error)
	// Save replaces the mark and returns once it is durable.
	Save(Mark) error
}

// Journal is a Book with its storage: a charge that returned nil is durable. Safe for
// concurrent use, and several processes may share one log.
type Journal struct {
	// Lookup, if not nil, finds a task's budget. It is called for tasks that another process has
	// charged and that Task was not called for. Without it, charges with a tail are refused
	// while any charged task's tail is unknown. If it fails, so does the charge; it may be
	// tried again. Set it before the journal is used.
	Lookup func(ctx context.Context, task [32]byte) (limit Config, ok bool, err error)

	log        Log
	marks      markStore
	population wire.ID
	limit      Config

	mu    sync.Mutex
	book  *Book
	tasks map[[32]byte]Config
	stale bool // the log may hold entries that book does not
}

// OpenJournal reads a population's book and compares it with its mark.
func OpenJournal(ctx context.Context, log Log, marks markStore, p wire.ID, limit Config) (*Journal, error) {
	j := &Journal{log: log, marks: marks, population: p, limit: limit, tasks: map[[32]byte]Config{}}
	if err := j.reload(ctx); err != nil {
		return nil, err
	}
	return j, nil
}

// read reads a log from its start, checks its chain, and compares it with its mark. The mark
// is written after the log, so a log may be ahead of its mark, never behind.
func (b *Book) read(ctx context.Context, from Log, m Mark) error {
	agrees := m.Entries == 0
	for data, err := range from.Read(ctx) {
		if err != nil {
			return err
		}
		e, err := wire.Decode[wire.Entry](data)
		if err != nil {
			return fmt.Errorf("%w: entry %d: %v", ErrChain, len(b.entries)+1, err)
		}
		if err := b.apply(e); err != nil {
			return err
		}
		if n, head := b.tip(); n == m.Entries {
			agrees = head == m.Digest
		}
	}
	if n, _ := b.tip(); n < m.Entries {
		return fmt.Errorf("%w: %d entries, the mark is at %d", ErrMark, n, m.Entries)
	}
	if !agrees {
		return fmt.Errorf("%w: entry %d differs from the mark's", ErrMark, m.Entries)
	}
	return nil
}

func (j *Journal) reload(ctx context.Context) error {
	m, err := j.marks.Load()
	if err != nil {
		return fmt.Errorf("ledger: high-water mark: %w", err)
	}
	// The log must not be shorter than this process has seen it, either.
	if j.book != nil {
		if n, head := j.book.tip(); n > m.Entries {
			m = Mark{Entries: n, Digest: head}
		}
	}
	b, err := newBook(j.population, j.limit)
	if err != nil {
		return err
	}
	if err := b.read(ctx, j.log, m); err != nil {
		return err
	}
	for task, limit := range j.tasks {
		if err := b.setTask(task, limit); err != nil {
			return err
		}
	}
	for _, task := range b.withoutBudget() {
		if j.Lookup == nil {
			break
		}
		limit, ok, err := j.Lookup(ctx, task)
		if err != nil {
			return fmt.Errorf("ledger: budget of task %x: %w", task[:8], err)
		}
		if !ok {
			continue
		}
		if err := b.setTask(task, limit); err != nil {
			return err
		}
	}
	j.book, j.stale = b, false
	return nil
}

// Refresh reads what others have written.
func (j *Journal) Refresh(ctx context.Context) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reload(ctx)
}

// View calls f with the book as far as it has been read; f must not change or keep it.
func (j *Journal) View(f func(*Book)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f(j.book)
}

// Charge writes a charge, once; a charge that was written before is found. When it returns
// nil the charge is durable. An error that wraps ErrBudget, ErrUncounted or ErrCharged is
// final. After any other error the charge may or may not have been written: call Charge
// again.
func (j *Journal) Charge(ctx context.Context, c Charge) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for tries := 0; ; tries++ {
		if j.stale {
			if err := j.reload(ctx); err != nil {
				return err
			}
		}
		e, written, err := j.book.next(c)
		if err != nil && !errors.Is(err, ErrBudget) && !errors.Is(err, ErrCharged) {
			return fmt.Errorf("%w: %w", ErrUncounted, err)
		}
		if err != nil {
			return err
		}
		if written {
			return j.mark()
		}
		n, _ := j.book.tip()
		j.stale = true // until the written entries have been read
		err = j.log.Append(ctx, n, wire.Encode(e))
		if errors.Is(err, ErrConflict) && tries < 100 {
			continue
		}
		if err != nil {
			return err
		}
		if err := j.book.apply(e); err != nil {
			return err
		}
		j.stale = false
		return j.mark()
	}
}

// mark brings the mark up to date with the book.
func (j *Journal) mark() error {
	n, head := j.book.tip()
	old, err := j.marks.Load()
	if err != nil {
		return fmt.Errorf("ledger: high-water mark: %w", err)
	}
	if old.Entries >= n {
		return nil
	}
	m := Mark{Entries: n, Digest: head, Eps: math.Inf(1)}
	if b, err := j.book.Spent(); err == nil && b.Eps >= 0 {
		m.Eps = b.Eps
	}
	if err := j.marks.Save(m); err != nil {
		return fmt.Errorf("ledger: high-water mark: %w", err)
	}
	return nil
}

// Task gives a task its budget and returns its ledger.
func (j *Journal) Task(task [32]byte, limit Config) (*TaskLedger, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.book.setTask(task, limit); err != nil {
		return nil, err
	}
	j.tasks[task] = limit
	return &TaskLedger{journal: j, task: task}, nil
}

// TaskLedger is one task's view of a journal: the ledger of that task's coordinator. Safe for
// concurrent use.
type TaskLedger struct {
	journal *Journal
	task    [32]byte
}

// Charge writes a charge of the task, like Journal.Charge.
func (l *TaskLedger) Charge(ctx context.Context, c Charge) error {
	if c.Task != l.task {
		return fmt.Errorf("ledger: a charge of task %x is not for the ledger of task %x", c.Task[:8], l.task[:8])
	}
	return l.journal.Charge(ctx, c)
}

// Affords returns nil if the next round could be charged with the event and times of an entry,
// otherwise an error that says why it could not.
func (l *TaskLedger) Affords(e Entry) (err error) {
	l.journal.View(func(b *Book) { err = b.affords(l.task, e) })
	return err
}

// Spent bounds the cost of the task.
func (l *TaskLedger) Spent() (b dp.Bound, err error) {
	l.journal.View(func(k *Book) { b, err = k.spentOn(l.task) })
	return b, err
}

// Entries returns the task's charges, oldest first.
func (l *TaskLedger) Entries() (out []Entry) {
	l.journal.View(func(b *Book) { out = b.TaskEntries(l.task) })
	return out
}

// Restore returns an error unless the entries are those of the journal. It changes nothing.
func (l *TaskLedger) Restore(entries []Entry) error {
	have := l.Entries()
	if len(have) != len(entries) {
		return fmt.Errorf("ledger: task %x has %d entries, not %d", l.task[:8], len(have), len(entries))
	}
	for i := range have {
		if have[i] != entries[i] {
			return fmt.Errorf("ledger: entry %d of task %x differs", i, l.task[:8])
		}
	}
	return nil
}
