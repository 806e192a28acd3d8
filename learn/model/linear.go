package model

import (
	"fmt"
	"math"
)

// LinearConfig describes a linear model.
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

// linear is the model that NewLinear makes. Its gradients need no workspace.
type linear struct {
	c      LinearConfig
	binary bool // targets are signs
}

// NewLinear returns a linear model with one real score w·x + b and a convex loss:
// support vector machine, ridge-logistic, median and quantile regression.
//
// theta holds w, then b. A binary loss has the classes 0 and 1, for which its
// formula has the targets −1 and 1. Sums are float64, gradients are rounded to
// float32 at the end and cut off at ±MaxFloat32. A client's loss and gradient
// include the ridge, and are smoothed where Smoothing says so. Without ridge a
// gradient has Euclidean norm at most Loss.Lipschitz · √(‖x‖² + 1).
func NewLinear(c LinearConfig) (*Model, error) {
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
	l := layout{{name: "weight", shape: []int{c.Inputs}}}
	if !c.NoIntercept {
		l = append(l, part{name: "bias", shape: []int{1}})
	}
	classes := 0
	if c.Loss.Binary {
		classes = 2
	}
	m := newModel("linear-"+c.Loss.Name, c.Inputs, classes, l, &linear{c, c.Loss.Binary})
	m.Loss, m.Convex = c.Loss, true
	return m, nil
}

// Smoothed returns a linear model with another Smoothing; 0 is none. An optimiser
// that works in stages needs it. No envelope of other models' losses is known:
// without smoothing they are returned as they are.
func (m *Model) Smoothed(beta float64) (*Model, error) {
	if l, ok := m.kind.(*linear); ok {
		c := l.c
		c.Smoothing = beta
		return NewLinear(c)
	}
	if beta != 0 {
		return nil, fmt.Errorf("model: no envelope of the loss of model %s", m.Name)
	}
	return m, nil
}

func (m *linear) prepare(*workspace) {}

// score returns w·x + b.
func (m *linear) score(theta, x []float32) float64 {
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
func (m *linear) size(x []float32) float64 {
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
func (m *linear) output(theta, x []float32, y float64) (loss, slope float64) {
	if m.binary {
		y = side(y)
	}
	if m.c.Smoothing > 0 {
		loss, slope = smooth{m.c.Loss, m.c.Smoothing}.at(m.score(theta, x), m.size(x), y)
	} else {
		loss, slope = m.c.Loss.at(m.score(theta, x), y)
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

func (m *linear) grad(theta, x []float32, y float64, grad []float32, _ *workspace) (loss float64) {
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

func (m *linear) gradCoord(theta, x []float32, y float64, j int, _ *workspace) (g float32, loss float64) {
	loss, slope := m.output(theta, x, y)
	if j < m.c.Inputs {
		slope *= float64(x[j])
	}
	return round32(slope + m.c.Ridge*float64(theta[j])), loss
}

func round32(v float64) float32 {
	return float32(max(-math.MaxFloat32, min(math.MaxFloat32, v)))
}

// forward overwrites logits with 0 and the score. For the logistic loss these are log-odds.
// For the hinge loss only their order has a meaning.
func (m *linear) forward(theta, x, logits []float32, _ *workspace) {
	logits[0], logits[1] = 0, round32(m.score(theta, x))
}
