package randomizer

// R2 names the hemisphere mechanism of Duchi, Jordan and Wainwright for the ball ‖x‖₂ ≤
// C: it draws a random unit vector, uniform on the hemisphere around the input's direction
// with probability E/(E+1), else on the opposite one. It is [PrivUnit] with the cap ⟨v,u⟩ ≥
// 0 of mass 1/2 in place of the best one, and shares its arithmetic: the sign of short inputs,
// the random length, the grid, the rule for inputs outside the ball, and the slack, whose
// derivation in privunit.md holds for every cap (§7).
//
// The estimate is unbiased. The mean squared error is C²·((E+1)/(E−1))²/h² − ‖x‖², with h =
// E|⟨v,u⟩| = Γ(d/2)/(√π·Γ((d+1)/2)) ≈ √(2/(πd)), so about C²·(π/2)·d·((E+1)/(E−1))², largest at
// x = 0; Remark 1 of Girgis et al. 2021 (NeurIPS) has 14 for π/2. PrivUnit is never worse, and
// at ε₀ = 2, 4, 6 better by factors of 1.7, 3.9 and 7.4; R_2 is here for comparison.
//
// Source: Duchi, Jordan, Wainwright, "Minimax Optimal Procedures for Locally Private
// Estimation", JASA 2018, arXiv 1604.02390, §4.2.3.
const R2 = "r2"

func newR2(c Config) (Randomizer, error) {
	if err := c.check(false); err != nil {
		return nil, err
	}
	return newCapped(R2, c, hemisphere(c.Dim))
}
