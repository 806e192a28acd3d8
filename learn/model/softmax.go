package model

import (
	"fmt"
	"math"
)

// maxParams bounds a model at 2³⁰ parameters (4 GiB).
const maxParams = 1 << 30

// softmax is the model that NewSoftmax makes.
type softmax struct{ inputs, classes int }

// NewSoftmax returns multinomial logistic regression of at least 1 input and 2 classes: scores
// Wᵀx + b, cross-entropy loss. It is convex in its parameters.
//
// theta holds W, row-major with one row for each input and one column for each class, then b, one
// entry per class. A client's gradient is the outer product of (x, 1) with
// p − e_y, so its Euclidean norm is √(‖x‖² + 1) · ‖p − e_y‖ ≤ √2 · √(‖x‖² + 1).
func NewSoftmax(inputs, classes int) (*Model, error) {
	if inputs < 1 {
		return nil, fmt.Errorf("model: inputs = %d must be at least 1", inputs)
	}
	if classes < 2 {
		return nil, fmt.Errorf("model: classes = %d must be at least 2", classes)
	}
	if inputs > maxParams || classes > maxParams/(inputs+1) {
		return nil, fmt.Errorf("model: %d inputs × %d classes exceed %d parameters", inputs, classes, maxParams)
	}
	m := newModel("softmax", inputs, classes, layout{
		{name: "weight", shape: []int{inputs, classes}},
		{name: "bias", shape: []int{classes}},
	}, &softmax{inputs, classes})
	m.Convex = true
	return m, nil
}

func (m *softmax) prepare(*workspace) {}

// forward overwrites logits with Wᵀx + b, summed in float32. If that overflows, they are
// summed in float64 and cut off at ±MaxFloat32.
func (m *softmax) forward(theta, x, logits []float32, _ *workspace) {
	if m.classes == 10 {
		scores10(theta, x, (*[10]float32)(logits))
	} else {
		scores(theta, x, logits)
	}
	for _, v := range logits {
		// v − v is 0 for a finite value and NaN otherwise.
		if v-v != 0 {
			m.wideForward(theta, x, logits)
			return
		}
	}
}

// scores computes Wᵀx + b for any number of classes. It skips features that are 0: most
// features of an image are.
func scores(theta, x, logits []float32) {
	k := len(logits)
	copy(logits, theta[len(x)*k:])
	for i, v := range x {
		if v == 0 {
			continue
		}
		w := theta[i*k : i*k+k]
		for j, u := range w {
			logits[j] += v * u
		}
	}
}

// scores10 is scores for ten classes, with the sums in registers.
func scores10(theta, x []float32, logits *[10]float32) {
	b := (*[10]float32)(theta[len(x)*10:])
	a0, a1, a2, a3, a4 := b[0], b[1], b[2], b[3], b[4]
	a5, a6, a7, a8, a9 := b[5], b[6], b[7], b[8], b[9]
	for i, v := range x {
		if v == 0 {
			continue
		}
		w := (*[10]float32)(theta[i*10:])
		a0 += v * w[0]
		a1 += v * w[1]
		a2 += v * w[2]
		a3 += v * w[3]
		a4 += v * w[4]
		a5 += v * w[5]
		a6 += v * w[6]
		a7 += v * w[7]
		a8 += v * w[8]
		a9 += v * w[9]
	}
	*logits = [10]float32{a0, a1, a2, a3, a4, a5, a6, a7, a8, a9}
}

// wideForward is forward in float64, where Inputs products of two float32
// cannot overflow: 2³⁰ · 2¹²⁸ · 2¹²⁸ < 2¹⁰²³.
func (m *softmax) wideForward(theta, x, logits []float32) {
	k := m.classes
	for j := range logits {
		sum := float64(theta[m.inputs*k+j])
		for i, v := range x {
			sum += float64(v) * float64(theta[i*k+j])
		}
		logits[j] = float32(max(-math.MaxFloat32, min(math.MaxFloat32, sum)))
	}
}

// grad is (x, 1) ⊗ (p − e_y), p the softmax of the scores, and the loss −log p_y ≥ 0.
func (m *softmax) grad(theta, x []float32, y float64, grad []float32, s *workspace) (loss float64) {
	m.forward(theta, x, s.logits, s)
	e := s.logits
	loss = residual(e, int(y), s.prob)
	if m.classes == 10 {
		outer10(x, (*[10]float32)(e), grad)
	} else {
		outer(x, e, grad)
	}
	return loss
}

func (m *softmax) gradCoord(theta, x []float32, y float64, j int, s *workspace) (g float32, loss float64) {
	m.forward(theta, x, s.logits, s)
	loss = residual(s.logits, int(y), s.prob)
	g = s.logits[j%m.classes]
	if i := j / m.classes; i < m.inputs {
		g *= x[i]
	}
	return g, loss
}

func outer(x, e, grad []float32) {
	k := len(e)
	for i, v := range x {
		g := grad[i*k : i*k+k]
		if v == 0 {
			clear(g)
			continue
		}
		for j, u := range e {
			g[j] = v * u
		}
	}
	copy(grad[len(x)*k:], e)
}

func outer10(x []float32, e *[10]float32, grad []float32) {
	e0, e1, e2, e3, e4 := e[0], e[1], e[2], e[3], e[4]
	e5, e6, e7, e8, e9 := e[5], e[6], e[7], e[8], e[9]
	for i, v := range x {
		g := (*[10]float32)(grad[i*10:])
		if v == 0 {
			*g = [10]float32{}
			continue
		}
		g[0] = v * e0
		g[1] = v * e1
		g[2] = v * e2
		g[3] = v * e3
		g[4] = v * e4
		g[5] = v * e5
		g[6] = v * e6
		g[7] = v * e7
		g[8] = v * e8
		g[9] = v * e9
	}
	copy(grad[len(x)*10:], e[:])
}

// residual overwrites finite logits with p − e_y, the gradient of −log p_y by
// them, and returns that loss.
func residual(logits []float32, y int, prob []float64) (loss float64) {
	loss = crossEntropy(logits, y, prob)
	// p_y − 1 is computed as minus the sum of the others, which avoids cancellation when p_y
	// ≈ 1.
	rest := 0.0
	for j, p := range prob {
		logits[j] = float32(p)
		if j != y {
			rest += p
		}
	}
	logits[y] = float32(-rest)
	return loss
}

// crossEntropy overwrites prob with the softmax of finite logits and returns
// log Σ exp(z_j) − z_y, with the largest logit taken out first.
func crossEntropy(logits []float32, y int, prob []float64) float64 {
	top := logits[0]
	for _, v := range logits[1:] {
		top = max(top, v)
	}
	sum := 0.0
	for j, v := range logits {
		p := math.Exp(float64(v) - float64(top))
		prob[j] = p
		sum += p
	}
	for j := range prob {
		prob[j] /= sum
	}
	return math.Log(sum) + (float64(top) - float64(logits[y]))
}
