package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/internal/safetensors"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// part is a tensor within a parameter vector.
type part struct {
	name  string
	shape []int
	// fanIn and fanOut bound the initial values; both 0 starts at 0.
	fanIn, fanOut int
}

func (p part) size() int {
	n := 1
	for _, v := range p.shape {
		n *= v
	}
	return n
}

// layout says how theta holds a model: its tensors, in their order.
type layout struct {
	kind           string
	inputs, params int
	parts          []part
}

func newLayout(kind string, inputs int, parts ...part) layout {
	l := layout{kind: kind, inputs: inputs, parts: parts}
	for _, p := range parts {
		l.params += p.size()
	}
	return l
}

// Name returns the kind of model.
func (l *layout) Name() string { return l.kind }

// Params returns the length of theta and of a gradient.
func (l *layout) Params() int { return l.params }

// Inputs returns the number of features of an example.
func (l *layout) Inputs() int { return l.inputs }

// initDomain separates initial values from all other uses of a seed.
const initDomain = 0x6d6f64656c // "model"

// Init returns parameters to start from: zeros for a convex model and for biases. It draws
// other weights uniformly within ±√(6/(fanIn + fanOut)) (Glorot and
// Bengio, AISTATS 2010, eq. 16), each tensor from its own stream.
func (l *layout) Init(seed uint64) []float32 {
	theta := make([]float32, 0, l.params)
	for i, p := range l.parts {
		n := p.size()
		if p.fanIn+p.fanOut == 0 {
			theta = append(theta, make([]float32, n)...)
			continue
		}
		bound := math.Sqrt(6 / float64(p.fanIn+p.fanOut))
		src := rng.Replay(seed, initDomain, uint64(i))
		for range n {
			// The midpoints of 2⁵³ cells of (−1, 1): symmetric, never ±1.
			u := (float64(src.Uint64()>>11) + 0.5) / (1 << 52)
			theta = append(theta, float32((u-1)*bound))
		}
	}
	return theta
}

// Tensors cuts theta into the layout's tensors.
func (l *layout) Tensors(theta []float32) ([]safetensors.Tensor, error) {
	if len(theta) != l.params {
		return nil, fmt.Errorf("model: %s: %d parameters, want %d", l.kind, len(theta), l.params)
	}
	var out []safetensors.Tensor
	for _, p := range l.parts {
		n := p.size()
		out = append(out, safetensors.Float32(p.name, p.shape, theta[:n]))
		theta = theta[n:]
	}
	return out, nil
}

// Theta is the inverse of Tensors. Other tensors, shapes, types and values
// that are not finite are refused.
func (l *layout) Theta(tensors []safetensors.Tensor) ([]float32, error) {
	theta := make([]float32, l.params)
	seen := map[string]bool{}
	for _, t := range tensors {
		at := 0
		i := slices.IndexFunc(l.parts, func(p part) bool { return p.name == t.Name })
		if i < 0 || seen[t.Name] {
			return nil, fmt.Errorf("model: %s: unexpected tensor %q", l.kind, t.Name)
		}
		seen[t.Name] = true
		for _, p := range l.parts[:i] {
			at += p.size()
		}
		if !slices.Equal(t.Shape, l.parts[i].shape) {
			return nil, fmt.Errorf("model: %s: tensor %q has shape %v, want %v", l.kind, t.Name, t.Shape, l.parts[i].shape)
		}
		v, err := t.Float32s()
		if err != nil {
			return nil, fmt.Errorf("model: %s: %w", l.kind, err)
		}
		for j, f := range v {
			if f-f != 0 {
				return nil, fmt.Errorf("model: %s: tensor %q holds %v at %d, must be finite", l.kind, t.Name, f, j)
			}
		}
		copy(theta[at:], v)
	}
	for _, p := range l.parts {
		if !seen[p.name] {
			return nil, fmt.Errorf("model: %s: no tensor %q", l.kind, p.name)
		}
	}
	return theta, nil
}

// saturate replaces what float32 could not hold: NaN by 0, ±Inf by
// ±MaxFloat32.
func saturate(v []float32) {
	for i, f := range v {
		if f != f {
			v[i] = 0
		} else {
			v[i] = max(-math.MaxFloat32, min(math.MaxFloat32, f))
		}
	}
}

// classed is the layout of a model that tells classes apart.
type classed struct {
	layout
	classes int
}

// Classes returns the number of classes.
func (c *classed) Classes() int { return c.classes }
