package pine

import (
	"encoding/binary"
	"math/bits"
)

// f64 is an element of the field of order 2^64 − 2^32 + 1, always below it.
type f64 uint64

const (
	order64 = 1<<64 - 1<<32 + 1
	low64   = 1<<32 - 1 // 2^64 mod q
)

func (x f64) plus(y f64) f64 {
	s, carry := bits.Add64(uint64(x), uint64(y), 0)
	s, borrow := bits.Sub64(s, order64, 0)
	_, borrow = bits.Sub64(carry, 0, borrow)
	return f64(s + order64&-borrow)
}

func (x f64) minus(y f64) f64 {
	s, borrow := bits.Sub64(uint64(x), uint64(y), 0)
	return f64(s + order64&-borrow)
}

func (x f64) times(y f64) f64 {
	hi, lo := bits.Mul64(uint64(x), uint64(y))
	return reduce64(hi, lo)
}

// reduce64 returns 2^64·hi + lo mod q. With hi = 2^32·a + b this is lo − a + (2^32 − 1)·b,
// because 2^64 is 2^32 − 1 and 2^96 is −1.
func reduce64(hi, lo uint64) f64 {
	s, borrow := bits.Sub64(lo, hi>>32, 0)
	s -= low64 & -borrow
	s, carry := bits.Add64(s, (hi&low64)*low64, 0)
	s += low64 & -carry
	s, borrow = bits.Sub64(s, order64, 0)
	return f64(s + order64&-borrow)
}

func (f64) of(v int64) f64 { return f64(uint64(v) - low64&uint64(v>>63)) }

func (f64) size() int { return 8 }

func (f64) order() (hi, lo uint64) { return 0, order64 }

func (f64) rootExponent() (exponent uint64, log int) { return 1<<32 - 1, 32 }

func (f64) read(b []byte) (f64, bool) {
	x := binary.LittleEndian.Uint64(b)
	return f64(x), x < order64
}

func (x f64) append(dst []byte) []byte { return binary.LittleEndian.AppendUint64(dst, uint64(x)) }

func (x f64) words() (hi, lo uint64) { return 0, uint64(x) }

func (x f64) choose(bit uint64) f64 { return x & f64(-bit) }

func (f64) project(x []f64, string []byte) f64 {
	var hi, lo, carry uint64
	for len(x) >= 4 {
		b := uint64(string[0])
		for k := range 4 {
			h, l := bits.Mul64(uint64(x[k]), b>>(2*k)&1+b>>(2*k+1)&1)
			lo, carry = bits.Add64(lo, l, 0)
			hi += h + carry
		}
		x, string = x[4:], string[1:]
	}
	for k := range x {
		b := uint64(string[0])
		h, l := bits.Mul64(uint64(x[k]), b>>(2*k)&1+b>>(2*k+1)&1)
		lo, carry = bits.Add64(lo, l, 0)
		hi += h + carry
	}
	return reduce64(hi, lo)
}
