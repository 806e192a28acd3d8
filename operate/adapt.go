package operate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/riffle-dp/riffle/ledger"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/store"
)

// coordinatorStore is a store as a coordinator's service uses it.
type coordinatorStore struct{ *store.Store }

var _ coordinator.Store = coordinatorStore{}

func coordinatorError(err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("%w: %w", coordinator.ErrNotFound, err)
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrExists):
		return fmt.Errorf("%w: %w", coordinator.ErrConflict, err)
	case errors.Is(err, store.ErrLost):
		return fmt.Errorf("%w: %w", coordinator.ErrLost, err)
	}
	return err
}

func (s coordinatorStore) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	e, err := s.Store.Get(ctx, key)
	return e.Value, e.Revision, coordinatorError(err)
}

func (s coordinatorStore) Put(ctx context.Context, key string, value []byte, revision uint64) (next uint64, err error) {
	if revision == 0 {
		next, err = s.CreateKey(ctx, key, value)
	} else {
		next, err = s.UpdateKey(ctx, key, value, revision)
	}
	return next, coordinatorError(err)
}

func (s coordinatorStore) PutObject(ctx context.Context, name string, data []byte) error {
	_, err := s.Store.PutObject(ctx, name, bytes.NewReader(data))
	return coordinatorError(err)
}

func (s coordinatorStore) GetObject(ctx context.Context, name string) ([]byte, error) {
	b, err := s.Store.GetObject(ctx, name)
	return b, coordinatorError(err)
}

func (s coordinatorStore) DeleteObject(ctx context.Context, name string) error {
	return coordinatorError(s.Store.DeleteObject(ctx, name))
}

func (s coordinatorStore) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (coordinator.Lease, error) {
	l, err := s.Store.Acquire(ctx, name, holder, ttl)
	if err != nil {
		return nil, coordinatorError(err)
	}
	return lease{l}, nil
}

type lease struct{ *store.Lease }

func (l lease) Renew(ctx context.Context) error   { return coordinatorError(l.Lease.Renew(ctx)) }
func (l lease) Release(ctx context.Context) error { return coordinatorError(l.Lease.Release(ctx)) }

// journalLog keeps a journal in a store's ledger.
type journalLog struct{ *store.Ledger }

var _ ledger.Log = journalLog{}

func (l journalLog) Append(ctx context.Context, after int64, data []byte) error {
	if after < 0 {
		return fmt.Errorf("operate: entry after %d", after)
	}
	_, err := l.Ledger.Append(ctx, uint64(after), data)
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: %w", ledger.ErrConflict, err)
	}
	return err
}

func (l journalLog) Read(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for e, err := range l.Ledger.Read(ctx) {
			if !yield(e.Data, err) || err != nil {
				return
			}
		}
	}
}

// markFile is a high-water mark in a file.
type markFile string

var _ ledger.Marks = markFile("")

func (f markFile) Load() (ledger.Mark, error) {
	m, err := store.ReadMark(string(f))
	if errors.Is(err, store.ErrNotFound) {
		// Without it nobody can tell whether the ledger is whole.
		err = fmt.Errorf("%w: %w", ledger.ErrMark, err)
	}
	return ledger.Mark{Entries: int64(m.Count), Digest: m.Digest, Eps: m.Epsilon}, err
}

func (f markFile) Save(m ledger.Mark) error {
	return store.WriteMark(string(f), store.Mark{Count: uint64(m.Entries), Digest: m.Digest, Epsilon: m.Eps})
}
