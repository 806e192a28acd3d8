package shuffler

import (
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func openParts(t interface{ Fatal(...any) }, messages int64, key [16]byte) *Round {
	r, err := Open(wire.Announcement{MinReports: 1, Messages: messages}, key)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var errStop = errors.New("stopped")

// split passes the parts of all items on that gather yields.
func (p Parts) split(gather func(func([]byte) error) error) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		err := gather(func(item []byte) error {
			if !p.Split(item, func(part []byte) bool { return yield(part, nil) }) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(nil, err)
		}
	}
}

// The sort of parts outside memory gives the batch of the round in memory: part after part,
// every client once in each.
func TestExternalSortOfParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.IntRange(1, 9).Draw(t, "messages")
		n := rapid.IntRange(1, 60).Draw(t, "clients")
		key := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "key"))
		r, parts, order := openParts(t, int64(m), key), NewParts(key, int64(m)), NewOrder(key)
		var items [][]byte
		for i := range n {
			k := wire.Ticket{Sender: wire.ID{1, byte(i)}, ID: wire.ID{byte(i)}, Payload: int64(i)}
			for range rapid.IntRange(1, 2).Draw(t, "copies") {
				if err := r.Accept(k); err != nil {
					t.Fatal(err)
				}
				item := Tag(order, nil, k.Sender, k.ID)
				for j := range m { // the part says whose it is, and which
					item = binary.BigEndian.AppendUint32(item, uint32(j)<<16|uint32(i))
				}
				items = append(items, item)
			}
		}
		want, dropped, err := r.Close()
		if err != nil || want.Clients() != n || want.Closed().Reports != int64(n) {
			t.Fatalf("%d clients, %v", want.Clients(), err)
		}
		var d Dropped
		split := parts.split(func(yield func([]byte) error) (err error) {
			d, err = Gather(runs(items), TagSize+4*m, 1<<20, yield)
			return err
		})
		bits := rapid.IntRange(0, 5).Draw(t, "bits")
		buckets := make([][][]byte, 1<<bits)
		if err := Scatter(split, TagSize+4, bits, 100, func(b int, items []byte) error {
			buckets[b] = append(buckets[b], slices.Clone(items))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, b := range buckets {
			again, err := Gather(runs(b), TagSize+4, 1<<20, func(item []byte) error {
				v := binary.BigEndian.Uint32(item[TagSize:])
				if j := int(v >> 16); j != len(got)/n {
					t.Fatalf("part %d at place %d of %d clients", j, len(got), n)
				}
				got = append(got, int64(v&0xffff))
				return nil
			})
			if err != nil || again != (Dropped{}) {
				t.Fatal(again, err)
			}
		}
		if d != dropped || !slices.Equal(got, want.Payloads) {
			t.Fatalf("batch %v, %+v dropped; in memory %v, %+v", got, d, want.Payloads, dropped)
		}
	})
}

// One message needs no second key: its order is the round's.
func TestOneMessageKeepsItsOrder(t *testing.T) {
	a, b := openParts(t, 1, [16]byte{7}), openParts(t, 0, [16]byte{7})
	c := openParts(t, 2, [16]byte{7})
	for i := range 50 {
		if err := errors.Join(a.Accept(ticket(i)), b.Accept(ticket(i)), c.Accept(ticket(i))); err != nil {
			t.Fatal(err)
		}
	}
	one, _, err := a.Close()
	zero, _, err2 := b.Close()
	two, _, err3 := c.Close()
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	if one.Closed().Digest != zero.Closed().Digest {
		t.Error("no number of messages is another batch than one message")
	}
	if !slices.Equal(one.Payloads, two.Payloads[:50]) || slices.Equal(one.Payloads, two.Payloads[50:]) {
		t.Error("first parts have another order than single messages, or second parts have the same")
	}
}

// Over keys, all pairs of orders of three clients are equally likely: the order of second parts
// says nothing of that of first parts. χ² with 35 degrees of freedom exceeds 100.4 with
// probability 2e-8. If parts come in an order by client, there are six pairs only.
func TestOrdersOfPartsAreIndependent(t *testing.T) {
	const trials = 36 * 1000
	linked := func(r *Round) wire.Batch {
		b, _, err := r.Close()
		if err != nil {
			t.Fatal(err)
		}
		copy(b.Payloads[3:], b.Payloads[:3])
		return b
	}
	honest := func(r *Round) wire.Batch {
		b, _, err := r.Close()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, c := range map[string]struct {
		close func(*Round) wire.Batch
		pairs int
	}{"keys of their own": {honest, 36}, "by client": {linked, 6}} {
		counts := map[[6]int64]int{}
		src := rng.Replay(12)
		for range trials {
			var key [16]byte
			for i := range key {
				key[i] = byte(src.Uint64())
			}
			r := openParts(t, 2, key)
			for i := range 3 {
				if err := r.Accept(ticket(i)); err != nil {
					t.Fatal(err)
				}
			}
			counts[[6]int64(c.close(r).Payloads)]++
		}
		var chi2 float64
		for _, n := range counts {
			d := float64(n) - trials/float64(c.pairs)
			chi2 += d * d / (trials / float64(c.pairs))
		}
		if len(counts) != c.pairs || chi2 > 100.4 {
			t.Errorf("%s: %d pairs of orders, chi-square %.1f", name, len(counts), chi2)
		}
	}
}

func BenchmarkCloseMessages(b *testing.B) {
	for _, m := range []int64{1, 8} {
		b.Run(map[int64]string{1: "one", 8: "eight"}[m], func(b *testing.B) {
			const n = 100_000
			for b.Loop() {
				b.StopTimer()
				r := openParts(b, m, [16]byte{1})
				for i := range int64(n) {
					t := wire.Ticket{Payload: i}
					binary.LittleEndian.PutUint64(t.ID[:], uint64(i))
					if err := r.Accept(t); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				if _, _, err := r.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/client")
		})
	}
}
