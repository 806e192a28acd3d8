package sample

import (
	"fmt"
	"math"
	"math/big"
)

// NewBinomial prepares exact draws of the number of successes in n trials of probability p,
// for 1 ≤ n ≤ 2^53 and 2^−60 ≤ p ≤ 1 − 2^−53.
func NewBinomial(n int64, p float64) (*Table, error) {
	if n < 1 || n > 1<<53 {
		return nil, fmt.Errorf("sample: n = %d must lie between 1 and 2^53", n)
	}
	if !(p >= 0x1p-60 && p < 1) {
		return nil, fmt.Errorf("sample: p = %v must be at least 2^-60 and below 1", p)
	}
	if p == .5 && n <= 64 {
		return &Table{coins: int(n)}, nil
	}
	// The mode is ⌊(n+1)p⌋. The factors have 53 and 54 bits, so 128 bits hold their product
	// exactly.
	product := new(big.Float).SetPrec(128).SetInt64(n + 1)
	whole, _ := product.Mul(product, big.NewFloat(p)).Int64()
	mode := min(whole, n)
	l := &binomial{n: n, mode: mode, p: p, q: 1 - p}
	mean := new(big.Float).SetPrec(128).SetInt64(n)
	mean.Mul(mean, big.NewFloat(p))
	l.excess, _ = mean.Sub(mean, new(big.Float).SetInt64(mode)).Float64()
	return newTable(l, mode, math.Sqrt(float64(n)*p*(1-p)), 0)
}

// NewPoisson prepares exact draws from the Poisson law with mean lambda, between 2^−60 and
// 2^50.
func NewPoisson(lambda float64) (*Table, error) {
	if !(lambda >= 0x1p-60 && lambda <= 0x1p50) {
		return nil, fmt.Errorf("sample: lambda = %v must lie between 2^-60 and 2^50", lambda)
	}
	l := &poisson{lambda: lambda, mode: int64(lambda)}
	return newTable(l, l.mode, math.Sqrt(lambda), 0)
}

// binomial is Bin(n, p) around its mode.
type binomial struct {
	n, mode int64
	p, q    float64
	excess  float64 // np − mode
}

// direct is the largest number of factors from which a ratio is multiplied up, and the
// smallest mode for which Stirling's series is used.
const (
	direct   = 4096
	stirling = 256
)

func (l *binomial) ratio(x int64) (lo, hi float64) {
	up, down := l.n-l.mode, l.mode
	switch {
	case x > up || x < -down:
		return 0, 0
	case down >= stirling && up >= stirling && x <= up/2 && x <= down/2 && -x <= up/2 && -x <= down/2:
		a, b := rising(down, x), rising(up, -x)
		c := float64(x) * math.Log1p(l.excess/(l.q*float64(down)))
		return enclose(c-a-b, math.Abs(a)+math.Abs(b)+math.Abs(c))
	}
	odds := l.p / l.q
	if x < 0 {
		up, down, odds, x = down, up, 1/odds, -x
	}
	return multiply(x, func(i int64) float64 { return float64(up-i+1) / float64(down+i) * odds })
}

func (l *binomial) exact(x int64, prec uint) *big.Float {
	num := newFloat(prec).SetFloat64(l.p)
	den := newFloat(prec).Sub(newFloat(prec).SetInt64(1), num)
	up, down := l.n-l.mode, l.mode
	if x < 0 {
		up, down, num, den, x = down, up, den, num, -x
	}
	odds := newFloat(prec).Quo(num, den)
	r := newFloat(prec).SetInt64(1)
	for i := int64(1); i <= x; i++ {
		r.Mul(r, newFloat(prec).SetInt64(up-i+1))
		r.Quo(r, newFloat(prec).SetInt64(down+i))
		r.Mul(r, odds)
	}
	return r
}

// poisson is the Poisson law around its mode.
type poisson struct {
	lambda float64
	mode   int64
}

func (l *poisson) ratio(x int64) (lo, hi float64) {
	switch {
	case x < -l.mode:
		return 0, 0
	case l.mode >= stirling && x <= l.mode/2 && -x <= l.mode/2:
		a := rising(l.mode, x)
		c := float64(x) * math.Log1p((l.lambda-float64(l.mode))/float64(l.mode))
		return enclose(c-a, math.Abs(a)+math.Abs(c))
	case x >= 0:
		return multiply(x, func(i int64) float64 { return l.lambda / float64(l.mode+i) })
	}
	return multiply(-x, func(i int64) float64 { return float64(l.mode-i+1) / l.lambda })
}

func (l *poisson) exact(x int64, prec uint) *big.Float {
	lambda := newFloat(prec).SetFloat64(l.lambda)
	r := newFloat(prec).SetInt64(1)
	for i := int64(1); i <= x; i++ {
		r.Mul(r, lambda)
		r.Quo(r, newFloat(prec).SetInt64(l.mode+i))
	}
	for i := int64(1); i <= -x; i++ {
		r.Mul(r, newFloat(prec).SetInt64(l.mode-i+1))
		r.Quo(r, lambda)
	}
	return r
}

func newFloat(prec uint) *big.Float { return new(big.Float).SetPrec(prec) }

// multiply encloses the product of factor(1) … factor(x). Each factor is at most about 1 and
// has at most six roundings in it. For more than direct factors the upper end is the product
// of the first direct ones, because the ratios fall.
func multiply(x int64, factor func(i int64) float64) (lo, hi float64) {
	r, n := 1., min(x, direct)
	for i := int64(1); i <= n; i++ {
		r *= factor(i)
		if r < 1e-290 {
			return 0, 1e-289
		}
	}
	err := float64(8*n+8) * 0x1p-53
	if n < x {
		return 0, r * (1 + err)
	}
	return r * (1 - err), math.Min(1, r*(1+err))
}

// enclose returns e^log widened by the error of its summands, whose sizes add
// up to size.
func enclose(log, size float64) (lo, hi float64) {
	if log < -650 {
		return 0, 1e-280
	}
	r, err := math.Exp(log), (size+1)*0x1p-44
	return r * (1 - err), math.Min(1, r*(1+err))
}

// rising returns log((a+x)!/a!) − x·log a for |x| ≤ a/2, a ≥ 256, within
// 2^−46 of its terms' size: by Stirling's series, whose next term is below
// 1e-17, and (1+t)·log(1+t) − t for t = x/a.
func rising(a, x int64) float64 {
	A, y := float64(a), float64(a+x)
	t := float64(x) / A
	series := func(n float64) float64 {
		m := 1 / (n * n)
		return (1./12 - m*(1./360-m*(1./1260))) / n
	}
	return A*entropy(t) + .5*math.Log1p(t) + series(y) - series(A)
}

// entropy returns (1+t)·log(1+t) − t for |t| ≤ 1/2.
func entropy(t float64) float64 {
	if math.Abs(t) > .1 {
		return (1+t)*math.Log1p(t) - t
	}
	// t²/2 − t³/6 + t⁴/12 − …
	power, sum := t*t, 0.
	for j := 2.; ; j++ {
		next := sum + power/(j*(j-1))
		if next == sum {
			return sum
		}
		sum = next
		power *= -t
	}
}
