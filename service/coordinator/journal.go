package coordinator

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// OnLedger is a stored ledger as a journal's log.
func OnLedger(l *store.Ledger) ledger.Log { return onLedger{l} }

type onLedger struct{ l *store.Ledger }

func (o onLedger) Append(ctx context.Context, after int64, data []byte) error {
	if after < 0 {
		return fmt.Errorf("coordinator: entry after %d", after)
	}
	_, err := o.l.Append(ctx, uint64(after), data)
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: %w", ledger.ErrConflict, err)
	}
	return err
}

func (o onLedger) Read(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for e, err := range o.l.Read(ctx) {
			if !yield(e.Data, err) || err != nil {
				return
			}
		}
	}
}

// MarkFile is a high-water mark in a file, which `riffle init` has made with InitMark. The
// mark's digest is the digest of the ledger's last entry.
func MarkFile(path string) ledger.Marks { return markFile(path) }

// InitMark makes the mark of a ledger without entries.
func InitMark(path string) error { return store.WriteMark(path, store.Mark{}) }

type markFile string

func (f markFile) Load() (ledger.Mark, error) {
	m, err := store.ReadMark(string(f))
	if errors.Is(err, store.ErrNotFound) {
		// Without the mark nobody can tell whether the ledger is complete.
		err = fmt.Errorf("%w: %w", ledger.ErrMark, err)
	}
	return ledger.Mark{Entries: int64(m.Count), Digest: m.Digest, Eps: m.Epsilon}, err
}

func (f markFile) Save(m ledger.Mark) error {
	return store.WriteMark(string(f), store.Mark{Count: uint64(m.Entries), Digest: m.Digest, Epsilon: m.Eps})
}

// OpenJournal opens a population's ledger in a store and compares it with the mark
// in a file. limit is the population's budget.
func OpenJournal(ctx context.Context, s *store.Store, mark string, p wire.Population, limit ledger.Config) (*ledger.Journal, error) {
	l, err := s.OpenLedger(ctx)
	if err != nil {
		return nil, err
	}
	return ledger.OpenJournal(ctx, OnLedger(l), MarkFile(mark), p, limit)
}
