package randomizer

import (
	"math"

	"github.com/riffle-dp/riffle/mechanism/seed"
)

// ClipNorm scales x in place onto the ball ‖x‖_p ≤ c if it lies outside; the direction stays.
// p is 1, 2 or +Inf, and c is positive and finite; other values are a programming error and
// panic. Before the norm is taken NaN becomes 0, and ±Inf the largest float32 of its sign.
// The result satisfies the bound up to the rounding of float32; the randomizers do not rely
// on it, because they project again.
func ClipNorm(x []float32, p, c float64) {
	if f := ClipScale(x, p, c); f < 1 {
		for i, v := range x {
			x[i] = float32(f * float64(v))
		}
	}
}

// ClipScale returns the factor f ≤ 1 by which ClipNorm scales x: ClipNorm stores
// float32(f·x_i), or nothing if f = 1. ClipScale replaces values that are not finite in x
// itself.
func ClipScale(x []float32, p, c float64) float64 {
	checkClip(c)
	n := norm(x, p)
	if !(n <= math.MaxFloat64) {
		sanitize(x, x)
		n = norm(x, p)
	}
	if n <= c {
		return 1
	}
	return c / n
}

// ClipCoordinate projects x in place onto the cube |x_i| ≤ c, coordinate by coordinate; NaN
// becomes 0. It has the same sensitivity in ℓ∞ as ClipNorm with p = +Inf and shrinks x less,
// and each coordinate can be clipped without the others. c must be positive and finite,
// otherwise it panics.
func ClipCoordinate(x []float32, c float64) {
	checkClip(c)
	top := clipTop(c)
	for i, v := range x {
		x[i] = clipped(v, top)
	}
}

// ClipValue returns what ClipCoordinate makes of one coordinate.
func ClipValue(v float32, c float64) float32 {
	checkClip(c)
	return clipped(v, clipTop(c))
}

// clipTop is the largest float32 that is at most c.
func clipTop(c float64) float32 {
	top := float32(c)
	if float64(top) > c {
		top = math.Nextafter32(top, 0)
	}
	return top
}

func clipped(v, top float32) float32 {
	switch {
	case v != v:
		return 0
	case v > top:
		return top
	case v < -top:
		return -top
	}
	return v
}

func checkClip(c float64) {
	if !(c > 0 && c <= math.MaxFloat64) {
		panic("randomizer: clipping bound must be positive and finite")
	}
}

// norm returns ‖x‖_p; NaN or +Inf if x is not finite. Finite float32 cannot
// overflow or underflow in float64.
func norm(x []float32, p float64) float64 {
	var n float64
	switch p {
	case 1:
		for _, v := range x {
			n += math.Abs(float64(v))
		}
	case 2:
		for _, v := range x {
			n += float64(v) * float64(v)
		}
		n = math.Sqrt(n)
	case math.Inf(1):
		n = float64(maxAbs(x))
	default:
		panic("randomizer: clipping norm must be 1, 2 or +Inf")
	}
	return n
}

// maxAbs returns the largest |x_i|, or NaN if x contains one. It compares bits: without their
// signs, floats are ordered as their bits are, and NaN is above all.
func maxAbs(x []float32) float32 {
	const abs = 1<<31 - 1
	var a, b, c, d uint32 // four at once, to hide the latency of a maximum
	for len(x) >= 4 {
		a = max(a, math.Float32bits(x[0])&abs)
		b = max(b, math.Float32bits(x[1])&abs)
		c = max(c, math.Float32bits(x[2])&abs)
		d = max(d, math.Float32bits(x[3])&abs)
		x = x[4:]
	}
	for _, v := range x {
		a = max(a, math.Float32bits(v)&abs)
	}
	return math.Float32frombits(max(a, b, c, d))
}

// sanitize copies x to dst, with NaN as 0 and ±Inf as the largest float32.
func sanitize(dst, x []float32) {
	for i, v := range x {
		dst[i] = seed.Finite(v)
	}
}
