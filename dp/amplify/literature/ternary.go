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

// TernarySame bounds log ζ(α)^α of m shuffled reports, all but one of equal
// input. Upper, proved; any ε₀-LDP randomizer of finitely many outputs, replace-one
// adjacency, α ≥ 2 an integer. Relative error of the divergence 1e-12.
//
// Source: Girgis et al. 2021 (arXiv), Theorem 6: 4(E−1)²/(mE) for α = 2, else
// αΓ(α/2)(2(E²−1)²/(mE²))^(α/2).
func TernarySame(eps0 float64, m int64, alpha int) (float64, error) {
	if err := checkTernary(eps0, m, alpha); err != nil {
		return 0, err
	}
	return ternarySame(eps0, float64(alpha)) - float64(alpha)/2*math.Log(float64(m)), nil
}

// TernaryShuffle bounds log ζ(α)^α of a shuffle of k ≥ 2 reports, for any inputs of the
// others. It is TernarySame at k̄ = ⌊(k−1)/(2E)⌋ + 1 plus (E − 1/E)^α e^{−(k−1)/(8E)} for
// fewer clones than half their mean. Upper, proved, like TernarySame.
//
// Source: Girgis et al. 2021 (arXiv), Theorem 4. The last line of its proof prints "8ε^{ε₀}"
// for the 8e^{ε₀} of the theorem.
func TernaryShuffle(eps0 float64, reports int64, alpha int) (float64, error) {
	if err := checkTernary(eps0, reports, alpha); err != nil {
		return 0, err
	}
	if reports < 2 {
		return 0, fmt.Errorf("amplify: k = %d must be at least 2: %w", reports, dp.ErrNoBound)
	}
	same, few := ternaryParts(eps0, reports)
	a := float64(alpha)
	return logAdd(ternarySame(eps0, a)-a/2*same, a*logWidth(eps0)+few), nil
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

func checkTernary(eps0 float64, m int64, alpha int) error {
	if err := dp.CheckEps0(eps0); err != nil {
		return err
	}
	if m < 1 || m > maxReports {
		return fmt.Errorf("amplify: m = %d must lie between 1 and 2^52", m)
	}
	if alpha < 2 {
		return fmt.Errorf("amplify: alpha = %d must be a whole number of at least 2: %w", alpha, dp.ErrNoBound)
	}
	return nil
}

// TernaryRenyi turns ternary divergences into the Rényi divergence of order λ ≥
// 2, an integer, of the mechanism on a sample of rate γ:
//
//	1/(λ−1)·log(1 + Σ_{α=2..λ} C(λ,α)·γ^α·ζ(α)^α), logs[α] = log ζ(α)^α.
//
// Upper, proved; nats, replace-one adjacency, sampling without replacement.
// Source: Girgis et al. 2021 (arXiv), Lemma 2, after Wang, Balle, Kasiviswanathan
// 2019, Proposition 16. Relative error 1e-9 added. Time O(λ).
func TernaryRenyi(gamma float64, order int, logs func(alpha int) float64) (float64, error) {
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
