package shuffler

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/service/store"
)

// packer gathers a round's reports into blocks, so that many clients share one write.
type packer struct {
	s *Service
	r *round

	mu   sync.Mutex
	busy int      // number of blocks being written
	open *block   // the block that takes items
	full []*block // blocks that wait for a writer

	buffers sync.Pool // of *[]byte, for blocks' items
}

type block struct {
	items []byte
	timer *time.Timer
	due   bool          // has waited long enough for more items
	done  chan struct{} // closed when err is known
	err   error
}

// writers is how many blocks of a round are written at a time. While all writers are busy
// the next block goes on filling, so that blocks are fuller the slower the store is.
const writers = 2

func newPacker(s *Service, r *round) *packer { return &packer{s: s, r: r} }

// add puts an item into a block, and waits until the block is durable and before the cut.
func (p *packer) add(ctx context.Context, tag, part, share []byte) error {
	p.mu.Lock()
	b := p.open
	if b == nil {
		b = &block{items: p.buffer(), done: make(chan struct{})}
		b.timer = time.AfterFunc(p.s.config.BlockWait, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			b.due = true
			p.startWriters()
		})
		p.open = b
	}
	b.items = append(append(append(b.items, tag...), part...), share...)
	if len(b.items)+p.r.item > store.MaxBlock {
		b.timer.Stop()
		p.full, p.open = append(p.full, b), nil
		p.startWriters()
	}
	p.mu.Unlock()
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return errUnavailable // it may be stored; the client sends the same bytes again
	}
}

// buffer returns memory for a whole block.
func (p *packer) buffer() []byte {
	if b, ok := p.buffers.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, max(p.r.item, store.MaxBlock/p.r.item*p.r.item))
}

// startWriters starts writers for the blocks that are ready. The caller holds the lock.
func (p *packer) startWriters() {
	for p.busy < writers {
		var b *block
		switch {
		case len(p.full) > 0:
			b, p.full = p.full[0], p.full[1:]
		case p.open != nil && p.open.due:
			b, p.open = p.open, nil
		default:
			return
		}
		p.busy++
		p.s.blocks.Add(1)
		go p.writeOut(b)
	}
}

func (p *packer) writeOut(b *block) {
	defer p.s.blocks.Done()
	began := time.Now()
	b.err = p.write(b.items)
	p.s.metrics.block.since(began)
	items := b.items[:0]
	b.items = nil
	p.buffers.Put(&items)
	close(b.done)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	p.startWriters()
}

// flush writes the open block, before the process stops.
func (p *packer) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open != nil {
		p.open.due = p.open.timer.Stop() || p.open.due
		p.startWriters()
	}
}

// patience bounds the time for writing a block and checking that it counts.
const patience = 30 * time.Second

func (p *packer) write(items []byte) error {
	// The context is not one request's context, because several requests share the block.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var last uint64
	for id, sealed := range p.r.vault.cut("in", "", items) {
		seq, err := p.s.store.Append(ctx, streamIn(p.r.name), id, "", sealed)
		if errors.Is(err, store.ErrNotFound) {
			p.r.end() // the round's streams are gone
			return errClosed
		}
		if err != nil {
			return err
		}
		last = max(last, seq)
	}
	return p.s.beforeCut(ctx, p.r, last)
}

// beforeCut returns nil if what was stored at a place of the stream will be in the batch. The
// record alone does not tell: in a cluster it may be read from a server that does not know yet
// that the round is closing. So while the record says that the round is open, beforeCut looks for
// the barrier in a state of the stream that holds this place. If there is none before it, any
// barrier comes after it. An earlier version cuts without a barrier, and only after the record
// was changed.
func (s *Service) beforeCut(ctx context.Context, r *round, place uint64) error {
	for {
		rec, err := s.loadRecord(ctx, r.name)
		if err != nil {
			return err
		}
		if rec.State == Open {
			behind, err := s.store.Before(ctx, streamIn(r.name), suffixCut, place)
			if behind {
				r.end()
				return errClosed
			}
			return err
		}
		r.end()
		if rec.Cut != nil {
			if place <= *rec.Cut {
				return nil
			}
			return errClosed
		}
		select { // the round is closing: look again soon for the cut
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
