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
	// Second is β₂ of Adam in (0, 1), with Momentum for its β₁; 0 is SGD.
	Second float64
	// Radius of the ℓ2 ball around 0 that iterates are projected on; 0 means
	// unconstrained.
	Radius float64
	// AverageFrom is the first step whose iterate enters the average that
	// Model releases; 0 releases the last iterate.
	AverageFrom int64
	// Start is θ_0; nil means 0.
	Start []float64
}

// adamFloor is Adam's ε, which keeps a coordinate that never moved from dividing by 0.
const adamFloor = 1e-8

// cldpsgd is the server's side of CLDP-SGD, Girgis et al. 2021 (NeurIPS),
// Algorithm 1, lines 10 and 11: average, descend, project. Momentum, the
// average over iterates and Adam (Kingma and Ba, ICLR 2015, Algorithm 1) are options beyond the
// paper.
type cldpsgd struct {
	config   CLDPSGDConfig
	theta    []float64
	velocity []float64 // Adam's first moment
	square   []float64 // Adam's second moment; nil: SGD
	average  []float64 // sum of the iterates from AverageFrom on

	next, nextVelocity, nextSquare []float64 // working memory of a step, so that a refused one changes nothing; nil before the first
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
	if c.Second != 0 && !(c.Second > 0 && c.Second < 1) {
		return nil, fmt.Errorf("optimize: second = %v must lie in (0, 1), or 0 for none", c.Second)
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
		}
		if c.Second != 0 {
			o.square = make([]float64, c.Dim)
		}
		copy(o.theta, c.Start)
		project(o.theta, c.Radius)
		return o, nil
	}})
}

func (o *cldpsgd) point() []float64 { return o.theta }

func (o *cldpsgd) step(done int64, mean []float64) error {
	if o.next == nil { // many optimisers never take a step
		o.next, o.nextVelocity = make([]float64, o.config.Dim), make([]float64, o.config.Dim)
		if o.square != nil {
			o.nextSquare = make([]float64, o.config.Dim)
		}
	}
	rate, beta := o.config.Schedule(done+1), o.config.Momentum
	next := o.descend
	if o.square != nil {
		next = o.adam
	}
	if err := next(done+1, rate, beta, mean); err != nil {
		return err
	}
	o.square, o.nextSquare = o.nextSquare, o.square
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

// descend computes step t of SGD into next. Products are wrapped so that no CPU fuses them into
// the sum: the same reports give the same model everywhere.
func (o *cldpsgd) descend(t int64, rate, beta float64, mean []float64) error {
	for j, g := range mean {
		o.nextVelocity[j] = float64(beta*o.velocity[j]) + g
		o.next[j] = o.theta[j] - float64(rate*o.nextVelocity[j])
		if v := o.next[j]; math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("optimize: step %d diverged: parameter %d would be %v at learning rate %v", t, j, v, rate)
		}
	}
	return nil
}

// adam computes step t of Adam into next.
func (o *cldpsgd) adam(t int64, rate, beta float64, mean []float64) error {
	beta2 := o.config.Second
	first, second := 1-math.Pow(beta, float64(t)), 1-math.Pow(beta2, float64(t))
	for j, g := range mean {
		o.nextVelocity[j] = float64(beta*o.velocity[j]) + float64((1-beta)*g)
		o.nextSquare[j] = float64(beta2*o.square[j]) + float64((1-beta2)*float64(g*g))
		length := math.Sqrt(o.nextSquare[j]/second) + adamFloor
		o.next[j] = o.theta[j] - float64(rate*(o.nextVelocity[j]/first/length))
		if v := o.next[j]; math.IsNaN(v) || math.IsInf(v, 0) || math.IsInf(length, 0) {
			return fmt.Errorf("optimize: step %d diverged: parameter %d would be %v at learning rate %v", t, j, v, rate)
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
	out := map[string][]float64{"theta": o.theta, "velocity": o.velocity, "average": o.average}
	if o.square != nil {
		out["square"] = o.square
	}
	return out
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
