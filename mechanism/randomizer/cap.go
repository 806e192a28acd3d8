package randomizer

import "math"

// sphereCap describes the cap {v : ⟨v,u⟩ ≥ γ} of the unit sphere of R^d, with the quantities
// that PrivUnit needs. The cap is given by its angle φ = arccos γ, so that small caps lose no
// digits.
type sphereCap struct {
	dim   int
	angle float64 // φ in (0, π/2]
	cos   float64 // γ
	sin   float64
	mass  float64 // q, the share of the sphere inside the cap
	first float64 // S = E[⟨v,u⟩; inside] for v uniform on the sphere
	// Logarithms of mass and first; the values themselves may underflow.
	logMass, logFirst float64
}

// newSphereCap computes the cap's mass and first moment. The marginal of a
// uniform v on the axis is ⟨v,u⟩ = cos φ with density ∝ sin^(d−2) φ, hence with
// I = ∫₀^π sin^(d−2) and J = ∫₀^φ (sin θ/sin φ)^(d−2) dθ
//
//	q = sin^(d−2)(φ)·J/I,   S = ∫₀^φ cos·sin^(d−2)/I = sin^(d−1)(φ)/((d−1)·I).
//
// Relative error below 1e-11 (cap_test.go compares with 50-digit values).
func newSphereCap(dim int, angle float64) sphereCap {
	c := sphereCap{dim: dim, angle: angle}
	if dim == 1 { // the sphere is ±u
		c.cos, c.sin, c.mass, c.first = 0, 1, .5, .5
		c.logMass, c.logFirst = -math.Ln2, -math.Ln2
		return c
	}
	c.sin, c.cos = math.Sincos(angle)
	if angle == math.Pi/2 {
		c.sin, c.cos = 1, 0
	}
	total := 2 * sinePower(dim-2, math.Pi/2)
	// Near sin φ = 1 the cosine gives ln sin φ with more digits.
	logSin := math.Log(c.sin)
	if c.cos < .5 {
		logSin = math.Log1p(-c.cos*c.cos) / 2
	}
	c.logMass = float64(dim-2)*logSin + math.Log(sinePower(dim-2, angle)/total)
	c.logFirst = float64(dim-1)*logSin - math.Log(float64(dim-1)*total)
	c.mass, c.first = math.Exp(c.logMass), math.Exp(c.logFirst)
	return c
}

// hemisphere returns the cap ⟨v,u⟩ ≥ 0, whose mass is 1/2 exactly.
func hemisphere(dim int) sphereCap {
	c := newSphereCap(dim, math.Pi/2)
	c.mass, c.logMass = .5, -math.Ln2
	return c
}

// sinePower returns ∫₀^φ (sin θ/sin φ)^n dθ for 0 < φ ≤ π/2, n ≥ 0, by
// Gauss–Legendre panels from φ downwards until the rest is negligible.
func sinePower(n int, angle float64) float64 {
	cot := 0.
	if angle < math.Pi/2 {
		cot = 1 / math.Tan(angle)
	}
	// With s = φ−θ the ratio of sines is cos s − cot φ·sin s.
	integrand := func(s float64) float64 {
		half := math.Sin(s / 2)
		return math.Exp(float64(n) * math.Log1p(-2*half*half-cot*math.Sin(s)))
	}
	// One panel is the length over which the integrand falls by about e^(1/2).
	step := math.Min(angle, .5/math.Max(math.Sqrt(float64(n+1)), float64(n)*cot))
	var sum float64
	for from := 0.; from < angle; from += step {
		to := math.Min(from+step, angle)
		mid, half := (from+to)/2, (to-from)/2
		var panel float64
		for i, x := range legendreNodes {
			panel += legendreWeights[i] * (integrand(mid-half*x) + integrand(mid+half*x))
		}
		sum += half * panel
		if integrand(to) < 1e-22 {
			break
		}
	}
	return sum
}

// Positive nodes and weights of the 12-point Gauss–Legendre rule on [−1, 1].
var (
	legendreNodes = [6]float64{
		0.12523340851146891547, 0.36783149899818019375, 0.58731795428661744730,
		0.76990267419430468704, 0.90411725637047485668, 0.98156063424671925069,
	}
	legendreWeights = [6]float64{
		0.24914704581340278500, 0.23349253653835480876, 0.20316742672306592175,
		0.16007832854334622633, 0.10693932599531843096, 0.04717533638651182719,
	}
)

// bestCap returns the cap whose PrivUnit of parameter eps0 has the least mean
// squared error. With L = E−1 and the cap's probability p = Eq/(1+qL) the mean
// of ⟨v,u⟩ is m = S·L/(1+qL), and the error falls in m. Moving the edge changes
// S by γ·dq, so m is largest where γ = m, that is where g = γ(1+qL) − S·L is 0;
// g' = 1+qL > 0 in γ, so there is one such cap, found by bisection.
func bestCap(dim int, eps0 float64) sphereCap {
	if dim == 1 {
		return newSphereCap(1, math.Pi/2)
	}
	less := math.Expm1(eps0)
	logLess := math.Log(less)
	// The search lies between caps of mass e^−40, useless for any ε₀ ≤ 50, and the
	// hemisphere.
	small, large := newSphereCap(dim, math.Exp(-40)), newSphereCap(dim, math.Pi/2)
	for range 60 {
		mid := newSphereCap(dim, math.Sqrt(small.angle*large.angle))
		if mid.angle <= small.angle || mid.angle >= large.angle {
			break
		}
		logMean := mid.logFirst + logLess - math.Log1p(mid.mass*less)
		if math.Log(mid.cos) > logMean {
			small = mid
		} else {
			large = mid
		}
	}
	// Of the two neighbours that remain, the larger has more mass.
	return large
}
