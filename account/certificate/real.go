package certificate

import "math/big"

// precision is the precision of all real arithmetic here, in bits. A result comes from at
// most 2^40 operations on positive numbers, each of which errs by 2^-384 relative, and from
// differences that cancel at most 2^80-fold or are charged. The bounds below add far more
// than that: 2^-200 and above.
const precision = 384

func real(x float64) *big.Float      { return new(big.Float).SetPrec(precision).SetFloat64(x) }
func whole(n int64) *big.Float       { return new(big.Float).SetPrec(precision).SetInt64(n) }
func add(a, b *big.Float) *big.Float { return new(big.Float).Add(a, b) }
func sub(a, b *big.Float) *big.Float { return new(big.Float).Sub(a, b) }
func mul(a, b *big.Float) *big.Float { return new(big.Float).Mul(a, b) }
func quo(a, b *big.Float) *big.Float { return new(big.Float).Quo(a, b) }

// two returns 2^e.
func two(e int) *big.Float { return new(big.Float).SetMantExp(real(1), e) }

// exp returns e^x for |x| < 2^20 to x's precision less 54 bits, so within 2^-330 relative: Taylor's
// series of x/2^24, then 24 squarings, each of which doubles the error.
func exp(x *big.Float) *big.Float {
	const halvings = 24
	y := new(big.Float).SetMantExp(x, -halvings)
	sum, term := new(big.Float).SetPrec(x.Prec()).SetInt64(1), new(big.Float).SetPrec(x.Prec()).SetInt64(1)
	divisor := new(big.Float)
	for i := int64(1); i <= 100; i++ { // |y| < 2^-4, so the 100th term is below 2^-400·2^-500
		term.Mul(term, y)
		term.Quo(term, divisor.SetInt64(i))
		sum.Add(sum, term)
		if term.Sign() == 0 || term.MantExp(nil) < -int(x.Prec())-64 {
			break // all others together are smaller
		}
	}
	for range halvings {
		sum.Mul(sum, sum)
	}
	return sum
}

// power returns x^n for n ≥ 0.
func power(x *big.Float, n int64) *big.Float {
	out := real(1)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			out = mul(out, x)
		}
		x = mul(x, x)
	}
	return out
}
