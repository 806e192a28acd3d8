package proved

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/big"
	"math/bits"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum/pine"
)

const order = 1<<64 - 1<<32 + 1 // of the field

// liar makes reports of a round without its rules: of vectors of a norm up to another bound, which
// has as many digits.
func liar(t testing.TB, r *Round, bound int64) *Round {
	t.Helper()
	p, err := pine.New(pine.Config{Dim: r.config.Dim, Bound: bound, Context: r.context})
	if err != nil {
		t.Fatal(err)
	}
	if p.Sizes() != r.sizes {
		t.Fatalf("messages for norm %d have other sizes", bound)
	}
	l := *r
	l.part.pine = p
	l.parts = []part{l.part}
	return &l
}

// rewrite changes the input shares of a report, and makes digests and commitments fit.
func (r *Round) rewrite(m report, change func(h *[aggregators]half)) report {
	var h [aggregators]half
	for k, b := range m.clone() {
		h[k], _ = r.parse(Role(k), b)
	}
	change(&h)
	out := r.halves(h[0].nonce, shared{h[0].public[0], [aggregators][]byte{h[0].inputs[0], h[1].inputs[0]}})
	copy(out[1], h[1].nonce[:])
	copy(out[1][nonceSize:], h[1].public[0])
	return out
}

// addTo adds v to element i of a share.
func addTo(share []byte, i int, v uint64) {
	b := share[8*i:]
	s, carry := bits.Add64(binary.LittleEndian.Uint64(b), v, 0)
	if carry == 1 || s >= order {
		s -= order
	}
	binary.LittleEndian.PutUint64(b, s)
}

// attacks are what clients can do with a report, and with the shuffler's help with those of others.
// Each has its reasons by place; the reports that honest clients made are not among them.
func attacks(t testing.TB, r *Round, src rng.Source, beyond int64) map[string]struct {
	reports []report
	want    []Reason
} {
	bound := float64(r.config.Bound)
	honest := func() report { return mustReport(t, r, src, vector(src, r.config.Dim, bound, 1)) }
	elsewhere := mustNew(t, Config{Dim: r.config.Dim, Bound: r.config.Bound, Users: r.config.Users, Announcement: [32]byte{99}})
	large := liar(t, r, beyond)
	type attack = struct {
		reports []report
		want    []Reason
	}
	one := func(m report, want Reason) attack { return attack{[]report{m}, []Reason{want}} }
	element := func() uint64 { return src.Uint64() >> 1 }
	random := func(b []byte) {
		for i := 0; i+8 <= len(b); i += 8 {
			binary.LittleEndian.PutUint64(b[i:], element())
		}
	}
	published := func(at int) func(*[2]half) { // another byte of the public share, for both
		return func(h *[2]half) { h[0].public[0][at] ^= 1; h[1].public[0][at] ^= 1 }
	}
	a, b, c := honest(), honest(), honest()
	other := elsewhere.rewrite // digests for the other round
	sameNonce := func(m report, n []byte) report {
		x := vector(src, r.config.Dim, bound, 1)
		nonce := pine.Nonce(n)
		public, inputs, err := r.pine.Shard(src, nonce, x)
		if err != nil {
			t.Fatal(err)
		}
		return r.halves(nonce, shared{public, inputs})
	}
	strange := mustReport(t, elsewhere, src, vector(src, r.config.Dim, bound, 1))
	return map[string]attack{
		"share shifted inside the range": one(r.rewrite(honest(), func(h *[2]half) { addTo(h[0].inputs[0], 3, 40) }), BadProof),
		"share shifted by 1":             one(r.rewrite(honest(), func(h *[2]half) { addTo(h[0].inputs[0], 0, 1) }), BadProof),
		"share shifted, no commitment":   one(func() report { m := honest(); addTo(m[0][nonceSize+r.sizes.Public:], 0, 1); return m }(), Unequal),
		"random leader's share":          one(r.rewrite(honest(), func(h *[2]half) { random(h[0].inputs[0]) }), BadProof),
		"random helper's share":          one(r.rewrite(honest(), func(h *[2]half) { random(h[1].inputs[0]) }), BadProof),
		"random shares": one(r.rewrite(honest(), func(h *[2]half) {
			random(h[0].inputs[0])
			random(h[1].inputs[0])
			random(h[0].public[0])
			h[1].public = h[0].public
		}), BadProof),
		"no field elements":     one(r.rewrite(honest(), func(h *[2]half) { copy(h[0].inputs[0], bytes.Repeat([]byte{255}, 8)) }), BadProof),
		"all zeros":             one(report{make([]byte, len(a[0])), make([]byte, len(a[1]))}, Unequal),
		"halves of two reports": {[]report{{a[0], b[1]}, {b[0], a[1]}}, []Reason{Unequal, Unequal}},
		"halves of two vectors, one nonce": {[]report{{c[0], sameNonce(c, c[0][:nonceSize])[1]}},
			[]Reason{Unequal}},
		"other nonces":                      one(r.rewrite(honest(), func(h *[2]half) { h[1].nonce[0] ^= 1 }), Unequal),
		"other public shares":               one(r.rewrite(honest(), func(h *[2]half) { h[1].public[0][20] ^= 1 }), Unequal),
		"false own part, the leader's":      one(r.rewrite(honest(), published(0)), BadProof),
		"false own part, the helper's":      one(r.rewrite(honest(), published(16)), BadProof),
		"false late part, the leader's":     one(r.rewrite(honest(), published(32)), BadProof),
		"false late part, the helper's":     one(r.rewrite(honest(), published(63)), BadProof),
		"another round's report":            one(strange, Unequal),
		"another round's proof":             one(r.rewrite(strange, func(*[2]half) {}), BadProof),
		"another round's digests":           one(other(honest(), func(*[2]half) {}), Unequal),
		"norm 1.01 times the bound":         one(mustReport(t, large, src, vector(src, r.config.Dim, bound, 1.01)), BadProof),
		"a half too short":                  {[]report{{a[0][1:], a[1]}, {b[0], b[1][:len(b[1])-1]}}, []Reason{CannotOpen, CannotOpen}},
		"a half too long":                   {[]report{{append(bytes.Clone(a[0]), 0), a[1]}, {b[0], append(bytes.Clone(b[1]), 0)}}, []Reason{CannotOpen, CannotOpen}},
		"a half that cannot be opened":      {[]report{{nil, a[1]}, {b[0], nil}, {nil, nil}}, []Reason{CannotOpen, CannotOpen, CannotOpen}},
		"an aggregator's half as the other": {[]report{{a[1], a[0]}}, []Reason{CannotOpen}},
	}
}

