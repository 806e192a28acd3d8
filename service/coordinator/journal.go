package coordinator

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// entries is a store's ledger; it is a *store.Store, except in tests.
type entries interface {
	LastEntry(ctx context.Context) (uint64, error)
	mark.Log
}

// OpenLog opens a store's ledger as a journal's log.
func OpenLog(ctx context.Context, s entries) (ledger.Log, error) {
	_, err := s.LastEntry(ctx)
	return onLedger{s}, err
}

type onLedger struct{ s entries }

func (o onLedger) Append(ctx context.Context, after int64, data []byte) error {
	if after < 0 {
		return fmt.Errorf("coordinator: entry after %d", after)
	}
	_, err := o.s.AppendEntry(ctx, uint64(after), data)
	if errors.Is(err, store.ErrConflict) {
		return fmt.Errorf("%w: %w", ledger.ErrConflict, err)
	}
	return err
}

func (o onLedger) Read(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for e, err := range o.s.Entries(ctx) {
			if !yield(e.Data, err) || err != nil {
				return
			}
		}
	}
}

// OpenJournal opens a population's ledger in a store and compares it with the mark
// in a file. limit is the population's budget.
func OpenJournal(ctx context.Context, s *store.Store, mark string, p wire.ID, limit ledger.Config) (*ledger.Journal, error) {
	log, err := OpenLog(ctx, s)
	if err != nil {
		return nil, err
	}
	return ledger.OpenJournal(ctx, log, MarkFile(mark), p, limit)
}
