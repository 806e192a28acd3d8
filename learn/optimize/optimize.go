// Package optimize holds the optimisers, which turn noisy mean gradients into steps of a
// model. They see nothing else, so each runs under every trust mode; its steps are
// post-processing and cost no privacy.
//
// CLDPSGD is for learning, with any schedule. For stochastic convex problems NewPlan chooses
// batches, rounds and step sizes of a published method by minimising its bound (convex.md), a
// function of public numbers, and the plan makes the optimiser. Where somebody else chooses
// the rounds, NewPlanFor plans for them, and ChooseBatch and ChooseRounds say which rounds to
// ask for.
package optimize

// Optimizer works by ask and tell: the caller evaluates the mean gradient at Point and hands
// it to Step. It is deterministic and not safe for concurrent use.
type Optimizer interface {
	// Point is where the next gradient is to be taken. Read it, do not keep it.
	Point() []float64
	// Step takes the noisy mean gradient at Point.
	Step(mean []float64) error
	// Model writes the parameters to release now into dst.
	Model(dst []float64)
	// State returns everything a checkpoint needs; Restore takes it back.
	State() State
	Restore(State) error
}

// State is an optimiser between two steps.
type State struct {
	Steps   int64
	Vectors map[string][]float64 // the optimiser's vectors by name; each is as long as the model
}
