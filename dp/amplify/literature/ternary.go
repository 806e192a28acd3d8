package literature

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// The building blocks of Girgis et al. 2021: ternary |χ|^α divergences E_R[(|P −
// Q|/R)^α] of mutually neighbouring datasets, as logarithms of ζ(α)^α.

// ternarySame returns the log of Theorem 6's bound without its factor m^(−α/2): 4(E−1)²/E for
// α = 2, else αΓ(α/2)(2(E²−1)²/E²)^(α/2).
func ternarySame(eps0, alpha float64) float64 {
	if alpha == 2 {
		return math.Log(4) + 2*math.Log(math.Expm1(eps0)) - eps0
	}
	half, _ := math.Lgamma(alpha / 2)
	return math.Log(alpha) + half + alpha/2*(math.Log(2)+2*math.Log(math.Expm1(2*eps0))-2*eps0)
}

// ternaryParts returns log k̄ and the exponent −(k−1)/(8E).
func ternaryParts(eps0 float64, reports int64) (logKbar, few float64) {
	e := math.Exp(eps0)
	return math.Log(math.Floor(float64(reports-1)/(2*e)) + 1), -float64(reports-1) / (8 * e)
}

// logWidth is log(E − 1/E), the range of likelihood ratios.
func logWidth(eps0 float64) float64 { return math.Log(math.Expm1(2*eps0)) - eps0 }

// maxReports keeps whole numbers exact as float64.
const maxReports = 1 << 52

// ternaryRenyi turns ternary divergences into the Rényi divergence of order λ ≥
// 2, an integer, of the mechanism on a sample of rate γ:
//
//	1/(λ−1)·log(1 + Σ_{α=2..λ} C(λ,α)·γ^α·ζ(α)^α), logs[α] = log ζ(α)^α.
//
// Upper, proved; nats, replace-one adjacency, sampling without replacement.
// Source: Girgis et al. 2021 (arXiv), Lemma 2, after Wang, Balle, Kasiviswanathan
// 2019, Proposition 16. Relative error 1e-9 added. Time O(λ).
func ternaryRenyi(gamma float64, order int, logs func(alpha int) float64) (float64, error) {
	if !(gamma > 0 && gamma <= 1) {
		return 0, fmt.Errorf("amplify: gamma = %v must be above 0 and at most 1", gamma)
	}
	if order < 2 {
		return 0, fmt.Errorf("amplify: order = %d must be a whole number of at least 2: %w", order, dp.ErrNoBound)
	}
	var sum logSum
	for a := 2; a <= order; a++ {
		l := logChoose(float64(order), float64(a)) + float64(a)*math.Log(gamma) + logs(a)
		if !(l < math.Inf(1)) {
			return math.Inf(1), nil // NaN too
		}
		sum.add(l)
	}
	return log1pExp(sum.value()) * (1 + 1e-9) / float64(order-1), nil
}

// logAdd returns log(e^a + e^b).
func logAdd(a, b float64) float64 {
	if a < b {
		a, b = b, a
	}
	if math.IsInf(a, -1) {
		return a
	}
	return a + math.Log1p(math.Exp(b-a))
}
