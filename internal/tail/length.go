package tail

import "math"

// Length returns what ‖N‖ exceeds with probability at most e^−x, N a vector of dim
// coordinates that is sub-Gaussian with parameter 1 in every direction,
// E e^⟨a,N⟩ ≤ e^(‖a‖²/2): then E e^(θ‖N‖²/2) ≤ (1−θ)^(−dim/2), as for a standard
// Gaussian vector, and the bound is Laurent and Massart's (2000, Lemma 1).
func Length(dim int, x float64) float64 {
	d := float64(dim)
	return math.Sqrt(d + 2*math.Sqrt(d*x) + 2*x)
}

// Bernstein returns the t with e^(−t²/(2(variance + bound·t/3))) = e^−x: what a sum
// of independent centred variables of that variance together, none above bound,
// exceeds with probability at most e^−x.
func Bernstein(variance, bound, x float64) float64 {
	b := bound * x / 3
	return b + math.Sqrt(b*b+2*variance*x)
}
