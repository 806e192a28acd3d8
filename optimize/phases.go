package optimize

import (
	"fmt"
)

// Phases runs one ACSA after another, each from the model of the one before: a
// strongly convex objective brings the model closer to the optimum with every
// phase, and the next one takes smaller steps.
//
// Source: Cheu, Joseph, Mao, Peng (ICLR 2022), Theorem 4.8, after Feldman,
// Koren, Talwar 2020.
type Phases struct {
	configs []ACSAConfig
	rounds  int64 // of all phases
	before  int64 // rounds of the phases that are done
	phase   int
	at      *ACSA
}

var _ Optimizer = (*Phases)(nil)

// NewPhases returns the optimiser at its start. Every phase needs the same Dim
// and Radius; only the first may have a Start.
func NewPhases(phases []ACSAConfig) (*Phases, error) {
	if len(phases) == 0 {
		return nil, fmt.Errorf("optimize: no phases")
	}
	p := &Phases{configs: append([]ACSAConfig(nil), phases...)}
	for i, c := range phases {
		if c.Dim != phases[0].Dim || c.Radius != phases[0].Radius || i > 0 && c.Start != nil {
			return nil, fmt.Errorf("optimize: phase %d has its own dimension, radius or start", i)
		}
		a, err := NewACSA(c)
		if err != nil {
			return nil, fmt.Errorf("phase %d: %w", i, err)
		}
		if i == 0 {
			p.at = a
		}
		p.rounds += c.Rounds
	}
	return p, nil
}

// Point returns the current phase's md_t.
func (p *Phases) Point() []float64 { return p.at.Point() }

// Step takes one step; after a phase's last one the next phase begins.
func (p *Phases) Step(mean []float64) error {
	if err := p.at.Step(mean); err != nil {
		return err
	}
	if p.at.steps == p.at.config.Rounds && p.phase+1 < len(p.configs) {
		p.before += p.at.steps
		p.enter(p.phase+1, p.at.ag)
	}
	return nil
}

// enter begins a phase at the given point.
func (p *Phases) enter(phase int, start []float64) {
	c := p.configs[phase]
	c.Start = start
	next, err := NewACSA(c)
	if err != nil {
		panic(err) // checked by NewPhases; the start is a model
	}
	p.phase, p.at = phase, next
}

// Model writes the current phase's model.
func (p *Phases) Model(dst []float64) { p.at.Model(dst) }

// State returns the current phase's vectors and the steps of all phases.
func (p *Phases) State() State {
	s := p.at.State()
	s.Steps += p.before
	return s
}

// Restore takes back a State of an optimiser with the same configuration.
func (p *Phases) Restore(s State) error {
	phase, before, steps := 0, int64(0), s.Steps
	for phase+1 < len(p.configs) && steps >= p.configs[phase].Rounds {
		steps -= p.configs[phase].Rounds
		before += p.configs[phase].Rounds
		phase++
	}
	next, err := NewACSA(ACSAConfig{
		Dim: p.configs[phase].Dim, Rounds: p.configs[phase].Rounds,
		Curvature: p.configs[phase].Curvature, Radius: p.configs[phase].Radius,
	})
	if err != nil {
		return err
	}
	if err := next.Restore(State{Steps: steps, Vectors: s.Vectors}); err != nil {
		return err
	}
	p.phase, p.before, p.at = phase, before, next
	return nil
}
