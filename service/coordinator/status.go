package coordinator

import (
	"encoding/hex"
	"maps"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// public returns a status as GET /v1/status answers it.
func public(s wire.Status) map[string]any {
	if s.Error != "" {
		s.Error = "in trouble" // errors name peers: they are for the operator
	}
	return map[string]any{
		"task": hex.EncodeToString(s.ID[:]), "name": s.Task.Name, "state": s.State, "why": s.Why, "phase": s.Phase,
		"round": s.Round, "rounds": s.Task.Rounds, "model": hex.EncodeToString(s.Model[:]), "epsilon": s.Eps, "delta": s.Task.Delta,
		"method": s.Method, "ledger_entries": s.Charged, "rounds_released": s.Released, "rounds_void": s.Void,
		"rounds_failed": s.Failed, "rounds_failed_by_reason": s.FailedBy, "steps_shortened": s.Shortened, "failed_round": s.FailedRound, "failure": s.Failure,
		"reports_accepted": s.Reports, "reports_rejected": s.Rejected,
		"evaluation": s.Evaluation, "evaluation_round": s.EvaluatedAt, "seconds": s.Spent, "error": s.Error, "since": s.Since.UTC().Truncate(time.Second),
	}
}

func (r *runner) snapshot() wire.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Counts = cloned(s.Counts)
	s.Spent = maps.Clone(s.Spent)
	return s
}

func (r *runner) update(f func(*wire.Status)) {
	r.mu.Lock()
	f(&r.status)
	r.mu.Unlock()
	r.s.watchers.notify()
}

// watchers are channels that report changes. A notice never waits for its reader.
type watchers struct {
	mu  sync.Mutex
	all map[chan struct{}]struct{}
}

func (w *watchers) notify() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.all {
		select {
		case c <- struct{}{}:
		default: // it has an unread notice already
		}
	}
}

// Watch returns a channel that holds a value when a task's status has changed since the
// last value was taken. Call stop when done.
func (s *Service) Watch() (changed <-chan struct{}, stop func()) {
	c := make(chan struct{}, 1)
	w := &s.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[chan struct{}]struct{}{}
	}
	w.all[c] = struct{}{}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.all, c)
	}
}

// phase begins a phase, and adds the time since the last call to the phase before.
func (r *runner) phase(name string) {
	now := time.Now()
	r.update(func(s *wire.Status) {
		if !s.Since.IsZero() {
			s.Spent[s.Phase] += now.Sub(s.Since).Seconds()
		}
		s.Phase, s.Since = name, now
	})
}
