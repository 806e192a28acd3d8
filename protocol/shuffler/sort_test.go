package shuffler

import (
	"bytes"
	"crypto/cipher"
	"encoding/binary"
	"iter"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/protocol/wire"
)

const testItem = TagSize + 8

func item(order cipher.Block, k wire.Ticket) []byte {
	return binary.BigEndian.AppendUint64(Tag(order, nil, k.Sender, k.ID), uint64(k.Payload))
}

// external sorts tickets as a service does: in blocks, buckets and chunks.
func external(t *rapid.T, tickets []wire.Ticket, key [16]byte, bits, block int, limit int64) ([]int64, Dropped) {
	tagger := NewOrder(key)
	buckets := make([][][]byte, 1<<bits)
	items := make([][]byte, len(tickets))
	for i, k := range tickets {
		items[i] = item(tagger, k)
	}
	err := Scatter(runs(items), testItem, bits, block, func(b int, items []byte) error {
		if len(items) > max(block, testItem) {
			t.Fatalf("a block of %d bytes", len(items))
		}
		buckets[b] = append(buckets[b], slices.Clone(items))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var out []int64
	var dropped Dropped
	c := Cutter{Size: 8, Emit: func(c wire.Chunk) error {
		for i := range c.Len() {
			out = append(out, int64(binary.BigEndian.Uint64(c.Item(i))))
		}
		return nil
	}}
	for _, b := range buckets {
		d, err := Gather(runs(b), testItem, limit, func(item []byte) error { return c.Add(item[TagSize:]) })
		if err != nil {
			t.Fatal(err)
		}
		dropped.Duplicates += d.Duplicates
		dropped.Second += d.Second
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	return out, dropped
}

func runs(b [][]byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, r := range b {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// The sort outside memory gives the batch of the sort in memory, whatever came
// twice, and however small blocks and buckets are.
func TestExternalSortIsTheRound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		anonymous := rapid.Bool().Draw(t, "anonymous")
		tickets := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) wire.Ticket {
			k := wire.Ticket{ID: wire.ID{rapid.ByteRange(0, 3).Draw(t, "id"), 1}, Payload: int64(rapid.IntRange(0, 2).Draw(t, "payload"))}
			if anonymous {
				k.ID[2] = rapid.Byte().Draw(t, "more")
			} else {
				k.Sender = wire.ID{1, rapid.ByteRange(0, 40).Draw(t, "sender")}
			}
			return k
		}), 1, 200).Draw(t, "tickets")
		key := [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "key"))
		r, err := Open(wire.Announcement{MinReports: 1}, key)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range tickets {
			if err := r.Accept(k); err != nil {
				t.Fatal(err)
			}
		}
		want, dropped, err := r.Close()
		if err != nil {
			t.Fatal(err)
		}
		limit := int64(rapid.IntRange(1, 100*testItem).Draw(t, "limit"))
		got, d := external(t, tickets, key, rapid.IntRange(0, 6).Draw(t, "bits"), rapid.IntRange(1, 400).Draw(t, "block"), limit)
		if !slices.Equal(got, want.Payloads) {
			t.Fatalf("batch %v, in memory %v", got, want.Payloads)
		}
		if d.Duplicates+d.Second != dropped.Duplicates+dropped.Second {
			t.Fatalf("%+v dropped, in memory %+v", d, dropped)
		}
		if limit >= int64(len(tickets)*testItem) && d != dropped {
			t.Fatalf("%+v dropped, in memory %+v", d, dropped)
		}
	})
}

// One client that sends without end must not fill the memory of a bucket.
func TestRepetitionsDoNotFillABucket(t *testing.T) {
	tagger := NewOrder([16]byte{3})
	const limit = 100 * testItem
	one := bytes.Repeat(item(tagger, wire.Ticket{Sender: wire.ID{9}, ID: wire.ID{1}}), 50)
	g := gathering{size: testItem}
	endless := func(yield func([]byte, error) bool) {
		for range 1000 {
			if !yield(one, nil) {
				return
			}
		}
	}
	kept := 0
	d, err := Gather(endless, testItem, limit, func([]byte) error { kept++; return nil })
	if err != nil || kept != 1 || d.Duplicates != 50*1000-1 {
		t.Errorf("%d kept, %+v dropped, %v", kept, d, err)
	}
	// What is held never grows beyond the limit.
	for range 1000 {
		g.items = append(g.items, one...)
		if len(g.items) > limit {
			g.compact(&d)
		}
	}
	if cap(g.items) > 4*limit {
		t.Errorf("%d bytes for a limit of %d", cap(g.items), limit)
	}
}

