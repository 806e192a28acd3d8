package model

import (
	"fmt"

	"github.com/riffle-dp/riffle/learn/model/internal/kernel"
)

// MLPConfig describes an MLP.
type MLPConfig struct {
	// Inputs is the number of features, Hidden that of hidden units; at least
	// 1 each. Classes is at least 2. All required. Multiples of 32 hidden
	// units are fastest.
	Inputs, Hidden, Classes int
}

// mlp is the model that NewMLP makes.
type mlp struct {
	k               *kernel.Kernel
	hidden, classes int
	b1, w2, b2      int // where the biases, the output weights and their biases begin in theta
}

// NewMLP returns a network with one hidden layer of ReLUs and cross-entropy loss. With 60
// principal components as inputs it is the network of Chen, Cao and Ge 2024 (EAB).
//
// theta holds the hidden layer's weights, row-major with Inputs rows of Hidden
// columns, its biases, the output layer's weights (Hidden × Classes) and its
// biases. The gradient of a ReLU at 0 is 0. What float32 cannot hold becomes
// ±MaxFloat32, or 0 if it is not a number.
func NewMLP(c MLPConfig) (*Model, error) { return newMLP(c, kernel.Best()) }

func newMLP(c MLPConfig, k *kernel.Kernel) (*Model, error) {
	if c.Inputs < 1 || c.Hidden < 1 {
		return nil, fmt.Errorf("model: inputs = %d and hidden = %d must be at least 1", c.Inputs, c.Hidden)
	}
	if c.Classes < 2 {
		return nil, fmt.Errorf("model: classes = %d must be at least 2", c.Classes)
	}
	// Each factor is bounded before the products are formed.
	if c.Inputs > maxParams || c.Hidden > maxParams || c.Classes > maxParams ||
		int64(c.Hidden)*(int64(c.Inputs)+1+int64(c.Classes))+int64(c.Classes) > maxParams {
		return nil, fmt.Errorf("model: %d inputs × %d hidden × %d classes exceed %d parameters",
			c.Inputs, c.Hidden, c.Classes, maxParams)
	}
	m := &mlp{k: k, hidden: c.Hidden, classes: c.Classes}
	m.b1 = c.Inputs * c.Hidden
	m.w2 = m.b1 + c.Hidden
	m.b2 = m.w2 + c.Hidden*c.Classes
	return newModel("mlp", c.Inputs, c.Classes, layout{
		{"dense1.weight", []int{c.Inputs, c.Hidden}, c.Inputs, c.Hidden},
		{"dense1.bias", []int{c.Hidden}, 0, 0},
		{"dense2.weight", []int{c.Hidden, c.Classes}, c.Hidden, c.Classes},
		{"dense2.bias", []int{c.Classes}, 0, 0},
	}, m), nil
}

func (m *mlp) geometry(float64) (lipschitz, smoothness float64) { panic("model: mlp is not convex") }

func (m *mlp) prepare(s *workspace) {
	s.hidden, s.dhidden = make([]float32, m.hidden), make([]float32, m.hidden)
}

func (m *mlp) forward(theta, x, logits []float32, s *workspace) {
	m.k.Dense(s.hidden, x, theta[:m.b1], theta[m.b1:m.w2])
	for i, v := range s.hidden {
		s.hidden[i] = max(0, v)
	}
	if m.classes == 10 {
		scores10(theta[m.w2:], s.hidden, (*[10]float32)(logits))
	} else {
		scores(theta[m.w2:], s.hidden, logits)
	}
	if !m.k.Finite(logits) {
		saturate(logits)
	}
}

func (m *mlp) output(theta, x []float32, y float64, s *workspace) (loss float64) {
	m.forward(theta, x, s.logits, s)
	return residual(s.logits, int(y), s.prob)
}

func (m *mlp) grad(theta, x []float32, y float64, grad []float32, s *workspace) (loss float64) {
	loss = m.output(theta, x, y, s)
	if m.classes == 10 {
		outer10(s.hidden, (*[10]float32)(s.logits), grad[m.w2:])
	} else {
		outer(s.hidden, s.logits, grad[m.w2:])
	}
	for i := range s.dhidden {
		s.dhidden[i] = hiddenGrad(theta[m.w2:], s.hidden, s.logits, i)
	}
	m.k.Outer(grad[:m.b1], x, s.dhidden)
	copy(grad[m.b1:m.w2], s.dhidden)
	if !m.k.Finite(grad) {
		saturate(grad)
	}
	return loss
}

func (m *mlp) gradCoord(theta, x []float32, y float64, j int, s *workspace) (g float32, loss float64) {
	loss = m.output(theta, x, y, s)
	one := [1]float32{}
	if i := (j - m.w2) / m.classes; j >= m.w2 {
		one[0] = s.logits[(j-m.w2)%m.classes]
		if i < m.hidden {
			one[0] *= s.hidden[i]
		}
	} else {
		one[0] = hiddenGrad(theta[m.w2:], s.hidden, s.logits, j%m.hidden)
		if j < m.b1 {
			one[0] *= x[j/m.hidden]
		}
	}
	saturate(one[:])
	return one[0], loss
}

// hiddenGrad returns a loss's gradient by the i-th input of hidden ReLUs, from
// the weights after them and the gradient e of the scores they lead to.
func hiddenGrad(w, hidden, e []float32, i int) float32 {
	if !(hidden[i] > 0) {
		return 0
	}
	row := w[i*len(e):][:len(e)]
	var sum float32
	for c, v := range e {
		sum += row[c] * v
	}
	return sum
}
