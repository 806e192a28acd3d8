package model

import (
	"fmt"
	"math"
)

// OptimumConfig describes what Model.Optimum looks for.
type OptimumConfig struct {
	// Radius of the ℓ2 ball about 0 that theta must lie in, intercept included.
	// Required, above 0 and finite.
	Radius float64
	// Gap is the wanted difference between Loss and Lower. Default 1e-6.
	Gap float64
}

// Optimum is the best theta of a ball, with a certificate.
type Optimum struct {
	Theta []float64
	// Loss is the mean loss at Theta, ridge included.
	Loss float64
	// Lower is a proved lower bound on the mean loss everywhere in the ball, up
	// to the rounding of float64 sums.
	Lower float64
	// Steps is the number of Newton steps taken.
	Steps int
}

// Optimum returns the minimum over a ball of a linear model's mean loss, ridge included, over rows of x
// with the given targets: the best that an optimiser without privacy can reach. It is
// deterministic and ignores Smoothing.
//
// Method: Newton's method on the losses' envelopes with β growing until the gap closes. Each
// step goes to the exact minimum of its quadratic over the ball, with a line search. Lower is
// the Fenchel dual at the slopes found (optimum.md), so it is valid whether or not the method
// converged. If the gap cannot be closed, Optimum returns an error with the best point found.
// Time O(rows·d²) per step, memory O(rows + d²).
func (m *Model) Optimum(x []float32, targets func(row int) float64, c OptimumConfig) (*Optimum, error) {
	l, ok := m.kind.(*linear)
	if !ok {
		return nil, fmt.Errorf("model: no optimum of model %s can be proved", m.Name)
	}
	d := m.Inputs
	if len(x) == 0 || len(x)%d != 0 {
		return nil, fmt.Errorf("model: %d features, want rows of %d", len(x), d)
	}
	if !(c.Radius > 0) || math.IsInf(c.Radius, 1) {
		return nil, fmt.Errorf("model: radius = %v must be above 0 and finite", c.Radius)
	}
	if c.Gap == 0 {
		c.Gap = 1e-6
	}
	if !(c.Gap > 0) {
		return nil, fmt.Errorf("model: gap = %v must be above 0", c.Gap)
	}
	s := newOptimum(l, m.Params, x, targets, c.Radius)
	best := &Optimum{Theta: make([]float64, m.Params), Loss: math.Inf(1), Lower: math.Inf(-1)}
	for i := range s.y {
		if err := m.Loss.checkTarget(s.y[i]); err != nil {
			return nil, fmt.Errorf("row %d: %w", i, err)
		}
	}
	for beta := 1.0; beta <= 1e12; beta *= 5 {
		if m.Loss.kind == Logistic {
			beta = math.Inf(1) // β = ∞: the loss is smooth already
		}
		s.beta = beta
		best.Steps += s.minimise(c.Gap / 8)
		if loss := s.loss(); loss < best.Loss {
			best.Loss = loss
			copy(best.Theta, s.theta)
		}
		best.Lower = max(best.Lower, s.lower())
		if best.Loss-best.Lower <= c.Gap {
			return best, nil
		}
	}
	return best, fmt.Errorf("model: optimum of %s known to %.3g only, wanted %v", m.Name, best.Loss-best.Lower, c.Gap)
}

// optimum is the state of the search.
type optimum struct {
	m      *linear
	x      []float32
	y      []float64
	size   []float64 // ‖a‖²
	radius float64
	beta   float64

	theta, grad, step []float64
	score, along      []float64 // ⟨a, θ⟩ and ⟨a, step⟩
	hess, factor      []float64 // d × d, lower triangles
	work              []float64
}

