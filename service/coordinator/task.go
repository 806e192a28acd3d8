package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/token"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/store"
)

// ErrFatal is wrapped when what is stored contradicts itself or what others were told. The process then
// ends, and starting it again does not help: only a person can mend it.
var ErrFatal = errors.New("coordinator: the stored state cannot be trusted")

// runner runs one task.
type runner struct {
	s         *Service
	t         Job
	id        [32]byte
	task      wire.Task
	mechanism randomizer.Randomizer
	sum       *mechanism.VectorSum     // nil unless the task is a vector sum without proofs
	proved    *mechanism.AggregatedSum // nil unless the task is a vector sum with proofs
	ledger    *ledger.TaskLedger
	log       *slog.Logger
	partSize  int64 // bytes of a report's parts before they are sealed
	shareSize int64
	tokens    *token.Keys // keys of the messages' tokens; nil: they have none

	// Owned by the run goroutine; not guarded by mu.
	record   record
	revision uint64
	pure     *coordinator.Coordinator // nil if it must be loaded
	toldKeys bool                     // whether this process has given the aggregator the tokens' keys
	compared bool                     // whether the ledger was compared with the shuffler's head since this process leads
	attempts int                      // how often the open round's batch was not what was signed
	detached *batch.Receipts          // receipts of the batch that is being opened; nil: none are collected
	list     *list                    // the open round's list of receipts; nil: there is none
	shown    []hash                   // the announcements of record.Told, as the service has them
	knows    bool                     // whether the service has them all; guarded by the service's mu
	logged   map[string]bool          // causes of trouble that were logged since the last round ended

	own []int64 // share of the open round's sum, where it is held for later ones

	besides besides // models for the evaluation beside the rounds

	mu        sync.Mutex
	status    wire.Status
	announced []byte    // signed announcement of the round that is open to clients
	model     []byte    // that round's model; it is never changed
	offered   hash      // digest of model
	round     int64     // number of the announced round
	until     time.Time // its deadline
	leading   bool
	changed   chan struct{}      // closed when announced, leading or the state changes
	ended     chan struct{}      // closed when the task has ended
	replaced  chan struct{}      // closed when another runner has taken its place
	stop      bool               // whether the operator asked for the task to end
	endAs     string             // the state in which the task is to end
	why       string             // the operator's reason
	interrupt context.CancelFunc // ends the step that is under way
	resume    chan chan error    // received from while the task is paused
}

// run runs the task. It returns nil when the task or ctx has ended; any error wraps ErrFatal.
func (r *runner) run(ctx context.Context) error {
	pause := r.s.config.Backoff
	if r.t.onlyShown() {
		r.runShown(ctx)
		return nil
	}
	for {
		ended, err := r.lead(ctx)
		r.publish(nil, nil, nil, false)
		if ended {
			r.rest()
			return nil
		}
		if errors.Is(err, ErrFatal) {
			r.phase("failed")
			r.update(func(s *wire.Status) { s.Error = err.Error() })
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			r.trouble(err)
			if !sleep(ctx, pause) {
				return nil
			}
		}
	}
}

// rest drops what only a task that runs needs: its model, the optimiser, and the data behind its job.
func (r *runner) rest() {
	if f := r.t.Close; f != nil {
		f()
	}
	// What others may read meanwhile stays: the signed task, and why it is only shown.
	r.t.Optimizer, r.t.Evaluate, r.t.Guard, r.t.Measured, r.t.Record, r.t.RecordSum, r.t.Discard, r.t.Close = nil, nil, nil, nil, nil, nil, nil, nil
	r.mechanism, r.sum, r.proved, r.tokens, r.pure, r.own, r.list, r.detached = nil, nil, nil, nil, nil, nil, nil, nil
}

func (r *runner) trouble(err error) {
	r.warn("trying again", err)
	r.update(func(s *wire.Status) { s.Error = err.Error() })
}

// warn logs a cause of trouble once until the next round has ended.
func (r *runner) warn(what string, err error) {
	if cause := what + ": " + endpoint.Cause(err); !r.logged[cause] {
		if r.logged == nil || len(r.logged) > 100 {
			r.logged = map[string]bool{}
		}
		r.logged[cause] = true
		r.log.Warn(what, "phase", r.snapshot().Phase, "error", err)
	}
}