// TestAttacksAreRefused has each attack among honest reports: both aggregators refuse it for the same
// reason, and the honest sum is exact.
func TestAttacksAreRefused(t *testing.T) {
	r, src := mustNew(t, Config{Dim: 20, Bound: 1000, Users: 100, Announcement: [32]byte{1}}), rng.Replay(2)
	all := attacks(t, r, src, 1020)
	for name, a := range all {
		t.Run(name, func(t *testing.T) {
			src := rng.Replay(3)
			want := make([]int64, r.config.Dim)
			var reports []report
			var reasons []Reason
			honest := func() {
				x := vector(src, r.config.Dim, 1000, 1)
				for j := range want {
					want[j] += x[j]
				}
				reports, reasons = append(reports, mustReport(t, r, src, x)), append(reasons, Accepted)
			}
			honest()
			for i, m := range a.reports {
				reports, reasons = append(reports, m), append(reasons, a.want[i])
				honest()
			}
			sums := newSums(t, r, key, len(reports))
			if got := decide(t, sums, reports, 3); !slices.Equal(got, reasons) {
				t.Errorf("%q, want %q", got, reasons)
			}
			refused := map[Reason]int64{}
			for _, w := range a.want {
				refused[w]++
			}
			for k, s := range sums {
				for _, reason := range []Reason{CannotOpen, Unequal, Again, BadProof} {
					if got := s.Refused()[reason]; got != refused[reason] {
						t.Errorf("aggregator %d: %d times %s, want %d", k, got, reason, refused[reason])
					}
				}
			}
			zero := make([]int64, r.config.Dim)
			sum, n := opened(t, sums, [2][]int64{zero, zero})
			if n != int64(len(a.reports)+1) || !slices.Equal(sum, want) {
				t.Errorf("%v of %d, want %v", sum, n, want)
			}
		})
	}
}

