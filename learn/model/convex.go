package model

import "math"

// Geometry are bounds on one client's loss, without ridge and smoothing.
type Geometry struct {
	// Lipschitz is L: no gradient has a larger Euclidean norm, float32's rounding
	// aside.
	Lipschitz float64
	// Smoothness is β: gradients are β-Lipschitz. 0: the loss is not smooth.
	Smoothness float64
}

// Geometry bounds the loss of a convex model on one example whose features have
// Euclidean norm at most norm.
func (m *Model) Geometry(norm float64) Geometry { return m.kind.geometry(norm) }

// rounded allows for features that float32 makes longer than they were meant to be.
const rounded = 1 + 1e-6

// geometry returns L = Loss.Lipschitz()·‖a‖ for the row a, with the 1 of an
// intercept, and, for the logistic loss, whose second derivative is p(1 − p),
// β = ‖a‖²/4.
func (m *linear) geometry(norm float64) Geometry {
	size := norm * norm
	if !m.c.NoIntercept {
		size++
	}
	g := Geometry{Lipschitz: m.c.Loss.Lipschitz() * math.Sqrt(size)}
	if m.c.Loss.kind == Logistic {
		g.Smoothness = size / 4 * rounded * rounded
	}
	return g
}

// geometry returns L = √2·‖a‖ and β = ‖a‖²/2 for the row a, with the 1 of the intercept: the
// gradient is a ⊗ (p − e_y), and the second derivative by the scores, diag(p) − ppᵀ, has no
// eigenvalue above 1/2 (Böhning 1992), for by Gershgorin none is above p_i(1 − p_i) +
// p_i·Σ_{j≠i} p_j = 2p_i(1 − p_i).
func (m *softmax) geometry(norm float64) Geometry {
	size := norm*norm + 1
	return Geometry{Lipschitz: math.Sqrt2 * math.Sqrt(size), Smoothness: size / 2 * rounded * rounded}
}
