// Package gdp is accounting by Gaussian differential privacy: a mechanism is μ-GDP if no test
// tells two neighbours apart better than N(0, 1) from N(μ, 1).
//
// Everything rounds towards more loss. ε is in nats, δ is a probability. The caller chooses
// the adjacency, and μ belongs to it. gdp.md has the formulas and their errors.
//
// Source: Dong, Roth, Su 2022, "Gaussian differential privacy", Definition 4, Corollary 1
// (δ(ε)) and Corollary 2 (composition).
package gdp

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/monotone"
	"github.com/riffle-dp/riffle/internal/tail"
)

// Mu is the parameter of Gaussian differential privacy, the distance of the two normal laws
// in standard deviations: sensitivity over noise. It is at least 0; 0 is no loss at all, +Inf
// and NaN are no privacy.
type Mu float64

// Delta returns an upper bound on
//
//	δ(ε) = Φ(−ε/μ + μ/2) − e^ε·Φ(−ε/μ − μ/2),
//
// the exact curve, for any real ε. Relative slack 1e-12, and 1e-15·μ·(ε/μ + μ/2)
// where μ is large; at least 1e-307 unless μ = 0. NaN gives 1.
func (m Mu) Delta(eps float64) float64 {
	if eps < 0 { // ∫(p − e^ε q)₊ = 1 − e^ε + e^ε·∫(q − e^−ε p)₊
		return math.Min(1, (-math.Expm1(eps)+math.Exp(eps)*m.Delta(-eps))*(1+1e-15))
	}
	d := math.Exp(m.LogDelta(eps)) * (1 + 1e-15)
	if m == 0 && !math.IsNaN(eps) {
		return 0
	}
	return math.Min(1, math.Max(d, 1e-307)) // subnormal numbers have few digits
}

// LogDelta returns an upper bound on log δ(ε) for ε ≥ 0, which does not underflow: −Inf for μ
// = 0 or ε = +Inf, 0 if an argument makes no sense.
func (m Mu) LogDelta(eps float64) float64 {
	mu := float64(m)
	switch {
	case math.IsNaN(mu) || math.IsNaN(eps) || eps < 0 || mu < 0 || math.IsInf(mu, 1):
		return 0
	case mu == 0 || math.IsInf(eps, 1):
		return math.Inf(-1)
	}
	center := eps / mu
	if math.IsInf(center, 1) || center > 1e150 {
		// Here squares exceed float64, but δ ≤ Φ(−x) ≤ e^{−x²/2}.
		return -1e299
	}
	a, b := center-mu/2, center+mu/2
	// a errs by two units of b, and δ by |a| + 1 times that.
	slack := 1e-12 + 8*unit*(math.Abs(a)+1)*b
	if a < 0 && mu > small {
		// Nothing cancels: the first term is at least a half, the second less.
		d := tail.UpperNormal(a) - math.Exp(logDensity(a))*mills(b)
		return math.Min(0, math.Log(d)+slack)
	}
	return math.Min(0, logDensity(a)+math.Log(millsDifference(a, mu))+slack)
}

// Epsilon returns an ε ≥ 0 with δ(ε) ≤ delta, at most 1e-11 relative above the smallest and
// never below it; +Inf if none is found, or for a delta outside (0, 1).
func (m Mu) Epsilon(delta float64) float64 {
	mu := float64(m)
	if dp.CheckDelta(delta) != nil || math.IsNaN(mu) || mu < 0 || math.IsInf(mu, 1) {
		return math.Inf(1)
	}
	if mu == 0 {
		return 0
	}
	// Φ(−z) ≤ e^{−z²/2}/2 brackets it.
	z := math.Sqrt(-2*math.Log(delta)) + 1e-3
	return monotone.Falling(m.Delta, delta, 0, mu*(z+mu/2)*(1+1e-9), 1e-11)
}

// Calibrate returns a μ at which ε(δ) is at most g.Eps, and at most 1e-9 relative below the
// largest. Needs ε ≥ 0, finite, and 0 < δ < 1. The adjacency is the caller's.
func Calibrate(g dp.Guarantee) (Mu, error) {
	if err := dp.CheckDelta(g.Delta); err != nil {
		return 0, err
	}
	if !(g.Eps >= 0) || math.IsInf(g.Eps, 1) {
		return 0, fmt.Errorf("gdp: eps = %v must be at least 0 and finite", g.Eps)
	}
	// Epsilon ends within 1e-11 of the smallest, so aim lower by as much.
	eps := g.Eps * (1 - 2e-11)
	at := func(sigma float64) float64 { return Mu(1 / sigma).Delta(eps) }
	lo, hi := 1., 1.
	for at(lo) <= g.Delta {
		if lo /= 2; lo < 1e-200 {
			return 0, fmt.Errorf("gdp: eps = %v at delta = %v allows any mu: %w", g.Eps, g.Delta, dp.ErrNoBound)
		}
	}
	for !(at(hi) <= g.Delta) {
		if hi *= 2; hi > 1e300 {
			return 0, fmt.Errorf("gdp: no mu meets eps = %v at delta = %v: %w", g.Eps, g.Delta, dp.ErrNoBound)
		}
	}
	mu := Mu(1 / monotone.Falling(at, g.Delta, lo, hi, 1e-12))
	for range 100 {
		if mu.Epsilon(g.Delta) <= g.Eps {
			return mu, nil
		}
		mu *= 1 - 1e-11 // for large ε, whose rounding unit is coarse
	}
	return 0, fmt.Errorf("gdp: eps = %v is not resolved at delta = %v: %w", g.Eps, g.Delta, dp.ErrNoBound)
}

// Compose returns √Σμ², rounded up: the parameter of an adaptive composition.
func Compose(mus ...Mu) Mu {
	var norm float64
	for _, m := range mus {
		if math.IsNaN(float64(m)) || m < 0 {
			return Mu(math.Inf(1))
		}
		norm = math.Hypot(norm, float64(m))
	}
	return Mu(norm * (1 + 4*unit*float64(len(mus))))
}

// Repeat returns μ√times, rounded up; +Inf for times below 1.
func (m Mu) Repeat(times int64) Mu {
	if times < 1 || math.IsNaN(float64(m)) || m < 0 {
		return Mu(math.Inf(1))
	}
	return Mu(float64(m) * math.Sqrt(float64(times)) * (1 + 4*unit))
}

// TradeOff returns a lower bound on the smallest type II error, Φ(Φ⁻¹(1−α) − μ), of tests
// with type I error α in [0, 1]. Relative slack 1e-11·(1 + μ)(1 + z), z the quantile; 0 if an
// argument makes no sense.
func (m Mu) TradeOff(alpha float64) float64 {
	mu := float64(m)
	switch {
	case !(alpha >= 0 && alpha <= 1) || !(mu >= 0) || math.IsInf(mu, 1):
		return 0
	case alpha == 0:
		return 1
	}
	z := upperQuantile(alpha)
	if math.IsInf(z, -1) { // α = 1
		return 0
	}
	// Φ(z − μ) = tail.UpperNormal(μ − z).
	x := (mu - z) + 8*unit*(mu+math.Abs(z)+1)
	beta := math.Exp(logTail(x)) * (1 - 1e-12*(1+math.Abs(x)))
	return math.Max(0, math.Min(beta, 1-alpha))
}
