package sample

import (
	"fmt"
	"math"
	"math/big"
)

// partLimit bounds both parts of a law's parameter.
const partLimit = 1 << 56

// NewDiscreteGaussian prepares the law on the integers with probabilities
// proportional to e^(−k²/(2σ²)), for σ² = variance, whose parts must lie between 1
// and 2^56. Its variance is at most σ² [CKS20, Corollary 9].
func NewDiscreteGaussian(variance Ratio) (*Table, error) {
	n, d := variance.Num, variance.Den
	if n < 1 || n > partLimit || d < 1 || d > partLimit {
		return nil, fmt.Errorf("sample: sigma^2 = %d/%d must have both parts between 1 and 2^56", n, d)
	}
	return newTable(gaussian{n, d}, 0, math.Sqrt(float64(n)/float64(d)), 0)
}

// NewLaplace prepares the law on the integers with probabilities proportional to
// e^(−|k|/scale), for a scale with parts between 1 and 2^56, and below 2^30.
func NewLaplace(scale Ratio) (*Table, error) {
	n, d := scale.Num, scale.Den
	if n < 1 || n > partLimit || d < 1 || d > partLimit {
		return nil, fmt.Errorf("sample: scale %d/%d must have both parts between 1 and 2^56", n, d)
	}
	if n/d >= 1<<30 {
		return nil, fmt.Errorf("sample: scale %d/%d must be below 2^30", n, d)
	}
	return newTable(laplace{n, d}, 0, math.Sqrt2*float64(n)/float64(d), 3)
}

// gaussian is the discrete Gaussian law with σ² = num/den.
type gaussian struct{ num, den uint64 }

func (l gaussian) ratio(x int64) (lo, hi float64) {
	z := float64(x) * float64(x) * (float64(l.den) / float64(l.num)) / 2
	return enclose(-z, z)
}

func (l gaussian) exact(x int64, prec uint) *big.Float {
	a, b := big.NewInt(x), new(big.Int).SetUint64(l.num)
	a.Mul(a, a).Mul(a, new(big.Int).SetUint64(l.den))
	return expRatio(a, b.Lsh(b, 1), prec)
}

// laplace is the discrete Laplace law with scale num/den.
type laplace struct{ num, den uint64 }

func (l laplace) ratio(x int64) (lo, hi float64) {
	z := math.Abs(float64(x)) * (float64(l.den) / float64(l.num))
	return enclose(-z, z)
}

func (l laplace) exact(x int64, prec uint) *big.Float {
	a := big.NewInt(x)
	a.Abs(a).Mul(a, new(big.Int).SetUint64(l.den))
	return expRatio(a, new(big.Int).SetUint64(l.num), prec)
}

// expRatio returns e^(−a/b) for a ≥ 0, b > 0 with a relative error below 2^−prec. It sums the
// series at an argument below 1/256, with an error of 11 roundings, and squares the result;
// each squaring doubles the error.
func expRatio(a, b *big.Int, prec uint) *big.Float {
	halvings := uint(max(0, a.BitLen()-b.BitLen()+9))
	wide := prec + halvings + 64
	y := newFloat(wide).Quo(newFloat(wide).SetInt(a), newFloat(wide).SetInt(b))
	y.SetMantExp(y, -int(halvings))
	one := newFloat(wide).SetInt64(1)
	r := newFloat(wide).SetInt64(1)
	for j := int64(wide/8 + 2); j > 0; j-- { // 1 − y/1·(1 − y/2·(1 − …))
		r.Mul(r, y)
		r.Quo(r, newFloat(wide).SetInt64(j))
		r.Sub(one, r)
	}
	for range halvings {
		r.Mul(r, r)
	}
	return r
}
