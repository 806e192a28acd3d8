package model

import "fmt"

// ExternalConfig describes a model that a program computes.
type ExternalConfig struct {
	Name  string   // Required.
	Names []string // of the tensors, in the order of theta. Required.
	// Shapes are the tensors' shapes. Required.
	Shapes [][]int
	// Initial are the parameters to start from; nil: zeros.
	Initial []float32
}

// NewExternal returns a model of which only the parameters are known: a program computes its
// gradients and evaluates it. Grad, GradCoord, Predict and Evaluate panic.
func NewExternal(c ExternalConfig) (*Model, error) {
	if len(c.Names) == 0 || len(c.Names) != len(c.Shapes) {
		return nil, fmt.Errorf("model: %d names of tensors, %d shapes", len(c.Names), len(c.Shapes))
	}
	var l layout
	for i, name := range c.Names {
		l = append(l, part{name: name, shape: c.Shapes[i]})
	}
	m := newModel(c.Name, 0, 0, l, outside{})
	if c.Initial != nil && len(c.Initial) != m.Params {
		return nil, fmt.Errorf("model: %d initial parameters, want %d", len(c.Initial), m.Params)
	}
	m.initial = append([]float32(nil), c.Initial...)
	return m, nil
}

// outside is the kind of a model that a program computes.
type outside struct{}

func (outside) prepare(*Scratch) {}

func (outside) forward(_, _, _ []float32, _ *Scratch) { panic("model: a program evaluates this model") }

func (outside) grad(_, _ []float32, _ float64, _ []float32, _ *Scratch) float64 {
	panic("model: a program computes this model's gradients")
}

func (outside) gradCoord(_, _ []float32, _ float64, _ int, _ *Scratch) (float32, float64) {
	panic("model: a program computes this model's gradients")
}

func (outside) geometry(float64) (lipschitz, smoothness float64) {
	panic("model: nothing is known of this model's loss")
}
