package prio3

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"testing"

	"github.com/cloudflare/circl/vdaf/prio3/arith/fp128"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

const minusOne = math.MaxUint64 // stands for −1 in the field

// cheat returns the reports of a client that follows the protocol but for its
// digits, which need not be 0 or 1: shares and commitments fit them, the proof is
// one for zeros. Digits not given are 0.
func cheat(t testing.TB, s *Shares, src rng.Source, digits []uint64) [][]byte {
	t.Helper()
	ms, err := s.shard(src, make([]uint64, s.streams*len(s.weights)))
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range digits {
		at := reportStart + 16*i
		copy(ms[0][at:], plus(t, ms[0][at:at+16], d))
	}
	part := s.leaderPart(ms[0])
	for i := range ms {
		copy(ms[i][headerSize+idSize:], part)
	}
	s.recommit(ms...)
	return ms
}

// recommit makes the commitments of reports, the first of them the leader's, fit.
func (s *Shares) recommit(ms ...[]byte) {
	c := s.commitment(ms[0])
	for _, m := range ms {
		copy(m[commitStart:], c[:])
	}
}

// leaderPart recomputes the leader's part of the public share, its commitment to
// the share it holds, as draft-irtf-cfrg-vdaf-13 has it.
func (s *Shares) leaderPart(report []byte) []byte {
	binder := append([]byte{0}, report[headerSize:headerSize+idSize]...)
	binder = append(binder, report[reportStart:reportStart+16*s.streams*len(s.weights)]...)
	return s.expand(7, report[len(report)-seedSize:], binder)[:seedSize]
}

// expand is the drafts' XofTurboShake128, its first 168 bytes.
func (s *Shares) expand(usage byte, seed, binder []byte) []byte {
	context := append([]byte("riffle/vecsum/prio3 1"), s.tag[:]...)
	m := binary.LittleEndian.AppendUint16(nil, uint16(8+len(context)))
	m = append(m, 12, 0, 0, 0, 0, 3, 0, usage)
	m = append(m, context...)
	m = append(m, seedSize)
	m = append(m, seed...)
	return turboSHAKE128(append(m, binder...))
}

// turboSHAKE128 returns 168 bytes of TurboSHAKE128 (RFC 9861) with domain 1.
func turboSHAKE128(m []byte) []byte {
	const rate = 168
	m = append(m, 1)
	m = append(m, make([]byte, (rate-len(m)%rate)%rate)...)
	m[len(m)-1] ^= 0x80
	var a [25]uint64
	for ; len(m) > 0; m = m[rate:] {
		for i := range rate / 8 {
			a[i] ^= binary.LittleEndian.Uint64(m[8*i:])
		}
		keccak12(&a)
	}
	var out []byte
	for _, w := range a[:rate/8] {
		out = binary.LittleEndian.AppendUint64(out, w)
	}
	return out
}

// keccak12 is the last half of Keccak-f[1600].
func keccak12(a *[25]uint64) {
	lfsr := byte(1)
	bit := func() bool { // of the round constants
		out := lfsr&1 == 1
		high := lfsr >> 7
		lfsr = lfsr<<1 ^ high*0x71
		return out
	}
	for round := range 24 {
		var rc uint64
		for j := range 7 {
			if bit() {
				rc ^= 1 << (1<<j - 1)
			}
		}
		if round < 12 {
			continue
		}
		var c [5]uint64
		for x := range 5 {
			c[x] = a[x] ^ a[x+5] ^ a[x+10] ^ a[x+15] ^ a[x+20]
		}
		for i := range a {
			a[i] ^= c[(i+4)%5] ^ bits.RotateLeft64(c[(i+1)%5], 1)
		}
		x, y, last := 1, 0, a[1]
		for t := range 24 {
			x, y = y, (2*x+3*y)%5
			a[5*y+x], last = bits.RotateLeft64(last, (t+1)*(t+2)/2), a[5*y+x]
		}
		for y := 0; y < 25; y += 5 {
			row := [5]uint64(a[y:])
			for x := range 5 {
				a[y+x] = row[x] ^ ^row[(x+1)%5]&row[(x+2)%5]
			}
		}
		a[0] ^= rc
	}
}

