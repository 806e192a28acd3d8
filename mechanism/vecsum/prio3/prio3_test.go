package prio3

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

var (
	testRound = vecsum.RoundID{1, 2, 3}
	testKey   = VerifyKey{7, 8, 9}
)

func small() vecsum.Params {
	return vecsum.Params{Users: 4, MinUsers: 1, Dim: 3, Radius: 2, Grid: 10, Norm: vecsum.Norm(3, 10, .1),
		Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: 9}}
}

func mustNew(t testing.TB, p vecsum.Params) *Shares {
	t.Helper()
	s, err := New(vecsum.Config{Params: p, Round: testRound})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func pair(t testing.TB, s *Shares) [2]*Aggregator {
	t.Helper()
	var all [2]*Aggregator
	for i := range all {
		a, err := s.NewAggregator(i, testKey)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = a
	}
	return all
}

// run takes one client through both aggregators and returns their decisions.
func run(t testing.TB, all [2]*Aggregator, reports [][]byte) (decisions [2]error) {
	t.Helper()
	var preps [2][]byte
	for i, a := range all {
		preps[i], decisions[i] = a.Begin(reports[i])
	}
	for i, a := range all {
		if decisions[i] == nil && preps[1-i] != nil {
			decisions[i] = a.Finish(preps[1-i])
		}
	}
	return decisions
}

// For every M the digits represent 0 … M and nothing else.
func TestDigitsCoverTheRangeExactly(t *testing.T) {
	for _, top := range []uint64{1<<40 - 1, 1 << 40, 1<<40 + 1, 1<<61 - 1, 1 << 60, 3 << 58} {
		s := &Shares{weights: digitWeights(top)}
		var all uint64
		for _, w := range s.weights {
			all += w
		}
		if all != top {
			t.Errorf("M = %d: the largest sum of digits is %d", top, all)
		}
		half := uint64(1) << (len(s.weights) - 1)
		for _, c := range []uint64{0, 1, half - 1, half, half + top/8%(top-half+1), top - 1, top} {
			v := uint64(0)
			for i, d := range s.digits(nil, c) {
				v += d * s.weights[i]
			}
			if v != c {
				t.Errorf("M = %d: %d became %d", top, c, v)
			}
		}
	}
	for top := uint64(1); top <= 300; top++ {
		s := &Shares{weights: digitWeights(top)}
		reached := map[uint64]bool{}
		for code := range uint64(1) << len(s.weights) {
			var v uint64
			for i, w := range s.weights {
				v += code >> i & 1 * w
			}
			if v > top {
				t.Fatalf("M = %d: digits %b are %d", top, code, v)
			}
			reached[v] = true
		}
		if uint64(len(reached)) != top+1 {
			t.Fatalf("M = %d: %d values are reached", top, len(reached))
		}
		for c := range top + 1 {
			var v uint64
			for i, d := range s.digits(nil, c) {
				if d > 1 {
					t.Fatalf("M = %d: a digit %d", top, d)
				}
				v += d * s.weights[i]
			}
			if v != c {
				t.Fatalf("M = %d: %d became %d", top, c, v)
			}
		}
	}
}

// For the same counts, of encoders with noise and at the ends of their range,
// the sums are those of additive shares, which are the plain ones.
func TestSumsAreThoseOfShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.SampledFrom([]int{1, 2, 5}).Draw(t, "dim")
		g := rapid.Int64Range(2, 9).Draw(t, "grid")
		n := rapid.Int64Range(1, 4).Draw(t, "clients")
		p := vecsum.Params{Users: n + rapid.Int64Range(0, 3).Draw(t, "spare"), MinUsers: n, Dim: d, Radius: 1, Grid: g, Norm: vecsum.Norm(d, g, 1e-3),
			Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: rapid.Int64Range(1, 70).Draw(t, "bits")}, Split: rapid.Bool().Draw(t, "split")}
		src := rng.Replay(20261121, rapid.Uint64().Draw(t, "seed"))
		e, err := vecsum.NewEncoder(p)
		if err != nil {
			t.Fatal(err)
		}
		top, err := p.MaxCount()
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(vecsum.Config{Params: p, Round: testRound})
		if err != nil {
			t.Fatal(err)
		}
		plain, err := vecsum.NewShares(vecsum.Config{Params: p, Round: testRound})
		if err != nil {
			t.Fatal(err)
		}
		want := make([]int64, p.Streams())
		sums := map[vecsum.Transport][][]byte{plain: nil, local{s, testKey}: nil}
		for range n {
			counts := make([]int64, p.Streams())
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				for j := range counts {
					counts[j] = top
				}
			case 1: // all zero
			default:
				x := make([]float32, d)
				for j := range x {
					x[j] = rapid.SampledFrom([]float32{-1, -.3, 0, .5, 1e9}).Draw(t, "x")
				}
				if err := e.Encode(src, x, counts); err != nil {
					t.Fatal(err)
				}
			}
			for j, c := range counts {
				want[j] += c
			}
			for tr := range sums {
				ms, err := tr.Messages(src, counts)
				if err != nil {
					t.Fatal(err)
				}
				var size int64
				for _, m := range ms {
					size += int64(len(m))
				}
				if c := tr.Cost(); int64(len(ms)) != c.Messages || size != c.Bytes {
					t.Fatalf("%T: %d messages of %d bytes, always %d of %d", tr, len(ms), size, c.Messages, c.Bytes)
				}
				sums[tr] = append(sums[tr], ms...)
			}
		}
		for tr, ms := range sums {
			sample.Shuffle(src, ms)
			got, k, err := tr.Sum(ms)
			if err != nil || k != n || !slices.Equal(got, want) {
				t.Fatalf("%T: %v of %d clients (%v), want %v of %d", tr, got, k, err, want, n)
			}
		}
	})
}

