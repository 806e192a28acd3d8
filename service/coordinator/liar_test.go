package coordinator

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// liars is a vector sum of 8 clients, up to 2 of whom may lie, and those at the
// places given send the garbage of that kind in every round.
func liars(t *testing.T, kind int, places ...int) *world {
	return newWorld(t, dp.Distributed, dp.All, func(w *world) {
		w.config.Colluders, w.task.MinReports = 2, 5
		for _, place := range places {
			w.garbage[place] = kind
		}
	})
}

// One enrolled client whose two halves have different report ids: both aggregators
// can sum its half, the halves do not belong together. It is left out, and the
// model is the one of all others.
func TestHalvesOfDifferentReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := liars(t, 4, 3)
		s := w.run()
		w.check(s, 3)
		if s.Released != 3 || s.Failed != 0 || s.Rejected[wire.Excluded] != 3 || s.Spare != 2 {
			t.Errorf("released %d, failed %d, rejected %v", s.Released, s.Failed, s.Rejected)
		}
	})
}

// Above the declared colluders the noise of those left out is missing: the sum
// stays shut, and the status says why.
func TestMoreLiarsThanDeclared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := liars(t, 4, 1, 3, 6)
		s := w.run()
		if s.Released != 0 || s.Failed != 3 {
			t.Errorf("released %d, failed %d", s.Released, s.Failed)
		}
		if n := w.agg.Load().Snapshot(); n.Summed != 0 {
			t.Errorf("the aggregator has summed %d", n.Summed)
		}
		if !strings.Contains(s.Failure, "3 of 8 reports cannot be summed") || s.FailedRound != 3 {
			t.Errorf("round %d failed because: %q", s.FailedRound, s.Failure)
		}
	})
}

// A share of something else makes the sum leave its range: that is a failed round,
// which says so, and no step.
func TestShareOfSomethingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := liars(t, 5, 3)
		first := digestOf(encodeModel(make([]float32, dim)))
		s := w.run()
		if s.Released != 0 || s.Failed != 3 || hash(s.Model) != first {
			t.Errorf("released %d, failed %d, model %x", s.Released, s.Failed, s.Model[:6])
		}
		if !strings.Contains(s.Failure, "outside its range") {
			t.Errorf("why: %q", s.Failure)
		}
	})
}

// After so many rounds in a row without a step a task pauses, says why, is paused
// after a restart too, and goes on when its operator says so.
func TestPauseAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := liars(t, 5, 3)
		pauseAfter := func(c *Config) { c.PauseAfter = 2 }
		paused := func(p *process) wire.Status {
			t.Helper()
			return w.await(p, func(s wire.Status) bool { return s.State == Paused })
		}
		p, err := w.start(nil, pauseAfter)
		if err != nil {
			t.Fatal(err)
		}
		s := paused(p)
		if s.Round != 2 || s.Failed != 2 || !strings.Contains(s.Why, "2 rounds in a row gave no step, the last one, 2: the sum is outside its range") {
			t.Errorf("%d rounds, %d failed: %s", s.Round, s.Failed, s.Why)
		}
		p.stop()
		<-p.done

		fault := &stop{Once: true}
		p, err = w.start(fault, pauseAfter)
		if err != nil {
			t.Fatal(err)
		}
		if again := paused(p); again.Round != 2 || again.Why != s.Why || len(w.disk.Log) != 2 {
			t.Errorf("started again: %+v", again)
		}
		code, _, _ := get(t, p.Handler(), "/v1/tasks/"+hexTask(w)+"/announcement?after=0")
		if code != 204 {
			t.Errorf("a client is told %d", code)
		}
		w.garbage = nil // he is off the roster
		fault.fail()
		if err := p.Resume(t.Context(), wire.Digest(w.task)); err == nil {
			t.Error("it is resumed, and that is not stored")
		}
		time.Sleep(time.Minute)
		if again := paused(p); again.Round != 2 || len(w.disk.Log) != 2 {
			t.Errorf("paused, and in round %d: %d are charged", again.Round, len(w.disk.Log))
		}
		if err := p.Resume(t.Context(), wire.Digest(w.task)); err != nil {
			t.Fatal(err)
		}
		s = w.end(p)
		if s.State != Done || s.Released != 1 || s.Failed != 2 || s.FailedBy[FailedRange] != 2 {
			t.Errorf("%s: released %d, failed %d: %v", s.State, s.Released, s.Failed, s.FailedBy)
		}
		if err := p.Resume(t.Context(), wire.Digest(w.task)); !errors.Is(err, ErrNotPaused) {
			t.Errorf("an ended task is resumed: %v", err)
		}
		w.fsck()
	})
}

