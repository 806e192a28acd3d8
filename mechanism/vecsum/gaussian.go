package vecsum

import (
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// upperQuantile returns z with Pr[N(0,1) ≥ z] = q for 1e-300 ≤ q < 1, within
// 1e-15·max(1, |z|). near is any guess, 0 if there is none.
func upperQuantile(q, near float64) float64 {
	if q > .5 {
		// This is called only for q just above a half, where 1 − q loses no digits.
		return -upperQuantile(1-q, -near)
	}
	z := near
	if !(z > 0) {
		z = math.Sqrt(math.Max(0, -2*math.Log(2*q)))
	}
	// Halley's step on log Pr[N ≥ z] − log q. Its slope is −h, where h = φ/Pr is the hazard,
	// and its curvature is h(z − h).
	for range 60 {
		p := tail.UpperNormal(z)
		h := math.Exp(-z*z/2) / (math.Sqrt(2*math.Pi) * p)
		f := math.Log1p((p - q) / q)
		step := f / (h * (1 - f*(z-h)/(2*h)))
		z += step
		if math.Abs(step) <= 1e-7 { // the steps converge cubically
			break
		}
	}
	return z
}

// gaussDelta bounds δ(ε) of N(μ, 1) against N(0, 1) from above, for every real ε.
func gaussDelta(mu, eps float64) float64 {
	if math.IsNaN(mu) || mu < 0 || math.IsInf(mu, 1) {
		return 1
	}
	return gdp.Mu(mu).Delta(eps)
}

// gaussMu returns a μ with gaussDelta(μ, eps) ≤ delta, at most 1e-9 relative
// below the largest; 0 if there is none.
func gaussMu(eps, delta float64) float64 {
	mu, err := gdp.Calibrate(dp.Guarantee{Eps: eps, Delta: delta})
	if err != nil {
		return 0
	}
	return float64(mu)
}
