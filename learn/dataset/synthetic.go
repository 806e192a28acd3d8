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
	// SyntheticLogistic: y = ±1, 1 with probability 1/(1 + e^−⟨w, x⟩). Truth
	// minimises the population's logistic loss, if the feasible set holds it.
	SyntheticLogistic SyntheticKind = "logistic"
	// SyntheticHinge: y = the sign of ⟨w, x⟩, flipped with probability Noise.
	SyntheticHinge SyntheticKind = "hinge"
	// SyntheticAbsolute: y = ⟨w, x⟩ + Noise times a standard normal value.
	// Truth minimises the population's absolute loss.
	SyntheticAbsolute SyntheticKind = "absolute"
)

// SyntheticConfig describes a synthetic convex problem without an intercept.
type SyntheticConfig struct {
	// Kind is the law. Required.
	Kind SyntheticKind
	// Dim is d. Required.
	Dim int
	// Clients is n. Required.
	Clients int64
	// Examples is the number of rows of the population, of which each client holds one, as
	// Population deals them out. The population's loss is then a mean over Rows, without
	// sampling error. 0: every client has a row of its own.
	Examples int
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

// Synthetic is a synthetic problem: every client has a row of norm 1 and a target, computed
// when asked for. Only w is stored.
type Synthetic struct {
	c     SyntheticConfig
	truth []float64
	scale []float64 // standard deviations of the features
	draw  *Population
}

// Streams of random numbers derived from the seed.
const (
	syntheticTruth = iota
	syntheticClient
	syntheticExample
	syntheticHeldOut
)

// NewSynthetic returns the problem that c describes.
func NewSynthetic(c SyntheticConfig) (*Synthetic, error) {
	if c.Dim < 1 || c.Clients < 1 || c.Examples < 0 {
		return nil, fmt.Errorf("dataset: synthetic problem with d = %d, n = %d, %d examples: d and n must be at least 1, examples at least 0",
			c.Dim, c.Clients, c.Examples)
	}
	switch c.Kind {
	case SyntheticLogistic:
		if c.Noise != 0 {
			return nil, fmt.Errorf("dataset: synthetic problem %q has no noise to set", c.Kind)
		}
	case SyntheticHinge:
		c.Noise = orDefault(c.Noise, .05)
		if !(c.Noise < .5) {
			return nil, fmt.Errorf("dataset: synthetic problem hinge: noise = %v must be below 0.5", c.Noise)
		}
	case SyntheticAbsolute:
		c.Noise = orDefault(c.Noise, .3)
	default:
		return nil, fmt.Errorf("dataset: synthetic problem %q must be %q, %q or %q", c.Kind, SyntheticLogistic, SyntheticHinge, SyntheticAbsolute)
	}
	c.Norm, c.Decay = orDefault(c.Norm, 5), orDefault(c.Decay, .5)
	for name, v := range map[string]float64{"norm": c.Norm, "decay": c.Decay, "noise": c.Noise} {
		if math.IsNaN(v) || v > 1e6 {
			return nil, fmt.Errorf("dataset: synthetic problem: %s = %v must be a number of at most 1e6", name, v)
		}
	}
	if c.Norm == 0 {
		return nil, errors.New("dataset: synthetic problem: norm must be above 0")
	}
	s := &Synthetic{c: c, truth: make([]float64, c.Dim), scale: make([]float64, c.Dim)}
	for j := range s.scale {
		s.scale[j] = math.Pow(float64(j+1), -c.Decay)
	}
	sample.Gaussian(rng.Replay(c.Seed, domainSynthetic, syntheticTruth), s.truth)
	rescale(s.truth, c.Norm)
	if c.Examples > 0 {
		var err error
		s.draw, err = NewPopulation(PopulationConfig{Clients: c.Clients, Examples: c.Examples, Seed: c.Seed})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
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

// Truth returns a copy of w. It is the optimum of the kinds of which SyntheticKind says so.
func (s *Synthetic) Truth() []float64 { return append([]float64(nil), s.truth...) }

// Rows returns the whole population as a table if it has Examples. Otherwise it returns as
// many held-out rows as asked for, of the clients' law and independent of theirs.
func (s *Synthetic) Rows(heldOut int) (*Table, error) {
	n, stream := heldOut, uint64(syntheticHeldOut)
	if s.c.Examples > 0 {
		n, stream = s.c.Examples, syntheticExample
	}
	if n < 1 {
		return nil, fmt.Errorf("dataset: %d held-out rows must be at least 1", n)
	}
	t := &Table{Dim: s.c.Dim, X: make([]float32, n*s.c.Dim)}
	if s.binary() {
		t.Classes, t.Y = 2, make([]int32, n)
	} else {
		t.Targets = make([]float32, n)
	}
	r := s.reader()
	for i := range n {
		y := r.row(stream, uint64(i), t.Row(i))
		if s.binary() {
			t.Y[i] = int32(y+1) / 2
		} else {
			t.Targets[i] = float32(y)
		}
	}
	return t, nil
}

func (s *Synthetic) binary() bool { return s.c.Kind != SyntheticAbsolute }

// reader computes rows; it belongs to one goroutine.
type reader struct {
	s      *Synthetic
	src    *rng.Stream
	normal []float64
}

// Reader returns a function for one goroutine that writes the features of a client
// 0 ≤ client < n into x and returns its target, −1 or 1 for a binary kind. The answer depends
// on the configuration and the client alone.
func (s *Synthetic) Reader() func(client int64, x []float32) (y float64) { return s.reader().client }

func (s *Synthetic) reader() *reader {
	return &reader{s: s, src: rng.Replay(s.c.Seed), normal: make([]float64, s.c.Dim)}
}

func (r *reader) client(client int64, x []float32) (y float64) {
	if client < 0 || client >= r.s.c.Clients || len(x) != r.s.c.Dim {
		panic(fmt.Sprintf("dataset: client %d, %d features of a synthetic problem with n = %d, d = %d", client, len(x), r.s.c.Clients, r.s.c.Dim))
	}
	if r.s.c.Examples > 0 {
		return r.row(syntheticExample, uint64(r.s.draw.Example(client, 0)), x)
	}
	return r.row(syntheticClient, uint64(client), x)
}

func (r *reader) row(stream, index uint64, x []float32) (y float64) {
	s := r.s
	r.src.Reset(domainSynthetic, stream, index)
	sample.Gaussian(r.src, r.normal)
	for j := range r.normal {
		r.normal[j] *= s.scale[j]
	}
	rescale(r.normal, 1)
	score := 0.0
	for j, v := range r.normal {
		x[j] = float32(v)
		score += s.truth[j] * float64(x[j])
	}
	// 53 bits in [0, 1).
	uniform := func() float64 { return float64(r.src.Uint64()>>11) / (1 << 53) }
	switch s.c.Kind {
	case SyntheticLogistic:
		if uniform() < 1/(1+math.Exp(-score)) {
			return 1
		}
		return -1
	case SyntheticHinge:
		y = 1
		if score < 0 {
			y = -1
		}
		if uniform() < s.c.Noise {
			y = -y
		}
		return y
	}
	return float64(float32(score + s.c.Noise*sample.Normal(r.src)))
}
