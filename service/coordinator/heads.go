package coordinator

import (
	"context"
	"fmt"

	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
)

// head returns how far the ledger was written.
func (r *runner) head() (h wire.Head) {
	r.s.config.Journal.View(func(b *ledger.Book) { h = b.Head() })
	return h
}

// CompareLedger tells the shuffler how far the ledger of a population was written, and compares the ledger with the
// furthest head that the shuffler was told of, by this process or another one. A ledger that
// never had that head was lost, restored from an old copy, or edited, together with its mark:
// the error wraps ErrFatal. It does nothing unless the configuration asks for it.
func (s *Service) CompareLedger(ctx context.Context, p wire.ID) error {
	c := &s.config
	if !c.AnnounceLedger {
		return nil
	}
	m := wire.HeadStatement{Population: p}
	c.Journal.View(func(b *ledger.Book) { m.Head = b.Head() })
	told, err := c.Shuffler.Ledger(ctx, wire.Sign(c.Key, wire.LabelHead, wire.Encode(m)))
	if err != nil {
		return err
	}
	if told.Entries > m.Head.Entries { // another process may have charged
		if err := c.Journal.Refresh(ctx); err != nil {
			return untrusted(err)
		}
	}
	c.Journal.View(func(b *ledger.Book) { err = had(b, told) })
	if err == nil && told.Entries < m.Head.Entries {
		err = fmt.Errorf("%w: it was told of %d entries of the ledger and keeps %d", batch.ErrLie, m.Head.Entries, told.Entries)
	}
	return err
}

// had returns an error that wraps ErrFatal unless a ledger had the head that the shuffler was told of.
func had(b *ledger.Book, told wire.Head) error {
	switch own := b.Head().Entries; {
	case b.Had(told):
		return nil
	case told.Entries > own:
		return fatal("the ledger has %d entries, the shuffler was told of %d: the store and the ledger's mark are older than what was opened; restore newer copies", own, told.Entries)
	default:
		return fatal("the ledger has %d entries, and entry %d is not the one that the shuffler was told of: the ledger was edited, or continued from an older copy", own, told.Entries)
	}
}
