package rng

import "math/rand/v2"

// Constant is a short generator (PCG) for random-looking constants that everybody knows, such
// as the pictures from which a fixed feature is computed. It is not a Source: neither noise
// nor a choice of clients may come from it.
type Constant struct{ pcg *rand.PCG }

// NewConstant returns the generator of a pair of numbers.
func NewConstant(a, b uint64) Constant { return Constant{rand.NewPCG(a, b)} }

// Uniform is the next number in [0, 1), of 53 bits.
func (c Constant) Uniform() float64 { return float64(c.pcg.Uint64()>>11) * 0x1p-53 }
