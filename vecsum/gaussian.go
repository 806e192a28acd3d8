package vecsum

import (
	"math"

	"github.com/riffle-dp/riffle/internal/monotone"
)

// The four functions of this file are what the package needs of Gaussian
// privacy; a package of its own may replace them.

// upperNormal returns Pr[N(0,1) ≥ z].
func upperNormal(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }

// upperQuantile returns z with Pr[N(0,1) ≥ z] = q for 1e-300 ≤ q < 1, within
// 1e-15·max(1, |z|). near is any guess, 0 if there is none.
func upperQuantile(q, near float64) float64 {
	if q > .5 {
		// Only just above a half is ever asked for: 1 − q loses nothing there.
		return -upperQuantile(1-q, -near)
	}
	z := near
	if !(z > 0) {
		z = math.Sqrt(math.Max(0, -2*math.Log(2*q)))
	}
	// Halley's step on log Pr[N ≥ z] − log q, whose slope is −h, h = φ/Pr the
	// hazard, and whose curvature is h(z − h).
	for range 60 {
		p := upperNormal(z)
		h := math.Exp(-z*z/2) / (math.Sqrt(2*math.Pi) * p)
		f := math.Log1p((p - q) / q)
		step := f / (h * (1 - f*(z-h)/(2*h)))
		z += step
		if math.Abs(step) <= 1e-7 { // it converges cubically
			break
		}
	}
	return z
}

// gaussDelta bounds δ(ε) of N(μ, 1) against N(0, 1) from above, for every real
// ε: Balle and Wang 2018, Theorem 8, with the rounding of its two terms added.
func gaussDelta(mu, eps float64) float64 {
	switch {
	case math.IsNaN(mu) || math.IsNaN(eps) || mu < 0 || math.IsInf(mu, 1):
		return 1
	case mu == 0:
		return math.Max(0, -math.Expm1(eps))
	}
	a, b := eps/mu-mu/2, eps/mu+mu/2
	first, second := upperNormal(a), math.Exp(eps+logUpperNormal(b))
	if math.IsNaN(second) {
		return 1
	}
	// Arguments err by 2^−52 relative, tails by a² and b² times that.
	slack := first*(a*a+8)*0x1p-50 + second*(b*b+math.Abs(eps)+8)*0x1p-50
	// Tails below 1e-300 may have been rounded to 0.
	return math.Min(1, math.Max(0, first-second)+slack+1e-300)
}

// logUpperNormal returns log Pr[N(0,1) ≥ z], also where the probability
// underflows.
func logUpperNormal(z float64) float64 {
	if z < 30 {
		return math.Log(upperNormal(z))
	}
	// Mills' ratio as 1/(z + 1/(z + 2/(z + …))), converged at z ≥ 30.
	r := z
	for k := 30.; k >= 1; k-- {
		r = z + k/r
	}
	return -z*z/2 - math.Log(r*math.Sqrt(2*math.Pi))
}

// gaussMu returns a μ with gaussDelta(μ, eps) ≤ delta, at most 1e-9 relative
// below the largest; 0 if there is none above 1e-9.
func gaussMu(eps, delta float64) float64 {
	// δ rises with μ: search the falling function of 1/μ.
	inverse := monotone.Falling(func(x float64) float64 { return gaussDelta(1/x, eps) }, delta, 1e-3, 1e9, 1e-10)
	if math.IsInf(inverse, 1) {
		return 0
	}
	return 1 / inverse * (1 - 1e-11) // more than the noise of gaussDelta
}
