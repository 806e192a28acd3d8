package coordinator

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// byModel measures a model by what its digest says, so that every process finds the
// same: some steps are good and some are not.
func byModel(params []float32) any {
	d := digestOf(encodeModel(params))
	return float64(d[0]) / 256
}

func guardedWorld(t *testing.T, fall float64, pause bool) *world {
	return newWorld(t, dp.Shuffle, dp.All, func(w *world) {
		w.task.Rounds = 6
		w.config.Evaluate = byModel
		w.config.Guard = &Guard{Metric: "measure", Measure: func(v any) float64 { return v.(float64) }, Fall: fall, Pause: pause}
	})
}

// A step after which the model is worse is not released: model and optimiser are the
// last good ones, and what comes after is as if the round had had no step.
func TestGuardKeepsTheLastGoodModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guardedWorld(t, .05, false)
		var seen []hash
		w.disk.released = func(r record) {
			if n := len(seen); n == 0 || seen[n-1] != r.Model {
				seen = append(seen, r.Model)
			}
		}
		s := w.run()
		if s.State != Done || s.Released+s.Failed != 6 || s.Failed == 0 || s.FailedBy[FailedGuard] != s.Failed || int64(len(w.disk.Log)) != 6 {
			t.Fatalf("%+v", s)
		}
		if !strings.Contains(s.Failure, "the last good model stays") {
			t.Errorf("why: %q", s.Failure)
		}
		best := math.Inf(-1)
		for _, d := range seen {
			v := float64(d[0]) / 256
			if v < best-.05 {
				t.Errorf("a model of measure %v was released after one of %v", v, best)
			}
			best = max(best, v)
		}
		if int64(len(seen)) != s.Released+1 {
			t.Errorf("%d models were seen, %d released", len(seen), s.Released)
		}
		w.fsck()
	})
}

// A crash anywhere changes nothing of what the guard decides.
func TestGuardOverCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var want wire.Status
		for at := 0; ; at += 1 + stride()*4 {
			w := guardedWorld(t, .05, false)
			crash := &stop{At: at, After: at%2 == 0}
			s := w.crashed(crash)
			if at == 0 {
				want = s
			} else if s.Released != want.Released || s.Failed != want.Failed || s.Model != want.Model {
				t.Errorf("crash at %d: released %d, failed %d, model %x; want %d, %d, %x", at, s.Released, s.Failed, s.Model[:4], want.Released, want.Failed, want.Model[:4])
			}
			if at > 0 && !crash.hit() {
				break
			}
		}
	})
}

// With pause the first such step stops the task; resumed, it compares with the model
// at hand.
func TestGuardPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guardedWorld(t, .05, true)
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		for {
			s, _ := p.Show(wire.Digest(w.task))
			if s.State == Done {
				break
			}
			if s.State == Paused {
				if !strings.Contains(s.Why, "the last good model stays") || s.Failed == 0 {
					t.Errorf("%+v", s)
				}
				if err := p.Resume(t.Context(), wire.Digest(w.task)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		if s := w.end(p); s.FailedBy[FailedGuard] == 0 || s.Released+s.Failed != 6 {
			t.Errorf("%+v", s)
		}
	})
}

// What cannot be measured is held back.
func TestGuardHoldsBackWhatCannotBeMeasured(t *testing.T) {
	g := &Guard{Metric: "loss", Measure: func(v any) float64 { return v.(float64) }, Fall: 1}
	for v, good := range map[float64]bool{-1: true, -2: true, -2.1: false, math.Inf(-1): false, math.Inf(1): false, 5: true} {
		if f, m := g.judge(v, -1); (f == nil) != good || good != (m != nil && *m == max(v, -1)) {
			t.Errorf("%v after -1: %v", v, f)
		}
	}
	if f, _ := g.judge(math.NaN(), -1); f == nil {
		t.Error("NaN is good")
	}
}