func newOptimum(m *linear, d int, x []float32, targets func(int) float64, radius float64) *optimum {
	n := len(x) / m.c.Inputs
	s := &optimum{
		m: m, x: x, radius: radius, y: make([]float64, n), size: make([]float64, n),
		theta: make([]float64, d), grad: make([]float64, d), step: make([]float64, d),
		score: make([]float64, n), along: make([]float64, n),
		hess: make([]float64, d*d), factor: make([]float64, d*d), work: make([]float64, d),
	}
	for i := range n {
		s.y[i], s.size[i] = targets(i), m.size(s.row(i))
	}
	return s
}

func (s *optimum) row(i int) []float32 {
	d := s.m.c.Inputs
	return s.x[i*d : (i+1)*d]
}

// scores writes ⟨a_i, theta⟩ for every row.
func (s *optimum) scores(theta, dst []float64) {
	for i := range dst {
		sum := 0.0
		for j, v := range s.row(i) {
			sum += theta[j] * float64(v)
		}
		if !s.m.c.NoIntercept {
			sum += theta[len(theta)-1]
		}
		dst[i] = sum
	}
}

// add adds w·a_i to dst.
func (s *optimum) add(dst []float64, w float64, i int) {
	for j, v := range s.row(i) {
		dst[j] += w * float64(v)
	}
	if !s.m.c.NoIntercept {
		dst[len(dst)-1] += w
	}
}

// minimise takes Newton steps until the smoothed objective is within accuracy of its minimum
// over the ball, or until no step makes it smaller. It returns the number of steps.
func (s *optimum) minimise(accuracy float64) int {
	for steps := range 200 {
		s.scores(s.theta, s.score)
		value := s.derivatives()
		// By convexity, min over the ball ≥ value + min ⟨∇, u − θ⟩.
		if dot(s.grad, s.theta)+s.radius*norm(s.grad) <= accuracy {
			return steps
		}
		s.newton()
		for j := range s.step {
			s.step[j] -= s.theta[j]
		}
		slope := dot(s.grad, s.step)
		if !(slope < 0) {
			return steps
		}
		s.scores(s.step, s.along)
		alpha := 1.0
		for !(s.smoothed(alpha) <= value+1e-4*alpha*slope) {
			if alpha /= 2; alpha < 1e-9 {
				return steps
			}
		}
		for j, v := range s.step {
			s.theta[j] += alpha * v
		}
	}
	return 200
}

// derivatives fills grad and hess with those of the smoothed objective at
// theta, and returns its value.
func (s *optimum) derivatives() float64 {
	clear(s.grad)
	clear(s.hess)
	n, d := float64(len(s.y)), len(s.theta)
	row := make([]float64, d)
	value := 0.0
	for i, y := range s.y {
		e, slope, bend := s.m.c.Loss.envelope(s.score[i], s.size[i]/s.beta, y)
		value += e
		s.add(s.grad, slope/n, i)
		if bend == 0 {
			continue
		}
		clear(row)
		s.add(row, 1, i)
		for j, v := range row {
			w := bend / n * v
			h := s.hess[j*d : j*d+j+1]
			for k := range h {
				h[k] += w * row[k]
			}
		}
	}
	for j, v := range s.theta {
		s.grad[j] += s.m.c.Ridge * v
		s.hess[j*d+j] += s.m.c.Ridge
	}
	return value/n + s.m.c.Ridge/2*dot(s.theta, s.theta)
}

// smoothed is the smoothed objective at theta + alpha·step.
func (s *optimum) smoothed(alpha float64) float64 {
	value := 0.0
	for i, y := range s.y {
		e, _, _ := s.m.c.Loss.envelope(s.score[i]+alpha*s.along[i], s.size[i]/s.beta, y)
		value += e
	}
	square := 0.0
	for j, v := range s.theta {
		u := v + alpha*s.step[j]
		square += u * u
	}
	return value/float64(len(s.y)) + s.m.c.Ridge/2*square
}

// loss is the objective itself at theta.
func (s *optimum) loss() float64 {
	s.scores(s.theta, s.score)
	sum := 0.0
	for i, y := range s.y {
		loss, _ := s.m.c.Loss.at(s.score[i], y)
		sum += loss
	}
	return sum/float64(len(s.y)) + s.m.c.Ridge/2*dot(s.theta, s.theta)
}

