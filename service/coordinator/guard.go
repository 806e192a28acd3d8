package coordinator

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Guard holds back a step after which the model is worse on the operator's public
// evaluation data. The last good model and the optimiser's state then stay; the round
// stays charged. A guard sees only what would be released, so it costs no privacy.
type Guard struct {
	// Metric names the measure to people.
	Metric string
	// Measure reads the metric off Evaluate's result; larger is better.
	Measure func(evaluation any) float64
	// Fall is how far the metric may fall below its best value so far.
	Fall float64
	// Pause pauses the task when a step is held back. Without it the next round is run,
	// until Config.PauseAfter rounds in a row have given no step.
	Pause bool
	// Private says that the learner itself goes back to its best model, upon what clients have
	// measured. Measure is then not asked, and a model is released before it is measured.
	Private bool
}

// judge returns why a step is held back, or else the best measure with this step. A step
// that cannot be measured is held back.
func (g *Guard) judge(evaluation any, best float64) (*failure, *float64) {
	v := g.Measure(evaluation)
	if v >= best-g.Fall && !math.IsInf(v, 0) {
		best = max(best, v)
		return nil, &best
	}
	return noStep(FailedGuard, "the model's %s would be %.4g, the best was %.4g, and it may fall by %.4g: the last good model stays",
		g.Metric, math.Abs(v), math.Abs(best), g.Fall), nil
}

// guarded returns the optimiser's state to go back to if the step is held back, and the best
// measure so far. If nothing was measured since the task began or was resumed, it measures the
// current model.
func (r *runner) guarded() (before optimize.State, best float64, err error) {
	if r.t.Guard == nil || r.t.Guard.Private {
		return before, 0, nil
	}
	before = r.pure.State().Optimizer
	if r.record.Best != nil {
		return before, *r.record.Best, nil
	}
	best = r.t.Guard.Measure(r.t.Evaluate(slices.Clone(r.pure.Parameters)))
	if math.IsNaN(best) || math.IsInf(best, 0) {
		return before, 0, fmt.Errorf("coordinator: the model at hand has a %s of %v: the guard has nothing to compare with", r.t.Guard.Metric, best)
	}
	return before, best, nil
}

// pause waits until the operator resumes the task.
func (r *runner) pause(ctx context.Context) error {
	why := r.record.Paused
	r.phase(string(Paused))
	r.update(func(s *wire.Status) { s.State, s.Why = Paused, why })
	r.log.Error("the task pauses until it is resumed", "why", why, "round", r.record.Round)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case done := <-r.resume:
		next := r.record
		// The best measure may have been luck: the current model's takes its place.
		next.Paused, next.Barren, next.Voids, next.Best = "", 0, 0, nil
		err := r.save(ctx, next)
		if err == nil {
			r.log.Info("the task is resumed", "round", r.record.Round)
			r.update(func(s *wire.Status) { s.State, s.Why = Running, "" })
		}
		done <- err
		return err
	}
}

// Resume lets a paused task go on. It returns once this process, as the task's leader, has
// stored that.
func (s *Service) Resume(ctx context.Context, id [32]byte) error {
	r := s.find(id)
	if r == nil {
		return fmt.Errorf("%w: %x", ErrNoTask, id[:8])
	}
	if now := r.snapshot(); now.State != Paused {
		return fmt.Errorf("%w: task %q is %s, not paused", ErrNotPaused, r.task.Name, now.State)
	}
	done := make(chan error, 1)
	select {
	case r.resume <- done:
		return <-done
	case <-r.ended:
		return fmt.Errorf("%w: task %q has ended", ErrNotPaused, r.task.Name)
	case <-ctx.Done():
		return fmt.Errorf("coordinator: resume of task %q: %w", r.task.Name, ctx.Err())
	}
}
