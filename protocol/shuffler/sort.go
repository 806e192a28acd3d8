package shuffler

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"
	"slices"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// TagSize is the size of the tags at the start of an item: the images of the sender and of
// the report id (see Tag), 16 bytes each.
const TagSize = 32

// DefaultBucket is the default memory of a bucket, in bytes.
const DefaultBucket = 64 << 20

// MaxBits bounds the bits that name a bucket, because Scatter holds one block of each in memory.
const MaxBits = 12

// BucketBits returns b such that each of 2^b buckets needs at most limit bytes, if each client
// has one item of size bytes. Tags are uniform, so the allowance of 5/4 of the mean is many
// standard deviations above it. A bucket that is still larger is not refused: it takes more
// memory.
func BucketBits(clients, size, limit int64) int {
	if clients < 1 || size < 1 || limit < 1 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(clients), uint64(size))
	if hi != 0 || lo > 1<<61 {
		return MaxBits
	}
	buckets := (lo+lo/4)/uint64(limit) + 1
	return min(MaxBits, bits.Len64(buckets-1))
}

// Scatter reads runs of items of size bytes, and distributes them to 2^bits
// buckets by the leading bits of their tags. It calls emit with a bucket's items when at most
// block bytes of them (at least one item) have come together, and with the rest at the end;
// emit must not keep the slice.
func Scatter(runs iter.Seq2[[]byte, error], size, bits, block int, emit func(bucket int, items []byte) error) error {
	if size < TagSize || bits < 0 || bits > MaxBits || block < 1 {
		return fmt.Errorf("shuffler: items of %d bytes, 2^%d buckets, blocks of %d bytes", size, bits, block)
	}
	open := make([][]byte, 1<<bits)
	for items, err := range runs {
		if err != nil {
			return err
		}
		if len(items)%size != 0 {
			return fmt.Errorf("shuffler: %d bytes of items of %d", len(items), size)
		}
		for ; len(items) > 0; items = items[size:] {
			b := BucketOf(items, bits)
			if len(open[b])+size > block && len(open[b]) > 0 {
				if err := emit(b, open[b]); err != nil {
					return err
				}
				open[b] = open[b][:0]
			}
			if open[b] == nil {
				open[b] = make([]byte, 0, max(size, block/size*size))
			}
			open[b] = append(open[b], items[:size]...)
		}
	}
	for b, items := range open {
		if len(items) > 0 {
			if err := emit(b, items); err != nil {
				return err
			}
		}
	}
	return nil
}

// BucketOf returns the bucket of a tag, or of an item, among 2^bits: its leading bits.
func BucketOf(tag []byte, bits int) int {
	return int(binary.BigEndian.Uint64(tag) >> (64 - bits)) // 0 if there are no bits: a shift by 64
}

// Gather is Collect, and then yield of each item in order.
func Gather(runs iter.Seq2[[]byte, error], size int, limit int64, yield func(item []byte) error) (Dropped, error) {
	b, dropped, err := Collect(runs, size, limit)
	for i := range b.Len() {
		if err == nil {
			err = yield(b.Item(i))
		}
	}
	return dropped, err
}

// Bucket holds one item of each client of a bucket, in tag order.
type Bucket struct {
	all  gathering
	keep []uint32
}

// Len returns the number of items.
func (b Bucket) Len() int { return len(b.keep) }

// Item returns the item at a place in the order. The caller must not change it.
func (b Bucket) Item(i int) []byte { return b.all.at(b.keep[i]) }

// Collect reads runs of items of size bytes in any order, and keeps one item of each client.
// Which one does not depend on the order of the runs.
//
// Whenever limit bytes have come together, Collect removes the items that would be dropped at
// the end. So memory holds one item of each client, or limit bytes if that is more, however
// often clients repeat themselves. Sorting takes another 24 bytes an item.
func Collect(runs iter.Seq2[[]byte, error], size int, limit int64) (Bucket, Dropped, error) {
	var dropped Dropped
	if size < TagSize {
		return Bucket{}, dropped, fmt.Errorf("shuffler: items of %d bytes", size)
	}
	g := gathering{size: size}
	threshold := limit
	for run, err := range runs {
		if err != nil {
			return Bucket{}, dropped, err
		}
		if len(run)%size != 0 {
			return Bucket{}, dropped, fmt.Errorf("shuffler: %d bytes of items of %d", len(run), size)
		}
		for ; len(run) > 0; run = run[size:] {
			if int64(len(g.items)+size) > threshold && len(g.items) > 0 {
				g.compact(&dropped)
				// If less than half was dropped, wait for more before compacting again.
				threshold = max(limit, 2*int64(len(g.items)))
			}
			g.items = append(g.items, run[:size]...)
		}
	}
	keep := g.sorted(&dropped)
	return Bucket{g, keep}, dropped, nil
}

