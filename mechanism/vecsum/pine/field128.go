package pine

import (
	"encoding/binary"
	"math/bits"
)

// f128 is an element x of the field of order q = 2^128 − 7·2^66 + 1. It holds 2^128·x mod q,
// Montgomery's form, in two words.
type f128 struct{ lo, hi uint64 }

// orderHigh is the upper word of q; the lower one is 1.
const orderHigh = 1<<64 - 28

// squared128 is 2^256 mod q: times it brings a number into Montgomery's form.
var squared128 = f128{lo: 0xfffffffffffffcf1, hi: 0x5587}

func (x f128) plus(y f128) f128 {
	lo, c := bits.Add64(x.lo, y.lo, 0)
	hi, c := bits.Add64(x.hi, y.hi, c)
	return reduce128(c, hi, lo)
}

// reduce128 subtracts q from 2^128·top + 2^64·hi + lo, which is below 2q, unless it is below q.
func reduce128(top, hi, lo uint64) f128 {
	lo, b := bits.Sub64(lo, 1, 0)
	hi, b = bits.Sub64(hi, orderHigh, b)
	_, b = bits.Sub64(top, 0, b)
	lo, c := bits.Add64(lo, b, 0)
	hi, _ = bits.Add64(hi, orderHigh&-b, c)
	return f128{lo, hi}
}

func (x f128) minus(y f128) f128 {
	lo, b := bits.Sub64(x.lo, y.lo, 0)
	hi, b := bits.Sub64(x.hi, y.hi, b)
	lo, c := bits.Add64(lo, b, 0)
	hi, _ = bits.Add64(hi, orderHigh&-b, c)
	return f128{lo, hi}
}

// times is Montgomery's product x·y/2^128. Because q is 1 mod 2^64, the multiple of q that
// clears a lowest word t is −t.
func (x f128) times(y f128) f128 {
	var c uint64
	t1, t0 := bits.Mul64(x.lo, y.lo)
	t2, l := bits.Mul64(x.lo, y.hi)
	t1, c = bits.Add64(t1, l, 0)
	t2 += c
	h, l := bits.Mul64(-t0, orderHigh)
	_, c = bits.Add64(t0, -t0, 0)
	t1, c = bits.Add64(t1, l, c)
	t2, t3 := bits.Add64(t2, h, c)

	h, l = bits.Mul64(x.hi, y.lo)
	t1, c = bits.Add64(t1, l, 0)
	t2, c = bits.Add64(t2, h, c)
	t3 += c
	h, l = bits.Mul64(x.hi, y.hi)
	t2, c = bits.Add64(t2, l, 0)
	t3, t4 := bits.Add64(t3, h, c)
	h, l = bits.Mul64(-t1, orderHigh)
	_, c = bits.Add64(t1, -t1, 0)
	t2, c = bits.Add64(t2, l, c)
	t3, c = bits.Add64(t3, h, c)
	return reduce128(t4+c, t3, t2)
}

func (f128) of(v int64) f128 {
	negative := uint64(v >> 63)
	lo, c := bits.Add64(uint64(v), 1&negative, 0)
	hi, _ := bits.Add64(negative, orderHigh&negative, c)
	return f128{lo, hi}.times(squared128)
}

func (f128) size() int { return 16 }

func (f128) order() (hi, lo uint64) { return orderHigh, 1 }

func (f128) rootExponent() (exponent uint64, log int) { return 1<<62 - 7, 66 }

func (f128) read(b []byte) (f128, bool) {
	x := f128{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
	return x.times(squared128), x.hi < orderHigh || x.hi == orderHigh && x.lo < 1
}

// plain leaves Montgomery's form.
func (x f128) plain() f128 { return x.times(f128{lo: 1}) }

func (x f128) append(dst []byte) []byte {
	x = x.plain()
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(dst, x.lo), x.hi)
}

func (x f128) words() (hi, lo uint64) { x = x.plain(); return x.hi, x.lo }

func (x f128) choose(bit uint64) f128 { return f128{x.lo & -bit, x.hi & -bit} }

func (f128) project(x []f128, string []byte) f128 {
	var s f128
	for k, v := range x {
		b := string[k/4] >> (k % 4 * 2)
		for range 2 {
			m := -uint64(b & 1)
			s = s.plus(f128{v.lo & m, v.hi & m})
			b >>= 1
		}
	}
	return s
}
