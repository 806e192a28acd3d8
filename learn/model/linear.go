package model

import (
	"fmt"
	"math"
)

// LinearConfig describes a Linear.
type LinearConfig struct {
	// Inputs is the number of features. Required, at least 1.
	Inputs int
	// Loss of a score and a target. Required.
	Loss Loss
	// Ridge is λ of the term λ/2·‖theta‖² in each client's loss, intercept
	// included: the loss is then λ-strongly convex. Default 0.
	Ridge float64
	// Smoothing is β of the Moreau envelope that takes the loss's place in Grad
	// and GradCoord; the ridge is added unsmoothed. 0, the default, is none.
	Smoothing float64
	// NoIntercept leaves the intercept out. Default false.
	NoIntercept bool
}

// Linear is a linear model with one real score w·x + b and a convex loss:
// support vector machine, ridge-logistic, median and quantile regression.
//
// theta holds w, then b. Targets are real numbers, ±1 for a binary loss;
// Classifier gives the view of a binary one as a Model with classes 0 and 1.
// Sums are float64, gradients are rounded to float32 at the end and cut off at
// ±MaxFloat32. A client's gradient without ridge has Euclidean norm at most
// Loss.Lipschitz() · √(‖x‖² + 1).
//
// A Linear is immutable and safe for concurrent use; it needs no Scratch. Its
// methods panic if a slice has the wrong length.
type Linear struct {
	layout
	c LinearConfig
}

// NewLinear returns the model that c describes.
func NewLinear(c LinearConfig) (*Linear, error) {
	if c.Inputs < 1 || c.Inputs >= maxParams {
		return nil, fmt.Errorf("model: inputs = %d must be at least 1 and below %d", c.Inputs, maxParams)
	}
	if c.Loss == (Loss{}) {
		return nil, fmt.Errorf("model: linear: no loss")
	}
	if !(c.Ridge >= 0 && c.Ridge <= math.MaxFloat32) {
		return nil, fmt.Errorf("model: ridge = %v must be at least 0 and at most %v", c.Ridge, math.MaxFloat32)
	}
	if !(c.Smoothing >= 0) || math.IsInf(c.Smoothing, 1) {
		return nil, fmt.Errorf("model: smoothing = %v must be above 0 and finite, or 0 for none", c.Smoothing)
	}
	parts := []part{{name: "weight", shape: []int{c.Inputs}}}
	if !c.NoIntercept {
		parts = append(parts, part{name: "bias", shape: []int{1}})
	}
	return &Linear{newLayout("linear-"+c.Loss.String(), c.Inputs, parts...), c}, nil
}

// Smoothed returns the same model with another Smoothing; 0 is none. An optimiser that works
// in stages needs it.
func (m *Linear) Smoothed(beta float64) (*Linear, error) {
	c := m.c
	c.Smoothing = beta
	return NewLinear(c)
}

// Loss returns the loss.
func (m *Linear) Loss() Loss { return m.c.Loss }

// score returns w·x + b.
func (m *Linear) score(theta, x []float32) float64 {
	if len(theta) != m.Params() || len(x) != m.c.Inputs {
		panic(fmt.Sprintf("model: %s: %d parameters, %d features, want %d, %d",
			m.Name(), len(theta), len(x), m.Params(), m.c.Inputs))
	}
	// Four sums hide the latency of an addition.
	var a, b, c, d float64
	w, v := theta[:len(x)], x
	for len(v) >= 4 && len(w) >= 4 {
		a += float64(w[0]) * float64(v[0])
		b += float64(w[1]) * float64(v[1])
		c += float64(w[2]) * float64(v[2])
		d += float64(w[3]) * float64(v[3])
		w, v = w[4:], v[4:]
	}
	for i, f := range v {
		a += float64(w[i]) * float64(f)
	}
	if !m.c.NoIntercept {
		d += float64(theta[len(x)])
	}
	return (a + b) + (c + d)
}

// size returns ‖x‖², plus 1 for an intercept.
func (m *Linear) size(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	if !m.c.NoIntercept {
		sum++
	}
	return sum
}