// lead waits for the lease and runs rounds while it is held.
func (r *runner) lead(ctx context.Context) (ended bool, err error) {
	r.phase("standby")
	r.s.mu.Lock()
	r.knows = false // another coordinator may be ending rounds
	r.s.mu.Unlock()
	// The cost is not known while another coordinator may be charging.
	r.update(func(s *wire.Status) { s.State, s.Eps, s.Method, s.Source = Running, unknown, "", "" })
	config := &r.s.config
	lease, token, err := config.Store.Acquire(ctx, fmt.Sprintf("task-%x", r.id), config.Holder, config.LeaseTTL)
	if err != nil {
		return false, err
	}
	held, drop := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { drop(renew(held, lease, config.LeaseTTL)) })
	defer func() {
		drop(nil)
		wg.Wait()
		// Release the lease, so that another coordinator need not wait until it ends.
		release, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		_ = lease.Release(release)
	}()
	r.phase("starting")
	if err := config.Journal.Refresh(held); err != nil {
		return false, untrusted(err)
	}
	if ended, err := r.claim(held, token); ended || err != nil {
		return ended, err
	}
	r.publish(nil, nil, nil, true)
	r.compared = false
	pause := config.Backoff
	for {
		step, cancel := context.WithCancel(held)
		r.mu.Lock()
		r.interrupt = cancel
		stop, endAs, why := r.stop, r.endAs, r.why
		r.mu.Unlock()
		var before = r.record.Round
		if stop {
			ended, err = true, r.finish(held, endAs, why)
		} else {
			ended, err = r.step(step)
		}
		cancel()
		if r.record.Round != before {
			pause, r.logged = config.Backoff, nil
		}
		switch {
		case held.Err() != nil:
			return false, errors.Join(err, context.Cause(held))
		case err == nil && ended:
			return true, nil
		case errors.Is(err, ErrFatal):
			return false, err
		case errors.Is(err, store.ErrConflict):
			return false, err // another coordinator leads
		case err != nil:
			ended = false
			r.pure = nil
			r.mu.Lock()
			stopping := r.stop
			r.mu.Unlock()
			if stopping && !stop {
				continue
			}
			r.trouble(err)
			if !sleep(held, pause) {
				return false, context.Cause(held)
			}
			pause = min(2*pause, 100*config.Backoff)
			if err := r.reload(held); err != nil {
				if errors.Is(err, ErrFatal) || errors.Is(err, store.ErrConflict) {
					return false, err
				}
				r.trouble(err)
			}
		}
	}
}

// renew keeps a lease until ctx ends or the lease is lost.
func renew(ctx context.Context, l store.Lease, ttl time.Duration) error {
	last := time.Now()
	for sleep(ctx, ttl/3) {
		begin := time.Now()
		soon, done := context.WithTimeout(ctx, ttl/3)
		err := l.Renew(soon)
		done()
		switch {
		case err == nil:
			last = begin
		case errors.Is(err, store.ErrLost) || time.Since(last) > ttl*2/3:
			return err
		}
	}
	return ctx.Err()
}

// untrusted wraps ErrFatal into an error of the ledger after which nothing may be charged.
func untrusted(err error) error {
	if errors.Is(err, ledger.ErrChain) || errors.Is(err, ledger.ErrMark) || errors.Is(err, ledger.ErrCharged) {
		return fmt.Errorf("%w: %w", ErrFatal, err)
	}
	return err
}

func taskKey(id [32]byte) string     { return fmt.Sprintf("task.%x", id) }
func stateKey(id [32]byte) string    { return fmt.Sprintf("state.%x", id) }
func fatal(f string, a ...any) error { return fmt.Errorf("%w: %w", ErrFatal, fmt.Errorf(f, a...)) }

// claim takes the task over under the lease's number. It stores the task and its first
// state if there are none.
func (r *runner) claim(ctx context.Context, fence uint64) (ended bool, err error) {
	t, err := r.register(ctx)
	if err != nil {
		return false, err
	}
	if t.State == Removed {
		r.end(t.State, t.Why)
		return true, nil
	}
	rec, revision, err := readRecord(ctx, r.s.config.Store, r.id)
	if errors.Is(err, store.ErrNotFound) {
		if _, charged := r.lastCharge(); charged {
			return false, fatal("task %q has no state, but its ledger has entries", r.task.Name)
		}
		rec, err = r.first(ctx)
	}
	if err != nil {
		return false, err
	}
	r.record = rec
	if fence < r.record.Fence {
		return false, fatal("the lease of task %q has number %d, its state was written under %d", r.task.Name, fence, r.record.Fence)
	}
	if t.State == Running {
		// Check this before anything is announced or published.
		if _, _, err := r.openCharge(); err != nil {
			return false, err
		}
	}
	r.revision, r.record.Fence, r.pure, r.attempts = revision, fence, nil, 0
	if err := r.save(ctx, r.record); err != nil {
		return false, err
	}
	r.show()
	r.sweepNoise(ctx, t.State != Running)
	if t.State != Running || r.record.Open == nil || !r.record.Open.Charged {
		r.sweepOpenings(ctx)
	}
	if t.State != Running {
		r.destroyOpen(ctx)
		r.destroyEnded(ctx)
		r.end(t.State, t.Why)
		return true, nil
	}
	return false, nil
}

// lastCharge returns the ledger's last entry of the task, if there is one.
func (r *runner) lastCharge() (last wire.Entry, ok bool) {
	r.s.config.Journal.View(func(b *ledger.Book) { last, ok = b.Last(r.id) })
	return last, ok
}