// forge makes the reports of a clumsy cheat: honest ones, and then something
// added to the leader's share of one digit, which the leader sees at once.
func forge(t testing.TB, s *Shares, src rng.Source, counts []int64, digit int, add uint64) [][]byte {
	t.Helper()
	ms, err := s.Messages(src, counts)
	if err != nil {
		t.Fatal(err)
	}
	at := reportStart + 16*digit
	copy(ms[0][at:], plus(t, ms[0][at:at+16], add))
	return ms
}

// A client that leaves the range is refused by both aggregators and counted, and
// what it sent is not in the sum.
func TestOutOfRangeIsRefused(t *testing.T) {
	p := small()
	s := mustNew(t, p)
	src := rng.Replay(1)
	if _, err := s.Messages(src, []int64{0, 20, 0}); err == nil {
		t.Error("a count above M = 19 was encoded")
	}
	if _, err := s.Messages(src, []int64{0, -1, 0}); err == nil {
		t.Error("a negative count was encoded")
	}
	all := pair(t, s)
	honest, err := s.Messages(src, []int64{19, 0, 7})
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range run(t, all, honest) {
		if err != nil {
			t.Fatalf("aggregator %d: %v", i, err)
		}
	}
	refused := int64(0)
	for what, ms := range map[string][][]byte{
		"a digit of 2":    cheat(t, s, src, []uint64{2, 0, 0, 0, 0}),
		"a digit of -1":   cheat(t, s, src, []uint64{0, minusOne, 0, 0, 0}),
		"a far digit":     cheat(t, s, src, []uint64{0, 0, 0, 0, 1 << 40}),
		"two that cancel": cheat(t, s, src, []uint64{2, minusOne, 0, 0, 0}),
	} {
		for i, err := range run(t, all, ms) {
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "proof") {
				t.Errorf("%s, aggregator %d: %v", what, i, err)
			}
		}
		refused++
		for i, a := range all {
			if a.Refused != refused {
				t.Errorf("%s: aggregator %d counts %d refused of %d", what, i, a.Refused, refused)
			}
		}
	}
	counts, n, err := closeAll(t, s, all)
	if err != nil || n != 1 || !slices.Equal(counts, []int64{19, 0, 7}) {
		t.Errorf("counts %v of %d (%v)", counts, n, err)
	}
}

func closeAll(t testing.TB, s *Shares, all [2]*Aggregator) ([]int64, int64, error) {
	t.Helper()
	n, digest := all[0].counted()
	if m, other := all[1].counted(); m != n || other != digest {
		t.Errorf("the aggregators accepted %d and %d reports", n, m)
	}
	var partials [2][]byte
	for i, a := range all {
		p, err := a.Close()
		if err != nil {
			t.Fatal(err)
		}
		if len(p) != s.partialSize() {
			t.Errorf("partial of %d bytes, not %d", len(p), s.partialSize())
		}
		partials[i] = p
	}
	return s.Combine(partials[1], partials[0])
}

// Every bit of a report and of a preparation matters: with one flipped either the
// message is refused at once or both aggregators leave the report out.
func TestTamperedMessages(t *testing.T) {
	p := small()
	p.Dim, p.Norm = 1, vecsum.Norm(1, 10, .1)
	s := mustNew(t, p)
	src := rng.Replay(2)
	for half := range 2 {
		for at := range s.reportSize(half) {
			ms, err := s.Messages(src, []int64{5})
			if err != nil {
				t.Fatal(err)
			}
			ms[half][at] ^= 1 << (at % 8)
			all := pair(t, s)
			for i, err := range run(t, all, ms) {
				if n, _ := all[i].counted(); n != 0 {
					t.Fatalf("report %d with byte %d flipped was accepted by %d (%v)", half, at, i, err)
				}
			}
		}
	}
	for at := range s.prepSize() {
		ms, err := s.Messages(src, []int64{5})
		if err != nil {
			t.Fatal(err)
		}
		all := pair(t, s)
		if _, err := all[0].Begin(ms[0]); err != nil {
			t.Fatal(err)
		}
		prep, err := all[1].Begin(ms[1])
		if err != nil {
			t.Fatal(err)
		}
		if int64(len(prep)) != s.prepSize() {
			t.Fatalf("preparation of %d bytes, not %d", len(prep), s.prepSize())
		}
		prep[at] ^= 1 << (at % 8)
		if err := all[0].Finish(prep); err == nil {
			t.Fatalf("preparation with byte %d flipped was accepted", at)
		}
	}
}

