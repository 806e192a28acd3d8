package amplify

import (
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/monotone"
)

// GaussianAsLDP returns a bound on the total variation between a Gaussian report and an
// eps0-LDP report, for all vectors of norm at most 1 at once: there is a randomizer R̃ with
// R̃(x) ≤ e^ε₀·R̃(x′) for all x, x′, and TV(R(x), R̃(x)) is at most the result. Upper bound,
// proved in approx.md; any dimension.
//
// A transcript with K such reports in total is then within K times the result of a transcript
// of ε₀-LDP reports, to which every theorem for these applies. Its δ(ε) is at most theirs
// plus (1 + e^ε)·K times the result. Needs sigma and eps0 in range; otherwise the result is
// 1, which charges everything.
func GaussianAsLDP(sigma, eps0 float64) float64 {
	if dp.CheckSigma(sigma) != nil || dp.CheckEps0(eps0) != nil {
		return 1
	}
	m := 1 / sigma * (1 + 0x1p-52)
	// The density of R(x) is clamped between e^−α and e^β times that of R(0). Any α + β = ε₀
	// is valid; this choice loses about the same on either side.
	alpha := math.Max(0, (eps0-m*m)/2)
	beta := (eps0 - alpha) * (1 - 0x1p-52)
	above := gdp.Mu(m).Delta(beta)
	below := math.Exp(gdp.Mu(m).LogDelta(alpha)-alpha) * (1 + 1e-12)
	return math.Min(1, math.Max(1e-307, math.Max(above, below)))
}

// GaussianEps0 returns an ε₀ at which GaussianAsLDP is at most tv; +Inf if there is none up
// to dp.MaxEps0.
func GaussianEps0(sigma, tv float64) float64 {
	return monotone.Falling(func(eps0 float64) float64 { return GaussianAsLDP(sigma, eps0) }, tv, 1e-6, dp.MaxEps0, 1e-9)
}
