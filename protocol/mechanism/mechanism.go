// Package mechanism builds the mechanism with which clients report from its description in a
// task, so that clients and coordinator have the same one.
package mechanism

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// maxDim bounds what a description may make a program allocate.
const maxDim = 1 << 24

// sumPrefix starts the names of vector sums; the law of the noise follows.
const sumPrefix = "vector-sum-"

// New builds the mechanism that a task describes. Its Event is its promise.
func New(w wire.Mechanism) (randomizer.Randomizer, error) {
	if w.Dim < 1 || w.Dim > maxDim {
		return nil, fmt.Errorf("mechanism: dim = %d must lie between 1 and %d", w.Dim, maxDim)
	}
	if w.Sum.Ones < 0 || w.Sum.Ones > w.Dim {
		return nil, fmt.Errorf("mechanism: ones = %d must lie between 0 and dim = %d", w.Sum.Ones, w.Dim)
	}
	if w.Bits < 0 || w.Bits > w.Dim {
		return nil, fmt.Errorf("mechanism: bits = %d must lie between 0 and dim = %d", w.Bits, w.Dim)
	}
	noise, summed := strings.CutPrefix(w.Name, sumPrefix)
	apart := w.Name == aggregatedName || w.Name == apartName
	if (len(w.Weights) != 0 || w.WeightBits != 0) && !apart {
		return nil, fmt.Errorf("mechanism: %q with the weights of correlated noise, which aggregators add or clients send apart", w.Name)
	}
	if !summed {
		if w.Sum != (wire.Sum{}) {
			return nil, fmt.Errorf("mechanism: %q is not a vector sum but has its parameters", w.Name)
		}
		if err := checkSteps(w); err != nil {
			return nil, err
		}
		return randomizer.New(w.Name, randomizer.Config{Dim: int(w.Dim), Radius: w.Clip, Eps0: w.Eps0, Bits: int(w.Bits), Encoding: w.Encoding, Edges: w.Edges})
	}
	if w.Encoding != "" || len(w.Edges) != 0 || w.Height != 0 {
		return nil, fmt.Errorf("mechanism: vector sum %q with encoding %q and %d edges", w.Name, w.Encoding, len(w.Edges))
	}
	if apart {
		return newProvedSum(w)
	}
	if s := w.Sum; s.NoiseBy != "" || s.Proofs != "" || s.Steps != 0 || s.Bound != 0 || s.Variance != 0 {
		return nil, fmt.Errorf("mechanism: %q, noise by clients, with noise by %q and proofs %q", w.Name, s.NoiseBy, s.Proofs)
	}
	if w.Eps0 != 0 || w.Bits != 0 || noise != w.Sum.Noise {
		return nil, fmt.Errorf("mechanism: %q with eps0 = %v, bits = %d, noise %q", w.Name, w.Eps0, w.Bits, w.Sum.Noise)
	}
	s := w.Sum
	p := vecsum.Params{Users: s.Users, MinUsers: s.MinUsers, Honest: s.Honest, Dim: int(w.Dim), Radius: w.Clip,
		Grid: s.Grid, Norm: s.Norm, Split: s.Split, Ones: int(s.Ones),
		Noise: vecsum.Noise{Kind: vecsum.NoiseKind(s.Noise), Bits: s.NoiseBits, P: s.NoiseP, Variance: s.NoiseVariance}}
	return NewVectorSum(p, s.Sigma)
}

// checkSteps makes sure that a description states the edges that its mechanism has, so that
// nobody has to choose them again, and the height that follows from ε₀.
func checkSteps(w wire.Mechanism) error {
	edges, err := randomizer.Edges(w.Name, randomizer.Config{Dim: int(w.Dim), Radius: w.Clip, Eps0: w.Eps0, Bits: int(w.Bits), Encoding: w.Encoding, Edges: w.Edges})
	if err != nil {
		return err
	}
	if len(edges) != len(w.Edges) {
		return fmt.Errorf("mechanism: %q with encoding %q and %d edges, want %d", w.Name, w.Encoding, len(w.Edges), len(edges))
	}
	if want := stepHeight(w); !(math.Abs(w.Height-want) <= 1e-12*want) {
		return fmt.Errorf("mechanism: steps of height %v, want %v at eps0 = %v", w.Height, want, w.Eps0)
	}
	return nil
}