// A paused task can be stopped.
func TestStopWhilePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := liars(t, 5, 3)
		p, err := w.start(nil, func(c *Config) { c.PauseAfter = 1 })
		if err != nil {
			t.Fatal(err)
		}
		w.await(p, func(s wire.Status) bool { return s.State == Paused })
		if err := p.Stop(t.Context(), wire.Digest(w.task), "enough"); err != nil {
			t.Fatal(err)
		}
		if s := w.end(p); s.State != Stopped || s.Failed != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A step breaks the row, and void rounds are not in it.
func TestOnlyRoundsInARowPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := liars(t, 5)
		w.lie = func(round int64) bool { return round == 1 || round == 4 }
		w.present = func(round, client int64) bool { return round != 2 || client < 2 }
		s := w.run(func(c *Config) { c.PauseAfter = 2 })
		// Failed, void, released, failed.
		if s.State != Done || s.Round != 4 || s.Released != 1 || s.Failed != 2 || s.Void != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A liar who stays inside the sum's range moves the model by no more than all honest
// clients together could, and the status shows that steps were made shorter.
func TestShareInsideTheRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		honest := liars(t, 0).run()
		w := liars(t, 6, 3)
		var longest float64
		w.config.Evaluate = func(params []float32) any {
			var square float64
			for _, v := range params {
				square += float64(v) * float64(v)
			}
			longest = max(longest, math.Sqrt(square))
			return nil
		}
		s := w.run()
		if honest.Shortened != 0 || s.Released != 3 || s.Failed != 0 || s.Shortened != 3 {
			t.Errorf("honest: %d steps shortened; with a liar: %d released, %d failed, %d shortened", honest.Shortened, s.Released, s.Failed, s.Shortened)
		}
		// Rate 1/2, momentum 1/2, three steps: 2.125 half means at most.
		bound := w.mech.(*mechanism.VectorSum).MeanBound(8)
		if !(longest <= .5*(3+1+.25)*bound) {
			t.Errorf("the model is %.2f long, a step's mean is at most %.2f", longest, bound)
		}
		t.Logf("the model is %.2f long; one report alone could move a mean of 8 by %.1f clip norms, and by %.2f at most",
			longest, w.mech.(*mechanism.VectorSum).Largest()/8, bound)
	})
}

// An aggregator that tells other ids than it has leaves reports out, as it could
// before by saying that it cannot open them; more than are allowed for give no step.
func TestAggregatorThatLiesAboutIDs(t *testing.T) {
	for name, c := range map[string]struct {
		meddle           func(*wire.ShareIDs)
		skip             []int
		released, failed int64
	}{
		"one":     {func(m *wire.ShareIDs) { m.IDs[2][5] ^= 1 }, []int{2}, 3, 0},
		"swapped": {func(m *wire.ShareIDs) { m.IDs[2], m.IDs[4] = m.IDs[4], m.IDs[2] }, []int{2, 4}, 3, 0},
		"many": {func(m *wire.ShareIDs) {
			for i := range 3 {
				m.IDs[i] = [16]byte{}
			}
		}, nil, 0, 3},
		"fewer":    {func(m *wire.ShareIDs) { m.IDs = m.IDs[:7] }, nil, 0, 3},
		"of other": {func(m *wire.ShareIDs) { m.Announcement[0] ^= 1 }, nil, 0, 3},
	} {
		bubble(t, name, func(t *testing.T) {
			w := liars(t, 0)
			w.meddle = func(out http.ResponseWriter, q *http.Request) bool {
				if !strings.HasSuffix(q.URL.Path, "/ids") {
					return false
				}
				r := httptest.NewRecorder()
				w.agg.Load().PeerHandler().ServeHTTP(r, q)
				m, err := wire.Decode[wire.ShareIDs](r.Body.Bytes())
				if err != nil {
					t.Errorf("%d %v", r.Code, err)
				}
				c.meddle(&m)
				_, _ = out.Write(wire.Encode(m))
				return true
			}
			s := w.run()
			if s.Released != c.released || s.Failed != c.failed {
				t.Errorf("released %d, failed %d: %s", s.Released, s.Failed, s.Failure)
			}
			if c.failed == 0 {
				w.check(s, c.skip...)
			}
		})
	}
}

// Whoever crashes wherever, the same reports are left out, and a round shows one sum.
func TestHalvesOverCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, whose := range []string{"coordinator", "aggregator"} {
			for at := 1; ; at += 1 + 2*stride() {
				w := liars(t, 4, 3)
				crash := &stop{At: at, After: at%2 == 0}
				var s wire.Status
				if whose == "coordinator" {
					s = w.crashed(crash)
				} else {
					crash.Died = func() { w.startAggregator(nil) }
					w.startAggregator(crash)
					s = w.run()
				}
				w.check(s, 3)
				if s.Released != 3 || t.Failed() {
					t.Fatalf("%s crashes at operation %d (%s): released %d, failed %d: %s", whose, at, crash.Name, s.Released, s.Failed, s.Failure)
				}
				if !crash.hit() {
					break
				}
			}
		}
	})
}
