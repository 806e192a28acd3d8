package dataset

import (
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// SyntheticKind names a law of rows and targets.
type SyntheticKind string

const (
	// SyntheticLogistic: y = ±1, 1 with probability 1/(1 + e^−⟨w, x⟩). The truth w
	// minimises the law's logistic loss, if the feasible set holds it.
	SyntheticLogistic SyntheticKind = "logistic"
	// SyntheticHinge: y = the sign of ⟨w, x⟩, flipped with probability Noise.
	SyntheticHinge SyntheticKind = "hinge"
	// SyntheticAbsolute: y = ⟨w, x⟩ + Noise times a standard normal value.
	// The truth w minimises the law's absolute loss.
	SyntheticAbsolute SyntheticKind = "absolute"
)

// SyntheticConfig describes the rows of a synthetic convex problem without an intercept.
type SyntheticConfig struct {
	// Kind is the law. Required.
	Kind SyntheticKind
	// Dim is d. Required.
	Dim int
	// Rows is the number of rows. Required.
	Rows int
	// HeldOut asks for further rows of the same law, independent of those that are drawn with
	// HeldOut false.
	HeldOut bool
	// Norm is ‖w‖. Default 5.
	Norm float64
	// Decay is α: before rows are scaled to norm 1, feature j = 1, 2, … is
	// normal with standard deviation j^−α. Default 0.5; negative for none.
	Decay float64
	// Noise of the targets; see SyntheticKind. Default 0.05 for hinge, 0.3 for absolute;
	// negative for none. It must be 0 for logistic.
	Noise float64
	Seed  uint64
}

// Streams of random numbers derived from the seed.
const (
	syntheticTruth   = 0
	syntheticRow     = 2
	syntheticHeldOut = 3
)

// NewSynthetic draws the rows that c describes: each has norm 1 and a class or a target. It
// also returns w, the truth of the law. For the kinds logistic and absolute it is the optimum.
func NewSynthetic(c SyntheticConfig) (rows *Table, truth []float64, err error) {
	if c.Dim < 1 || c.Rows < 1 {
		return nil, nil, fmt.Errorf("dataset: synthetic problem with d = %d and %d rows: each must be at least 1", c.Dim, c.Rows)
	}
	switch c.Kind {
	case SyntheticLogistic:
		if c.Noise != 0 {
			return nil, nil, fmt.Errorf("dataset: synthetic problem %q has no noise to set", c.Kind)
		}
	case SyntheticHinge:
		c.Noise = orDefault(c.Noise, .05)
		if !(c.Noise < .5) {
			return nil, nil, fmt.Errorf("dataset: synthetic problem hinge: noise = %v must be below 0.5", c.Noise)
		}
	case SyntheticAbsolute:
		c.Noise = orDefault(c.Noise, .3)
	default:
		return nil, nil, fmt.Errorf("dataset: synthetic problem %q must be %q, %q or %q", c.Kind, SyntheticLogistic, SyntheticHinge, SyntheticAbsolute)
	}
	c.Norm, c.Decay = orDefault(c.Norm, 5), orDefault(c.Decay, .5)
	for name, v := range map[string]float64{"norm": c.Norm, "decay": c.Decay, "noise": c.Noise} {
		if math.IsNaN(v) || v > 1e6 {
			return nil, nil, fmt.Errorf("dataset: synthetic problem: %s = %v must be a number of at most 1e6", name, v)
		}
	}
	if c.Norm == 0 {
		return nil, nil, errors.New("dataset: synthetic problem: norm must be above 0")
	}
	scale := make([]float64, c.Dim) // standard deviations of the features
	for j := range scale {
		scale[j] = math.Pow(float64(j+1), -c.Decay)
	}
	truth = make([]float64, c.Dim)
	sample.Gaussian(rng.Replay(c.Seed, domainSynthetic, syntheticTruth), truth)
	rescale(truth, c.Norm)

	rows = &Table{Dim: c.Dim, X: make([]float32, c.Rows*c.Dim)}
	if c.Kind == SyntheticAbsolute {
		rows.Targets = make([]float32, c.Rows)
	} else {
		rows.Classes, rows.Y = 2, make([]int32, c.Rows)
	}
	stream := uint64(syntheticRow)
	if c.HeldOut {
		stream = syntheticHeldOut
	}
	src, normal := rng.Replay(c.Seed), make([]float64, c.Dim)
	for i := range c.Rows {
		src.Reset(domainSynthetic, stream, uint64(i))
		x, score := rows.Row(i), 0.0
		sample.Gaussian(src, normal)
		for j := range normal {
			normal[j] *= scale[j]
		}
		rescale(normal, 1)
		for j, v := range normal {
			x[j] = float32(v)
			score += truth[j] * float64(x[j])
		}
		if c.Kind == SyntheticAbsolute {
			rows.Targets[i] = float32(score + c.Noise*sample.Normal(src))
		} else if c.class(score, src) {
			rows.Y[i] = 1
		}
	}
	return rows, truth, nil
}

// class draws whether a row of that score is of the class 1.
func (c SyntheticConfig) class(score float64, src *rng.Stream) bool {
	uniform := float64(src.Uint64()>>11) / (1 << 53) // 53 bits in [0, 1)
	if c.Kind == SyntheticLogistic {
		return uniform < 1/(1+math.Exp(-score))
	}
	return (score >= 0) != (uniform < c.Noise)
}

// orDefault returns v if it is above 0, def for 0, and 0 for a negative v.
func orDefault(v, def float64) float64 {
	switch {
	case v == 0:
		return def
	case v < 0:
		return 0
	}
	return v
}

// rescale gives x the norm r; a vector of zeros becomes r times the first axis.
func rescale(x []float64, r float64) {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	if sum == 0 {
		x[0], sum = 1, 1
	}
	for j := range x {
		x[j] *= r / math.Sqrt(sum)
	}
}
