// Package rng provides the sources of randomness that noise and sampling draw from.
//
// There are two. [Secure] reads the operating system's generator and cannot be seeded: it is
// the only source whose output may become a real client's noise. [Replay] gives streams that are
// keyed by numbers; they exist so that a simulation gives the same result for the same seed,
// whatever the number of workers.
//
// A Replay source must never reach production noise: anyone who knows the seed can subtract
// the noise. Keys, nonces and HPKE use crypto/rand directly and not this package.
package rng

// Source is a stream of independent, uniform 64-bit words.
//
// Fill and Uint64 read the same stream: Fill(dst) stores the words that len(dst) calls of
// Uint64 would have returned, and is faster. A Source must not be used by two goroutines at
// once.
type Source interface {
	Uint64() uint64
	Fill(dst []uint64)
}
