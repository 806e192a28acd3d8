// Package model holds models with exact per-client gradients.
//
// Parameters, features and gradients are float32, row-major and owned by the
// caller; probabilities and losses are computed in float64. Nothing is
// allocated per example: working memory is a workspace, one per goroutine.
package model

import (
	"fmt"
	"math"
)

// Model is a differentiable model whose parameters are a flat vector theta:
// NewCNN, NewMLP, NewSoftmax, NewLinear and NewExternal make one.
//
// A Model must not be changed, and is safe for concurrent use. Its methods
// panic if a slice has the wrong length or a class is out of range: that is a
// bug of the caller, not bad data.
//
// The true answer y of an example is the number of its class, or a real target. A linear model
// of two classes takes any number above 0 for the class 1, and others for the class 0.
type Model struct {
	// Name is the kind of model.
	Name string
	// Params is the length of theta and of a gradient, Inputs the number of
	// features of an example, and Classes the number of classes; 0: targets are
	// real numbers.
	Params, Inputs, Classes int
	// Loss is that of a linear model; the others have cross-entropy and leave it
	// zero.
	Loss Loss
	// Convex says whether the loss on an example is convex in theta.
	Convex bool

	layout  layout
	kind    kind
	initial []float32 // of a model that a program computes; empty: zeros
}

// kind has the methods in which kinds of models differ. Model has checked the lengths of
// theta, x, grad, and y.
type kind interface {
	// prepare adds to a workspace what this kind needs besides logits and prob.
	prepare(s *workspace)
	// forward overwrites one logit per class. They are finite if theta and x are.
	forward(theta, x, logits []float32, s *workspace)
	grad(theta, x []float32, y float64, grad []float32, s *workspace) (loss float64)
	gradCoord(theta, x []float32, y float64, j int, s *workspace) (g float32, loss float64)
	// geometry is called on convex models only.
	geometry(norm float64) (lipschitz, smoothness float64)
}

func newModel(name string, inputs, classes int, l layout, k kind) *Model {
	return &Model{Name: name, Params: l.params(), Inputs: inputs, Classes: classes, layout: l, kind: k}
}

// workspace is a model's working memory; it belongs to one goroutine.
type workspace struct {
	logits []float32 // one per class
	prob   []float64 // one per class

	hidden, dhidden []float32 // of an MLP
	cnn             *cnnScratch
}

// NewScratch returns working memory for this model.
func (m *Model) NewScratch() *workspace {
	s := &workspace{logits: make([]float32, m.Classes), prob: make([]float64, m.Classes)}
	m.kind.prepare(s)
	return s
}

// Grad overwrites grad with the gradient of one client's loss at theta and
// returns that loss, in nats if there are classes. Both are finite whenever
// theta and x are. A linear model needs no workspace.
func (m *Model) Grad(theta, x []float32, y float64, grad []float32, s *workspace) (loss float64) {
	m.check(theta, x, y)
	if len(grad) != m.Params {
		panic(fmt.Sprintf("model: %s: gradient of %d values, want %d", m.Name, len(grad), m.Params))
	}
	return m.kind.grad(theta, x, y, grad, s)
}

// GradCoord returns the j-th coordinate of Grad's gradient, up to the rounding
// of a sum, and the loss, for less than the whole gradient costs. Both are
// finite. A client whose report is about one random coordinate, clipped
// coordinate-wise, needs no more.
func (m *Model) GradCoord(theta, x []float32, y float64, j int, s *workspace) (g float32, loss float64) {
	m.check(theta, x, y)
	if j < 0 || j >= m.Params {
		panic(fmt.Sprintf("model: %s: coordinate %d of %d", m.Name, j, m.Params))
	}
	return m.kind.gradCoord(theta, x, y, j, s)
}

// Predict overwrites prob, one value per class, with the probabilities that the model gives,
// and returns the class with the largest score, the first if several are equal. A hinge loss
// has no probabilities: only the class has a meaning.
func (m *Model) Predict(theta, x []float32, prob []float64, s *workspace) (class int) {
	m.check(theta, x, 0)
	if len(prob) != m.Classes || m.Classes == 0 {
		panic(fmt.Sprintf("model: %s: %d probabilities of %d classes", m.Name, len(prob), m.Classes))
	}
	m.kind.forward(theta, x, s.logits, s)
	crossEntropy(s.logits, 0, prob)
	return argmax(s.logits)
}

func (m *Model) check(theta, x []float32, y float64) {
	if len(theta) != m.Params || len(x) != m.Inputs {
		panic(fmt.Sprintf("model: %s: %d parameters, %d features, want %d, %d",
			m.Name, len(theta), len(x), m.Params, m.Inputs))
	}
	if !m.takes(y) {
		panic(fmt.Sprintf("model: %s: class %v of %d", m.Name, y, m.Classes))
	}
}

// takes says whether y is a valid answer for this model. A linear model takes any number; all
// other models take the number of a class.
func (m *Model) takes(y float64) bool {
	return m.Loss.kind != "" || y >= 0 && y < float64(m.Classes) && y == math.Trunc(y)
}
