package store

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go"
)

// Ledger is the append-only stream of budget entries. Only Init creates it;
// nothing deletes or changes an entry. A budget has one writer.
type Ledger struct{ s *Store }

// ledgerEntry is one entry. Sequences begin at 1 and have no gaps.
type ledgerEntry struct {
	Seq  uint64
	Data []byte
}

// OpenLedger returns the ledger, or ErrNoLedger.
func (s *Store) OpenLedger(ctx context.Context) (*Ledger, error) {
	if _, err := s.ledgerInfo(ctx); err != nil {
		return nil, err
	}
	return &Ledger{s}, nil
}

func (s *Store) ledgerInfo(ctx context.Context) (StreamInfo, error) {
	info, err := s.info(ctx, s.ledgerName())
	if errors.Is(err, ErrNotFound) {
		return info, fmt.Errorf("store: %s: %w", s.where(), ErrNoLedger)
	}
	if err != nil {
		return info, err
	}
	if info.Count != info.Last {
		return info, fmt.Errorf("store: %s: the ledger has %d entries and last sequence %d; refusing", s.where(), info.Count, info.Last)
	}
	return info, nil
}

// Append adds an entry after the one with sequence expectLast (0: no entry yet) and returns
// its sequence once it is durable. It returns ErrConflict if the ledger has more entries; the
// writer then has to read it again.
func (l *Ledger) Append(ctx context.Context, expectLast uint64, data []byte) (uint64, error) {
	done, err := l.s.writing()
	if err != nil {
		return 0, err
	}
	defer done()
	return l.append(ctx, expectLast, data)
}

func (l *Ledger) append(ctx context.Context, expectLast uint64, data []byte) (uint64, error) {
	if err := checkData(data); err != nil {
		return 0, err
	}
	seq, err := l.s.publish(ctx, write{stream: l.s.ledgerName(),
		msg: &nats.Msg{Subject: l.s.config.Domain + ".ledger", Data: data}, expect: lastOfStream, expectLast: expectLast})
	if err == nil && seq != expectLast+1 {
		return 0, fmt.Errorf("store: ledger entry after %d got sequence %d", expectLast, seq)
	}
	if errors.Is(err, ErrNotFound) {
		return 0, fmt.Errorf("store: %s: %w", l.s.where(), ErrNoLedger)
	}
	return seq, err
}

// Read yields all entries in order. It stops at an error; a missing entry is an error.
func (l *Ledger) Read(ctx context.Context) iter.Seq2[ledgerEntry, error] {
	return func(yield func(ledgerEntry, error) bool) {
		info, err := l.s.ledgerInfo(ctx)
		if err != nil {
			yield(ledgerEntry{}, err)
			return
		}
		next := uint64(1)
		for m, err := range l.s.read(ctx, l.s.ledgerName(), l.s.config.Domain+".ledger", 1) {
			if err == nil && m.seq != next {
				err = fmt.Errorf("store: ledger entry %d is missing", next)
			}
			if err != nil {
				yield(ledgerEntry{}, err)
				return
			}
			if !yield(ledgerEntry{Seq: m.seq, Data: m.msg.Data()}, nil) {
				return
			}
			next++
		}
		if next <= info.Last {
			yield(ledgerEntry{}, fmt.Errorf("store: ledger ends at entry %d of %d", next-1, info.Last))
		}
	}
}

// Last returns the sequence of the last entry, 0 if there is none.
func (l *Ledger) Last(ctx context.Context) (uint64, error) {
	info, err := l.s.ledgerInfo(ctx)
	return info.Last, err
}
