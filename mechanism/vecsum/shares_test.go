package vecsum

import (
	"bytes"
	"encoding/hex"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Aggregators that did not sum the same reports open nothing.
func TestUnequalShares(t *testing.T) {
	p := small()
	p.Users, p.MinUsers = 5, 2
	s, err := NewShares(Config{Params: p, Round: testRound})
	if err != nil {
		t.Fatal(err)
	}
	src := source(23)
	var ms [3][][]byte
	for i := range ms {
		if ms[i], err = s.Messages(src, []int64{1, 2, 3}); err != nil {
			t.Fatal(err)
		}
	}
	sum := func(index int, which ...int) Partial {
		a, err := s.NewAggregator(index)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range which {
			if err := a.Add(ms[i][index]); err != nil {
				t.Fatal(err)
			}
			if err := a.Add(ms[i][index]); err == nil {
				t.Error("a report was added twice")
			}
			if err := a.Add(ms[i][1-index]); err == nil {
				t.Error("a share of the other aggregator was added")
			}
		}
		p, err := a.Close()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if got, n, err := s.Combine(sum(1, 2, 0), sum(0, 0, 2)); err != nil || n != 2 || !slices.Equal(got, []int64{2, 4, 6}) {
		t.Errorf("two equal sets: %v of %d (%v)", got, n, err)
	}
	for name, parts := range map[string][]Partial{
		"other reports":     {sum(0, 0, 1), sum(1, 0, 2)},
		"one report less":   {sum(0, 0, 1), sum(1, 0, 1, 2)},
		"the same index":    {sum(0, 0, 1), sum(0, 0, 1)},
		"one partial":       {sum(0, 0, 1)},
		"three partials":    {sum(0, 0, 1), sum(1, 0, 1), sum(1, 0, 1)},
		"another dimension": {sum(0, 0, 1), func() Partial { p := sum(1, 0, 1); p.Sums = p.Sums[:2]; return p }()},
		"another round":     {sum(0, 0, 1), func() Partial { p := sum(1, 0, 1); p.Tag[0]++; return p }()},
	} {
		if got, _, err := s.Combine(parts...); err == nil {
			t.Errorf("%s: gave %v", name, got)
		}
	}
	a, err := s.NewAggregator(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Add(ms[0][0]); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Close(); err == nil {
		t.Error("an aggregator closed below MinUsers")
	}
}

// S−1 aggregators see what does not depend on the counts: a seed is the same
// for all counts, and a vector share is uniform whatever they are.
func TestSharesHide(t *testing.T) {
	p := Params{Users: 3, Dim: 1, Radius: 1, Grid: 3, Norm: Norm(1, 3, 0), Noise: Noise{Kind: Binomial, Bits: 2}}
	s, err := NewShares(Config{Params: p, Round: testRound})
	if err != nil {
		t.Fatal(err)
	}
	q := 1 << p.Modulus()
	uniform := make([]float64, q)
	for i := range uniform {
		uniform[i] = 1 / float64(q)
	}
	for _, count := range []int64{0, 5} {
		hist := make([]int64, q)
		const reps = 20_000
		src := source(24, uint64(count))
		for i := range uint64(reps) {
			ms, err := s.Messages(src, []int64{count})
			if err != nil {
				t.Fatal(err)
			}
			v := make([]uint64, 1)
			if !unpack(ms[1][shareHeader:], v, s.bits) {
				t.Fatal("padding")
			}
			hist[v[0]]++
			if i < 20 {
				a, _ := s.Messages(source(25, i), []int64{0})
				b, _ := s.Messages(source(25, i), []int64{5})
				if !bytes.Equal(a[0], b[0]) {
					t.Fatal("the seed's message depends on the counts")
				}
			}
		}
		chiSquare(t, "vector share", hist, uniform, reps)
	}
}

// The canonical encoding, byte by byte.
func TestShareEncoding(t *testing.T) {
	p := small()
	s, err := NewShares(Config{Params: p, Round: testRound})
	if err != nil {
		t.Fatal(err)
	}
	ms, err := s.Messages(source(26), []int64{1, 2, 19})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"01" + "01" + "00" + "0a" + "03000000" + // version, seed, aggregator 0, q = 2^10, three counts
			"7772ac23e81f4927c636598d80c12529" + // round and parameters
			"3003e366df70e31b585a6beff844a66b" + // report
			"ce93d96cec01f03a7b489af6d8cc9a66", // seed
		"01" + "02" + "01" + "0a" + "03000000" + // version, vector, aggregator 1
			"7772ac23e81f4927c636598d80c12529" +
			"3003e366df70e31b585a6beff844a66b" +
			"ec752c3f", // three times ten bits and two of padding
	} {
		if got := hex.EncodeToString(ms[i]); got != want {
			t.Errorf("share %d: %s, want %s", i, got, want)
		}
	}
}

func TestPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(1, maxModulus).Draw(t, "bits")
		values := rapid.SliceOfN(rapid.Uint64Range(0, 1<<bits-1), 1, 40).Draw(t, "values")
		size := (len(values)*bits + 7) / 8
		b := make([]byte, size)
		pack(b, values, bits)
		// Bit i of value j is bit j·bits+i of the bytes.
		for j, v := range values {
			for i := range bits {
				at := j*bits + i
				if uint64(b[at/8]>>(at%8)&1) != v>>i&1 {
					t.Fatalf("bit %d of value %d is wrong", i, j)
				}
			}
		}
		got := make([]uint64, len(values))
		if !unpack(b, got, bits) || !slices.Equal(got, values) {
			t.Fatalf("%v came back as %v", values, got)
		}
		if pad := 8*size - len(values)*bits; pad > 0 {
			b[size-1] |= 1 << 7
			if unpack(b, make([]uint64, len(values)), bits) {
				t.Fatal("padding that is not zero was accepted")
			}
		}
	})
}

