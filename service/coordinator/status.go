package coordinator

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/dp"
)

// Status is what anyone may know of a task.
type Status struct {
	Task   [32]byte
	Name   string
	State  string
	Why    string
	Phase  string // what the task is doing
	Round  int64  // the last round that ended
	Rounds int64  // the most rounds that can be charged
	Until  int64  // number of the last round, if no round to come is void
	Model  [32]byte
	// Eps bounds at Delta the cost of what was charged so far; Method says how. −1: not known.
	Eps, Delta float64
	Method     string
	Source     string // the bound's theorem
	Charged    int64  // number of ledger entries
	Counts
	// Spare is the number of a vector sum's n-min reports that may be left out: the
	// number of colluders plus the clients that the honest fraction leaves out. If more reports
	// are left out, the round gives no step.
	Spare int64
	// Failure says why FailedRound, the last charged round without a step, gave none.
	FailedRound int64
	Failure     string
	Evaluation  any                // what Evaluate returned last
	Evaluated   int64              // the round of Evaluation
	Seconds     map[string]float64 // time spent, by stage
	Error       string             // the last error of something that is tried again
	Since       time.Time          // when the phase began
}

// Epsilon is Eps, or NaN where it is not known: a process that does not lead a task does
// not know its charges.
func (s Status) Epsilon() float64 {
	if s.Eps < 0 {
		return math.NaN()
	}
	return s.Eps
}

// MarshalJSON writes digests in hex.
func (s Status) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{
		"task": hex.EncodeToString(s.Task[:]), "name": s.Name, "state": s.State, "why": s.Why, "phase": s.Phase,
		"round": s.Round, "rounds": s.Rounds, "model": hex.EncodeToString(s.Model[:]), "epsilon": dp.Number(s.Epsilon()), "delta": s.Delta,
		"method": s.Method, "ledger_entries": s.Charged, "rounds_released": s.Released, "rounds_void": s.Void,
		"rounds_failed": s.Failed, "rounds_failed_by_reason": s.FailedBy, "steps_shortened": s.Shortened, "failed_round": s.FailedRound, "failure": s.Failure,
		"reports_accepted": s.Reports, "reports_rejected": s.Rejected,
		"evaluation": s.Evaluation, "evaluation_round": s.Evaluated, "seconds": s.Seconds, "error": s.Error, "since": s.Since.UTC().Truncate(time.Second),
	})
}

func (r *runner) snapshot() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	s.Counts = s.Counts.clone()
	s.Seconds = maps.Clone(s.Seconds)
	return s
}

func (r *runner) update(f func(*Status)) {
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
	r.update(func(s *Status) {
		if !s.Since.IsZero() {
			s.Seconds[s.Phase] += now.Sub(s.Since).Seconds()
		}
		s.Phase, s.Since = name, now
	})
}