// stepHeight returns what each edge adds to the density of a report; 0 if there are no edges.
func stepHeight(w wire.Mechanism) float64 {
	if len(w.Edges) == 0 {
		return 0
	}
	return math.Expm1(w.Eps0) / float64(len(w.Edges))
}

// Describe returns the description of a randomizer, of which New makes it.
func Describe(name string, c randomizer.Config, clipMode string) (wire.Mechanism, error) {
	w := wire.Mechanism{Name: name, Dim: int64(c.Dim), Clip: c.Radius, ClipMode: clipMode, Eps0: c.Eps0, Bits: int64(c.Bits)}
	if c.Encoding == randomizer.Seed {
		w.Encoding = wire.EncodingSeed
	}
	var err error
	w.Edges, err = randomizer.Edges(name, c)
	w.Height = stepHeight(w)
	return w, err
}

// minVariance is the smallest variance that one client's unbounded noise may have over a
// network. NewVectorSum allows counts up to 40 standard deviations of the noise, and no
// accountant charges for the cut. From this variance on the noise beyond the cut is
// negligible.
const minVariance = 4

// CheckSigma computes the σ of a client's noise over the rounds of a task
// (vecsum.Params.Sigma), or of noise that is no part of vectors (vecsum.Aggregated.Sigma), and refuses a
// description that claims a larger one. It takes up to
// seconds, and for some descriptions minutes; it returns ctx's error when ctx ends.
func CheckSigma(ctx context.Context, w wire.Mechanism, delta float64, rounds int64) error {
	m, err := New(w)
	if err != nil {
		return err
	}
	if a, ok := m.(*AggregatedSum); ok {
		return a.checkSigma(delta, rounds)
	}
	v, ok := m.(*VectorSum)
	if !ok {
		return nil
	}
	// The noise that the cut in NewVectorSum removes must be negligible: see minVariance.
	if n := v.Params.Noise; n.Kind != vecsum.Binomial && !(n.Variance >= minVariance) {
		return fmt.Errorf("mechanism: %s noise of variance %v must have %v at least: %w", n.Kind, n.Variance, minVariance, dp.ErrNoBound)
	}
	sigma, tail, err := v.Params.Sigma(ctx, delta, rounds)
	if err != nil {
		return err
	}
	if !(tail <= vecsum.TailShare*delta) {
		return fmt.Errorf("mechanism: tails of %v are above %v of delta: %w", tail, vecsum.TailShare, dp.ErrNoBound)
	}
	if !(w.Sum.Sigma <= sigma) {
		return fmt.Errorf("mechanism: the noise is worth sigma = %v, the task claims %v", sigma, w.Sum.Sigma)
	}
	return nil
}

// Describe is the inverse of New for a vector sum.
func (m *VectorSum) Describe() wire.Mechanism {
	p := m.Params
	return wire.Mechanism{Name: m.Facts().Name, Dim: int64(p.Dim), Clip: p.Radius, ClipMode: "norm", Sum: wire.Sum{
		Users: p.Users, MinUsers: p.MinUsers, Honest: p.Honest, Grid: p.Grid, Norm: p.Norm, Split: p.Split, Ones: int64(p.Ones),
		Noise: string(p.Noise.Kind), NoiseBits: p.Noise.Bits, NoiseP: p.Noise.P, NoiseVariance: p.Noise.Variance,
		Sigma: m.promise.Sigma}}
}

// Norm returns the p of the ball to which gradients are clipped.
func Norm(w wire.Mechanism) (float64, error) {
	if strings.HasPrefix(w.Name, sumPrefix) {
		return 2, nil
	}
	k, err := randomizer.KindOf(w.Name)
	return k.Norm, err
}
