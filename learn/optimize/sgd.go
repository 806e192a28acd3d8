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
	theta    []float64
	velocity []float64
	average  []float64 // sum of the iterates from AverageFrom on

	next, nextVelocity []float64 // working memory, so that a refused step changes nothing
}

// NewCLDPSGD returns the optimiser at its start.
func NewCLDPSGD(c CLDPSGDConfig) (*Optimizer, error) {
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
	c.Start = clone(c.Start)
	return newOptimizer(phase{math.MaxInt64, func([]float64) (iteration, error) {
		o := &cldpsgd{
			config: c, theta: make([]float64, c.Dim), velocity: make([]float64, c.Dim), average: make([]float64, c.Dim),
			next: make([]float64, c.Dim), nextVelocity: make([]float64, c.Dim),
		}
		copy(o.theta, c.Start)
		project(o.theta, c.Radius)
		return o, nil
	}})
}

func (o *cldpsgd) point() []float64 { return o.theta }

func (o *cldpsgd) step(done int64, mean []float64) error {
	rate, beta := o.config.Schedule(done+1), o.config.Momentum
	for j, g := range mean {
		// Products are wrapped so that no CPU fuses them into the sum: the
		// same reports give the same model everywhere.
		o.nextVelocity[j] = float64(beta*o.velocity[j]) + g
		o.next[j] = o.theta[j] - float64(rate*o.nextVelocity[j])
		if v := o.next[j]; math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("optimize: step %d diverged: parameter %d would be %v at learning rate %v", done+1, j, v, rate)
		}
	}
	o.theta, o.next = o.next, o.theta
	o.velocity, o.nextVelocity = o.nextVelocity, o.velocity
	project(o.theta, o.config.Radius)
	if from := o.config.AverageFrom; from > 0 && done+1 >= from {
		for j, v := range o.theta {
			o.average[j] += v
		}
	}
	return nil
}

// model is the average of the iterates from AverageFrom on; before that step, or without
// averaging, the last iterate.
func (o *cldpsgd) model(done int64, dst []float64) {
	from := o.config.AverageFrom
	if from == 0 || done < from {
		copy(dst, o.theta)
		return
	}
	n := float64(done - from + 1)
	for j, v := range o.average {
		dst[j] = v / n
	}
}

func (o *cldpsgd) vectors() map[string][]float64 {
	return map[string][]float64{"theta": o.theta, "velocity": o.velocity, "average": o.average}
}

func (o *cldpsgd) restored(int64) {}

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
