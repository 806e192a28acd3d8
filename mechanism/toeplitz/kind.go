package toeplitz

import (
	"fmt"
	"math"
	"slices"
	"sync"
)

// Kind names a way to correlate noise.
type Kind string

const (
	Band        Kind = "banded"      // Banded; "" stands for it
	Root        Kind = "square-root" // squareRoot, cut to a band
	Buffers     Kind = "buffered"    // bufferedStrategy
	Independent Kind = "independent" // Identity
)

// Kinds lists all kinds.
var Kinds = []Kind{Band, Root, Buffers, Independent}

// Describe returns the kinds, each followed by a tab and a note where one is needed.
func Describe() []string {
	return []string{
		string(Band) + "\tthe default: as many weights as rounds that a client stays away, of least error",
		string(Root) + "\tthe same number of weights, of a square root",
		string(Buffers) + "\tweights for all rounds, of few buffers; simulated only",
		string(Independent) + "\teach round has noise of its own",
	}
}

// kindBits are the bits of the strategies that New makes: weights are within 2^-9 of the best ones, and
// whatever they are, what they cost is computed from themselves.
const kindBits = 8

// kindBuffers is the number of buffers of kind Buffers.
const kindBuffers = 3

// New returns the strategy of a kind for so many rounds, of which a client takes part in one of every.
func New(kind Kind, rounds, every int64) (Strategy, error) {
	key := question{kind, rounds, every}
	made.Lock()
	s, ok := made.of[key]
	made.Unlock()
	if !ok {
		var err error
		if s, err = build(kind, rounds, every); err != nil {
			return s, err
		}
		made.Lock()
		defer made.Unlock()
		if len(made.of) >= 64 || made.of == nil {
			made.of = map[question]Strategy{}
		}
		made.of[key] = s
	}
	s.Weights = slices.Clone(s.Weights)
	return s, nil
}

// made are strategies that New has returned: planning asks for the same one many times.
var made struct {
	sync.Mutex
	of map[question]Strategy
}

type question struct {
	kind          Kind
	rounds, every int64
}

func build(kind Kind, rounds, every int64) (Strategy, error) {
	if rounds < 1 || rounds > MostWeights || every < 1 {
		return Strategy{}, fmt.Errorf("toeplitz: %d rounds, a client in one of %d: must be at least 1, and rounds at most %d", rounds, every, MostWeights)
	}
	switch kind {
	case Band, "":
		return Banded(rounds, every, kindBits)
	case Root:
		return squareRoot(int(min(rounds, every)), kindBits)
	case Buffers:
		return bufferedStrategy(rounds, every, kindBuffers, kindBits)
	case Independent:
		return Identity(kindBits), nil
	}
	return Strategy{}, fmt.Errorf("toeplitz: strategy %q must be one of %v", kind, Kinds)
}

// Deviation returns the standard deviation of a coordinate of one late round's estimate X̂_t, in
// units of Z_t's times 2^-Bits: the norm of a row of C⁻¹. In sums over rounds most of it cancels.
func (s Strategy) Deviation() float64 {
	const most = 1 << 12 // later terms are small
	scale := float64(s.Weights[0])
	inverse := []float64{1}
	square := 1.
	for t := 1; t < most; t++ {
		var v float64
		for k := 1; k < len(s.Weights) && k <= t; k++ {
			v -= float64(s.Weights[k]) / scale * inverse[t-k]
		}
		inverse = append(inverse, v)
		square += v * v
	}
	return math.Sqrt(square)
}