// Nothing a stranger sends makes an aggregator panic or change.
func FuzzAggregator(f *testing.F) {
	p := small()
	p.MinUsers = 1
	s, err := NewShares(Config{Params: p, Round: testRound})
	if err != nil {
		f.Fatal(err)
	}
	ms, err := s.Messages(source(28), []int64{1, 2, 3})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ms[0], uint8(0))
	f.Add(ms[1], uint8(1))
	f.Add([]byte{1, 2, 1}, uint8(1))
	f.Fuzz(func(t *testing.T, m []byte, index uint8) {
		a, err := s.NewAggregator(int(index % 2))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Add(m); err != nil {
			if len(a.ids) != 0 || slices.Max(a.sums) != 0 {
				t.Error("a refused message changed the sums")
			}
			return
		}
		if len(a.ids) != 1 {
			t.Error("an accepted message was not counted")
		}
	})
}

// The difference of two sums would be one client's counts.
func TestAggregatorReleasesOnce(t *testing.T) {
	p, err := Tight(Target{Eps: 1, Delta: 1e-3, Users: 3, Dim: 2, Radius: 1})
	if err != nil {
		t.Fatal(err)
	}
	p.Users = 10
	s, err := NewShares(Config{Params: p, Round: RoundID{1}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.NewAggregator(0)
	if err != nil {
		t.Fatal(err)
	}
	src := source(3)
	add := func() error {
		counts := make([]int64, p.Streams())
		messages, err := s.Messages(src, counts)
		if err != nil {
			t.Fatal(err)
		}
		return a.Add(messages[0])
	}
	for i := range 3 {
		if _, err := a.Close(); err == nil {
			t.Fatalf("closed with %d of 3 reports", i)
		}
		if err := add(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := add(); err == nil {
		t.Error("took a report after its sums were released")
	}
	if _, err := a.Close(); err == nil {
		t.Error("released twice")
	}
}
