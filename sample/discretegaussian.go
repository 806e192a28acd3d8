package sample

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/riffle-dp/riffle/rng"
)

// DiscreteGaussian draws integers k with probability proportional to exactly
// e^(−k²/(2σ²)). Its variance is at most σ² [CKS20, Corollary 9].
type DiscreteGaussian struct {
	num, den uint64 // σ² = num/den
	t        uint64 // ⌊σ⌋ + 1, the scale of the Laplace law we reject from
	td       uint64 // t·den
	dhi, dlo uint64 // 2·num·den·t²: the denominator of the exponent
}

// gaussianLimit bounds both parts of σ², so that the exponent of a proposal at
// up to 250 scales fits in 128 bits.
const gaussianLimit = 1 << 56

// NewDiscreteGaussian prepares the law with variance parameter σ² = variance,
// whose parts must lie between 1 and 2^56.
func NewDiscreteGaussian(variance Ratio) (*DiscreteGaussian, error) {
	n, d := variance.Num, variance.Den
	if n < 1 || n > gaussianLimit || d < 1 || d > gaussianLimit {
		return nil, fmt.Errorf("sample: sigma^2 = %d/%d must have both parts between 1 and 2^56", n, d)
	}
	t := isqrt(n/d) + 1 // ⌊√(n/d)⌋ = ⌊√⌊n/d⌋⌋
	g := &DiscreteGaussian{num: n, den: d, t: t, td: t * d}
	// t·(t·d) ≤ 2·(√(n/d)·√(n/d) + 1)·d ≤ 2^58, so the product fits in 116 bits.
	g.dhi, g.dlo = bits.Mul64(2*n, t*g.td)
	return g, nil
}

// Draw returns one value.
func (g *DiscreteGaussian) Draw(src rng.Source) int64 {
	for {
		y := Laplace(src, Ratio{g.t, 1})
		a := uint64(y)
		if y < 0 {
			a = -a
		}
		if g.accept(src, a) {
			return y
		}
	}
}

// accept returns true with probability exp(−(a − σ²/t)²/(2σ²))
// = exp(−(a·t·den − num)²/(2·num·den·t²)) [CKS20, Algorithm 3].
func (g *DiscreteGaussian) accept(src rng.Source, a uint64) bool {
	over, m := bits.Mul64(a, g.td)
	if over != 0 || m > math.MaxInt64 {
		// At least 2^63 against num ≤ 2^56: the exponent exceeds 2000 and the
		// proposal itself had probability below e^−120. Refusing it always
		// moves less than e^−2000 of mass.
		return false
	}
	if m >= g.num {
		m -= g.num
	} else {
		m = g.num - m
	}
	hi, lo := bits.Mul64(m, m)
	for hi > g.dhi || hi == g.dhi && lo >= g.dlo { // the whole part, one trial each
		if !alternating(src, 1) {
			return false
		}
		var borrow uint64
		lo, borrow = bits.Sub64(lo, g.dlo, 0)
		hi, _ = bits.Sub64(hi, g.dhi, borrow)
	}
	if hi|lo == 0 {
		return true
	}
	for k := uint64(1); ; k++ {
		if k > 1 && Uniform(src, k) != 0 || !g.below(src, hi, lo) {
			return k&1 == 1
		}
	}
}

// below returns true with probability (hi,lo)/(dhi,dlo): a uniform 128-bit
// integer below the denominator is compared with the numerator.
func (g *DiscreteGaussian) below(src rng.Source, hi, lo uint64) bool {
	if g.dhi == 0 {
		return Uniform(src, g.dlo) < lo
	}
	mask := uint64(math.MaxUint64) >> bits.LeadingZeros64(g.dhi)
	for {
		h, l := src.Uint64()&mask, src.Uint64()
		if h < g.dhi || h == g.dhi && l < g.dlo {
			return h < hi || h == hi && l < lo
		}
	}
}

// isqrt returns ⌊√n⌋ for n < 2^62.
func isqrt(n uint64) uint64 {
	r := uint64(math.Sqrt(float64(n)))
	for r*r > n {
		r--
	}
	for (r+1)*(r+1) <= n {
		r++
	}
	return r
}
