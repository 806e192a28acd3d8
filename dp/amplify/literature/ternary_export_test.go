package literature

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// The ternary divergences as Girgis et al. state them, from the parts that bounds use.

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

// TernaryRenyi is ternaryRenyi.
func TernaryRenyi(gamma float64, order int, logs func(alpha int) float64) (float64, error) {
	return ternaryRenyi(gamma, order, logs)
}
