package shuffler

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// cutBucket cuts the chunks that end in bucket at, as one of several workers does: from the
// buckets' numbers of items and their last items alone.
func cutBucket(t interface{ Fatal(...any) }, at int, own [][]byte, counts []int64, tails [][][]byte, size int64) map[int64]string {
	var place int64
	for _, n := range counts[:at] {
		place += n
	}
	need := int(place % PerChunk(size))
	var before [][]byte
	for i := at - 1; len(before) < need; i-- {
		before = append(slices.Clone(tails[i]), before...)
	}
	out := map[int64]string{}
	c := Cutter{Size: size, Emit: func(c wire.Chunk) error {
		out[c.Index] = string(wire.Encode(c))
		return nil
	}}
	if err := c.Start(place, bytes.Join(before[len(before)-need:], nil)); err != nil {
		t.Fatal(err)
	}
	for _, item := range own {
		if err := c.Add(item); err != nil {
			t.Fatal(err)
		}
	}
	if at == len(counts)-1 {
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// lastItems are what a bucket keeps for those who cut after it.
func lastItems(items [][]byte, size int64) [][]byte {
	return items[len(items)-min(len(items), int(PerChunk(size))-1):]
}

// All ways to spread up to five items over four buckets, with chunks of one, two and three items:
// each bucket's worker, alone and in whatever order, makes its share of the chunks that one
// worker makes, and no other.
func TestChunksAreTheSameWhoeverCutsThem(t *testing.T) {
	for per := range int64(3) {
		size := int64(ChunkBytes) / (per + 1)
		if PerChunk(size) != per+1 {
			t.Fatalf("%d items of %d bytes in a chunk", PerChunk(size), size)
		}
		item := func(i int64) []byte { return binary.BigEndian.AppendUint64(make([]byte, size-8), uint64(i)+1) }
		for split := range int64(6 * 6 * 6 * 6) {
			counts := []int64{split % 6, split / 6 % 6, split / 36 % 6, split / 216}
			n := counts[0] + counts[1] + counts[2] + counts[3]
			if n > 5 {
				continue
			}
			want := map[int64]string{}
			one := Cutter{Size: size, Emit: func(c wire.Chunk) error { want[c.Index] = string(wire.Encode(c)); return nil }}
			buckets, next := make([][][]byte, len(counts)), int64(0)
			for b, n := range counts {
				for range n {
					buckets[b] = append(buckets[b], item(next))
					if err := one.Add(item(next)); err != nil {
						t.Fatal(err)
					}
					next++
				}
			}
			if err := one.Flush(); err != nil {
				t.Fatal(err)
			}
			tails := make([][][]byte, len(counts))
			for b := range buckets {
				tails[b] = lastItems(buckets[b], size)
			}
			got := map[int64]string{}
			for b := range buckets {
				for index, chunk := range cutBucket(t, b, buckets[b], counts, tails, size) {
					if _, twice := got[index]; twice {
						t.Fatalf("%v in chunks of %d: chunk %d is made twice", counts, per+1, index)
					}
					got[index] = chunk
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("%v in chunks of %d: other chunks", counts, per+1)
			}
		}
	}
}

// The same for whole rounds: reports in any order and repeated, dealt into any number of buckets,
// each collected by several workers from runs in different orders with different memory, and cut in any
// order. The bytes are those of one worker.
func TestWorkersMakeTheBatchOfOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "key"))
		order := NewOrder(key)
		size := rapid.SampledFrom([]int{TagSize + 8, TagSize + ChunkBytes/3, TagSize + ChunkBytes/2}).Draw(t, "size")
		body := int64(size - TagSize)
		n := rapid.IntRange(0, 40).Draw(t, "reports")
		var items [][]byte
		for range n {
			tag := Tag(order, nil, wire.ID{1, rapid.ByteRange(0, 30).Draw(t, "sender")}, wire.ID{rapid.ByteRange(0, 2).Draw(t, "id")})
			items = append(items, append(tag, bytes.Repeat(tag[16:17], int(body))...))
		}
		want := map[int64]string{}
		one := Cutter{Size: body, Emit: func(c wire.Chunk) error { want[c.Index] = string(wire.Encode(c)); return nil }}
		dropped, err := Gather(runs(items), size, 1<<30, func(item []byte) error { return one.Add(item[TagSize:]) })
		if err != nil {
			t.Fatal(err)
		}
		if err := one.Flush(); err != nil {
			t.Fatal(err)
		}
		bits := rapid.IntRange(0, 3).Draw(t, "bits")
		counts, tails := make([]int64, 1<<bits), make([][][]byte, 1<<bits)
		work := func(b int) (own [][]byte) {
			var mine [][]byte
			for _, item := range rapid.Permutation(items).Draw(t, "order") {
				if BucketOf(item, bits) == b {
					mine = append(mine, item)
				}
			}
			limit := int64(rapid.IntRange(1, 20*size).Draw(t, "limit"))
			bucket, _, err := Collect(runs(mine), size, limit)
			if err != nil {
				t.Fatal(err)
			}
			for i := range bucket.Len() {
				own = append(own, slices.Clone(bucket.Item(i)[TagSize:]))
			}
			return own
		}
		var lost int64
		for b := range counts {
			own := work(b)
			counts[b], tails[b] = int64(len(own)), lastItems(own, body)
			lost -= counts[b]
		}
		if lost += int64(n); lost != dropped.Duplicates+dropped.Second {
			t.Fatalf("%d dropped, by one worker %+v", lost, dropped)
		}
		got := map[int64]string{}
		todo := make([]int, 1<<bits)
		for b := range todo {
			todo[b] = b
		}
		todo = append(todo, rapid.SliceOfN(rapid.IntRange(0, 1<<bits-1), 0, 4).Draw(t, "again")...)
		for _, b := range rapid.Permutation(todo).Draw(t, "workers") {
			for index, chunk := range cutBucket(t, b, work(b), counts, tails, body) {
				if before, twice := got[index]; twice && before != chunk {
					t.Fatalf("chunk %d is made twice, and differs", index)
				}
				got[index] = chunk
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d chunks, want %d", len(got), len(want))
		}
		for index, chunk := range want {
			if got[index] != chunk {
				t.Fatalf("chunk %d differs", index)
			}
		}
	})
}

func TestACutterStartsWithWhatIsBefore(t *testing.T) {
	c := Cutter{Size: ChunkBytes / 2, Emit: func(wire.Chunk) error { return nil }}
	for _, bad := range []struct {
		at     int64
		before int64
	}{{-1, 0}, {1, 0}, {2, 1}, {3, 2}} {
		if c.Start(bad.at, make([]byte, bad.before*c.Size)) == nil {
			t.Errorf("took %+v", bad)
		}
	}
}
