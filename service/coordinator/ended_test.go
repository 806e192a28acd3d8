package coordinator

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
)

// A task that has ended and cannot be made again is shown, and others run.
func TestEndedTaskWithoutItsData(t *testing.T) {
	w := newWorld(t, dp.Shuffle, dp.All)
	done := w.run()
	w.check(done)
	gone := errors.New("the data are gone")
	missing := func(c *Config) {
		c.Tasks[0] = Task{Signed: w.config.Signed, Budget: w.config.Budget, Missing: gone}
	}
	p, err := w.start(nil, missing)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	s, err := p.Wait(ctx, w.task.ID())
	if err != nil {
		t.Fatal(err)
	}
	if s.State != Done || s.Round != 3 || s.Model != done.Model || s.Eps != done.Eps || s.Why != done.Why {
		t.Errorf("%+v, want %+v", s, done)
	}
	for s.Error == "" && ctx.Err() == nil {
		s, _ = p.Show(w.task.ID())
	}
	if s.Error != gone.Error() {
		t.Errorf("it says %q", s.Error)
	}
	if _, err := p.model(ctx, w.task.ID(), done.Model); err != nil {
		t.Errorf("its model: %v", err)
	}
	if err := p.Stop(ctx, w.task.ID(), ""); err != nil {
		t.Error(err)
	}
	p.stop()
	if err := <-p.done; err != nil {
		t.Error(err)
	}
	w.fsck()

	// One that has not ended must not be passed over.
	w = newWorld(t, dp.Shuffle, dp.All)
	if p, err = w.start(nil, missing); err != nil {
		t.Fatal(err)
	}
	if err := <-p.done; !errors.Is(err, errFatal) || !errors.Is(err, gone) {
		t.Errorf("a task that has not ended: %v", err)
	}
}

// A round that gives no step is taken out of the record before it ends.
func TestDiscard(t *testing.T) {
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
	if s.Failed != 3 || len(gone) != 3 || gone[0] != 1 || gone[2] != 3 || tries != 4 || len(w.disk.entries) != 3 {
		t.Errorf("%+v; discarded %v in %d tries", s, gone, tries)
	}
}
