package optimize

import (
	"fmt"
	"math"
)

// acsaConfig configures newACSA.
type acsaConfig struct {
	Dim    int   // Required.
	Rounds int64 // T, for which Curvature was chosen. Required.
	// Curvature is c of L_t = c/t, above 2β for a β-smooth objective: the
	// inverse of the step size. Required; convex.md chooses it.
	Curvature float64
	// Radius of the ℓ2 ball around 0; 0 means unconstrained.
	Radius float64
	// Start is θ_1; nil means 0.
	Start []float64
}

// acsa is accelerated stochastic approximation, the server of P_AGD. Gradients are taken at
// md_t = a_t θ_t + (1 − a_t) ag_t, steps start at θ_t, and the model is ag_t:
//
//	θ_{t+1} = Π(θ_t − ḡ_t/L_t),  ag_{t+1} = a_t θ_{t+1} + (1 − a_t) ag_t,
//	a_t = 2/(t + 1),  L_t = c/t.
//
// Result: if the objective is convex and β-smooth, c > 2β and the gradients' errors have mean
// 0 and E‖error‖² ≤ v given the past, then after T steps E f(ag) − f(u) ≤ c‖θ_1 −
// u‖²/(T(T+1)) + (2T+1)v/(6(c − 2β)) for every feasible u. Proved in convex.md.
// Source: Lan 2012; Cheu, Joseph, Mao, Peng (ICLR 2022), Algorithm 4. The schedule printed
// there is damaged; convex.md derives this one.
type acsa struct {
	config    acsaConfig
	theta, ag []float64
	md        []float64 // computed from theta and ag
	next      []float64
}

// newACSA returns accelerated phases at their start. Every phase needs the same Dim and
// Radius; only the first may have a Start.
func newACSA(configs ...acsaConfig) (*Optimizer, error) {
	phases := make([]phase, len(configs))
	for i, c := range configs {
		if c.Dim != configs[0].Dim || c.Radius != configs[0].Radius || i > 0 && c.Start != nil {
			return nil, fmt.Errorf("optimize: phase %d has its own dimension, radius or start", i)
		}
		phases[i] = phase{c.Rounds, c.iteration}
	}
	return newOptimizer(phases...)
}

func (c acsaConfig) iteration(start []float64) (iteration, error) {
	if start != nil {
		c.Start = start
	}
	if err := checkStart(c.Dim, c.Rounds, c.Radius, c.Start); err != nil {
		return nil, err
	}
	if !(c.Curvature > 0) || math.IsInf(c.Curvature, 1) {
		return nil, fmt.Errorf("optimize: curvature = %v must be above 0 and finite", c.Curvature)
	}
	c.Start = clone(c.Start)
	o := &acsa{
		config: c, theta: make([]float64, c.Dim), ag: make([]float64, c.Dim),
		md: make([]float64, c.Dim), next: make([]float64, c.Dim),
	}
	copy(o.theta, c.Start)
	project(o.theta, c.Radius)
	copy(o.ag, o.theta)
	o.restored(0)
	return o, nil
}

// weight returns a_t of the step t that follows done steps.
func weight(done int64) float64 { return 2 / float64(done+2) }

func (o *acsa) restored(done int64) { blend(o.md, weight(done), o.theta, o.ag) }

func (o *acsa) point() []float64 { return o.md }

func (o *acsa) step(done int64, mean []float64) error {
	step := float64(done+1) / o.config.Curvature
	if err := descend(o.next, o.theta, mean, step, o.config.Radius); err != nil {
		return err
	}
	o.theta, o.next = o.next, o.theta
	blend(o.ag, weight(done), o.theta, o.ag)
	o.restored(done + 1)
	return nil
}

func (o *acsa) model(_ int64, dst []float64) { copy(dst, o.ag) }

func (o *acsa) vectors() map[string][]float64 {
	return map[string][]float64{"theta": o.theta, "ag": o.ag}
}
