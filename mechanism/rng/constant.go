package rng

import "math/rand/v2"

// Constant returns the short generator (PCG) of a pair of numbers. Its numbers lie in [0, 1)
// and have 53 bits. They are random-looking constants that everybody knows, such as the
// pictures from which a fixed feature is computed. It is not a Source: neither noise nor a
// choice of clients may come from it.
func Constant(a, b uint64) func() float64 {
	pcg := rand.NewPCG(a, b)
	return func() float64 { return float64(pcg.Uint64()>>11) * 0x1p-53 }
}
