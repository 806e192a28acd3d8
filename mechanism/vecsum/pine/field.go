package pine

import (
	"errors"
	"math/bits"
)

// element is an element of a field of prime order q. The zero value is 0. Arithmetic takes
// the same time for all values.
type element[E any] interface {
	comparable
	plus(E) E
	minus(E) E
	times(E) E

	// The methods below do not read their receiver.

	of(int64) E                               // v mod q, for any v
	read([]byte) (E, bool)                    // from the first size bytes, little endian; false unless below q
	size() int                                // bytes of an encoded element
	order() (hi, lo uint64)                   // q
	rootExponent() (exponent uint64, log int) // 7^exponent has order 2^log

	// project returns the sum of c(k)·x[k], where c(k) is the number of ones, 0 to 2, in bits
	// 2k and 2k+1 of the string, lowest bits first. The string has at least ⌈len(x)/4⌉ bytes.
	project(x []E, bits []byte) E

	append([]byte) []byte
	choose(bit uint64) E    // x if bit is 1, 0 if it is 0
	words() (hi, lo uint64) // the number from 0 to q − 1
}

var errElement = errors.New("pine: a field element is not below the modulus")

func of[E element[E]](v int64) E {
	var f E
	return f.of(v)
}

func sizeOf[E element[E]]() int {
	var f E
	return f.size()
}

// power returns x^(2^64·hi + lo). Its time depends on the exponent.
func power[E element[E]](x E, hi, lo uint64) E {
	y := of[E](1)
	for _, word := range [2]uint64{hi, lo} {
		for i := 63; i >= 0; i-- {
			y = y.times(y)
			if word>>i&1 == 1 {
				y = y.times(x)
			}
		}
	}
	return y
}

// inverse returns 1/x, and 0 for 0.
func inverse[E element[E]](x E) E {
	hi, lo := x.order()
	lo, borrow := bits.Sub64(lo, 2, 0)
	return power(x, hi-borrow, lo)
}

// invertAll replaces all elements of v, none of which may be 0, by their inverses.
func invertAll[E element[E]](v []E) {
	before := make([]E, len(v)) // products of all elements before
	all := of[E](1)
	for i, x := range v {
		before[i] = all
		all = all.times(x)
	}
	all = inverse(all)
	for i := len(v) - 1; i >= 0; i-- {
		v[i], all = all.times(before[i]), all.times(v[i])
	}
}

// root returns a root of unity of order 2^log, the draft's generator raised to a power.
func root[E element[E]](log int) E {
	var f E
	e, most := f.rootExponent()
	r := power(of[E](7), 0, e)
	for ; most > log; most-- {
		r = r.times(r)
	}
	return r
}

// inner returns the sum of a[i]·b[i]; b is at least as long as a.
func inner[E element[E]](a, b []E) E {
	var s E
	for i, x := range a {
		s = s.plus(x.times(b[i]))
	}
	return s
}

// evaluate returns the polynomial with coefficients c, lowest first, at t.
func evaluate[E element[E]](c []E, t E) E {
	var s E
	for i := len(c) - 1; i >= 0; i-- {
		s = s.times(t).plus(c[i])
	}
	return s
}

func subtract[E element[E]](a, b []E) {
	for i := range a {
		a[i] = a[i].minus(b[i])
	}
}

func appendAll[E element[E]](dst []byte, v []E) []byte {
	for _, x := range v {
		dst = x.append(dst)
	}
	return dst
}

// readAll fills v from the start of b, which is long enough.
func readAll[E element[E]](v []E, b []byte) error {
	var f E
	n, all := f.size(), true
	for i := range v {
		x, ok := f.read(b[i*n:])
		v[i] = x
		all = all && ok
	}
	if !all {
		return errElement
	}
	return nil
}

// centered returns the number closest to 0 that is x mod q; false if its size is 2^62 or more. Its time
// depends on x.
func centered[E element[E]](x E) (int64, bool) {
	var zero E
	if hi, lo := x.words(); hi == 0 && lo < 1<<62 {
		return int64(lo), true
	}
	hi, lo := zero.minus(x).words()
	return -int64(lo), hi == 0 && lo < 1<<62
}
