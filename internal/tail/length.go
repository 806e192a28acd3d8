package tail

import "math"

// Length returns a bound that ‖N‖ exceeds with probability at most e^−x, for a vector N of
// dim coordinates that is sub-Gaussian with parameter 1 in every direction: E e^⟨a,N⟩ ≤
// e^(‖a‖²/2). Then E e^(θ‖N‖²/2) ≤ (1−θ)^(−dim/2), as for a standard Gaussian vector, and the
// bound is Laurent and Massart's (2000, Lemma 1).
func Length(dim int, x float64) float64 {
	d := float64(dim)
	return math.Sqrt(d + 2*math.Sqrt(d*x) + 2*x)
}

// Bernstein returns the t with e^(−t²/(2(variance + bound·t/3))) = e^−x. A sum of independent
// centred variables exceeds t with probability at most e^−x if their variances add up to
// variance and none is above bound.
func Bernstein(variance, bound, x float64) float64 {
	b := bound * x / 3
	return b + math.Sqrt(b*b+2*variance*x)
}
