package coordinator

import (
	"context"
	"slices"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// besides evaluates models beside a task's rounds: one at a time, and of those that are released
// meanwhile the last. However long it takes, no round waits for it.
type besides struct {
	newest chan released // holds a model that is to be evaluated
}

// evaluator is a Job's Beside.
type evaluator interface {
	Evaluate(ctx context.Context, params []float32) any
	Close()
}

type released struct {
	round  int64
	params []float32
}

// offer leaves a copy of a model to be evaluated in place of an older one. Only the run goroutine
// calls it.
func (b besides) offer(round int64, params []float32) {
	select {
	case <-b.newest:
	default:
	}
	b.newest <- released{round, slices.Clone(params)} // there is room: nobody else sends
}

// evaluateBeside evaluates what is offered until ctx ends, or the task with its last model.
func (r *runner) evaluateBeside(ctx context.Context, e evaluator) {
	defer e.Close()
	evaluate := func(x released) {
		v := e.Evaluate(ctx, x.params)
		if ctx.Err() == nil {
			r.update(func(s *wire.Status) { s.Evaluation, s.EvaluatedAt = v, x.round })
		}
	}
	for {
		select {
		case x := <-r.besides.newest:
			evaluate(x)
		case <-r.ended:
			select {
			case x := <-r.besides.newest:
				evaluate(x)
			default:
			}
			return
		case <-ctx.Done():
			return
		}
	}
}
