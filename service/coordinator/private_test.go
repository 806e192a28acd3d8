package coordinator

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	roles "github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// returning is a learner that goes back to its start in every second round, as one does whose clients
// have measured that the model became worse.
type returning struct {
	roles.Learner
	start optimize.State
	taken int64
	held  bool
}

func (l *returning) StepOf(mean []float64, _ int64) error {
	if l.held = l.taken%2 == 1; l.held {
		if err := l.Learner.Restore(l.start); err != nil {
			return err
		}
	} else if err := l.Learner.Step(mean); err != nil {
		return err
	}
	l.taken++
	return nil
}

func (l *returning) Held() string {
	if l.held {
		return "clients measured that it became worse"
	}
	return ""
}

func (l *returning) State() optimize.State {
	s := l.Learner.State()
	s.Vectors["taken"] = []float64{float64(l.taken), float64(s.Steps)}
	s.Steps = l.taken
	return s
}

func (l *returning) Restore(s optimize.State) error {
	own := s.Vectors["taken"]
	inner := optimize.State{Steps: int64(own[1]), Vectors: map[string][]float64{}}
	for name, v := range s.Vectors {
		if name != "taken" {
			inner.Vectors[name] = v
		}
	}
	l.taken, l.held = int64(own[0]), own[0] > 0 && int64(own[0])%2 == 0
	return l.Learner.Restore(inner)
}

func returningWorld(t *testing.T, pause bool) *world {
	w := newWorld(t, dp.Shuffle, dp.All, func(w *world) {
		w.task.Rounds = 6
		w.config.Guard = &Guard{Metric: "accuracy", Fall: .1, Pause: pause, Private: true}
		w.config.Measured = func(s optimize.State) any { return s.Vectors["taken"][0] }
	})
	w.config.Optimizer = func() (roles.Learner, error) {
		o, err := newOptimizer()
		return &returning{Learner: o, start: o.State()}, err
	}
	return w
}

// A round in which the learner goes back is charged and counts as one without a step, but its state and
// model are released; a crash anywhere changes nothing of it.
func TestPrivateGuardOverCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var want wire.Status
		for at := 0; ; at += 1 + stride()*4 {
			w := returningWorld(t, false)
			crash := &stop{At: at, After: at%2 == 0}
			s := w.crashed(crash)
			if at == 0 {
				if want = s; s.State != Done || s.Released != 3 || s.FailedBy[FailedGuard] != 3 || len(w.disk.Log) != 6 || s.Measured != 6. || !strings.Contains(s.Failure, "clients measured") {
					t.Fatalf("%+v", s)
				}
			} else if s.Released != want.Released || s.Failed != want.Failed || s.Model != want.Model || s.Measured != nil && s.Measured != want.Measured { // nil: the process began after the task's end
				t.Errorf("crash at %d: released %d, failed %d, model %x, measured %v; want %d, %d, %x, %v", at, s.Released, s.Failed, s.Model[:4], s.Measured, want.Released, want.Failed, want.Model[:4], want.Measured)
			}
			if at > 0 && !crash.hit() {
				break
			}
		}
	})
}

func TestPrivateGuardPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := returningWorld(t, true)
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		pauses := 0
		for {
			s, _ := p.Show(wire.Digest(w.task))
			if s.State == Done {
				break
			}
			if s.State == Paused {
				if !strings.Contains(s.Why, "clients measured") {
					t.Errorf("%+v", s)
				}
				if p.Resume(t.Context(), wire.Digest(w.task)) == nil {
					pauses++
				}
			}
			synctest.Wait()
		}
		if s := w.end(p); pauses < 2 || s.FailedBy[FailedGuard] != 3 {
			t.Errorf("%d pauses, %+v", pauses, s)
		}
	})
}
