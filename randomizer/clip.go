package randomizer

import "math"

// ClipNorm scales x in place onto the ball ‖x‖_p ≤ c where it lies outside;
// the direction stays. p is 1, 2 or +Inf, c positive and finite; other values
// are a programming error and panic. NaN becomes 0 and ±Inf the largest
// float32 of its sign before the norm is taken. The result satisfies the bound
// up to the rounding of float32; the randomizers do not rely on it, they
// project again.
func ClipNorm(x []float32, p, c float64) {
	checkClip(c)
	n := norm(x, p)
	if !(n <= math.MaxFloat64) {
		sanitize(x, x)
		n = norm(x, p)
	}
	if n <= c {
		return
	}
	f := c / n
	for i, v := range x {
		x[i] = float32(f * float64(v))
	}
}

// ClipCoordinate projects x in place onto the cube |x_i| ≤ c, coordinate by
// coordinate; NaN becomes 0. The same sensitivity in ℓ∞ as ClipNorm with
// p = +Inf, with less shrinking, and one coordinate needs no other. c is
// positive and finite, else it panics.
func ClipCoordinate(x []float32, c float64) {
	checkClip(c)
	top := float32(c)
	if float64(top) > c {
		top = math.Nextafter32(top, 0)
	}
	for i, v := range x {
		switch {
		case v != v:
			x[i] = 0
		case v > top:
			x[i] = top
		case v < -top:
			x[i] = -top
		}
	}
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
		for _, v := range x {
			n = math.Max(n, math.Abs(float64(v))) // Max keeps NaN
		}
	default:
		panic("randomizer: clipping norm must be 1, 2 or +Inf")
	}
	return n
}

// sanitize copies x to dst, with NaN as 0 and ±Inf as the largest float32.
func sanitize(dst, x []float32) {
	for i, v := range x {
		switch {
		case v != v:
			v = 0
		case v > math.MaxFloat32:
			v = math.MaxFloat32
		case v < -math.MaxFloat32:
			v = -math.MaxFloat32
		}
		dst[i] = v
	}
}
