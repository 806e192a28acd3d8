package mark

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"maps"
	"sync"

	"github.com/riffle-dp/riffle/service/store"
)

// Log is the append-only ledger of a store, which holds the entries of one list.
type Log interface {
	// AppendEntry adds entry after+1. If there are not exactly after entries it adds nothing and
	// returns store.ErrConflict; after any other error data may or may not have been added.
	AppendEntry(ctx context.Context, after uint64, data []byte) (uint64, error)
	Entries(ctx context.Context) iter.Seq2[store.Message, error]
}

// Keeper keeps a mark: a [File], except in tests.
type Keeper interface {
	Load() (Mark, error)
	Save(Mark) error
}

// ErrDamaged is wrapped if a list's entries are not those that were written.
var ErrDamaged = errors.New("the list is damaged")

// List is a list in a Log whose entries each hold the digest of the one before, and its mark outside
// the store. A store that was restored from an old copy is refused, because it may have forgotten
// entries. K and V are what the entries tell. Several processes may write one list.
type List[K comparable, V any] struct {
	Name string // of the role and of the list, for errors
	Log  Log
	Mark Keeper // nil where nothing is added, and there is none
	// Apply adds an entry to what is known, if it follows: head is the SHA-256 of the entry before, 0 for
	// the first.
	Apply func(known map[K]V, head [32]byte, data []byte) error

	mu    sync.Mutex
	known map[K]V
	count int64
	head  [32]byte
	fresh bool // known is all that the store holds, as far as this process can tell
}

// read reads the list and compares it with its mark. The mark is written after the entry, so the list
// may be ahead of it, never behind. The caller holds the lock.
func (l *List[K, V]) read(ctx context.Context) error {
	var m Mark
	if l.Mark != nil {
		var err error
		if m, err = l.Mark.Load(); err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
	}
	if l.count > m.Entries { // it must not be shorter than this process has seen it, either
		m.Entries, m.Digest = l.count, l.head
	}
	next := List[K, V]{Name: l.Name, Apply: l.Apply, known: map[K]V{}}
	agrees := m.Entries == 0
	for e, err := range l.Log.Entries(ctx) {
		if err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
		if err := next.apply(e.Data); err != nil {
			return err
		}
		if next.count == m.Entries {
			agrees = next.head == m.Digest
		}
	}
	if next.count < m.Entries {
		return fmt.Errorf("%s: %w: the store has %d entries, the mark is at %d: the store is an old copy", l.Name, Err, next.count, m.Entries)
	}
	if !agrees {
		return fmt.Errorf("%s: %w: entry %d differs from the mark's", l.Name, Err, m.Entries)
	}
	l.known, l.count, l.head, l.fresh = next.known, next.count, next.head, true
	return nil
}

func (l *List[K, V]) apply(data []byte) error {
	if err := l.Apply(l.known, l.head, data); err != nil {
		return fmt.Errorf("%s: %w: entry %d: %w", l.Name, ErrDamaged, l.count+1, err)
	}
	l.count, l.head = l.count+1, sha256.Sum256(data)
	return nil
}

// Open reads the list at start, and brings a mark up to date that a crash has left behind.
func (l *List[K, V]) Open(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.read(ctx); err != nil {
		return err
	}
	return l.save()
}

// All returns a copy of what the list holds now, and compares it with the mark. It writes nothing.
func (l *List[K, V]) All(ctx context.Context) (map[K]V, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.read(ctx); err != nil {
		return nil, err
	}
	return maps.Clone(l.known), nil
}

// Lag returns an error if the mark does not count all entries that this process knows. It returns nil
// without a mark.
func (l *List[K, V]) Lag() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Mark == nil {
		return nil
	}
	m, err := l.Mark.Load()
	if err == nil && m.Entries < l.count {
		err = fmt.Errorf("the high-water mark lags: it is at entry %d of %d, so that an old copy of the store would be taken; the next start writes it, or says why it cannot", m.Entries, l.count)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	return nil
}

// Find returns what this process knows of a key, or V's zero.
func (l *List[K, V]) Find(key K) V {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[key]
}

// Len returns the number of entries that this process knows.
func (l *List[K, V]) Len() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count
}

// Add adds an entry about a key. next makes it from what is known of the key and the digest of the
// entry before; it returns nil if there is nothing to add. It may be asked several times. When Add
// returns nil, entry and mark are durable.
func (l *List[K, V]) Add(ctx context.Context, key K, next func(known V, head [32]byte) ([]byte, error)) error {
	// Who asked may go away, which must not leave the others a list to read again. The store ends
	// what takes too long.
	ctx = context.WithoutCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	for tries := 0; ; tries++ {
		if !l.fresh {
			if err := l.read(ctx); err != nil {
				return err
			}
		}
		data, err := next(l.known[key], l.head)
		if err != nil {
			return err
		}
		if data == nil {
			return l.save()
		}
		l.fresh = false // until the entry is known to be there
		if _, err := l.Log.AppendEntry(ctx, uint64(l.count), data); errors.Is(err, store.ErrConflict) && tries < 100 {
			continue // another process has added one
		} else if err != nil {
			return err
		}
		if err := l.apply(data); err != nil {
			return err
		}
		l.fresh = true
		return l.save()
	}
}

// save brings the mark up to date.
func (l *List[K, V]) save() error {
	old, err := l.Mark.Load()
	if err == nil && old.Entries < l.count {
		err = l.Mark.Save(Mark{Entries: l.count, Digest: l.head})
	}
	if err != nil {
		return fmt.Errorf("%s: %w", l.Name, err)
	}
	return nil
}
