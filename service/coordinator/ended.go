package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// This file has the ends of tasks, and tasks that are only shown because they have ended or
// cannot be run here.

// onlyShown says whether the task is shown and not run.
func (t Job) onlyShown() bool { return t.Ended || t.Missing != nil }

// Ended looks up whether a task has ended, and how.
func Ended(ctx context.Context, s storage, task [32]byte) (ended bool, how end, err error) {
	t, _, err := readTask(ctx, s, task)
	if errors.Is(err, store.ErrNotFound) {
		return false, end{}, nil // no process has led it yet
	}
	if err != nil {
		return false, end{}, err
	}
	return t.State != Running, end{t.State, t.Why}, nil
}

// runShown shows a task that is not run, until ctx has ended or another runner has taken
// its place. An error concerns this task alone.
func (r *runner) runShown(ctx context.Context) {
	pause := r.s.config.Backoff
	for ctx.Err() == nil {
		step, cancel := context.WithCancel(ctx)
		r.mu.Lock()
		r.interrupt = cancel
		stop, endAs, why := r.stop, r.endAs, r.why
		r.mu.Unlock()
		ended, err := r.loadShown(ctx)
		switch {
		case err != nil:
		case ended:
			cancel()
			return
		case stop:
			err = r.endUnusable(ctx, endAs, why)
			ended = err == nil
		}
		if ended {
			cancel()
			return
		}
		if ctx.Err() != nil {
			cancel()
			return
		}
		if err != nil {
			r.trouble(err)
			sleep(step, pause)
			pause = min(2*pause, 100*r.s.config.Backoff)
			cancel()
			continue
		}
		select {
		case <-step.Done():
		case <-r.replaced:
			cancel()
			return
		}
		cancel()
	}
}

