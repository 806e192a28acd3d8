// Package optimize holds the optimisers, which turn noisy mean gradients into steps of a
// model. They see nothing else, so each runs under every trust mode; its steps are
// post-processing and cost no privacy.
//
// CLDPSGD is for learning, with any schedule. For stochastic convex problems NewPlan chooses
// batches, rounds and step sizes of a published method by minimising its bound (convex.md), a
// function of public numbers, and the plan makes the optimiser. Where somebody else chooses
// who reports, NewPlan plans for Given rounds, and ChooseBatch and ChooseRounds say which
// rounds to ask for.
package optimize

import (
	"errors"
	"fmt"
)

// ErrFinished is returned by Step after the last round that an optimiser's
// parameters were chosen for.
var ErrFinished = errors.New("optimize: all rounds are done")

// Optimizer works by ask and tell: the caller evaluates the mean gradient at Point and hands
// it to Step. It is deterministic and not safe for concurrent use. NewCLDPSGD and
// Plan.NewOptimizer make one.
//
// It runs one phase after another, each from the model of the one before. With a strongly
// convex objective every phase brings the model closer to the optimum, so the next one takes
// smaller steps.
//
// Source of the phases: Cheu, Joseph, Mao, Peng (ICLR 2022), Theorems 4.8 and 4.9, after
// Feldman, Koren, Talwar 2020.
type Optimizer struct {
	phases []phase
	phase  int   // the current phase
	before int64 // rounds of all finished phases
	steps  int64 // rounds of the current phase so far
	at     iteration
}

// phase is a number of rounds and the function that makes their iteration. A nil start stands
// for the configuration's own start.
type phase struct {
	rounds int64
	make   func(start []float64) (iteration, error)
}

// iteration is the part in which the optimisation methods differ. done is the number of its
// steps so far.
type iteration interface {
	point() []float64
	// step takes a gradient that has the right length and finite values. If it returns an
	// error nothing has changed.
	step(done int64, mean []float64) error
	// model writes the parameters to release into dst.
	model(done int64, dst []float64)
	// vectors are the state between two steps, by name. restored updates the other fields
	// after the vectors were overwritten.
	vectors() map[string][]float64
	restored(done int64)
}

func newOptimizer(phases ...phase) (*Optimizer, error) {
	if len(phases) == 0 {
		return nil, errors.New("optimize: no phases")
	}
	o := &Optimizer{phases: phases}
	for i := len(phases) - 1; i >= 0; i-- { // backwards, so that the first phase's iteration stays in at
		var err error
		if o.at, err = phases[i].make(nil); err != nil && len(phases) == 1 {
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("phase %d: %w", i, err)
		}
	}
	return o, nil
}

// Point is where the next gradient is to be taken. Read it, do not keep it.
func (o *Optimizer) Point() []float64 { return o.at.point() }

// Step takes the noisy mean gradient at Point. If it returns an error nothing has changed.
// After a phase's last step the next phase begins.
func (o *Optimizer) Step(mean []float64) error {
	if o.steps == o.phases[o.phase].rounds {
		return ErrFinished
	}
	if err := checkGradient(mean, len(o.at.point())); err != nil {
		return err
	}
	if err := o.at.step(o.steps, mean); err != nil {
		return err
	}
	o.steps++
	if o.steps == o.phases[o.phase].rounds && o.phase+1 < len(o.phases) {
		start := make([]float64, len(o.at.point()))
		o.Model(start)
		next, err := o.phases[o.phase+1].make(start)
		if err != nil {
			panic(err) // cannot fail: the configuration was checked, and the start is a model
		}
		o.before += o.steps
		o.phase, o.steps, o.at = o.phase+1, 0, next
	}
	return nil
}

// Model writes the parameters to release now into dst.
func (o *Optimizer) Model(dst []float64) { o.at.model(o.steps, dst) }

// State is an optimiser between two steps.
type State struct {
	Steps   int64
	Vectors map[string][]float64 // the optimiser's vectors by name; each is as long as the model
}

// State returns everything a checkpoint needs: the steps of all phases, and copies of the
// current phase's vectors.
func (o *Optimizer) State() State {
	s := State{Steps: o.before + o.steps, Vectors: o.at.vectors()}
	for name, v := range s.Vectors {
		s.Vectors[name] = clone(v)
	}
	return s
}

// Restore takes back a State of an optimiser with the same configuration. If it returns an
// error nothing has changed.
func (o *Optimizer) Restore(s State) error {
	phase, before, steps := 0, int64(0), s.Steps
	for phase+1 < len(o.phases) && steps >= o.phases[phase].rounds {
		steps -= o.phases[phase].rounds
		before += o.phases[phase].rounds
		phase++
	}
	next, err := o.phases[phase].make(nil)
	if err != nil {
		return err
	}
	if err := restore(State{Steps: steps, Vectors: s.Vectors}, o.phases[phase].rounds, next.vectors()); err != nil {
		return err
	}
	next.restored(steps)
	o.phase, o.before, o.steps, o.at = phase, before, steps, next
	return nil
}
