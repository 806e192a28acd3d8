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

// tellLedger tells the shuffler how far the ledger was written, and compares the ledger with the
// furthest head that the shuffler was told of, by this process or another one. A ledger that
// never had that head was lost, restored from an old copy, or edited, together with its mark:
// the error is fatal. It does nothing unless the configuration asks for it.
func (r *runner) tellLedger(ctx context.Context) error {
	c := &r.s.config
	if !c.AnnounceLedger {
		return nil
	}
	own := r.head()
	m := wire.HeadStatement{Population: r.task.Population, Head: own}
	told, err := c.Shuffler.Ledger(ctx, wire.Sign(c.Key, wire.LabelHead, wire.Encode(m)))
	if err != nil {
		return err
	}
	if told.Entries > own.Entries { // another process may have charged
		if err := c.Journal.Refresh(ctx); err != nil {
			return untrusted(err)
		}
	}
	had := false
	c.Journal.View(func(b *ledger.Book) { had, own = b.Had(told), b.Head() })
	switch {
	case had && told.Entries >= m.Head.Entries:
		return nil
	case had:
		return fmt.Errorf("%w: it was told of %d entries of the ledger and keeps %d", batch.ErrLie, m.Head.Entries, told.Entries)
	case told.Entries > own.Entries:
		return fatal("the ledger has %d entries, the shuffler was told of %d: the store and the ledger's mark are older than what was opened; restore newer copies", own.Entries, told.Entries)
	}
	return fatal("the ledger has %d entries, and entry %d is not the one that the shuffler was told of: the ledger was edited, or continued from an older copy", own.Entries, told.Entries)
}
