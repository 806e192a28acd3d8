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
	theta  []float64 // θ_t
	sum    []float64 // θ_0 + … + θ_{t−1}
	next   []float64
}

// newAveraged returns phases of averaged descent at their start.
func newAveraged(configs ...averagedConfig) (*Optimizer, error) {
	phases := make([]phase, len(configs))
	for i, c := range configs {
		phases[i] = phase{c.Rounds, c.iteration}
	}
	return newOptimizer(phases...)
}

func (c averagedConfig) iteration(start []float64) (iteration, error) {
	if start != nil {
		c.Start = start
	}
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

func (o *averaged) point() []float64 { return o.theta }

func (o *averaged) step(_ int64, mean []float64) error {
	if err := descend(o.next, o.theta, mean, o.config.Step, o.config.Radius); err != nil {
		return err
	}
	for j, v := range o.theta {
		o.sum[j] += v
	}
	o.theta, o.next = o.next, o.theta
	return nil
}

// model is the mean of θ_0 … θ_{t−1}, or θ_0 before the first step.
func (o *averaged) model(done int64, dst []float64) {
	if done == 0 {
		copy(dst, o.theta)
		return
	}
	for j, v := range o.sum {
		dst[j] = v / float64(done)
	}
}

func (o *averaged) vectors() map[string][]float64 {
	return map[string][]float64{"theta": o.theta, "sum": o.sum}
}

func (o *averaged) restored(int64) {}