// TestEachNonceCountsOnce replays whole reports, halves of them, and nonces.
func TestEachNonceCountsOnce(t *testing.T) {
	r, src := mustNew(t, Config{Dim: 20, Bound: 1000, Users: 100}), rng.Replay(4)
	x, y := vector(src, 20, 1000, 1), vector(src, 20, 1000, 1)
	a, b := mustReport(t, r, src, x), mustReport(t, r, src, y)
	public, inputs, err := r.pine.Shard(src, pine.Nonce(a[0]), y)
	if err != nil {
		t.Fatal(err)
	}
	second := r.halves(pine.Nonce(a[0]), shared{public, inputs}) // an honest proof under a's nonce
	bad := r.rewrite(b, func(h *[2]half) { addTo(h[0].inputs[0], 0, 1) })
	for _, c := range []struct {
		reports []report
		want    []Reason
		sum     []int64
	}{
		{[]report{a, a, b, a}, []Reason{Accepted, Again, Accepted, Again}, plus(x, y)},
		{[]report{a, second}, []Reason{Accepted, Again}, x},
		{[]report{second, a}, []Reason{Accepted, Again}, y},
		// Halves that are not of one report take no nonce, so nobody spoils another's report with them.
		{[]report{{a[0], b[1]}, {a[0], nil}, a, b}, []Reason{Unequal, CannotOpen, Accepted, Accepted}, plus(x, y)},
		{[]report{a, bad, b}, []Reason{Accepted, BadProof, Again}, x},
	} {
		for chunk := 1; chunk <= len(c.reports); chunk++ {
			sums := newSums(t, r, key, len(c.reports))
			if got := decide(t, sums, c.reports, chunk); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			zero := make([]int64, 20)
			if sum, _ := opened(t, sums, [2][]int64{zero, zero}); !slices.Equal(sum, c.sum) {
				t.Errorf("%v, want %v", sum, c.sum)
			}
		}
	}
}

func plus(a, b []int64) []int64 {
	c := slices.Clone(a)
	for j := range c {
		c[j] += b[j]
	}
	return c
}

// TestLateProofs holds what the commitments are for. A client that knows the key and the helper's
// message chooses the leader's proofs so that a vector above the bound passes. Aggregators that go by
// the proofs alone accept it. Here its halves are not of one report.
func TestLateProofs(t *testing.T) {
	r, src := mustNew(t, Config{Dim: 20, Bound: 1000, Users: 100}), rng.Replay(5)
	m := mustReport(t, liar(t, r, 1020), src, vector(src, 20, 1000, 1.012))
	forged := forge(t, r, m)

	s := newSums(t, r, key, 1)
	leader, helper := s[0].Prepare(forged[0]), s[1].Prepare(forged[1])
	if _, err := r.pine.PrepMessage(s[0].Prepare(m[0]).vectors[0].prep, helper.vectors[0].prep); !errors.Is(err, pine.ErrRefused) {
		t.Fatalf("the first proof: %v", err)
	}
	message, err := r.pine.PrepMessage(leader.vectors[0].prep, helper.vectors[0].prep)
	if err != nil {
		t.Fatalf("the late proof: %v", err)
	}
	for k, p := range []*Prepared{leader, helper} {
		if _, err := r.pine.PrepNext(p.vectors[0].state, message); err != nil {
			t.Fatalf("the late proof at aggregator %d: %v", k, err)
		}
	}

	if got := decide(t, s, []report{forged}, 1); !slices.Equal(got, []Reason{Unequal}) {
		t.Errorf("a late proof: %q", got)
	}
	// The test is not blind: with the key before it commits, the client is accepted.
	early := r.rewrite(forged, func(*[2]half) {})
	if got := decide(t, newSums(t, r, key, 1), []report{early}, 1); !slices.Equal(got, []Reason{Accepted}) {
		t.Errorf("a proof made with the key: %q", got)
	}
	if got := decide(t, newSums(t, r, VerifyKey{8}, 1), []report{early}, 1); !slices.Equal(got, []Reason{BadProof}) {
		t.Errorf("a proof made with another key: %q", got)
	}
}

