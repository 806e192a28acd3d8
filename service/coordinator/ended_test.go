package coordinator

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/lab/memory"
)

// tasksOf is what clients are shown.
func tasksOf(p *process) string {
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/tasks", nil))
	return w.Body.String()
}

// A task that has ended and cannot be made again is shown, and others run.
func TestEndedTaskWithoutItsData(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All)
		done := w.run()
		w.check(done)
		gone := errors.New("the data are gone")
		missing := func(c *Config) {
			c.Tasks[0] = Job{Signed: w.config.Signed, Budget: w.config.Budget, Missing: gone}
		}
		over := func(c *Config) {
			c.Tasks[0] = Job{Signed: w.config.Signed, Budget: w.config.Budget, Ended: true}
		}
		p, err := w.start(nil, over)
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.Wait(t.Context(), wire.Digest(w.task))
		if err != nil {
			t.Fatal(err)
		}
		s = w.await(p, func(s wire.Status) bool { return !math.IsNaN(float64(s.Eps)) }) // it is counted meanwhile
		if s.State != Done || s.Round != 3 || s.Model != done.Model || s.Eps != done.Eps || s.Why != done.Why || s.Error != "" {
			t.Errorf("%+v, want %+v", s, done)
		}
		if b := tasksOf(p); strings.Contains(b, fmt.Sprintf("%x", wire.Digest(w.task))) {
			t.Errorf("clients are still shown it: %s", b)
		}
		if code, _, _ := get(t, p.Handler(), fmt.Sprintf("/v1/rounds/%x/closed", wire.Digest(w.sh.Opened[0]))); code != http.StatusOK {
			t.Errorf("the word on its first round: %d", code)
		}
		if err := p.Remove(t.Context(), wire.Digest(w.task)); !errors.Is(err, ErrCharged) {
			t.Errorf("a task that was charged is removed: %v", err)
		}
		if _, err := p.model(t.Context(), wire.Digest(w.task), done.Model); err != nil {
			t.Errorf("its model: %v", err)
		}
		if err := p.Stop(t.Context(), wire.Digest(w.task), ""); err != nil {
			t.Error(err)
		}
		p.stop()
		if err := <-p.done; err != nil {
			t.Error(err)
		}
		w.fsck()

		// One that has not ended is shown and not led, until it can be made.
		w = newWorld(t, dp.Shuffle, dp.All)
		if p, err = w.start(nil, missing); err != nil {
			t.Fatal(err)
		}
		s = w.await(p, func(s wire.Status) bool { return s.State == Unusable })
		if s.Error != gone.Error() || s.Round != 0 {
			t.Errorf("%+v", s)
		}
		if err := p.Add(w.config); err != nil {
			t.Fatal(err)
		}
		if s, err = p.Wait(t.Context(), wire.Digest(w.task)); err != nil || s.State != Done || s.Released != 3 {
			t.Errorf("%+v, %v", s, err)
		}
		p.stop()
		if err := <-p.done; err != nil {
			t.Error(err)
		}
		// Or it is stopped, and another is removed.
		for _, end := range []struct {
			how  string
			call func(p *process, id [32]byte) error
		}{
			{Stopped, func(p *process, id [32]byte) error { return p.Stop(t.Context(), id, "") }},
			{Removed, func(p *process, id [32]byte) error { return p.Remove(t.Context(), id) }},
		} {
			w = newWorld(t, dp.Shuffle, dp.All)
			if p, err = w.start(nil, missing); err != nil {
				t.Fatal(err)
			}
			if err := end.call(p, wire.Digest(w.task)); err != nil {
				t.Fatal(err)
			}
			ended, how, err := Ended(t.Context(), w.disk.store(nil), wire.Digest(w.task))
			if err != nil || !ended || how.State != end.how {
				t.Errorf("%v, %+v, %v, want %s", ended, how, err, end.how)
			}
			if _, err := p.Show(wire.Digest(w.task)); (end.how == Removed) != errors.Is(err, ErrNoTask) {
				t.Errorf("%s: %v", end.how, err)
			}
			p.stop()
			if err := <-p.done; err != nil {
				t.Error(err)
			}
		}
		// Another coordinator on the store does not begin a task anew that was removed.
		if p, err = w.start(nil); err != nil {
			t.Fatal(err)
		}
		if s, err = p.Wait(t.Context(), wire.Digest(w.task)); err != nil || s.State != Removed || s.Round != 0 {
			t.Errorf("%+v, %v", s, err)
		}
		p.stop()
		if err := <-p.done; err != nil {
			t.Error(err)
		}
	})
}

// A task that has ended is shown when it can be read. Until then it is read again and again, with longer and longer
// pauses.
func TestEndedTaskIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, small)
		w.check(w.run())
		begun, failed := time.Now(), 0
		s := w.run(func(c *Config) {
			c.Tasks[0] = Job{Signed: w.config.Signed, Budget: w.config.Budget, Ended: true}
			c.Backoff = time.Second
			c.Store = &memory.Store{Disk: w.disk.Disk, Do: memory.Failing(func(op string, _ bool) error {
				if op != "get task" || failed == 4 {
					return nil
				}
				failed++
				return errors.New("not now")
			})}
		})
		if took := time.Since(begun); s.State != Done || failed != 4 || took < 15*time.Second {
			t.Errorf("after %d failures and %v: %+v", failed, took, s)
		}
	})
}

// A round that gives no step is taken out of the record before it ends.
func TestDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Distributed, dp.All, func(w *world) { w.garbage = map[int]int{1: 1} })
		var gone []int64
		tries := 0
		w.config.Discard = func(round int64) error {
			if tries++; tries == 2 {
				return errors.New("not now")
			}
			gone = append(gone, round)
			return nil
		}
		s := w.run()
		if s.Failed != 3 || len(gone) != 3 || gone[0] != 1 || gone[2] != 3 || tries != 4 || len(w.disk.Log) != 3 {
			t.Errorf("%+v; discarded %v in %d tries", s, gone, tries)
		}
	})
}

// A standby says that it is one, and that it cannot end what another leads; it does not
// end it later either.
func TestStandbyDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All)
		hold := make(chan struct{})
		// A leader that a slow machine keeps from renewing its lease would lose it.
		patient := func(c *Config) { c.LeaseTTL = time.Minute }
		leader, err := w.start(nil, patient, func(c *Config) { c.Hold = hold })
		if err != nil {
			t.Fatal(err)
		}
		phase := func(p *process) string {
			s, _ := p.Show(wire.Digest(w.task))
			return s.Phase
		}
		synctest.Wait()
		standby, err := w.start(nil, patient)
		if err != nil {
			t.Fatal(err)
		}
		if err := standby.Stop(t.Context(), wire.Digest(w.task), ""); !errors.Is(err, ErrStandby) {
			t.Errorf("stopped by a standby: %v", err)
		}
		time.Sleep(3 * time.Minute) // the leader renews its lease
		if p := phase(standby); p != "standby" {
			t.Errorf("it is %s", p)
		}
		leader.stop()
		if err := <-leader.done; err != nil {
			t.Error(err)
		}
		if s := w.end(standby); s.State != Done || s.Released != 3 {
			t.Errorf("%+v", s)
		}
	})
}
