package proved

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum/pine"
)

func noisy(announcement byte) Config {
	return Config{Dim: 6, Bound: 1000, Noise: 1 << 20, Users: 100, Announcement: [32]byte{announcement}}
}

// twoParts is a report of a vector and its noise.
func twoParts(t testing.TB, r *Round, src rng.Source, x, noise []int64) (m report) {
	t.Helper()
	var err error
	if m[Aggregator], m[Coordinator], err = r.Report(src, x, noise); err != nil {
		t.Fatal(err)
	}
	return m
}

// What is released has the vectors of all rounds with their weights, and the noise of its own round once; what is
// kept for later rounds has no noise.
func TestNoiseIsReleasedOnce(t *testing.T) {
	src := rng.Replay(5)
	var held [aggregators][]Earlier
	var before []int64
	for round := byte(1); round <= 3; round++ {
		r := mustNew(t, noisy(round))
		var reports []report
		own, noise := make([]int64, 6), make([]int64, 6)
		for i := range 4 {
			x, z := vector(src, 6, 1000, 1), vector(src, 6, 1<<20, 1)
			m := twoParts(t, r, src, x, z)
			for k, b := range m {
				if len(b) != r.size(Role(k)) {
					t.Fatalf("half %d has %d bytes, want %d", k, len(b), r.size(Role(k)))
				}
			}
			if i == 2 { // left out, with its noise
				m[Coordinator][len(m[Coordinator])-1] ^= 1
				reports = append(reports, m)
				continue
			}
			own, noise = plus(own, x), plus(noise, z)
			reports = append(reports, m)
		}
		sums := newSums(t, r, key, len(reports))
		if got := decide(t, sums, reports, 3); !slices.Equal(got, []Reason{Accepted, Accepted, Unequal, Accepted}) {
			t.Fatalf("decided %q", got)
		}
		want := slices.Clone(noise)
		for j := range want {
			if want[j] += 16 * own[j]; before != nil {
				want[j] += 7 * before[j]
			}
		}
		var kept [aggregators][]Earlier
		for k, s := range sums {
			share, err := s.Mix(16, held[k])
			if err != nil {
				t.Fatal(err)
			}
			kept[k] = []Earlier{{7, share}}
			if _, err := s.Close(make([]int64, 6)); err == nil || !strings.Contains(err.Error(), "noise of clients") {
				t.Errorf("noise was added to that of clients: %v", err)
			}
		}
		for j := range own {
			if got := combined(kept[0][0].Share[j], kept[1][0].Share[j]); got != own[j] {
				t.Errorf("what is kept is of %d, the vectors' sum is %d", got, own[j])
			}
		}
		got, n := opened(t, sums, [aggregators][]int64{})
		if n != 3 || !slices.Equal(got, want) {
			t.Errorf("round %d: %v of %d, want %v of 3", round, got, n, want)
		}
		held, before = kept, own
	}
}

