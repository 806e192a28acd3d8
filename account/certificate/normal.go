package certificate

import "math/big"

// log returns the natural logarithm of x > 0 within 2^-320 of max(1, |log x|), for |log x| < 2^19:
// Halley's steps, which treble the digits of a first guess.
func log(x *big.Float) *big.Float {
	fraction := new(big.Float)
	exponent := x.MantExp(fraction)
	y := mul(ln2, whole(int64(exponent))) // within .7 of it
	for range 5 {
		e := exp(y)
		y = add(y, quo(mul(real(2), sub(x, e)), add(x, e)))
	}
	return y
}

// Constants to the precision of all arithmetic here, and a little more.
var (
	ln2 = constant("0.69314718055994530941723212145817656807550013436025525412068000949339362196969471560586332699641868754200148102057068573368552023575813")
	// √(2π)
	rootTwoPi = constant("2.50662827463100050241576528481104525300698674060993831662992357634229365460784197494659583837805726611600997266520387964486632361812674")
)

func constant(digits string) *big.Float {
	x, _, err := big.ParseFloat(digits, 10, precision, big.ToNearestEven)
	if err != nil {
		panic(err)
	}
	return x
}

const (
	normalEnd = 40 // beyond it the normal density is below 2^-1000
	normalFar = 8  // from here on tails are continued fractions
	// guard is what the series, and a ratio of two densities within normalFar, may lose of a value's bits.
	guard = 110
)

// normal computes laws of N(0, 1), and of e^N, to so many bits.
type normal struct{ bits uint }

// density is the normal density at |x| < normalEnd, 0 beyond.
func (n normal) density(x *big.Float) *big.Float {
	if new(big.Float).Abs(x).Cmp(real(normalEnd)) >= 0 {
		return real(0)
	}
	half := new(big.Float).SetPrec(n.bits+guard+54).Mul(x, x)
	half.SetMantExp(half, -1)
	return quo(exp(half.Neg(half)), rootTwoPi)
}

// below returns Pr[N(0, 1) < x], given the density at x: from above if up, otherwise from below, but
// for n.middle's error, and within 2^-bits.
func (n normal) below(x, density *big.Float, up bool) *big.Float {
	z := new(big.Float).Abs(x)
	switch far := z.Cmp(real(normalFar)) >= 0; {
	case !far && x.Sign() >= 0:
		return add(real(.5), mul(density, n.middle(z)))
	case !far:
		return sub(real(.5), mul(density, n.middle(z)))
	case x.Sign() < 0:
		return mul(density, n.mills(z, up))
	}
	return sub(real(1), mul(density, n.mills(z, !up)))
}

// middle returns ∫₀^z φ / φ(z) = z + z³/3 + z⁵/15 + … for z ≤ normalFar, in fixed point: every term
// errs by a unit, which later terms can make e^{z²/2}-fold at most.
func (n normal) middle(z *big.Float) *big.Float {
	bits := int(n.bits + guard)
	fixed := func(x *big.Float) *big.Int {
		n, _ := new(big.Float).SetMantExp(x, bits).Int(nil)
		return n
	}
	square, term := fixed(mul(z, z)), fixed(z)
	sum, odd := new(big.Int).Set(term), new(big.Int)
	for i := int64(3); term.Sign() > 0; i += 2 {
		term.Mul(term, square)
		term.Rsh(term, uint(bits))
		term.Quo(term, odd.SetInt64(i))
		sum.Add(sum, term)
	}
	out := new(big.Float).SetPrec(precision).SetInt(sum)
	return out.SetMantExp(out, -bits)
}

// mills returns Pr[N(0, 1) > z]/φ(z) = 1/(z + 1/(z + 2/(z + 3/(z + …)))) for z ≥ normalFar. Of a
// fraction of positive terms each convergent lies on the other side than the one before; the first,
// 1/z, lies above.
func (n normal) mills(z *big.Float, up bool) *big.Float {
	at, _ := z.Float64()
	width := float64(n.bits) / at
	depth := int64(width*width/4) + int64(n.bits/8) // errors fall as e^{−z√(2 depth)}
	if (depth%2 == 0) != up {
		depth++
	}
	z = new(big.Float).SetPrec(n.bits + 40).Set(z)
	out, numerator := new(big.Float).Set(z), new(big.Float)
	for i := depth; i > 0; i-- {
		out.Quo(numerator.SetInt64(i), out)
		out.Add(out, z)
	}
	return quo(real(1), out)
}

// call returns E(v − x)₊ for x > 0 and log v ~ N(−μ²/2, μ²), from above but for 2^-bits:
// Pr[y < d] − x·Pr[y < d−μ] with d = μ/2 − log(x)/μ. What lies beyond end deviations it leaves out,
// at most e^{−end²/2}.
func (n normal) call(x, logX, mu *big.Float, end float64) *big.Float {
	half := new(big.Float).SetMantExp(mu, -1)
	high := sub(half, quo(logX, mu))
	low := sub(high, mu)
	switch {
	case high.Cmp(real(-end)) <= 0:
		return real(0)
	case low.Cmp(real(end)) >= 0:
		return sub(real(1), x)
	}
	// x·φ(low) = φ(high)
	top := n.density(high)
	gain := n.below(high, top, true)
	switch {
	case low.Cmp(real(-normalFar)) > 0 && top.Sign() > 0:
		return sub(gain, mul(x, n.below(low, quo(top, x), false)))
	case low.Cmp(real(-normalFar)) > 0:
		return sub(gain, mul(x, n.below(low, n.density(low), false)))
	}
	return sub(gain, mul(top, n.mills(new(big.Float).Neg(low), false)))
}