type gathering struct {
	size  int
	items []byte
}

func (g *gathering) at(i uint32) []byte {
	from := int(i) * g.size
	return g.items[from : from+g.size]
}

// sorted returns the places of the items to keep, in order. Content breaks ties of the whole
// tag, so arrival decides nothing.
func (g *gathering) sorted(dropped *Dropped) []uint32 {
	type entry struct {
		hi uint64
		at uint32
	}
	order := make([]entry, len(g.items)/g.size)
	for i := range order {
		order[i] = entry{binary.BigEndian.Uint64(g.at(uint32(i))), uint32(i)}
	}
	slices.SortFunc(order, func(a, b entry) int {
		switch {
		case a.hi < b.hi:
			return -1
		case a.hi > b.hi:
			return 1
		}
		return bytes.Compare(g.at(a.at), g.at(b.at))
	})
	keep := make([]uint32, 0, len(order))
	for i, e := range order {
		if i > 0 {
			before, item := g.at(order[i-1].at), g.at(e.at)
			if bytes.Equal(before[:16], item[:16]) {
				if bytes.Equal(before[16:TagSize], item[16:TagSize]) {
					dropped.Duplicates++
				} else {
					dropped.Second++
				}
				continue
			}
		}
		keep = append(keep, e.at)
	}
	return keep
}

// compact drops the items that would be dropped at the end anyway.
func (g *gathering) compact(dropped *Dropped) {
	keep := g.sorted(dropped)
	slices.Sort(keep)
	n := 0
	for _, at := range keep {
		n += copy(g.items[n:], g.at(at))
	}
	g.items = g.items[:n]
}

// ChunkBytes is the largest number of bytes of items in a chunk, unless the chunk has a
// single item.
const ChunkBytes = 64 << 10

// PerChunk returns how many items of size bytes a chunk has, except the last.
func PerChunk(size int64) int64 { return max(1, ChunkBytes/size) }

// Cutter cuts one reader's parts of a batch into chunks. Several may cut a batch, each the items
// of some buckets: a chunk is made by the one that has its last item.
type Cutter struct {
	Size int64                  // bytes of an item, at least 1. Required.
	Emit func(wire.Chunk) error // gets each chunk, and must not keep its items. Required.

	chunk wire.Chunk
}

// Start makes the next item the one at place at of the batch, counted from 0. before has the
// at mod PerChunk items that precede it, in order. It is called before Add, or not at all.
func (c *Cutter) Start(at int64, before []byte) error {
	if c.Size < 1 || at < 0 || int64(len(before)) != at%PerChunk(c.Size)*c.Size {
		return fmt.Errorf("shuffler: %d bytes of items of %d before place %d", len(before), c.Size, at)
	}
	c.chunk.Size, c.chunk.Index = c.Size, at/PerChunk(c.Size)
	c.chunk.Items = append(c.chunk.Items[:0], before...)
	return nil
}

// Add takes the next item.
func (c *Cutter) Add(item []byte) error {
	if c.Size < 1 || int64(len(item)) != c.Size {
		return fmt.Errorf("shuffler: item of %d bytes, want %d", len(item), c.Size)
	}
	c.chunk.Size = c.Size
	c.chunk.Items = append(c.chunk.Items, item...)
	if int64(len(c.chunk.Items)) < PerChunk(c.Size)*c.Size {
		return nil
	}
	return c.Flush()
}

// Flush emits the last chunk, if it is not empty. Who has the batch's last item calls it.
func (c *Cutter) Flush() error {
	if len(c.chunk.Items) == 0 {
		return nil
	}
	err := c.Emit(c.chunk)
	c.chunk.Index++
	c.chunk.Items = c.chunk.Items[:0]
	return err
}