// openCharge returns the ledger's entry of the open round, if there is one. An entry of
// another round that has not ended is fatal: the state is then older than the ledger, and
// a round could open a second batch for one charge.
func (r *runner) openCharge() (last wire.Entry, opened bool, err error) {
	last, ok := r.lastCharge()
	if !ok || last.Round <= r.record.Round {
		return last, false, nil
	}
	if last.Round > r.record.Round+1 || r.record.Open == nil {
		return last, false, fatal("round %d of task %q is charged, its state is of round %d: it is older than the ledger",
			last.Round, r.task.Name, r.record.Round)
	}
	if a, err := r.announcement(); err != nil || wire.Digest(*a) != last.Announcement {
		return last, false, fatal("round %d of task %q is charged for another announcement", last.Round, r.task.Name)
	} else if c, err := r.s.config.Shuffler.CheckClosed(a, r.record.Open.Closed); err != nil || c.Digest != last.Batch {
		return last, false, fatal("round %d of task %q is charged for another batch", last.Round, r.task.Name)
	}
	return last, true, nil
}

// fill copies what the record says to a status.
func (r *runner) fill(s *wire.Status, entries int64) {
	s.Round, s.Model, s.Counts, s.Charged = r.record.Round, r.record.Model, cloned(r.record.Counts), entries
	if s.Until = s.Task.Rounds; r.task.Participation != dp.Once {
		s.Until = min(r.task.LastRound(), s.Task.Rounds+s.Void)
	}
	if f := r.record.Failed; f != nil {
		s.FailedRound, s.Failure = f.Round, f.Why
	}
	s.Word, s.Receipts = r.record.lastTold()
}

// show brings the status up to date with the record and the ledger.
func (r *runner) show() {
	b, err := r.ledger.Spent()
	entries := int64(len(r.ledger.Entries()))
	r.update(func(s *wire.Status) {
		r.fill(s, entries)
		if s.Eps, s.Method, s.Source = dp.Number(b.Eps), b.Method, b.Source; err != nil {
			s.Eps, s.Method, s.Source = unknown, err.Error(), ""
		}
	})
	r.showTold()
}

// publish shows clients an announcement and its model, or none.
func (r *runner) publish(signed []byte, a *wire.Announcement, model []byte, leading bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.announced, r.model, r.leading = signed, model, leading
	r.round, r.until = 0, time.Time{}
	if a != nil {
		r.round, r.until = a.Round, time.UnixMilli(a.Deadline)
	}
	r.offered = r.record.Model
	close(r.changed)
	r.changed = make(chan struct{})
}

// finish stores that the task has ended.
func (r *runner) finish(ctx context.Context, state string, why string) error {
	db := r.s.config.Store
	t, revision, err := readTask(ctx, db, r.id)
	if err != nil {
		return err
	}
	if t.State == Running {
		t.State, t.Why = state, why
		if _, err := db.Put(ctx, taskKey(r.id), encodeTask(t), revision); err != nil {
			return err
		}
	}
	r.sweepNoise(ctx, true)
	r.sweepOpenings(ctx)
	r.destroyOpen(ctx)
	r.destroyLast(ctx)
	r.end(t.State, t.Why)
	return nil
}

// destroyLast has the shuffler destroy the last round of a task that has ended. It stores that
// this is done, so that later starts need not do it again.
func (r *runner) destroyLast(ctx context.Context) {
	untold := r.record.Untold
	if r.destroyEnded(ctx); r.record.Untold != untold {
		_ = r.save(ctx, r.record) // if this fails, the next start destroys again
	}
}

func (r *runner) end(state string, why string) {
	r.phase(string(state))
	r.update(func(s *wire.Status) { s.State, s.Why, s.Error = state, why, "" })
	r.log.Info("task has ended", "state", string(state), "why", why, "round", r.record.Round)
	r.close()
}

// close wakes all who wait for the task's end.
func (r *runner) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.ended:
	default:
		close(r.ended)
	}
}

// destroyOpen has the shuffler destroy the round that was open when the task ended.
func (r *runner) destroyOpen(ctx context.Context) {
	if r.record.Open == nil {
		return
	}
	a, err := r.announcement()
	if err == nil {
		err = r.s.config.Shuffler.Destroy(ctx, wire.Digest(*a))
	}
	if err != nil && ctx.Err() == nil { // the next start tries again
		r.warn("the shuffler was not told of a task's end", err)
	}
}

// destroyEnded has the shuffler destroy the round that ended last.
func (r *runner) destroyEnded(ctx context.Context) {
	if r.record.Untold == (hash{}) {
		return
	}
	if err := r.s.config.Shuffler.Destroy(ctx, r.record.Untold); err != nil {
		if ctx.Err() == nil {
			r.warn("the shuffler was not told of a round's end", err)
		}
		return
	}
	r.record.Untold = hash{} // stored with the next save
}

// checkRoster refuses a changed enrolment with participation once: its blocks must stay.
func (r *runner) checkRoster(e *wire.Enrolment) error {
	if r.task.Participation == dp.Once && r.task.MinClients == 0 && r.record.Roster != (hash{}) && r.record.Roster != e.Roster {
		return fmt.Errorf("the enrolment has changed: with participation once, who is in a block must stay")
	}
	return nil
}
