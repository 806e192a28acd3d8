package store

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go"
)

// The ledger is the append-only stream of budget entries. Only Init creates it; nothing deletes
// or changes an entry. A budget has one writer. Sequences begin at 1 and have no gaps.

// LastEntry returns the sequence of the ledger's last entry, 0 if there is none yet, or
// ErrNoLedger.
func (s *Store) LastEntry(ctx context.Context) (uint64, error) {
	info, err := s.ledgerInfo(ctx)
	return info.last, err
}

func (s *Store) ledgerInfo(ctx context.Context) (streamInfo, error) {
	info, err := s.info(ctx, s.ledgerName())
	if errors.Is(err, ErrNotFound) {
		return info, fmt.Errorf("store: %s: %w", s.where(), ErrNoLedger)
	}
	if err != nil {
		return info, err
	}
	if info.count != info.last {
		return info, fmt.Errorf("store: %s: %w: the ledger has %d entries and last sequence %d; refusing", s.where(), ErrDamaged, info.count, info.last)
	}
	return info, nil
}

// AppendEntry adds an entry after the one with sequence expectLast (0: no entry yet) and returns
// its sequence once it is durable. It returns ErrConflict if the ledger has more entries; the
// writer then has to read it again.
func (s *Store) AppendEntry(ctx context.Context, expectLast uint64, data []byte) (uint64, error) {
	done, err := s.writing()
	if err != nil {
		return 0, err
	}
	defer done()
	return s.appendEntry(ctx, expectLast, data)
}

func (s *Store) appendEntry(ctx context.Context, expectLast uint64, data []byte) (uint64, error) {
	if err := checkData(data); err != nil {
		return 0, err
	}
	seq, err := s.publish(ctx, write{stream: s.ledgerName(),
		msg: &nats.Msg{Subject: s.config.Domain + ".ledger", Data: data}, expect: lastOfStream, expectLast: expectLast})
	if err == nil && seq != expectLast+1 {
		return 0, fmt.Errorf("store: ledger entry after %d got sequence %d", expectLast, seq)
	}
	if errors.Is(err, ErrNotFound) {
		return 0, fmt.Errorf("store: %s: %w", s.where(), ErrNoLedger)
	}
	return seq, err
}

// Entries yields all entries in order. It stops at an error; a missing entry is an error. What it has yielded is durable
// once it ends, also an entry whose writer was told nothing.
func (s *Store) Entries(ctx context.Context) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		info, err := s.ledgerInfo(ctx)
		if err != nil {
			yield(Message{}, err)
			return
		}
		next := uint64(1)
		for m, err := range s.read(ctx, s.ledgerName(), 1, s.config.Domain+".ledger") {
			if err == nil && m.seq != next {
				err = fmt.Errorf("store: %w: ledger entry %d is missing", ErrDamaged, next)
			}
			if err != nil {
				yield(Message{}, err)
				return
			}
			if !yield(Message{Seq: m.seq, Data: m.msg.Data()}, nil) {
				return
			}
			next++
		}
		if next <= info.last {
			yield(Message{}, fmt.Errorf("store: %w: the ledger ends at entry %d of %d", ErrDamaged, next-1, info.last))
			return
		}
		if err := s.settle(s.ledgerName()); err != nil {
			yield(Message{}, err)
		}
	}
}
