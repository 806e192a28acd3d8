package vecsum

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// Ids of the bounds of Cheu, Joseph, Mao, Peng, "Shuffle Private Stochastic
// Convex Optimization", ICLR 2022 (CJMP), shown beside [MethodGDP].
const (
	MethodLemma31 = "cjmp-lemma31"
	MethodThm32   = "cjmp-thm32"
	MethodA9      = "cjmp-a9"
)

// CJMP bounds ε at delta by the bound named method: [MethodLemma31], [MethodThm32] or [MethodA9].
// [MethodLemma31] is about one coordinate whose two values lie as far apart as they can, the
// others about a whole vector. [MethodA9] needs only the fraction Honest of the clients to add
// noise, the others need all.
//
// Upper bounds, proved, replace-one. An error wraps dp.ErrNoBound outside a bound's conditions.
func CJMP(method string, p Params, delta float64) (float64, error) {
	if method == MethodLemma31 && p.Dim != 1 {
		return 0, fmt.Errorf("vecsum: Lemma 3.1 is about one coordinate, not dim = %d: %w", p.Dim, dp.ErrNoBound)
	}
	if h := p.withDefaults().Honest; method != MethodA9 && h < 1 {
		return 0, fmt.Errorf("vecsum: honest fraction = %v: this bound needs all clients: %w", h, dp.ErrNoBound)
	}
	switch method {
	case MethodLemma31:
		return lemma31(p, 1, delta)
	case MethodThm32:
		return thm32(p, delta)
	case MethodA9:
		return robustA9(p, delta)
	}
	return 0, fmt.Errorf("vecsum: CJMP has no bound %q", method)
}

// lossPerStep is ln((1+α)/(1−α)), the loss that CJMP's Lemma A.1 charges for a shift of one
// step under Bin(m, p) noise at this δ, which fixes α by δ = 2·exp(−α²mp/10). It needs α < 1,
// αmp ≥ 2·shift and p ≤ 1/2.
func lossPerStep(m, p, shift, delta float64) (float64, error) {
	if p > .5 {
		return 0, fmt.Errorf("vecsum: p = %v: Lemma A.1 needs p at most 1/2: %w", p, dp.ErrNoBound)
	}
	alpha := math.Sqrt(10*math.Log(2/delta)/(m*p)) * (1 + 0x1p-48)
	if !(alpha < 1) || !(alpha*m*p*(1-0x1p-48) >= 2*shift) {
		return 0, fmt.Errorf("vecsum: alpha = %v, mp = %v: Lemma A.1 needs alpha below 1 and alpha*mp at least %v: %w", alpha, m*p, 2*shift, dp.ErrNoBound)
	}
	return 2 * math.Atanh(alpha) * (1 + 0x1p-48), nil
}

// paperNoise returns m and p of Lemma A.1: the honest clients' number of bits, and the
// probability of a one.
func (p Params) paperNoise(honest int64, delta float64) (m, prob float64, err error) {
	if err := p.Validate(); err != nil {
		return 0, 0, err
	}
	if err := dp.CheckDelta(delta); err != nil {
		return 0, 0, err
	}
	if p.Noise.Kind != Binomial || p.Split {
		return 0, 0, fmt.Errorf("vecsum: CJMP's bounds are for binomial noise on signed counts: %w", dp.ErrNoBound)
	}
	if honest < 1 {
		return 0, 0, fmt.Errorf("vecsum: no honest client: %w", dp.ErrNoBound)
	}
	return float64(p.Noise.Bits) * float64(honest), p.Noise.p(), nil
}

// lemma31 bounds ε at delta for one coordinate, whose value differs between the two inputs by
// distance, a fraction of the range −Radius … Radius.
//
// Upper bound, proved, replace-one, all of MinUsers honest. Source: CJMP Lemma 3.1 through
// its Lemma A.1, with the logarithm in place of 3α: at most ε(2/g + distance) for the lemma's
// own b and p. Its condition ε ≤ 15 must be read as α < 1.
func lemma31(p Params, distance, delta float64) (float64, error) {
	m, prob, err := p.paperNoise(p.withDefaults().MinUsers, delta)
	if err != nil {
		return 0, err
	}
	if !(distance >= 0 && distance <= 1) {
		return 0, fmt.Errorf("vecsum: distance = %v must lie between 0 and 1", distance)
	}
	g := float64(p.Grid)
	c, err := lossPerStep(m, prob, g, delta)
	if err != nil {
		return 0, err
	}
	return math.Min(g, 2+distance*g) * c * (1 + 0x1p-50), nil
}

// thm32 bounds ε at delta of a whole vector.
//
// Upper bound, proved, replace-one, all of MinUsers honest. Source: CJMP Theorem
// 3.2: Lemma A.1 on each coordinate at δ/(d+1), composed by Lemma 3.3 (whose
// conclusion is right; its proof loses a factor in the δs that the composition
// theorem of Kairouz, Oh, Viswanath 2015 does not).
func thm32(p Params, delta float64) (float64, error) {
	return p.composed(p.withDefaults().MinUsers, delta)
}

// robustA9 bounds ε at delta of a whole vector when only the fraction Honest of
// MinUsers adds noise.
//
// Upper bound, proved, replace-one. Source: CJMP Corollary A.9, computed from its
// proof, so at most its ε/γ. Needs γ ≥ 1/3.
func robustA9(p Params, delta float64) (float64, error) {
	if h := p.withDefaults().Honest; !(h >= 1./3) {
		return 0, fmt.Errorf("vecsum: honest fraction = %v: Corollary A.9 needs at least 1/3: %w", h, dp.ErrNoBound)
	}
	return p.composed(p.guaranteed(), delta)
}

// composed is the bound of CJMP's Lemma 3.3 for all coordinates together, with losses c·|k_j|,
// |k_j| ≤ g and Σk_j² at most the squared sensitivity.
func (p Params) composed(honest int64, delta float64) (float64, error) {
	m, prob, err := p.paperNoise(honest, delta)
	if err != nil {
		return 0, err
	}
	shift, norm, _ := p.sensitivity()
	share := delta / (float64(p.Dim) + 1)
	c, err := lossPerStep(m, prob, float64(p.Grid), share)
	if err != nil {
		return 0, err
	}
	square := c * norm * (c * norm)
	// Σε_j(e^{ε_j}−1) ≤ Σε_j²·(e^x−1)/x with x the largest ε_j.
	x := c * float64(max(1, shift))
	eps := square*math.Expm1(x)/x + 2*math.Sqrt(math.Log(1/share)*square)
	if eps *= 1 + 0x1p-46; math.IsNaN(eps) || math.IsInf(eps, 1) {
		return 0, fmt.Errorf("vecsum: the losses of one coordinate reach %v: %w", x, dp.ErrNoBound)
	}
	return eps, nil
}