// plus adds n to an encoded field element.
func plus(t testing.TB, b []byte, n uint64) []byte {
	t.Helper()
	var x, y fp128.Fp
	if err := x.UnmarshalBinary(b); err != nil {
		t.Fatal(err)
	}
	if n == minusOne {
		y.SetOne()
		x.SubAssign(&y)
	} else {
		if err := y.SetUint64(n); err != nil {
			t.Fatal(err)
		}
		x.AddAssign(&y)
	}
	out, err := x.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The cheating client's commitment is the library's for honest reports, so that
// what refuses it is the proof.
func TestCheatCommits(t *testing.T) {
	s := mustNew(t, small())
	ms, err := s.Messages(rng.Replay(9), []int64{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	if part := s.leaderPart(ms[0]); string(part) != string(ms[0][headerSize+idSize:][:seedSize]) {
		t.Fatalf("commitment %x, the library's is %x", part, ms[0][headerSize+idSize:][:seedSize])
	}
	for i, err := range run(t, pair(t, s), cheat(t, s, rng.Replay(10), nil)) {
		if err != nil {
			t.Errorf("a cheat that does not cheat was refused by %d: %v", i, err)
		}
	}
}

func elements(t testing.TB, b []byte, n int) fp128.Vec {
	t.Helper()
	v := make(fp128.Vec, n)
	if err := v.UnmarshalBinary(b[:n*fp128.Size]); err != nil {
		t.Fatal(err)
	}
	return v
}

// A client that could read aggregator 1's preparation before it sends its report
// to aggregator 0 knows the secret point t at which the proof is checked, and
// could choose the leader's proof share, which Prio3's public share does not
// commit to, such that the check holds at t only. So reports commit to it.
func TestLateProofIsRefused(t *testing.T) {
	for _, recommit := range []bool{false, true} {
		lateProof(t, recommit)
	}
}

func lateProof(t *testing.T, recommit bool) {
	p := small()
	p.Dim, p.Grid, p.Noise.Bits, p.Norm = 1, 2, 4, vecsum.Norm(1, 2, .1)
	s := mustNew(t, p)
	if len(s.weights) != 3 || s.chunk != 3 {
		t.Fatalf("%d digits in chunks of %d: not one gadget call", len(s.weights), s.chunk)
	}
	const count, arity = 1000, 6 // of M = 6
	all := pair(t, s)
	ms := cheat(t, s, rng.Replay(11), []uint64{count})
	prep, err := all[1].Begin(ms[1])
	if err != nil {
		t.Fatal(err)
	}

	// What the client knows: joint randomness, and both of aggregator 1's shares.
	var zero [seedSize]byte
	public := ms[0][headerSize+idSize:][:publicSize]
	joint := s.expand(3, s.expand(6, zero[:], public)[:seedSize], []byte{1})
	r := elements(t, joint, 1)[0]
	digits := elements(t, make([]byte, 48), 3)
	if err := digits[0].SetUint64(count); err != nil {
		t.Fatal(err)
	}
	helper := elements(t, make([]byte, 48), 3)
	copy(helper, digits)
	helper.SubAssign(elements(t, ms[0][reportStart:], 3))
	proof := elements(t, s.expand(2, ms[1][reportStart:][:seedSize], []byte{1, 1}), arity+3)

	var one, two, half fp128.Fp
	one.SetOne()
	two.Add(&one, &one)
	half.Inv(&two)
	// A wire is the line through seed at 1 and input at −1.
	wire := func(seed, input, at *fp128.Fp) (y fp128.Fp) {
		var d fp128.Fp
		y.Add(seed, input)
		d.Sub(seed, input)
		d.MulAssign(at)
		y.AddAssign(&d)
		y.MulAssign(&half)
		return y
	}
	// t from aggregator 1's first wire, r·helper[0] at −1.
	var input, at, d fp128.Fp
	input.Mul(&r, &helper[0])
	seen := elements(t, prep[prepStart:], arity+2)
	at.Mul(&two, &seen[1])
	at.SubAssign(&proof[0])
	at.SubAssign(&input)
	d.Sub(&proof[0], &input)
	d.Inv(&d)
	at.MulAssign(&d)
	if w := wire(&proof[0], &input, &at); !w.IsEqual(&seen[1]) {
		t.Fatal("t does not fit what was seen")
	}
	// The gadget's value at t, with 0 for the leader's seeds.
	var g, power fp128.Fp
	power.SetOne()
	for j := range digits {
		power.MulAssign(&r)
		var even, odd, product fp128.Fp
		even.Mul(&power, &digits[j])
		odd.Sub(&digits[j], &one)
		x, y := wire(&proof[2*j], &even, &at), wire(&proof[2*j+1], &odd, &at)
		product.Mul(&x, &y)
		g.AddAssign(&product)
	}
	// A line that is 0 at −1, as for a valid input, and the gadget's value at t.
	d.Add(&at, &one)
	d.Inv(&d)
	g.MulAssign(&d)
	late := elements(t, make([]byte, 16*(arity+3)), arity+3)
	late[arity], late[arity+1] = g, g
	late[arity].SubAssign(&proof[arity])
	late[arity+1].SubAssign(&proof[arity+1])
	late[arity+2].SubAssign(&proof[arity+2])
	b, err := late.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	copy(ms[0][reportStart+3*fp128.Size:], b)

	if recommit {
		s.recommit(ms[0])
	}
	leader, err := all[0].Begin(ms[0])
	if (err == nil) != recommit {
		t.Errorf("recommitted %v: %v", recommit, err)
	}
	if err == nil {
		err = all[0].Finish(prep)
		if err := all[1].Finish(leader); !errors.Is(err, ErrRefused) {
			t.Errorf("aggregator 1: %v", err)
		}
	}
	if !errors.Is(err, ErrRefused) {
		t.Errorf("aggregator 0: %v", err)
	}
	for i, a := range all {
		if n, _ := a.counted(); n != 0 {
			t.Errorf("aggregator %d took a count of %d, M = %d", i, count, s.max)
		}
	}
}
