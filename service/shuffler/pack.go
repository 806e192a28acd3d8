package shuffler

import (
	"context"
	"errors"
	"sync"
	"time"

	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/service/store"
)

// packer gathers a round's reports into blocks, so that many clients share one write. A round that
// is expected to be larger than a bucket has a block for each bucket, so that its reports lie in
// the stream by bucket from the start.
//
// A report's bucket is the leading bits of its first tag, the image of its client under the round's
// key of the order. That key never leaves the shuffler's domain, so nobody else can compute a
// client's bucket. But the bucket is in the clear in the message's subject: who watches the broker
// without the round's keys, sees which client connects when, and gets the batch from the coordinator, learns
// in which run of the batch, a bucket long, a client's report is. A bucket is two fifths of Config.Bucket or
// more if all come that were expected: tens of thousands of reports. Smaller rounds are not dealt. See THREATS.md.
type packer struct {
	s *Service
	r *round

	mu   sync.Mutex
	busy int      // number of blocks being written
	open []*block // by bucket: the blocks that take items, or nil
	full []*block // blocks that wait for a writer

	buffers sync.Pool // of *[]byte, for blocks' items
}

type block struct {
	bucket int
	items  []byte
	timer  *time.Timer
	due    bool          // has waited long enough for more items
	done   chan struct{} // closed when err is known
	err    error
}

// writers is how many blocks of a round are written at a time. While all writers are busy
// the next blocks go on filling, so that blocks are fuller the slower the store is.
const writers = 2

func newPacker(s *Service, r *round) *packer {
	return &packer{s: s, r: r, open: make([]*block, 1<<r.bits)}
}

// add puts an item into a block, and waits until the block is durable and before the cut.
func (p *packer) add(ctx context.Context, tag, part, share []byte) error {
	at := pure.BucketOf(tag, p.r.bits)
	p.mu.Lock()
	b := p.open[at]
	if b == nil {
		b = &block{bucket: at, items: p.buffer(), done: make(chan struct{})}
		// With many buckets the reports of the same time are in as many blocks.
		wait := p.s.config.BlockWait * time.Duration(len(p.open))
		b.timer = time.AfterFunc(wait, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			b.due = true
			p.startWriters()
		})
		p.open[at] = b
	}
	b.items = append(append(append(b.items, tag...), part...), share...)
	if len(b.items)+p.r.item > store.MaxBlock {
		b.timer.Stop()
		p.full, p.open[at] = append(p.full, b), nil
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

// buffer returns memory for a block. With many buckets it is small at first, and grows with what
// arrives.
func (p *packer) buffer() []byte {
	if b, ok := p.buffers.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 0, max(p.r.item, store.MaxBlock/len(p.open)/p.r.item*p.r.item))
}

// startWriters starts writers for the blocks that are ready, and of those that have waited takes
// the fullest first. The caller holds the lock.
func (p *packer) startWriters() {
	for p.busy < writers {
		var b *block
		if len(p.full) > 0 {
			b, p.full = p.full[0], p.full[1:]
		} else {
			for _, o := range p.open {
				if o != nil && o.due && (b == nil || len(o.items) > len(b.items)) {
					b = o
				}
			}
			if b == nil {
				return
			}
			p.open[b.bucket] = nil
		}
		p.busy++
		p.s.blocks.Add(1)
		go p.writeOut(b)
	}
}

func (p *packer) writeOut(b *block) {
	defer p.s.blocks.Done()
	began := time.Now()
	b.err = p.write(b)
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

// flush writes the open blocks, before the process stops.
func (p *packer) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.open {
		if b != nil {
			b.due = b.timer.Stop() || b.due
		}
	}
	p.startWriters()
}

// patience bounds the time for writing a block and checking that it counts.
const patience = 30 * time.Second

func (p *packer) write(b *block) error {
	// The context is not one request's context, because several requests share the block.
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var last uint64
	suffix := bucketSuffix(b.bucket, p.r.bits)
	for id, sealed := range p.r.vault.cut("in", suffix, b.items) {
		seq, err := p.s.store.Append(ctx, streamIn(p.r.name), id, suffix, sealed)
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
// barrier comes after it.
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
