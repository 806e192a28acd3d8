package optimize

import (
	"errors"
	"fmt"
	"math"
)

// CLDPSGDConfig configures NewCLDPSGD.
type CLDPSGDConfig struct {
	Dim      int      // Required.
	Schedule Schedule // Required. η_t.
	// Momentum β in [0, 1): v ← βv + g, θ ← θ − ηv. Zero is plain SGD.
	Momentum float64
	// Radius of the ℓ2 ball around 0 that iterates are projected on; 0 means
	// unconstrained.
	Radius float64
	// AverageFrom is the first step whose iterate enters the average that
	// Model releases; 0 releases the last iterate.
	AverageFrom int64
	// Start is θ_0; nil means 0.
	Start []float64
}

// cldpsgd is the server's side of CLDP-SGD, Girgis et al. 2021 (NeurIPS),
// Algorithm 1, lines 10 and 11: average, descend, project. Momentum and the
// average over iterates are options beyond the paper.
type cldpsgd struct {
	config   CLDPSGDConfig
	steps    int64
	theta    []float64
	velocity []float64
	average  []float64 // sum of the iterates from AverageFrom on

	next, nextVelocity []float64 // working memory, so that a refused step changes nothing
}

var _ Optimizer = (*cldpsgd)(nil)

// NewCLDPSGD returns the optimiser at its start.
func NewCLDPSGD(c CLDPSGDConfig) (Optimizer, error) {
	if c.Dim < 1 {
		return nil, fmt.Errorf("optimize: dimension %d must be at least 1", c.Dim)
	}
	if c.Schedule == nil {
		return nil, errors.New("optimize: a learning-rate schedule is required")
	}
	if !(c.Momentum >= 0 && c.Momentum < 1) {
		return nil, fmt.Errorf("optimize: momentum = %v must lie in [0, 1)", c.Momentum)
	}
	if !(c.Radius >= 0) || math.IsInf(c.Radius, 1) {
		return nil, fmt.Errorf("optimize: radius = %v must be above 0, or 0 for none", c.Radius)
	}
	if c.AverageFrom < 0 {
		return nil, fmt.Errorf("optimize: averaging from step %d must not be negative", c.AverageFrom)
	}
	if c.Start != nil && len(c.Start) != c.Dim {
		return nil, fmt.Errorf("optimize: start has %d values, the model %d", len(c.Start), c.Dim)
	}
	o := &cldpsgd{
		config: c, theta: make([]float64, c.Dim), velocity: make([]float64, c.Dim), average: make([]float64, c.Dim),
		next: make([]float64, c.Dim), nextVelocity: make([]float64, c.Dim),
	}
	copy(o.theta, c.Start)
	project(o.theta, c.Radius)
	return o, nil
}

// Point returns θ_t.
func (o *cldpsgd) Point() []float64 { return o.theta }

// Step takes one step. A gradient of the wrong length or with a value that is
// not finite is refused and changes nothing.
func (o *cldpsgd) Step(mean []float64) error {
	if len(mean) != len(o.theta) {
		return fmt.Errorf("optimize: gradient has %d values, the model %d", len(mean), len(o.theta))
	}
	for j, g := range mean {
		if math.IsNaN(g) || math.IsInf(g, 0) {
			return fmt.Errorf("optimize: gradient value %d is %v", j, g)
		}
	}
	rate, beta := o.config.Schedule.rate(o.steps+1), o.config.Momentum
	for j, g := range mean {
		// Products are wrapped so that no CPU fuses them into the sum: the
		// same reports give the same model everywhere.
		o.nextVelocity[j] = float64(beta*o.velocity[j]) + g
		o.next[j] = o.theta[j] - float64(rate*o.nextVelocity[j])
		if v := o.next[j]; math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("optimize: step %d diverged: parameter %d would be %v at learning rate %v", o.steps+1, j, v, rate)
		}
	}
	o.steps++
	o.theta, o.next = o.next, o.theta
	o.velocity, o.nextVelocity = o.nextVelocity, o.velocity
	project(o.theta, o.config.Radius)
	if from := o.config.AverageFrom; from > 0 && o.steps >= from {
		for j, v := range o.theta {
			o.average[j] += v
		}
	}
	return nil
}

// Model writes the average of the iterates from AverageFrom on; before that
// step, or without averaging, the last iterate.
func (o *cldpsgd) Model(dst []float64) {
	from := o.config.AverageFrom
	if from == 0 || o.steps < from {
		copy(dst, o.theta)
		return
	}
	n := float64(o.steps - from + 1)
	for j, v := range o.average {
		dst[j] = v / n
	}
}

// State returns copies of the iterate, the velocity and the running sum.
func (o *cldpsgd) State() State {
	return State{Steps: o.steps, Vectors: map[string][]float64{
		"theta": clone(o.theta), "velocity": clone(o.velocity), "average": clone(o.average),
	}}
}

// Restore takes back a State of an optimiser with the same configuration.
func (o *cldpsgd) Restore(s State) error {
	if s.Steps < 0 {
		return fmt.Errorf("optimize: state has %d steps", s.Steps)
	}
	into := map[string][]float64{"theta": o.theta, "velocity": o.velocity, "average": o.average}
	for name := range into {
		if len(s.Vectors[name]) != o.config.Dim {
			return fmt.Errorf("optimize: state vector %q has %d values, the model %d", name, len(s.Vectors[name]), o.config.Dim)
		}
	}
	for name, dst := range into {
		copy(dst, s.Vectors[name])
	}
	o.steps = s.Steps
	return nil
}

// project maps x to the nearest point of the ℓ2 ball; radius 0 means no ball.
func project(x []float64, radius float64) {
	if radius == 0 {
		return
	}
	// x is divided by its largest entry first, so that squares cannot overflow.
	var top float64
	for _, v := range x {
		top = math.Max(top, math.Abs(v))
	}
	if top == 0 {
		return
	}
	var sum float64
	for _, v := range x {
		r := v / top
		sum += float64(r * r)
	}
	norm := top * math.Sqrt(sum)
	if norm <= radius {
		return
	}
	scale := radius / norm
	for j := range x {
		x[j] *= scale
	}
}

func clone(x []float64) []float64 { return append([]float64(nil), x...) }