// forge changes the leader's proofs in a report whose circuits' outputs are not 0 so that they
// seem to be. Each output and the polynomial's value at the point are linear in the polynomial's
// coefficients, so two of them are enough.
func forge(t *testing.T, r *Round, m report) report {
	s := newSums(t, r, key, 1)
	verifier := func(p *Prepared) []uint64 {
		v := make([]uint64, (r.sizes.Prep-32)/8)
		for i := range v {
			v[i] = binary.LittleEndian.Uint64(p.vectors[0].prep[8*i:])
		}
		return v
	}
	base, helper := verifier(s[0].Prepare(m[0])), verifier(s[1].Prepare(m[1]))
	start := nonceSize + r.sizes.Public
	forged := m.clone()
	type pair struct{ out, value int }
	found := map[pair][]int{} // coefficients by what they change
	change := map[int][2]uint64{}
	elements := (r.sizes.Input[0] - 32) / 8
	for i := elements - 1; i >= 20; i-- {
		n := m.clone()
		addTo(n[0][start:], i, 1)
		p := s[0].Prepare(n[0])
		if p.kind != good {
			break // not a proof: its part changes
		}
		var at []int
		var by [2]uint64
		for j, v := range verifier(p) {
			if v != base[j] {
				if at = append(at, j); len(at) <= 2 {
					by[len(at)-1] = minus(v, base[j])
				}
			}
		}
		if len(at) == 2 {
			change[i] = by
			found[pair{at[0], at[1]}] = append(found[pair{at[0], at[1]}], i)
		}
	}
	if len(found) != 3 {
		t.Fatalf("%d proofs were found, not 3", len(found))
	}
	for at, coefficients := range found {
		missing := minus(0, minus(base[at.out], minus(0, helper[at.out])))
		if missing == 0 {
			continue
		}
		// a·x + b·y = missing, c·x + d·y = 0
		for _, second := range coefficients[1:] {
			a, c := change[coefficients[0]][0], change[coefficients[0]][1]
			b, d := change[second][0], change[second][1]
			det := minus(times(a, d), times(b, c))
			if det == 0 {
				continue
			}
			inv := inverse(det)
			addTo(forged[0][start:], coefficients[0], times(times(missing, d), inv))
			addTo(forged[0][start:], second, minus(0, times(times(missing, c), inv)))
			break
		}
	}
	return forged
}

func minus(a, b uint64) uint64 {
	d, borrow := bits.Sub64(a, b, 0)
	if borrow == 1 {
		d += order
	}
	return d
}

func times(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	_, rem := bits.Div64(hi, lo, order)
	return rem
}

func inverse(a uint64) uint64 {
	return new(big.Int).ModInverse(new(big.Int).SetUint64(a), new(big.Int).SetUint64(order)).Uint64()
}

// TestOneLiarMovesTheSumByTheBound has a liar send vectors of several norms, with proofs for a larger
// bound where it needs one. The sum moves by at most the bound, and by that if the liar keeps to it.
func TestOneLiarMovesTheSumByTheBound(t *testing.T) {
	const d, bound = 20, 1000
	r, src := mustNew(t, Config{Dim: d, Bound: bound, Users: 100}), rng.Replay(6)
	large := liar(t, r, 1023)
	honest, zero := make([]int64, d), make([]int64, d)
	var reports []report
	for range 9 {
		x := vector(src, d, bound, 1)
		honest = plus(honest, x)
		reports = append(reports, mustReport(t, r, src, x))
	}
	var most int64
	for _, norm := range []int64{1, 999, 1000, 1001, 1010, 1023} {
		by := r
		if norm > bound {
			by = large
		}
		x := make([]int64, d)
		x[7] = -norm
		sums := newSums(t, r, key, 10)
		reasons := decide(t, sums, append(slices.Clone(reports), mustReport(t, by, src, x)), 10)
		sum, _ := opened(t, sums, [2][]int64{zero, zero})
		var square int64
		for j := range sum {
			square += (sum[j] - honest[j]) * (sum[j] - honest[j])
		}
		if accepted := reasons[9] == Accepted; accepted != (norm <= bound) || accepted && square != norm*norm || !accepted && square != 0 {
			t.Errorf("norm %d: %q, and the sum moves by the root of %d", norm, reasons[9], square)
		}
		most = max(most, square)
	}
	if most != bound*bound {
		t.Errorf("the sum moves by the root of %d, not by %d", most, bound)
	}
}