// loadShown brings the status up to date with the stored state.
func (r *runner) loadShown(ctx context.Context) (ended bool, err error) {
	ended, how, err := Ended(ctx, r.s.config.Store, r.id)
	if err != nil {
		return false, err
	}
	if rec, revision, err := readRecord(ctx, r.s.config.Store, r.id); err == nil {
		r.record, r.revision = rec, revision
	} else if !errors.Is(err, store.ErrNotFound) {
		return false, err
	}
	entries := r.ledger.Entries()
	r.update(func(s *wire.Status) { r.fill(s, int64(len(entries))) })
	r.showTold()
	if !ended {
		if r.snapshot().State != Unusable {
			r.log.Error("a task cannot be run here, others are", "error", r.t.Missing)
		}
		r.update(func(s *wire.Status) { s.State, s.Phase, s.Error = Unusable, "unusable", r.t.Missing.Error() })
		return false, nil
	}
	// Show the status before computing the task's cost. That may take long, because the costs
	// of tasks are computed one at a time.
	r.update(func(s *wire.Status) {
		s.State, s.Why, s.Phase, s.Since, s.Error = how.State, how.Why, string(how.State), time.Now(), ""
	})
	r.close()
	r.destroyOpen(ctx)
	r.destroyLast(ctx)
	select {
	case r.s.counting <- struct{}{}:
		defer func() { <-r.s.counting }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	if bound, err := spent(r.t.Budget, entries); err == nil {
		r.update(func(s *wire.Status) { s.Eps, s.Method, s.Source = dp.Number(bound.Eps), bound.Method, bound.Source })
	} else {
		r.update(func(s *wire.Status) { s.Method = err.Error() })
	}
	return true, nil
}

// spent bounds what entries cost.
func spent(budget ledger.Config, entries []ledger.Entry) (dp.Bound, error) {
	l, err := ledger.New(budget)
	if err == nil {
		err = l.Restore(entries)
	}
	if err != nil {
		return dp.Bound{}, err
	}
	return l.Spent()
}

// endUnusable stores that a task that cannot be run was stopped.
func (r *runner) endUnusable(ctx context.Context, as string, why string) error {
	config := &r.s.config
	lease, _, err := config.Store.Acquire(ctx, fmt.Sprintf("task-%x", r.id), config.Holder, config.LeaseTTL)
	if err != nil {
		return err
	}
	defer func() {
		release, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		_ = lease.Release(release) // if this fails, the lease expires
	}()
	if _, err := r.register(ctx); err != nil {
		return err
	}
	return r.finish(ctx, as, why)
}

// register returns the stored record of a task, and stores that the task runs if it was never
// led.
func (r *runner) register(ctx context.Context) (taskRecord, error) {
	db := r.s.config.Store
	t, _, err := readTask(ctx, db, r.id)
	if !errors.Is(err, store.ErrNotFound) {
		return t, err
	}
	t = taskRecord{Format: recordFormat, State: Running}
	if err := db.PutObject(ctx, taskName(r.id), r.t.Signed); err != nil {
		return t, err
	}
	_, err = db.Put(ctx, taskKey(r.id), encodeTask(t), 0)
	return t, err
}

// stopped begins the stored reason of a task that the operator stopped; the operator's own
// reason follows.
const stopped = "stopped by the operator"

// ErrStandby is wrapped where another coordinator leads the task.
var ErrStandby = errors.New("coordinator: another coordinator leads the task")

// standbyAfter is how long a task may wait for its lease before this coordinator counts
// as a standby; one that has just started may need a moment.
const standbyAfter = 3 * time.Second

// Stop ends a task; its model stays, and its open round is destroyed. It returns once this
// process, as the task's leader, has stored that, with the operator's reason if there is
// one.
func (s *Service) Stop(ctx context.Context, id [32]byte, reason string) error {
	r := s.find(id)
	if r == nil {
		return fmt.Errorf("%w: %x", ErrNoTask, id[:8])
	}
	why := stopped
	if reason != "" {
		why += ": " + reason
	}
	return r.halt(ctx, Stopped, why)
}

// halt asks the task's goroutine to end it.
func (r *runner) halt(ctx context.Context, endAs string, why string) error {
	r.mu.Lock()
	if !r.stop {
		r.stop, r.endAs, r.why = true, endAs, why
	}
	if r.interrupt != nil {
		r.interrupt()
	}
	r.mu.Unlock()
	patience := time.NewTicker(standbyAfter)
	defer patience.Stop()
	for {
		select {
		case <-r.ended:
			return nil
		case <-patience.C:
			if r.snapshot().Phase != "standby" {
				continue
			}
			r.mu.Lock()
			r.stop = false
			r.mu.Unlock()
			return fmt.Errorf("%w %q: ask that one", ErrStandby, r.task.Name)
		case <-ctx.Done():
			return fmt.Errorf("coordinator: stop of task %q: %w", r.task.Name, ctx.Err())
		}
	}
}

// ErrCharged is wrapped when a task cannot be removed because the ledger has entries of it.
var ErrCharged = errors.New("coordinator: the ledger has entries of the task")

// Remove ends a task that was never charged, and deletes what is stored of it. A task that
// was charged can only be stopped: what it was charged for must stay.
func (s *Service) Remove(ctx context.Context, id [32]byte) error {
	r := s.find(id)
	if r == nil {
		return fmt.Errorf("%w: %x", ErrNoTask, id[:8])
	}
	charged := func() error {
		if err := s.config.Journal.Refresh(ctx); err != nil {
			return err
		}
		if n := len(r.ledger.Entries()); n > 0 {
			return fmt.Errorf("%w %q: %d of them; it can be stopped, not removed", ErrCharged, r.task.Name, n)
		}
		return nil
	}
	if err := charged(); err != nil {
		return err
	}
	if err := r.halt(ctx, Stopped, "removed"); err != nil {
		return err
	}
	if err := charged(); err != nil { // a round may have closed meanwhile
		return err
	}
	if err := Erase(ctx, s.config.Store, id); err != nil {
		return err
	}
	r.update(func(s *wire.Status) { s.State = Removed })
	return nil
}

// Erase deletes what is stored of a task that has ended or was never led, and that the
// ledger has no entry of. Its record stays, and says that it was removed.
func Erase(ctx context.Context, s storage, task [32]byte) error {
	removed := encodeTask(taskRecord{Format: recordFormat, State: Removed})
	e, err := s.Get(ctx, taskKey(task))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if _, err := s.Put(ctx, taskKey(task), removed, e.Revision); err != nil {
		return err
	}
	// An object that cannot be deleted only takes space.
	if rec, _, err := readRecord(ctx, s, task); err == nil {
		_ = s.Delete(ctx, store.Objects, stateName(task, rec.Step))
		for _, h := range rec.Recent {
			_ = s.Delete(ctx, store.Objects, modelName(task, h))
		}
		for _, t := range rec.Told {
			if t.Receipts != (hash{}) {
				_ = s.Delete(ctx, store.Objects, receiptsName(task, t.Receipts))
			}
		}
	}
	_ = s.Delete(ctx, store.Objects, taskName(task))
	return nil
}
