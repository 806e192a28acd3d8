package model

import "fmt"

// NewExternal returns a model of which only the parameters are known: a program computes its
// gradients and evaluates it. theta has the named tensors, of these shapes, in this order, and
// starts at initial; nil: zeros. Grad, GradCoord, Predict and Evaluate panic.
func NewExternal(name string, names []string, shapes [][]int, initial []float32) (*Model, error) {
	if len(names) == 0 || len(names) != len(shapes) {
		return nil, fmt.Errorf("model: %d names of tensors, %d shapes", len(names), len(shapes))
	}
	var l layout
	for i, n := range names {
		l = append(l, part{name: n, shape: shapes[i]})
	}
	m := newModel(name, 0, 0, l, outside{})
	if initial != nil && len(initial) != m.Params {
		return nil, fmt.Errorf("model: %d initial parameters, want %d", len(initial), m.Params)
	}
	m.initial = append([]float32(nil), initial...)
	return m, nil
}

// outside is the kind of a model that a program computes.
type outside struct{}

func (outside) prepare(*workspace) {}

func (outside) forward(_, _, _ []float32, _ *workspace) {
	panic("model: a program evaluates this model")
}

func (outside) grad(_, _ []float32, _ float64, _ []float32, _ *workspace) float64 {
	panic("model: a program computes this model's gradients")
}

func (outside) gradCoord(_, _ []float32, _ float64, _ int, _ *workspace) (float32, float64) {
	panic("model: a program computes this model's gradients")
}

func (outside) geometry(float64) (lipschitz, smoothness float64) {
	panic("model: nothing is known of this model's loss")
}
