// Package literature holds other authors' bounds on shuffled, sampled and self checked-in
// reports, so that they can be compared and reproduced: closed forms, Rényi divergences,
// strong composition, and theorems as printed even where they are wrong. Package amplify is
// tighter than all of them.
//
// Units and letters are those of package amplify. EAB stands for Chen, Cao, Ge 2024,
// arXiv:2401.04306, and SCI for the anonymous "Self check-in: tight privacy amplification for
// practical distributed learning".
//
// Each function says whether it is a proved upper bound, a lower bound, or an approximation,
// and names its source.
package literature

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// ClonesClosed bounds δ of one shuffle of k ε₀-LDP reports at eps ≥ 0 in closed form,
// replace-one adjacency.
//
// Upper, proved; strong.md has the steps. The result is 1 where the theorem gives no bound,
// and 0 from ε₀ on.
// Source: Feldman, McMillan, Talwar 2022, Theorem 3.1: for ε₀ ≤ log(k/(16 log(4/δ))) the
// shuffle is (ε, δ)-DP with
//
//	ε = log(1 + (E−1)/(E+1)·(8√(E log(4/δ)/k) + 8E/k)),
//
// solved for δ. (The paper has log(2/δ) in the condition; its authors' program has the
// stricter log(4/δ).) Time O(1).
func ClonesClosed(eps0 float64, reports int64, eps float64) float64 {
	return closedClones(eps0, math.Exp(eps0), reports, eps)
}

// Feldman2023 is the closed form of Feldman, McMillan, Talwar 2023, Theorem 3.2: for ε₀ ≤
// log(k/(8 log(4/δ)) − 1)
//
//	ε = log(1 + (E−1)(4√(2 log(4/δ)/((E+1)k)) + 4/k)).
//
// Approximate: for comparison. An erratum withdraws the theorem's proof for general
// randomizers. Curve with rate Blanket is proved and tighter. The formula is that of
// ClonesClosed with (E+1)/2 in place of E as the reciprocal rate of clones. So it follows from
// amplify/blanket.md, as strong.md shows.
func Feldman2023(eps0 float64, reports int64, eps float64) float64 {
	return closedClones(eps0, (math.Exp(eps0)+1)/2, reports, eps)
}

// closedClones is the closed form for clones of rate 1/inverse.
func closedClones(eps0, inverse float64, reports int64, eps float64) float64 {
	if math.IsNaN(eps) || eps < 0 {
		return 1
	}
	if eps >= eps0 {
		return 0
	}
	k := float64(reports)
	// √log(4/δ), rounded down.
	root := (math.Expm1(eps)/math.Tanh(eps0/2)*(1-1e-14) - 8*inverse/k*(1+1e-14)) / (8 * math.Sqrt(inverse/k)) * (1 - 1e-14)
	if !(root > 0) {
		return 1
	}
	// The theorem needs δ above a limit; a smaller δ is raised to the limit.
	log4 := math.Min(root*root, k/(16*inverse)) * (1 - 1e-14)
	return math.Min(1, 4*math.Exp(-log4)*(1+1e-12)+1e-300)
}

// Erlingsson2019 is δ of one shuffle at eps: exp(−k(ε/(12ε₀))²).
//
// Approximate: the constants are those of the published program, the proof has not been
// checked here. Needs k ≥ 1000 and ε₀ < 1/2, otherwise it returns an error. If the value is
// not below 1/100 the theorem gives no bound and the result is 1.
// Source: Erlingsson et al. 2019 (SODA), Corollary 9: ε = 12ε₀√(log(1/δ)/k).
func Erlingsson2019(eps0 float64, reports int64, eps float64) (float64, error) {
	if err := checkErlingsson(eps0, reports); err != nil {
		return 0, err
	}
	if math.IsNaN(eps) || eps < 0 {
		return 1, nil
	}
	if eps >= eps0 {
		return 0, nil
	}
	x := eps / (12 * eps0)
	if d := math.Exp(-float64(reports) * x * x * (1 - 1e-14)); d < .01 {
		return d, nil
	}
	return 1, nil
}

func checkErlingsson(eps0 float64, reports int64) error {
	switch {
	case reports < 1000:
		return fmt.Errorf("amplify: k = %d must be at least 1000: %w", reports, dp.ErrNoBound)
	case !(eps0 > 0 && eps0 < .5):
		return fmt.Errorf("amplify: eps0 = %v must be below 1/2: %w", eps0, dp.ErrNoBound)
	}
	return nil
}

// ErlingssonRenyi is the Rényi divergence 2λe^{4ε₀}(E−1)²/k of one shuffle,
// nats, for order λ > 1.
//
// Approximate: for comparison. The constants are those that Girgis et al. 2021 (CCS) quote,
// recalled from memory. Source: Erlingsson et al. 2019, Remark 1; the row of EAB's Table 1, of
// order λe^{6ε₀}/k.
func ErlingssonRenyi(eps0 float64, reports int64, order float64) float64 {
	x := math.Exp(2*eps0) * math.Expm1(eps0)
	return 2 * order * x * x / float64(reports)
}
