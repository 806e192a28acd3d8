package sample

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// The ziggurat of Marsaglia and Tsang ("The Ziggurat Method for Generating
// Random Variables", J. Stat. Software 5(8), 2000) with 256 strips of equal
// area under e^(−x²/2): 255 rectangles and a base strip with the tail beyond
// zigguratEdge. Edge and area to 30 digits: 3.65415288536100877164542972040,
// 0.00492867323397465534736177540234.
const (
	zigguratEdge = 3.65415288536100877
	zigguratArea = 0.00492867323397465535
)

// strip holds the data for the fast path of one strip. A signed 54-bit odd integer j stands
// for the point j·width, which certainly lies under the curve if |j| < inside.
type strip struct {
	width  float64 // right end of the strip, times 2^−53
	inside uint64
	twice  uint64 // 2·inside: |j| < inside is j + inside < 2·inside, unsigned
	_      uint64 // makes the size 32 bytes, so that indexing is a shift
}

type ziggurat struct {
	strips [256]strip
	// height[i] … height[i+1] is the vertical range of strip i ≥ 1.
	height [257]float64
}

// zig holds the tables of the ziggurat. It is computed once and never written again.
var zig = newZiggurat()

func newZiggurat() *ziggurat {
	z := new(ziggurat)
	density := func(x float64) float64 { return math.Exp(-x * x / 2) }
	// The base strip is sampled as a rectangle of the same area; the part of the rectangle
	// beyond the edge stands for the tail.
	x := zigguratArea / density(zigguratEdge)
	next := zigguratEdge
	for i := range z.strips {
		z.height[i+1] = density(next)
		inside := uint64(next / x * 0x1p53)
		z.strips[i] = strip{width: x * 0x1p-53, inside: inside, twice: 2 * inside}
		x = next
		if i < 254 {
			next = math.Sqrt(-2 * math.Log(zigguratArea/x+density(x)))
		} else {
			next = 0 // the top strip ends at the peak, where the density is 1
		}
	}
	return z
}

// Gaussian fills dst with independent standard normal values. They are approximate: the
// values lie on a fine grid (54 bits within each strip, no bound on the size of tails);
// normal.md bounds the distance from the real law.
//
// Each value takes one word; about one in a hundred takes more words, read after those of its
// whole block. So the values depend on len(dst): Gaussian(src, a) is not the beginning of
// Gaussian(src, b).
func Gaussian(src rng.Source, dst []float64) {
	for len(dst) > gaussianBlock {
		gaussianFill(src, dst[:gaussianBlock])
		dst = dst[gaussianBlock:]
	}
	if len(dst) > 0 {
		gaussianFill(src, dst)
	}
}

// gaussianBlock is a number of words that fits the first-level cache.
const gaussianBlock = 512

// gaussianFill fills one block that is not empty. It draws the words into dst itself and
// replaces them by values in place.
func gaussianFill(src rng.Source, dst []float64) {
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&dst[0])), len(dst))
	src.Fill(words)
	dst = dst[:len(words)]
	strips := &zig.strips
	for i, w := range words {
		s := &strips[w&255]
		j := int64(w)>>10 | 1 // odd, so that the law is exactly symmetric
		dst[i] = float64(j) * s.width
		if uint64(j)+s.inside >= s.twice {
			dst[i] = zig.outside(src, w)
		}
	}
}

// Normal returns one standard normal value; for many use [Gaussian].
func Normal(src rng.Source) float64 {
	w := src.Uint64()
	s := &zig.strips[w&255]
	j := int64(w)>>10 | 1
	if uint64(j)+s.inside >= s.twice {
		return zig.outside(src, w)
	}
	return float64(j) * s.width
}

// outside finishes a draw whose word w did not certainly land under the curve.
//
//go:noinline
func (z *ziggurat) outside(src rng.Source, w uint64) float64 {
	for {
		i := w & 255
		s := &z.strips[i]
		j := int64(w)>>10 | 1
		x := float64(j) * s.width
		switch {
		case uint64(j)+s.inside < s.twice:
			return x
		case i == 0:
			return math.Copysign(tail(src), x)
		default:
			y := z.height[i] + float64(unit(src.Uint64())*(z.height[i+1]-z.height[i]))
			if y < math.Exp(-x*x/2) {
				return x
			}
		}
		w = src.Uint64()
	}
}

// tail returns a normal value beyond zigguratEdge (Marsaglia 1964).
func tail(src rng.Source) float64 {
	for {
		x := Exponential(src) / zigguratEdge
		if 2*Exponential(src) > x*x {
			return zigguratEdge + x
		}
	}
}

// Exponential returns one value of the law with density e^−x. It is approximate because the
// value is rounded: the absolute error is at most 2^−51 times the larger of 1 and the value,
// and large values have their right probability.
func Exponential(src rng.Source) float64 {
	// The value is −log of a uniform real 2^−k·m with 1/2 ≤ m < 1. The leading zeros of a
	// word give k, a fresh word gives m, so that small reals keep full precision.
	var k int
	w := src.Uint64()
	for w == 0 {
		k += 64
		w = src.Uint64()
	}
	k += bits.LeadingZeros64(w)
	return float64(k)*math.Ln2 - math.Log((1+unit(src.Uint64()))/2)
}

// unit maps a word to the middle of one of 2^53 equal cells of 0 … 1, rounded.
func unit(w uint64) float64 { return (float64(w>>11) + .5) * 0x1p-53 }
