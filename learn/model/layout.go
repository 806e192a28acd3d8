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
	// fanIn and fanOut bound the initial values; if both are 0, the values start at 0.
	fanIn, fanOut int
}

func (p part) size() int {
	n := 1
	for _, v := range p.shape {
		n *= v
	}
	return n
}

// layout lists a model's tensors in the order in which theta holds them.
type layout []part

func (l layout) params() int {
	n := 0
	for _, p := range l {
		n += p.size()
	}
	return n
}

// initDomain separates initial values from all other uses of a seed.
const initDomain = 0x6d6f64656c // "model"

// Init returns parameters to start from, a function of the seed alone: zeros for a convex
// model and for biases. It draws other weights uniformly within ±√(6/(fanIn + fanOut))
// (Glorot and Bengio, AISTATS 2010, eq. 16), each tensor from its own stream. A model that a
// program computes starts where the program says.
func (m *Model) Init(seed uint64) []float32 {
	if len(m.initial) > 0 {
		return slices.Clone(m.initial)
	}
	theta := make([]float32, 0, m.Params)
	for i, p := range m.layout {
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

// Tensors cuts theta into named tensors for a file.
func (m *Model) Tensors(theta []float32) ([]safetensors.Tensor, error) {
	if len(theta) != m.Params {
		return nil, fmt.Errorf("model: %s: %d parameters, want %d", m.Name, len(theta), m.Params)
	}
	var out []safetensors.Tensor
	for _, p := range m.layout {
		n := p.size()
		out = append(out, safetensors.New(p.name, p.shape, theta[:n]))
		theta = theta[n:]
	}
	return out, nil
}

// Theta is the inverse of Tensors. Other tensors, shapes, types and values
// that are not finite are refused.
func (m *Model) Theta(tensors []safetensors.Tensor) ([]float32, error) {
	theta := make([]float32, m.Params)
	seen := map[string]bool{}
	for _, t := range tensors {
		at := 0
		i := slices.IndexFunc(m.layout, func(p part) bool { return p.name == t.Name })
		if i < 0 || seen[t.Name] {
			return nil, fmt.Errorf("model: %s: unexpected tensor %q", m.Name, t.Name)
		}
		seen[t.Name] = true
		for _, p := range m.layout[:i] {
			at += p.size()
		}
		if !slices.Equal(t.Shape, m.layout[i].shape) {
			return nil, fmt.Errorf("model: %s: tensor %q has shape %v, want %v", m.Name, t.Name, t.Shape, m.layout[i].shape)
		}
		v, err := safetensors.Values[float32](t)
		if err != nil {
			return nil, fmt.Errorf("model: %s: %w", m.Name, err)
		}
		for j, f := range v {
			if f-f != 0 {
				return nil, fmt.Errorf("model: %s: tensor %q holds %v at %d, must be finite", m.Name, t.Name, f, j)
			}
		}
		copy(theta[at:], v)
	}
	for _, p := range m.layout {
		if !seen[p.name] {
			return nil, fmt.Errorf("model: %s: no tensor %q", m.Name, p.name)
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
