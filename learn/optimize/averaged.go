package optimize

import (
	"fmt"
	"math"
)

// averagedConfig configures newAveraged.
type averagedConfig struct {
	Dim    int     // Required.
	Rounds int64   // T. Required.
	Step   float64 // η. Required.
	// Radius of the ℓ2 ball around 0 that iterates are projected on; 0 means
	// unconstrained.
	Radius float64
	// Start is θ_0; nil means 0.
	Start []float64
}

// averaged is projected gradient descent with a constant step. Its model is the mean of the
// points at which gradients were taken, θ_0 … θ_{T−1}; the iterate after the last step is not
// in it. With disjoint batches it is P_SGD, and with all clients in every round P_GD: these
// differ only in batches, step and noise.
//
// Source: Cheu, Joseph, Mao, Peng (ICLR 2022), Algorithms 3 and 5, with the sign of the step
// corrected: θ_t = Π(θ_{t−1} − η·ḡ_t).
type averaged struct {
	config averagedConfig
	steps  int64
	theta  []float64 // θ_t
	sum    []float64 // θ_0 + … + θ_{t−1}
	next   []float64
}

var _ Optimizer = (*averaged)(nil)

// newAveraged returns the optimiser at its start.
func newAveraged(c averagedConfig) (*averaged, error) {
	if err := checkStart(c.Dim, c.Rounds, c.Radius, c.Start); err != nil {
		return nil, err
	}
	if !(c.Step > 0) || math.IsInf(c.Step, 1) {
		return nil, fmt.Errorf("optimize: step = %v must be above 0 and finite", c.Step)
	}
	c.Start = clone(c.Start)
	o := &averaged{config: c, theta: make([]float64, c.Dim), sum: make([]float64, c.Dim), next: make([]float64, c.Dim)}
	copy(o.theta, c.Start)
	project(o.theta, c.Radius)
	return o, nil
}

// Point returns θ_t.
func (o *averaged) Point() []float64 { return o.theta }

// Step takes one step. If it returns an error nothing has changed.
func (o *averaged) Step(mean []float64) error {
	if o.steps == o.config.Rounds {
		return ErrFinished
	}
	if err := checkGradient(mean, len(o.theta)); err != nil {
		return err
	}
	if err := descend(o.next, o.theta, mean, o.config.Step, o.config.Radius); err != nil {
		return err
	}
	for j, v := range o.theta {
		o.sum[j] += v
	}
	o.steps++
	o.theta, o.next = o.next, o.theta
	return nil
}

// Model writes the mean of θ_0 … θ_{t−1}, or θ_0 before the first step.
func (o *averaged) Model(dst []float64) {
	if o.steps == 0 {
		copy(dst, o.theta)
		return
	}
	n := float64(o.steps)
	for j, v := range o.sum {
		dst[j] = v / n
	}
}

// State returns copies of the iterate and of the sum.
func (o *averaged) State() State {
	return State{Steps: o.steps, Vectors: map[string][]float64{"theta": clone(o.theta), "sum": clone(o.sum)}}
}

// Restore takes back a State of an optimiser with the same configuration.
func (o *averaged) Restore(s State) error {
	if err := restore(s, o.config.Rounds, map[string][]float64{"theta": o.theta, "sum": o.sum}); err != nil {
		return err
	}
	o.steps = s.Steps
	return nil
}
