// Package sample draws from discrete laws exactly, and from the Gaussian and exponential laws
// to the resolution of a float64.
//
// Exact means: given independent uniform words, the output has the named law with no rounding
// anywhere. Parameters are integers, a [Ratio], or a float64, taken as exactly the dyadic
// rational that it is.
//
//	exact        Uniform, Shuffle, Subset, Bernoulli, Flip, Laplace (discrete);
//	             Table: binomial, Poisson, discrete Laplace and discrete Gaussian
//	             laws of any size by about one word a value (up to 2^−1000 of mass)
//	approximate  Gaussian, Normal, Exponential: real-valued laws; normal.md
//	             bounds how far they are from them
//
// Nothing here runs in constant time: how many words a sampler reads depends on its
// parameters and on its output, so an observer who can time a single draw learns about it.
// Parameters outside the stated range are a programming error and panic.
//
// The exact methods are those of Canonne, Kamath and Steinke, "The Discrete Gaussian for
// Differential Privacy" (arXiv 2004.00010v5), and of Lemire, "Fast random integer generation
// in an interval" (arXiv 1805.10941v4).
package sample

import (
	"math"
	"math/bits"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// Ratio is the rational Num/Den; Den must not be 0.
type Ratio struct{ Num, Den uint64 }

// Uniform returns an integer uniform on 0 … n−1. n must not be 0.
func Uniform(src rng.Source, n uint64) uint64 {
	if n == 0 {
		panic("sample: uniform below 0 asked for")
	}
	// The high word of n·w is uniform if the 2^64 mod n smallest values of the low word are
	// rejected.
	hi, lo := bits.Mul64(n, src.Uint64())
	if lo < n {
		for refuse := -n % n; lo < refuse; {
			hi, lo = bits.Mul64(n, src.Uint64())
		}
	}
	return hi
}

// bernoulliRatio returns true with probability exactly p.Num/p.Den, which must
// be at most 1.
func bernoulliRatio(src rng.Source, p Ratio) bool {
	if p.Num > p.Den {
		panic("sample: probability above 1")
	}
	return Uniform(src, p.Den) < p.Num
}

// Bernoulli returns true with probability exactly p, for 0 ≤ p ≤ 1. It compares the binary
// expansion of p with that of a uniform real, word by word, so it is exact for a p of any
// size; nearly always one word is enough.
func Bernoulli(src rng.Source, p float64) bool {
	if !(p >= 0 && p <= 1) {
		panic("sample: probability outside 0 … 1")
	}
	if p == 1 {
		return true
	}
	for p > 0 {
		p *= 0x1p64 // exact, also for subnormal p
		digit := uint64(p)
		if w := src.Uint64(); w != digit {
			return w < digit
		}
		p -= float64(digit) // the remaining digits, exact and below 1
	}
	return false
}

// bernoulliExp returns true with probability exactly e^−x, for 0 ≤ x < +Inf.
func bernoulliExp(src rng.Source, x float64) bool {
	if !(x >= 0 && x <= math.MaxFloat64) {
		panic("sample: exponent negative or not finite")
	}
	whole, part := math.Modf(x) // exact
	// For a large x, a trial fails long before whole reaches 0, and the loop ends there.
	for ; whole > 0; whole-- {
		if !alternating(src, 1) {
			return false
		}
	}
	return part == 0 || alternating(src, part)
}

// alternating returns true with probability e^−x for 0 ≤ x ≤ 1: it counts the
// successes of trials with probabilities x, x/2, x/3, … up to the first
// failure; an even count has probability 1 − x + x²/2 − … = e^−x.
func alternating(src rng.Source, x float64) bool {
	for k := uint64(1); ; k++ {
		if k > 1 && Uniform(src, k) != 0 || !Bernoulli(src, x) {
			return k&1 == 1
		}
	}
}

// bernoulliExpRatio returns true with probability exactly e^−(x.Num/x.Den).
func bernoulliExpRatio(src rng.Source, x Ratio) bool {
	whole, part := x.Num/x.Den, Ratio{x.Num % x.Den, x.Den}
	for ; whole > 0; whole-- {
		if !alternating(src, 1) {
			return false
		}
	}
	return part.Num == 0 || alternatingRatio(src, part)
}

func alternatingRatio(src rng.Source, x Ratio) bool {
	for k := uint64(1); ; k++ {
		if k > 1 && Uniform(src, k) != 0 || !bernoulliRatio(src, x) {
			return k&1 == 1
		}
	}
}

// Flip returns true with probability exactly 1/(1+e^eps0): the lie of binary
// randomized response. eps0 must be finite and not negative.
func Flip(src rng.Source, eps0 float64) bool {
	// Each turn ends with "keep" with probability 1/2, and with "flip" with probability
	// e^−ε₀/2.
	for {
		if src.Uint64()>>63 == 0 {
			return false
		}
		if bernoulliExp(src, eps0) {
			return true
		}
	}
}

// geometric returns k ≥ 0 with probability exactly (1−e^−x)·e^−(k·x) for the
// rational x = 1/scale, scale = scale.Num/scale.Den, neither part 0.
func geometric(src rng.Source, scale Ratio) uint64 {
	num, den := scale.Num, scale.Den
	if num == 0 || den == 0 {
		panic("sample: geometric law with scale 0 or without denominator")
	}
	// X = U + num·V is geometric with parameter e^(−1/num); dividing it by den
	// gives e^(−den/num) [CKS20, Algorithm 2].
	var u uint64
	for {
		u = Uniform(src, num)
		if u == 0 || alternatingRatio(src, Ratio{u, num}) {
			break
		}
	}
	var v uint64
	for alternating(src, 1) {
		v++
	}
	hi, lo := bits.Mul64(num, v)
	lo, carry := bits.Add64(lo, u, 0)
	hi += carry
	if hi >= den {
		panic("sample: geometric value above 2^64") // probability below e^(−2^64/scale)
	}
	q, _ := bits.Div64(hi, lo, den)
	return q
}

// Laplace returns an integer k with probability proportional to exactly e^(−|k|/scale), for
// the rational scale, neither part 0. Values are cut at 2^63−1 in size; for scales below 2^40
// that changes the law by less than e^(−2^23).
func Laplace(src rng.Source, scale Ratio) int64 {
	for {
		negative := src.Uint64()>>63 == 1
		k := geometric(src, scale)
		if k > math.MaxInt64 || k == 0 && negative { // zero must not count twice
			continue
		}
		if negative {
			return -int64(k)
		}
		return int64(k)
	}
}