// A proof that does not hold for one of the two vectors is enough, and parts of two reports are none.
func TestNoiseThatLies(t *testing.T) {
	src := rng.Replay(6)
	r := mustNew(t, noisy(1))
	x, z := vector(src, 6, 1000, 1), vector(src, 6, 1<<20, 1)
	// liars prove other bounds, whose messages are as long.
	liars := func(bounds ...int64) *Round {
		l := *r
		l.parts = slices.Clone(r.parts)
		for i, bound := range bounds {
			p, err := pine.New(pine.Config{Dim: 6, Bound: bound, Context: r.parts[i].context})
			if err != nil {
				t.Fatal(err)
			}
			if p.Sizes() != r.parts[i].sizes {
				t.Fatalf("messages for norm %d have other sizes", bound)
			}
			l.parts[i].pine = p
		}
		return &l
	}
	long := make([]int64, 6)
	for j := range long {
		long[j] = 1<<20 - 1
	}
	split := func(m report) (nonce []byte, parts [aggregators][2][]byte, other [aggregators][]byte) {
		nonce = m[0][:nonceSize]
		for k, b := range m {
			b = b[nonceSize:]
			for i, p := range r.parts {
				n := p.sizes.Public + p.sizes.Input[k]
				parts[k][i], b = b[:n], b[n:]
			}
			other[k] = b
		}
		return nonce, parts, other
	}
	a, b := twoParts(t, r, src, x, z), twoParts(t, r, src, vector(src, 6, 1000, 1), vector(src, 6, 1<<20, 1))
	_, partsA, otherA := split(a)
	nonceB, partsB, otherB := split(b)
	var mixed, swapped report
	for k := range aggregators {
		mixed[k] = slices.Concat(nonceB, partsB[k][0], partsA[k][1], otherB[k])
		swapped[k] = slices.Concat(a[0][:nonceSize], partsA[k][1], partsA[k][0], otherA[k])
	}
	plain := mustNew(t, Config{Dim: 6, Bound: 1000, Users: 100, Announcement: [32]byte{1}})
	for name, c := range map[string]struct {
		m    report
		want Reason
	}{
		"honest":                    {twoParts(t, r, src, x, z), Accepted},
		"no noise":                  {twoParts(t, r, src, x, make([]int64, 6)), Accepted},
		"noise just too long":       {twoParts(t, liars(1000, 1<<20+3), src, x, []int64{1<<20 + 1, 0, 0, 0, 0, 0}), BadProof},
		"vector too long":           {twoParts(t, liars(1020), src, []int64{1010, 0, 0, 0, 0, 0}, z), BadProof},
		"another report's noise":    {mixed, Unequal},
		"parts in the other order":  {swapped, Unequal},
		"noise of another round":    {twoParts(t, mustNew(t, noisy(2)), src, x, z), Unequal},
		"vector without noise":      {mustReport(t, plain, src, x), CannotOpen},
		"noise in one half changed": {func() report { m := a.clone(); m[0][len(m[0])-digestSize-9] ^= 1; return m }(), Unequal},
	} {
		if got := decide(t, newSums(t, r, key, 1), []report{c.m}, 1); got[0] != c.want {
			t.Errorf("%s: %q, want %q", name, got[0], c.want)
		}
	}
	if _, _, err := r.Report(src, x, long); err == nil || !strings.Contains(err.Error(), "above the bound") {
		t.Errorf("noise of norm %v: %v", 1<<20*math.Sqrt(6), err)
	}
	for _, vectors := range [][][]int64{{}, {x}, {x, z, z}, {x, z[:5]}} {
		if _, _, err := r.Report(src, vectors...); err == nil {
			t.Errorf("a report of %d vectors was made", len(vectors))
		}
	}
	if _, _, err := plain.Report(src, x, z); err == nil {
		t.Error("noise went into a round that has none")
	}
	// A commitment is of both vectors.
	h, _ := r.parse(Aggregator, a[Aggregator])
	was := r.commitment(Aggregator, h)
	for i := range h.public {
		for _, part := range [][]byte{h.public[i], h.inputs[i]} {
			part[0] ^= 1
			if now := r.commitment(Aggregator, h); now == was {
				t.Errorf("vector %d: another report has the same commitment", i)
			}
			part[0] ^= 1
		}
	}
	// Both parts differ in what seeds are expanded to, though nonce and key are one.
	if bytes.Equal(partsA[0][0][:32], partsA[0][1][:32]) || r.parts[0].context == r.parts[1].context {
		t.Error("both vectors have one context")
	}
}

func TestNoiseBoundsAreChecked(t *testing.T) {
	for want, c := range map[string]Config{
		"noise of norm -1":    {Dim: 6, Bound: 10, Noise: -1, Users: 10},
		"norm 1073741824 exc": {Dim: 6, Bound: 10, Noise: 1 << 30, Users: 1 << 31},
		"pine: norm bound":    {Dim: 6, Bound: 10, Noise: 1 << 32, Users: 10},
	} {
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	plain, with := mustNew(t, Config{Dim: 6, Bound: 1000, Users: 100}), mustNew(t, Config{Dim: 6, Bound: 1000, Users: 100, Noise: 1 << 20})
	if plain.tag == with.tag {
		t.Error("rounds with and without noise have one name")
	}
	if a, b := plain.ZeroKnowledge(), with.ZeroKnowledge(); !(b >= max(a, with.parts[1].pine.ZeroKnowledge())) {
		t.Errorf("two vectors show 2^%v, one 2^%v", b, a)
	}
	if !(with.Places() <= plain.Places()) || with.MessageSize(3) <= plain.MessageSize(3) {
		t.Errorf("%d places, %d bytes", with.Places(), with.MessageSize(3))
	}
}
