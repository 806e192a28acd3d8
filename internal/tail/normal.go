package tail

import "math"

// UpperNormal returns P[Z > z] of a standard normal Z: relative error 1e-15·(1 + z²).
func UpperNormal(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }

// NormalDensity returns the standard normal density at z.
func NormalDensity(z float64) float64 { return math.Exp(-z*z/2) / math.Sqrt(2*math.Pi) }
