package optimize

import (
	"fmt"
)

// phased runs one optimiser after another, each from the model of the one before. With a
// strongly convex objective every phase brings the model closer to the optimum, so the next
// one takes smaller steps.
//
// Source: Cheu, Joseph, Mao, Peng (ICLR 2022), Theorems 4.8 and 4.9, after Feldman, Koren,
// Talwar 2020.
type phased struct {
	phases []phase
	phase  int   // the current phase
	before int64 // rounds of all finished phases
	steps  int64 // rounds of the current phase so far
	at     Optimizer
}

// phase is the number of rounds of an optimiser and the function that makes it; nil starts at
// 0.
type phase struct {
	rounds int64
	make   func(start []float64) (Optimizer, error)
}

var _ Optimizer = (*phased)(nil)

// newPhased returns accelerated phases at their start. Every phase needs the same
// Dim and Radius; only the first may have a Start.
func newPhased(configs []acsaConfig) (*phased, error) {
	phases := make([]phase, len(configs))
	for i, c := range configs {
		if c.Dim != configs[0].Dim || c.Radius != configs[0].Radius || i > 0 && c.Start != nil {
			return nil, fmt.Errorf("optimize: phase %d has its own dimension, radius or start", i)
		}
		phases[i] = phase{c.Rounds, func(start []float64) (Optimizer, error) {
			c := c
			if start != nil {
				c.Start = start
			}
			return newACSA(c)
		}}
	}
	return newPhases(phases)
}

// newAveragedPhases is newPhased for phases of averaged descent.
func newAveragedPhases(configs []averagedConfig) (*phased, error) {
	phases := make([]phase, len(configs))
	for i, c := range configs {
		phases[i] = phase{c.Rounds, func(start []float64) (Optimizer, error) {
			c := c
			if start != nil {
				c.Start = start
			}
			return newAveraged(c)
		}}
	}
	return newPhases(phases)
}

func newPhases(phases []phase) (*phased, error) {
	if len(phases) == 0 {
		return nil, fmt.Errorf("optimize: no phases")
	}
	p := &phased{phases: phases}
	for i := len(phases) - 1; i >= 0; i-- { // the first phase stays in at
		var err error
		if p.at, err = phases[i].make(nil); err != nil {
			return nil, fmt.Errorf("phase %d: %w", i, err)
		}
	}
	return p, nil
}

// Point returns the current phase's.
func (p *phased) Point() []float64 { return p.at.Point() }

// Step takes one step; after a phase's last one the next phase begins.
func (p *phased) Step(mean []float64) error {
	if err := p.at.Step(mean); err != nil {
		return err
	}
	p.steps++
	if p.steps == p.phases[p.phase].rounds && p.phase+1 < len(p.phases) {
		start := make([]float64, len(p.at.Point()))
		p.at.Model(start)
		next, err := p.phases[p.phase+1].make(start)
		if err != nil {
			panic(err) // cannot fail: the configuration was checked, and the start is a model
		}
		p.before += p.steps
		p.phase, p.steps, p.at = p.phase+1, 0, next
	}
	return nil
}

// Model writes the current phase's model.
func (p *phased) Model(dst []float64) { p.at.Model(dst) }

// State returns the current phase's vectors and the steps of all phases.
func (p *phased) State() State {
	s := p.at.State()
	s.Steps += p.before
	return s
}

// Restore takes back a State of an optimiser with the same configuration.
func (p *phased) Restore(s State) error {
	phase, before, steps := 0, int64(0), s.Steps
	for phase+1 < len(p.phases) && steps >= p.phases[phase].rounds {
		steps -= p.phases[phase].rounds
		before += p.phases[phase].rounds
		phase++
	}
	next, err := p.phases[phase].make(nil)
	if err != nil {
		return err
	}
	if err := next.Restore(State{Steps: steps, Vectors: s.Vectors}); err != nil {
		return err
	}
	p.phase, p.before, p.steps, p.at = phase, before, steps, next
	return nil
}
