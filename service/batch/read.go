package batch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Reader reads the parts for one recipient of a closed batch.
type Reader struct {
	Source       Source
	Announcement [32]byte
	Reports      int64
	Messages     int64    // of each report; 0 means one
	Chunks       int64    // number of chunks; 0: not known, the shuffler says it and Digest covers it
	Digest       [32]byte // digest of the parts: RoundClosed.Digest or Shares
	Size         int64    // size of a sealed part
	Workers      int      // at least 1
}

// items returns the number of parts in the batch.
func (r Reader) items() int64 { return r.Reports * max(1, r.Messages) }

// maxChunk bounds a chunk's items: 64 KiB, or one item.
func (r Reader) maxChunk() int64 { return max(64<<10, r.Size) }

// Digests fetches the chunks' digests and compares them with what was signed.
func (r Reader) Digests(ctx context.Context) ([][32]byte, error) {
	limit := r.Chunks
	if limit == 0 {
		limit = r.items()
	}
	b, _, err := r.Source.do(ctx, http.MethodGet, roundPath(r.Announcement)+"/chunks", nil, 32*limit)
	if err != nil {
		return nil, err
	}
	if len(b) == 0 || len(b)%32 != 0 || r.Chunks != 0 && int64(len(b)) != 32*r.Chunks {
		return nil, fmt.Errorf("%w: %d bytes of digests of %d chunks", ErrLie, len(b), r.Chunks)
	}
	out := make([][32]byte, len(b)/32)
	for i := range out {
		copy(out[i][:], b[32*i:])
	}
	if wire.BatchDigest(r.Announcement, r.Reports, out) != r.Digest {
		return nil, fmt.Errorf("%w: the chunks' digests are not those of the batch", ErrLie)
	}
	return out, nil
}

func (r Reader) chunk(ctx context.Context, index int64, digest [32]byte) (wire.Chunk, error) {
	path := roundPath(r.Announcement) + "/chunks/" + strconv.FormatInt(index, 10)
	b, _, err := r.Source.do(ctx, http.MethodGet, path, nil, r.maxChunk()+1<<10)
	if err != nil {
		return wire.Chunk{}, err
	}
	c, err := wire.Decode[wire.Chunk](b)
	if err == nil {
		err = wire.CheckChunk(c, index, digest)
	}
	if err == nil && c.Size != r.Size {
		err = fmt.Errorf("chunk %d of parts of %d bytes, want %d", index, c.Size, r.Size)
	}
	if err != nil {
		return wire.Chunk{}, fmt.Errorf("%w: %w", ErrLie, err)
	}
	return c, nil
}

// Read fetches all chunks, Workers at a time. Worker 0 … Workers−1 calls open for each chunk,
// in parallel. It calls then for each chunk, one after the other in the batch's order, with
// open's result and the place of the chunk's first item. At most Workers chunks are held.
// Either function may be nil. A batch with more or fewer parts than were signed is an error
// that shows only at the end; the caller must then discard its results.
func Read[T any](ctx context.Context, r Reader, open func(worker int, c wire.Chunk) (T, error), then func(place int64, c wire.Chunk, opened T) error) error {
	digests, err := r.Digests(ctx)
	if err != nil {
		return err
	}
	parts, err := readRange(ctx, r, 0, digests, open, then)
	if err == nil && parts != r.items() {
		err = fmt.Errorf("%w: %d parts in the chunks, %d were signed", ErrLie, parts, r.items())
	}
	return err
}

// ReadRange fetches the chunks of these digests, the first of which has the index from, and calls open
// for one after the other. Of r it needs the address, the announcement and the size of a part.
func ReadRange(ctx context.Context, r Reader, from int64, digests [][32]byte, open func(c wire.Chunk)) error {
	r.Workers = 1
	_, err := readRange(ctx, r, from, digests, func(_ int, c wire.Chunk) (struct{}, error) { open(c); return struct{}{}, nil }, nil)
	return err
}

// readRange is Read for the chunks of these digests, the first of which has the index from. It returns the
// number of their parts.
func readRange[T any](ctx context.Context, r Reader, from int64, digests [][32]byte, open func(worker int, c wire.Chunk) (T, error), then func(place int64, c wire.Chunk, opened T) error) (int64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t := chunkOrder{ctx: ctx}
	t.moved.L = &t.mu
	stop := context.AfterFunc(ctx, func() { t.mu.Lock(); defer t.mu.Unlock(); t.moved.Broadcast() })
	defer stop()
	var wg sync.WaitGroup
	for w := range max(1, r.Workers) {
		wg.Go(func() {
			for {
				i := t.take(int64(len(digests)))
				if i < 0 || ctx.Err() != nil {
					return
				}
				c, err := r.chunk(ctx, from+i, digests[i])
				var v T
				if err == nil && open != nil {
					v, err = open(w, c)
				}
				if err == nil {
					err = t.do(i, func(place int64) error {
						if then == nil {
							return nil
						}
						return then(place, c, v)
					}, int64(c.Len()))
				}
				if err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return t.place, context.Cause(ctx)
}

// chunkOrder hands out chunks in the batch's order, and passes their results on in the same
// order.
type chunkOrder struct {
	ctx   context.Context
	mu    sync.Mutex
	moved sync.Cond
	next  int64 // the next chunk to take
	done  int64 // the next chunk to pass on
	place int64 // place of the first item of chunk done
}

func (t *chunkOrder) take(n int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next >= n {
		return -1
	}
	t.next++
	return t.next - 1
}

// do calls f once all chunks before i were passed on. The other workers wait until f has
// returned, so f needs no lock.
func (t *chunkOrder) do(i int64, f func(place int64) error, items int64) error {
	t.mu.Lock()
	for t.done != i && t.ctx.Err() == nil {
		t.moved.Wait()
	}
	place := t.place
	t.mu.Unlock()
	if t.ctx.Err() != nil {
		return errors.New("batch: reading ended")
	}
	if err := f(place); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done++
	t.place += items
	t.moved.Broadcast()
	return nil
}
