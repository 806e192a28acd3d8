package model

import "math"

// Geometry bounds the loss of a convex model, without ridge and smoothing, on one example
// whose features have Euclidean norm at most norm. No gradient has a larger Euclidean norm than
// lipschitz, float32's rounding aside. Gradients are smoothness-Lipschitz; 0: the loss is not
// smooth.
func (m *Model) Geometry(norm float64) (lipschitz, smoothness float64) { return m.kind.geometry(norm) }

// rounded allows for features that float32 makes longer than they were meant to be.
const rounded = 1 + 1e-6

// geometry returns L = Loss.Lipschitz·‖a‖ for the row a, with the 1 of an
// intercept, and, for the logistic loss, whose second derivative is p(1 − p),
// β = ‖a‖²/4.
func (m *linear) geometry(norm float64) (lipschitz, smoothness float64) {
	size := norm * norm
	if !m.c.NoIntercept {
		size++
	}
	if m.c.Loss.kind == Logistic {
		smoothness = size / 4 * rounded * rounded
	}
	return m.c.Loss.Lipschitz * math.Sqrt(size), smoothness
}

// geometry returns L = √2·‖a‖ and β = ‖a‖²/2 for the row a, with the 1 of the intercept: the
// gradient is a ⊗ (p − e_y), and the second derivative by the scores, diag(p) − ppᵀ, has no
// eigenvalue above 1/2 (Böhning 1992), for by Gershgorin none is above p_i(1 − p_i) +
// p_i·Σ_{j≠i} p_j = 2p_i(1 − p_i).
func (m *softmax) geometry(norm float64) (lipschitz, smoothness float64) {
	size := norm*norm + 1
	return math.Sqrt2 * math.Sqrt(size), size / 2 * rounded * rounded
}
