// Package model holds models with exact per-client gradients.
//
// Parameters, features and gradients are float32, row-major and owned by the
// caller; probabilities and losses are computed in float64. Nothing is
// allocated per example: working memory is a Scratch, one per goroutine.
package model

import "github.com/riffle-dp/riffle/internal/safetensors"

// Parametric is a model as the server sees it: a flat parameter vector.
type Parametric interface {
	// Name returns the kind of model.
	Name() string
	// Params returns the length of theta and of a gradient.
	Params() int
	// Inputs returns the number of features of an example.
	Inputs() int
	// Init returns parameters to start from, a function of the seed alone.
	Init(seed uint64) []float32
	// Tensors names the parts of theta for a file; Theta is its inverse and
	// refuses missing or unexpected tensors, wrong shapes and values that are
	// not finite.
	Tensors(theta []float32) ([]safetensors.Tensor, error)
	Theta(tensors []safetensors.Tensor) ([]float32, error)
}

// Model is a differentiable classifier.
//
// A Model is immutable and safe for concurrent use. Its methods panic if a
// slice has the wrong length or a class is out of range: that is a bug of the
// caller, not bad data.
type Model interface {
	Parametric
	// Classes returns the number of classes, the length of logits.
	Classes() int
	// Forward overwrites logits with the scores of one example. They are
	// finite whenever theta and x are.
	Forward(theta, x []float32, logits []float32, s *Scratch)
	// Grad overwrites grad with the gradient of one client's loss at theta and
	// returns that loss in nats. Both are finite whenever theta and x are.
	Grad(theta, x []float32, y int, grad []float32, s *Scratch) (loss float64)
	// NewScratch returns working memory for this model.
	NewScratch() *Scratch
}

// CoordinateGradient is a Model that can compute one coordinate of a gradient for less than
// the whole gradient costs. A client whose report is about one random coordinate, clipped
// coordinate-wise, needs no more.
type CoordinateGradient interface {
	Model
	// GradCoord returns the j-th coordinate of Grad's gradient, up to the
	// rounding of a sum, and the loss. Both are finite.
	GradCoord(theta, x []float32, y, j int, s *Scratch) (g float32, loss float64)
}

// Scratch is a model's working memory; it belongs to one goroutine.
type Scratch struct {
	logits []float32
	prob   []float64

	hidden, dhidden []float32 // of an MLP
	cnn             *cnnScratch
}
