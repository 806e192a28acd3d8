package vecsum

import (
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// paper returns the parameters of CJMP's Theorem 3.2, read for Δ₂ = 1 (scaling is free): g =
// max(2√n, √d, 4), δ̂ = γ = δ/(d+1), ε̂ = ε/(18·√ln(1/γ)), p = 90g² ln(2/δ̂)/(bε̂²n) with the
// smallest b for which p < 1/2. They are for comparison: the noise is about 500 times that of
// [Tight].
//
// Needs 0 < ε ≤ 15, δ < 1/2, one round, all clients honest (CJMP's robustness is robustA9);
// MinUsers is the theorem's n.
func paper(t Target) (Params, error) {
	t = t.withDefaults()
	if err := t.validate(); err != nil {
		return Params{}, err
	}
	switch {
	case t.Eps > 15 || t.Delta >= .5:
		return Params{}, fmt.Errorf("vecsum: eps = %v, delta = %v: Theorem 3.2 needs eps at most 15 and delta below 1/2: %w", t.Eps, t.Delta, dp.ErrNoBound)
	case t.Rounds != 1 || t.Kind != Binomial || t.Split:
		return Params{}, errors.New("vecsum: Theorem 3.2 is for one round with binomial noise on signed counts")
	}
	n, d := float64(t.MinUsers), float64(t.Dim)
	g := math.Ceil(math.Max(2*math.Sqrt(n), math.Max(math.Sqrt(d), 4)))
	gamma := t.Delta / (d + 1)
	epsHat := t.Eps / (18 * math.Sqrt(math.Log(1/gamma)))
	each := 90 * g * g * math.Log(2/gamma) / (epsHat * epsHat * n) * (1 + 0x1p-48) // b·p
	b := math.Floor(2*each) + 1
	if !(b <= maxBits) {
		return Params{}, fmt.Errorf("vecsum: Theorem 3.2 asks for %g noise bits, above 2^40: %w", b, dp.ErrNoBound)
	}
	p := Params{
		Users: t.Users, MinUsers: t.MinUsers, Honest: t.Honest, Dim: t.Dim, Radius: t.Radius,
		Grid: int64(g), Norm: Norm(t.Dim, int64(g), 0),
		Noise: Noise{Kind: Binomial, Bits: int64(b), P: math.Min(.5, each/b*(1+0x1p-50))},
	}
	return p, p.Validate()
}
