package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// Learned returns the state of a task's learner after the last released round, as it is stored, and
// the task's status: of a question the released sums. It wraps ErrNoModel before the first release.
func (s *Service) Learned(ctx context.Context, id [32]byte) (optimize.State, wire.Status, error) {
	now, err := s.Show(id)
	if err != nil {
		return optimize.State{}, now, err
	}
	for try := 0; ; try++ {
		state, rec, err := ReadLearned(ctx, s.config.Store, id)
		if errors.Is(err, store.ErrNotFound) && try < 3 {
			continue // a round was released between the two reads
		}
		if err != nil {
			return optimize.State{}, now, err
		}
		now.Round, now.Counts, now.Model = rec.Round, rec.Counts, rec.Model
		return state, now, nil
	}
}

// ReadLearned reads a learner's state of a task that no process may run, and its round and counts.
func ReadLearned(ctx context.Context, s storage, task [32]byte) (optimize.State, wire.Status, error) {
	rec, _, err := readRecord(ctx, s, task)
	if errors.Is(err, store.ErrNotFound) || err == nil && rec.Counts.Released == 0 {
		return optimize.State{}, wire.Status{}, fmt.Errorf("%w: no round of the task was released", ErrNoModel)
	}
	if err != nil {
		return optimize.State{}, wire.Status{}, err
	}
	now := wire.Status{ID: task, Round: rec.Round, Model: rec.Model, Counts: rec.Counts}
	b, err := s.GetObject(ctx, stateName(task, rec.Step))
	if err != nil {
		return optimize.State{}, now, err
	}
	if digestOf(b) != rec.Step {
		return optimize.State{}, now, fatal("the state of task %x is not what its name says", task[:8])
	}
	state, err := decodeState(b)
	if err != nil {
		return optimize.State{}, now, fatal("%w", err)
	}
	return state, now, nil
}