// lower is the dual bound at the envelopes' slopes; see optimum.md. score must
// be that of theta.
func (s *optimum) lower() float64 {
	clear(s.grad)
	n, sum := float64(len(s.y)), 0.0
	for i, y := range s.y {
		c := s.size[i] / s.beta
		_, slope, _ := s.m.c.Loss.envelope(s.score[i], c, y)
		t := s.score[i] - c*slope
		loss, _ := s.m.c.Loss.at(t, y)
		sum += loss - slope*t
		s.add(s.grad, slope/n, i)
	}
	g, ridge := norm(s.grad), s.m.c.Ridge
	if g <= ridge*s.radius && ridge > 0 {
		return sum/n - g*g/(2*ridge)
	}
	return sum/n - g*s.radius + ridge/2*s.radius*s.radius
}

// newton writes into step the minimum over the ball of the quadratic with the
// derivatives at theta: (H + νI)u = Hθ − ∇ with the least ν ≥ 0 for which
// ‖u‖ ≤ radius. 1/‖u‖ is close to linear in ν, which Newton's method uses
// (Moré and Sorensen, "Computing a trust region step", 1983). ν starts slightly
// above 0, so that a singular H can be factored.
func (s *optimum) newton() {
	d := len(s.theta)
	trace := 0.0
	for j := range d {
		trace += s.hess[j*d+j]
	}
	nu := max(1e-12*trace/float64(d), 1e-14*norm(s.grad)/s.radius)
	// The right-hand side is (H + νI)θ − ∇ with the starting ν of the left-hand side, so that
	// damping shortens steps and does not pull θ towards 0.
	right := make([]float64, d)
	for j := range d {
		right[j] = nu*s.theta[j] - s.grad[j]
		for k := range d {
			right[j] += s.hess[max(j, k)*d+min(j, k)] * s.theta[k]
		}
	}
	for range 60 {
		for !factorise(s.hess, nu, s.factor, d) {
			nu *= 10
		}
		copy(s.step, right)
		lowerSolve(s.factor, s.step, d)
		upperSolve(s.factor, s.step, d)
		size := norm(s.step)
		if size <= s.radius*(1+1e-12) {
			break
		}
		copy(s.work, s.step)
		lowerSolve(s.factor, s.work, d)
		q := norm(s.work)
		nu += (size * size) / (q * q) * (size - s.radius) / s.radius
	}
	if size := norm(s.step); size > s.radius {
		for j := range s.step {
			s.step[j] *= s.radius / size
		}
	}
}

// factorise writes the Cholesky factor of a + nu·I, lower triangles; it returns false if a +
// nu·I is not positive definite.
func factorise(a []float64, nu float64, l []float64, d int) bool {
	for i := range d {
		for j := range i + 1 {
			sum := a[i*d+j]
			if i == j {
				sum += nu
			}
			for k := range j {
				sum -= l[i*d+k] * l[j*d+k]
			}
			if i == j {
				if !(sum > 0) {
					return false
				}
				l[i*d+i] = math.Sqrt(sum)
			} else {
				l[i*d+j] = sum / l[j*d+j]
			}
		}
	}
	return true
}

// lowerSolve solves L·x = b in place; upperSolve its transpose.
func lowerSolve(l, b []float64, d int) {
	for i := range d {
		for k := range i {
			b[i] -= l[i*d+k] * b[k]
		}
		b[i] /= l[i*d+i]
	}
}

func upperSolve(l, b []float64, d int) {
	for i := d - 1; i >= 0; i-- {
		for k := i + 1; k < d; k++ {
			b[i] -= l[k*d+i] * b[k]
		}
		b[i] /= l[i*d+i]
	}
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}

func norm(a []float64) float64 { return math.Sqrt(dot(a, a)) }
