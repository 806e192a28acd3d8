// Package rdp is accounting by Rényi divergence. It computes curves at real orders from
// dominating pairs, composes them by addition, and converts them to (ε, δ).
//
// Orders are λ > 1, divergences and ε are in nats, and everything rounds towards more loss:
// sums are inflated by slack for their own rounding.
package rdp

import (
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// slack covers the rounding of a sum over up to 2^25 positive terms, each of
// which is accurate to 1e-12 relative.
const slack = 1 + 1e-8

// Divergence returns D_λ(P‖Q) of a pair, rounded up; +Inf for λ ≤ 1. By symmetry it is also
// D_λ(Q‖P).
//
// With t = λ−1 an atom and its mirror image contribute to Σ P^λ Q^(1−λ) − 1
//
//	P(e^{tL} − 1) + Q(e^{−tL} − 1) = Q (e^{λL} − 1)(1 − e^{−tL}),
//
// a product of positive factors: nothing cancels. Time O(atoms).
func Divergence(p dp.Pair, order float64) float64 {
	if !(order > 1) {
		return math.Inf(1)
	}
	t := order - 1
	var top float64
	for _, a := range p.Atoms {
		top = math.Max(top, a.Loss)
	}
	for _, r := range p.Remainders {
		if r.Mass > 0 {
			top = math.Max(top, r.MaxLoss)
		}
	}
	if math.IsInf(top, 1) {
		return top
	}
	// e^{λL} may overflow even if the divergence does not, so e^scale is taken out.
	scale := math.Max(0, order*top-600)
	var excess float64
	for _, a := range p.Atoms {
		rise := order * a.Loss
		if scale == 0 {
			rise = math.Expm1(rise)
		} else {
			rise = math.Exp(rise - scale) // leaving out the −1 only raises it
		}
		excess += a.Q * rise * -math.Expm1(-t*a.Loss)
	}
	for _, r := range p.Remainders {
		if r.Mass > 0 {
			// Adds mass under the first law, at the largest ratio.
			excess += math.Exp(math.Log(r.Mass) + t*r.MaxLoss - scale)
		}
	}
	var d float64
	if scale == 0 {
		d = math.Log1p(excess*slack) / t
	} else {
		d = (scale + math.Log(excess*slack+math.Exp(-scale))) / t * (1 + 1e-15)
	}
	if math.IsNaN(d) {
		return math.Inf(1)
	}
	return d
}

// PowerExcess returns (1+d)^λ − 1 − λd for d ≥ −1, without cancellation where
// λd is small.
func PowerExcess(d, lambda float64) float64 {
	if math.Abs(lambda*d) < 1e-3 && math.Abs(d) < .1 {
		term := lambda * (lambda - 1) / 2 * d * d
		sum := term
		for j := 3.0; j < 12; j++ {
			term *= (lambda - j + 1) / j * d
			sum += term
		}
		return sum
	}
	return math.Expm1(lambda*math.Log1p(d)) - lambda*d
}

// Epsilon converts: a mechanism with D_λ ≤ divergence is (ε, δ)-DP with
//
//	ε = D + log((λ−1)/λ) − (log δ + log λ)/(λ−1),
//
// at least 0. Canonne, Kamath and Steinke 2020, Proposition 12 (arXiv v3);
// Girgis et al. 2021, Lemma 1.
func Epsilon(order, divergence, delta float64) float64 {
	if !(order > 1) || !(delta > 0) || math.IsNaN(divergence) {
		return math.Inf(1)
	}
	eps := divergence + math.Log1p(-1/order) - (math.Log(delta)+math.Log(order))/(order-1)
	return math.Max(0, eps)
}

// Curve is a divergence in nats at each order λ > 1, already composed.
type Curve func(order float64) float64

// Minimize returns the smallest ε over real orders and its order. Every order gives a valid
// ε, so the search may stop anywhere.
func Minimize(c Curve, delta float64) (eps, order float64) {
	order, eps = minimize(func(order float64) float64 { return Epsilon(order, c(order), delta) })
	return eps, order
}

// minimize searches orders 1 + 1e-3 … 1 + 6e7 for a small value of f: a coarse
// grid, then golden section around its best point.
func minimize(f func(order float64) float64) (order, value float64) {
	at := func(u float64) float64 { return f(1 + math.Exp(u)) }
	const low, high, step = -7.0, 18.0, 0.5
	best, u0 := math.Inf(1), 0.0
	for u := low; u <= high; u += step {
		if v := at(u); v < best {
			best, u0 = v, u
		}
	}
	if math.IsInf(best, 1) {
		return 1, best
	}
	g := (math.Sqrt(5) - 1) / 2
	a, b := u0-step, u0+step
	x, y := b-g*(b-a), a+g*(b-a)
	fx, fy := at(x), at(y)
	for range 24 {
		if fx <= fy {
			b, y, fy = y, x, fx
			x = b - g*(b-a)
			fx = at(x)
		} else {
			a, x, fx = x, y, fy
			y = a + g*(b-a)
			fy = at(y)
		}
	}
	if fx < best {
		best, u0 = fx, x
	}
	if fy < best {
		best, u0 = fy, y
	}
	return 1 + math.Exp(u0), best
}

// Delta returns the smallest δ ≤ 1, over real orders, that Epsilon turns into eps: log δ =
// (λ−1)(D − ε + log(1 − 1/λ)) − log λ.
func Delta(c Curve, eps float64) float64 {
	order, _ := minimize(func(order float64) float64 { return logDelta(order, c(order), eps) })
	return DeltaAt(order, c(order), eps)
}

// DeltaAt is Epsilon solved for δ, at most 1.
func DeltaAt(order, divergence, eps float64) float64 {
	// The bound stays above 0 where the exponential underflows.
	if d := math.Max(1e-300, math.Exp(logDelta(order, divergence, eps))*(1+1e-9)); d < 1 {
		return d
	}
	return 1 // NaN too
}

func logDelta(order, divergence, eps float64) float64 {
	return (order-1)*(divergence-eps+math.Log1p(-1/order)) - math.Log(order)
}

// Chernoff returns the t > 0 that minimises cumulant(t) − t·eps, and the minimum.
func Chernoff(cumulant func(t float64) float64, eps float64) (t, value float64) {
	order, value := minimize(func(order float64) float64 { return cumulant(order-1) - (order-1)*eps })
	return order - 1, value
}