// A report is taken once, whether accepted, refused or pending; messages of
// another round, other parameters, length, kind or aggregator are not taken, and
// none of it changes anything.
func TestWrongMessages(t *testing.T) {
	p := small()
	s := mustNew(t, p)
	src := rng.Replay(3)
	reports := func(s *Shares) [][]byte {
		ms, err := s.Messages(src, make([]int64, 3))
		if err != nil {
			t.Fatal(err)
		}
		return ms
	}
	all := pair(t, s)
	good, bad := reports(s), cheat(t, s, src, []uint64{2, 0, 0, 0, 0})
	p0, err := all[0].Begin(good[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all[0].Begin(good[0]); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("pending report again: %v", err)
	}
	if err := all[1].Finish(p0); err == nil || !strings.Contains(err.Error(), "not come") {
		t.Errorf("preparation before the report: %v", err)
	}
	p1, err := all[1].Begin(good[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := all[0].Finish(p0); err == nil {
		t.Error("an aggregator took its own preparation")
	}
	for i, m := range [][]byte{p1, p0} {
		if err := all[i].Finish(m); err != nil {
			t.Fatal(err)
		}
		if err := all[i].Finish(m); err == nil {
			t.Error("a preparation was taken twice")
		}
	}
	run(t, all, bad)
	for _, ms := range [][][]byte{good, bad} {
		for i, err := range run(t, all, ms) {
			if err == nil || !strings.Contains(err.Error(), "twice") {
				t.Errorf("replay at %d: %v", i, err)
			}
		}
	}
	elsewhere, err := New(vecsum.Config{Params: p, Round: vecsum.RoundID{9}})
	if err != nil {
		t.Fatal(err)
	}
	wide := p
	wide.Grid, wide.Norm = 11, vecsum.Norm(3, 11, .1)
	own := reports(s)[0]
	for what, m := range map[string][]byte{
		"nothing": nil, "cut": own[:len(own)-1], "longer": append(slices.Clone(own), 0), "a header": own[:headerSize],
		"the other's": reports(s)[1], "another round": reports(elsewhere)[0], "other parameters": reports(mustNew(t, wide))[0],
		"a preparation": p0, "version 2": append([]byte{2}, own[1:]...),
	} {
		if _, err := all[0].Begin(m); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", what, err)
		}
		if err := all[0].Finish(m); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("%s as preparation: %v", what, err)
		}
	}
	if n, _ := all[0].counted(); n != 1 || all[0].Refused != 1 {
		t.Errorf("%d accepted and %d refused, want one each", n, all[0].Refused)
	}
}

// A client that gives the aggregators different public shares cannot split them.
func TestPublicSharesMustAgree(t *testing.T) {
	s := mustNew(t, small())
	for part := range 2 { // the other one's part: its own is checked on sight
		ms, err := s.Messages(rng.Replay(4), make([]int64, 3))
		if err != nil {
			t.Fatal(err)
		}
		ms[1-part][headerSize+idSize+seedSize*part] ^= 1
		for i, err := range run(t, pair(t, s), ms) {
			if !errors.Is(err, ErrRefused) {
				t.Errorf("part %d, aggregator %d: %v", part, i, err)
			}
		}
	}
}

// Local leaves out refused reports and returns an error for halves.
func TestLocal(t *testing.T) {
	s := mustNew(t, small())
	l, src := local{s, testKey}, rng.Replay(7)
	good, err := s.Messages(src, []int64{4, 5, 6})
	if err != nil {
		t.Fatal(err)
	}
	onSight := forge(t, s, src, []int64{0, 0, 0}, 2, 1) // the leader's share is not what was announced
	counts, n, err := l.Sum(slices.Concat(cheat(t, s, src, []uint64{2, 0, 0, 0, 0}), good, onSight))
	if err != nil || n != 1 || !slices.Equal(counts, []int64{4, 5, 6}) {
		t.Errorf("counts %v of %d (%v)", counts, n, err)
	}
	for what, ms := range map[string][][]byte{"half": good[:1], "empty": {nil}, "replay": slices.Concat(good, good)} {
		if _, _, err := l.Sum(ms); err == nil {
			t.Errorf("%s was summed", what)
		}
	}
}

func FuzzMessages(f *testing.F) {
	s := mustNew(f, small())
	ms, err := s.Messages(rng.Replay(8), make([]int64, 3))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ms[0])
	f.Add(ms[1])
	f.Fuzz(func(t *testing.T, m []byte) {
		all := pair(t, s)
		for i, a := range all {
			prep, err := a.Begin(m)
			if err == nil && !bytes.Equal(m, ms[i]) {
				// A share is an arbitrary vector: its prep must still be refused.
				if _, err := all[1-i].Begin(ms[1-i]); err == nil && all[1-i].Finish(prep) == nil {
					t.Fatal("a changed report was accepted")
				}
			}
			_ = a.Finish(m)
		}
		_, _, _ = s.Combine(m, m)
	})
}