func TestOneReportOfAClientIsKept(t *testing.T) {
	tagger := NewOrder([16]byte{1})
	alice, bob := wire.ID{1}, wire.ID{2}
	ids := []wire.ID{{1}, {2}, {3}}
	least := slices.MinFunc(ids, func(a, b wire.ID) int {
		return bytes.Compare(Tag(tagger, nil, alice, a)[16:], Tag(tagger, nil, alice, b)[16:])
	})
	r := open(t, 1, 1)
	for at, k := range []wire.Ticket{{Sender: alice, ID: ids[0]}, {Sender: alice, ID: ids[1]}, {Sender: bob, ID: ids[0]}, {Sender: alice, ID: ids[2]},
		{Sender: alice, ID: ids[2]}, {Sender: bob, ID: ids[0]}} {
		k.Payload = int64(at)
		if err := r.Accept(k); err != nil {
			t.Fatal(err)
		}
	}
	b, dropped, err := r.Close()
	if err != nil || len(b.Payloads) != 2 || dropped != (Dropped{Duplicates: 2, Second: 2}) {
		t.Fatalf("batch %v, %+v dropped, %v", b.Payloads, dropped, err)
	}
	want := []int64{int64(slices.Index([]wire.ID{ids[0], ids[1], {}, ids[2]}, least)), 2}
	slices.Sort(b.Payloads)
	slices.Sort(want)
	if !slices.Equal(b.Payloads, want) {
		t.Errorf("batch %v, want %v", b.Payloads, want)
	}
}

func TestBucketsFitTheirLimit(t *testing.T) {
	for _, c := range []struct {
		clients, size, limit int64
		want                 int
	}{{1000, 100, 1 << 20, 0}, {1e6, 400, 64 << 20, 3}, {1, 1, 1, 1}, {1 << 40, 1 << 40, 1, MaxBits}, {0, 1, 1, 0}} {
		if got := BucketBits(c.clients, c.size, c.limit); got != c.want {
			t.Errorf("%+v: %d bits", c, got)
		}
	}
	scatter := func(items []byte, bits int) (at []int, err error) {
		err = Scatter(runs([][]byte{items}), TagSize, bits, 10, func(b int, _ []byte) error {
			at = append(at, b)
			return nil
		})
		return at, err
	}
	if at, err := scatter(bytes.Repeat([]byte{255}, TagSize), 0); err != nil || !slices.Equal(at, []int{0}) {
		t.Errorf("one bucket: %v, %v", at, err)
	}
	if at, err := scatter(bytes.Repeat([]byte{0xbf}, TagSize), 3); err != nil || !slices.Equal(at, []int{5}) {
		t.Errorf("eight buckets: %v, %v", at, err)
	}
	for _, bad := range []int{-1, MaxBits + 1} {
		if _, err := scatter(nil, bad); err == nil {
			t.Errorf("2^%d buckets", bad)
		}
	}
	if _, err := scatter(make([]byte, 33), 3); err == nil {
		t.Error("took a torn item")
	}
	if _, err := Gather(runs([][]byte{make([]byte, 33)}), TagSize, 1, nil); err == nil {
		t.Error("took a torn item")
	}
}