// output returns the loss, ridge included, and the slope by the score.
func (m *Linear) output(theta, x []float32, y float64) (loss, slope float64) {
	if m.c.Smoothing > 0 {
		loss, slope = smooth{m.c.Loss, m.c.Smoothing}.at(m.score(theta, x), m.size(x), y)
	} else {
		loss, slope = m.c.Loss.At(m.score(theta, x), y)
	}
	if m.c.Ridge > 0 {
		sum := 0.0
		for _, v := range theta {
			sum += float64(v) * float64(v)
		}
		loss += m.c.Ridge / 2 * sum
	}
	return loss, slope
}

// Grad overwrites grad with the gradient of one client's loss, ridge included,
// and returns that loss, smoothed where Smoothing says so. y must pass
// Loss.CheckTarget.
func (m *Linear) Grad(theta, x []float32, y float64, grad []float32) (loss float64) {
	if len(grad) != m.Params() {
		panic(fmt.Sprintf("model: %s: gradient of %d values, want %d", m.Name(), len(grad), m.Params()))
	}
	loss, slope := m.output(theta, x, y)
	theta = theta[:len(grad)]
	for i, v := range x {
		grad[i] = round32(slope*float64(v) + m.c.Ridge*float64(theta[i]))
	}
	if !m.c.NoIntercept {
		i := m.c.Inputs
		grad[i] = round32(slope + m.c.Ridge*float64(theta[i]))
	}
	return loss
}

// GradCoord returns the j-th coordinate of Grad's gradient, and the loss.
func (m *Linear) GradCoord(theta, x []float32, y float64, j int) (g float32, loss float64) {
	if j < 0 || j >= m.Params() {
		panic(fmt.Sprintf("model: %s: coordinate %d of %d", m.Name(), j, m.Params()))
	}
	loss, slope := m.output(theta, x, y)
	if j < m.c.Inputs {
		slope *= float64(x[j])
	}
	return round32(slope + m.c.Ridge*float64(theta[j])), loss
}

func round32(v float64) float32 {
	return float32(max(-math.MaxFloat32, min(math.MaxFloat32, v)))
}

// Classifier returns m as a Model of two classes; the loss must be binary.
func (m *Linear) Classifier() (*Classifier, error) {
	if !m.c.Loss.Binary() {
		return nil, fmt.Errorf("model: %s loss has no classes, want hinge or logistic", m.c.Loss)
	}
	return &Classifier{m}, nil
}

// Classifier is a Linear with a binary loss whose targets −1 and 1 are the
// classes 0 and 1.
type Classifier struct{ *Linear }

// Classes returns 2.
func (m *Classifier) Classes() int { return 2 }

// NewScratch returns a Scratch without content: none is needed.
func (m *Classifier) NewScratch() *Scratch { return &Scratch{} }

// Forward overwrites logits with 0 and the score. For the logistic loss these are log-odds.
// For the hinge loss only their order has a meaning: Evaluate's accuracy holds for both
// losses, its loss for logistic alone.
func (m *Classifier) Forward(theta, x []float32, logits []float32, _ *Scratch) {
	if len(logits) != 2 {
		panic(fmt.Sprintf("model: %s: %d logits, want 2", m.Name(), len(logits)))
	}
	logits[0], logits[1] = 0, round32(m.score(theta, x))
}

// target maps a class to ±1.
func (m *Classifier) target(y int) float64 {
	if y != 0 && y != 1 {
		panic(fmt.Sprintf("model: %s: class %d of 2", m.Name(), y))
	}
	return float64(2*y - 1)
}

// Grad is Linear.Grad for the class's target.
func (m *Classifier) Grad(theta, x []float32, y int, grad []float32, _ *Scratch) (loss float64) {
	return m.Linear.Grad(theta, x, m.target(y), grad)
}

// GradCoord is Linear.GradCoord for the class's target.
func (m *Classifier) GradCoord(theta, x []float32, y, j int, _ *Scratch) (g float32, loss float64) {
	return m.Linear.GradCoord(theta, x, m.target(y), j)
}
