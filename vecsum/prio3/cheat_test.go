package prio3

import (
	"encoding/binary"
	"math"
	"math/bits"
	"testing"

	"github.com/cloudflare/circl/vdaf/prio3/arith/fp128"

	"github.com/riffle-dp/riffle/rng"
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
	return ms
}

// leaderPart recomputes the leader's part of the public share, its commitment to
// the share it holds, as draft-irtf-cfrg-vdaf-13 has it.
func (s *Shares) leaderPart(report []byte) []byte {
	context := append([]byte("riffle/vecsum/prio3 1"), s.tag[:]...)
	m := binary.LittleEndian.AppendUint16(nil, uint16(8+len(context)))
	m = append(m, 12, 0, 0, 0, 0, 3, 0, 7)
	m = append(m, context...)
	m = append(m, seedSize)
	m = append(m, report[len(report)-seedSize:]...) // blind
	m = append(m, 0)
	m = append(m, report[headerSize:headerSize+idSize]...)
	m = append(m, report[reportStart:reportStart+16*s.streams*len(s.weights)]...)
	return turboSHAKE128(m)
}

// turboSHAKE128 returns 32 bytes of TurboSHAKE128 (RFC 9861) with domain 1.
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
	for _, w := range a[:4] {
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
