package tail

import "math"

// UpperNormal returns P[Z > z] of a standard normal Z: relative error 1e-15·(1 + z²).
func UpperNormal(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }

// NormalDensity returns the standard normal density at z.
func NormalDensity(z float64) float64 { return math.Exp(-z*z/2) / math.Sqrt(2*math.Pi) }

// Gauss6 holds the positive nodes of the Gauss-Legendre rule with six points on [−1, 1], and their
// weights.
var Gauss6 = [3][2]float64{
	{0.23861918608319690863, 0.46791393457269104739},
	{0.66120938646626451366, 0.36076157304813860757},
	{0.93246951420315202781, 0.17132449237917034504},
}