func TestChunksHoldWhatFits(t *testing.T) {
	for _, size := range []int64{1, 1000, ChunkBytes - 1, ChunkBytes, ChunkBytes + 1} {
		var lens []int
		c := Cutter{Size: size, Emit: func(c wire.Chunk) error {
			if c.Index != int64(len(lens)) {
				t.Errorf("chunk %d at %d", c.Index, len(lens))
			}
			lens = append(lens, c.Len())
			return nil
		}}
		per := max(1, ChunkBytes/size)
		for range 2*per + 1 {
			if err := c.Add(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(lens, []int{int(per), int(per), 1}) {
			t.Errorf("items of %d bytes in chunks of %v", size, lens)
		}
		if c.Add(make([]byte, size+1)) == nil {
			t.Error("took an item of another size")
		}
	}
}

func randomKey(src rng.Source) (key [16]byte) {
	binary.LittleEndian.PutUint64(key[:], src.Uint64())
	binary.LittleEndian.PutUint64(key[8:], src.Uint64())
	return key
}

// Over keys, every order of n clients is as likely as any other: χ² with n!−1
// degrees of freedom lies above the limit with probability 1e-7 (Wilson and
// Hilferty's approximation, z = 5.2).
func TestOrderOfClientsIsUniform(t *testing.T) {
	for n, trials := range map[int]int{2: 20_000, 3: 20_000, 4: 48_000, 5: 120_000} {
		src := rng.Replay(uint64(100 + n))
		counts := map[[5]int64]int{}
		orders := 1
		for i := range n {
			orders *= i + 1
		}
		for range trials {
			r, err := Open(wire.Announcement{MinReports: 1}, randomKey(src))
			if err != nil {
				t.Fatal(err)
			}
			for i := range n { // ids that differ in a bit or two
				if err := r.Accept(wire.Ticket{Sender: wire.ID{byte(i), 1}, ID: wire.ID{7}, Payload: int64(i)}); err != nil {
					t.Fatal(err)
				}
			}
			b, _, err := r.Close()
			if err != nil {
				t.Fatal(err)
			}
			var order [5]int64
			copy(order[:], b.Payloads)
			counts[order]++
		}
		var chi2 float64
		want := float64(trials) / float64(orders)
		for _, c := range counts {
			chi2 += (float64(c) - want) * (float64(c) - want) / want
		}
		free := float64(orders - 1)
		h := 2 / (9 * free)
		if limit := free * math.Pow(1-h+5.2*math.Sqrt(h), 3); len(counts) != orders || chi2 > limit {
			t.Errorf("n = %d: %d orders, chi-square %.1f, limit %.1f", n, len(counts), chi2, limit)
		}
	}
}

// At 1e5 reports the place in the batch says nothing about the order of arrival.
func TestPlaceIsIndependentOfArrival(t *testing.T) {
	const n = 100_000
	src := rng.Replay(77)
	r, err := Open(wire.Announcement{MinReports: 1}, randomKey(src))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		k := wire.Ticket{Payload: int64(i)}
		binary.BigEndian.PutUint64(k.Sender[:], uint64(i)+1) // arrival in the order of ids
		binary.BigEndian.PutUint64(k.ID[:], uint64(i))
		if err := r.Accept(k); err != nil {
			t.Fatal(err)
		}
	}
	b, _, err := r.Close()
	if err != nil {
		t.Fatal(err)
	}
	var rank, displacement, near, fixed, rises float64
	for place, at := range b.Payloads {
		x, y := float64(place)-(n-1)/2., float64(at)-(n-1)/2.
		rank += x * y
		d := math.Abs(float64(at) - float64(place))
		displacement += d
		if d == 0 {
			fixed++
		}
		if place > 0 {
			if at > b.Payloads[place-1] {
				rises++
			}
			if math.Abs(float64(at-b.Payloads[place-1])) == 1 {
				near++ // neighbours that arrived one after the other
			}
		}
	}
	// Each is within 6 standard deviations of its mean under a uniform order, or
	// within the Poisson quantile; false alarm below 1e-7 in all.
	rho := rank / (n * (n*n - 1) / 12.)
	if math.Abs(rho) > 6/math.Sqrt(n-1) {
		t.Errorf("rank correlation %.5f", rho)
	}
	// Mean displacement (n²−1)/3n; the sum has variance (n+1)(2n²+7)/45.
	if z := (displacement - (n*n-1)/3.) / math.Sqrt((n+1)*(2.*n*n+7)/45); math.Abs(z) > 6 {
		t.Errorf("displacement %.1f, %.1f standard deviations off", displacement/n, z)
	}
	// Rises: mean (n−1)/2, variance (n+1)/12.
	if z := (rises - (n-1)/2.) / math.Sqrt((n+1)/12.); math.Abs(z) > 6 {
		t.Errorf("%v rises, %.1f standard deviations off", rises, z)
	}
	if fixed > 15 || near > 18 { // Poisson of mean 1 and 2
		t.Errorf("%v fixed places, %v neighbours", fixed, near)
	}
}

// A shuffle that keeps some order is caught: else the test above is blind.
func TestBiasedOrderWouldBeSeen(t *testing.T) {
	const n = 100_000
	order := make([]int64, n)
	for i := range order {
		order[i] = int64(i)
	}
	src := rng.Replay(3)
	for i := range n { // each report moves by at most half of the round
		j := min(n-1, i+int(sample.Uniform(src, n/2)))
		order[i], order[j] = order[j], order[i]
	}
	var rank float64
	for place, at := range order {
		rank += (float64(place) - (n-1)/2.) * (float64(at) - (n-1)/2.)
	}
	if rho := rank / (n * (n*n - 1) / 12.); math.Abs(rho) < 6/math.Sqrt(n-1) {
		t.Errorf("rank correlation %.5f is not seen", rho)
	}
}
