package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/coordinator"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/ledger"
	"github.com/riffle-dp/riffle/mechanism"
	"github.com/riffle-dp/riffle/randomizer"
	"github.com/riffle-dp/riffle/wire"
)

// errFatal is wrapped where what is stored contradicts itself: the process ends
// rather than go on from it.
var errFatal = errors.New("coordinator: what is stored cannot be trusted")

// runner runs one task.
type runner struct {
	s         *Service
	t         Task
	id        [32]byte
	task      wire.Task
	mechanism randomizer.Randomizer
	sum       *mechanism.VectorSum // nil unless the task is one
	ledger    *ledger.TaskLedger
	log       *slog.Logger
	partSize  int64 // of a report's parts, before they are sealed
	shareSize int64

	// Of the goroutine that runs it.
	record   record
	revision uint64
	charging chargeLog
	pure     *coordinator.Coordinator // nil if it has to be loaded
	attempts int                      // of the open round's batch that were not what was signed

	mu        sync.Mutex
	status    Status
	announced []byte // signed announcement of the round that is open to clients
	round     int64  // of it
	leading   bool
	changed   chan struct{} // closed when announced, leading or the state changes
	ended     chan struct{} // closed when the task has ended
	stop      bool
	why       string // the operator's reason
	interrupt context.CancelFunc
	resume    chan chan error // taken while the task is paused
}

// chargeLog is the ledger that the pure coordinator sees; it keeps the error of
// a charge apart from other reasons to refuse a batch.
type chargeLog struct {
	*ledger.TaskLedger
	err error
}

func (c *chargeLog) Charge(e ledger.Entry) error {
	c.err = c.TaskLedger.Charge(e)
	return c.err
}

// run returns nil when the task or ctx has ended, and an error that wraps errFatal.
func (r *runner) run(ctx context.Context) error {
	pause := r.s.config.Backoff
	if r.t.Missing != nil {
		return r.runEnded(ctx)
	}
	for {
		ended, err := r.lead(ctx)
		r.publish(nil, 0, false)
		if ended {
			return nil
		}
		if errors.Is(err, errFatal) {
			r.phase("failed")
			r.update(func(s *Status) { s.Error = err.Error() })
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

// runEnded shows a task that has ended and cannot be made again.
func (r *runner) runEnded(ctx context.Context) error {
	for {
		err := r.loadEnded(ctx)
		switch {
		case err == nil:
			r.log.Error("an ended task can be shown, not made again", "error", r.t.Missing)
			r.update(func(s *Status) { s.Error = r.t.Missing.Error() })
			r.publish(nil, 0, false)
			return nil
		case errors.Is(err, errFatal):
			return err
		}
		r.trouble(err)
		if !sleep(ctx, r.s.config.Backoff) {
			return nil
		}
	}
}

func (r *runner) loadEnded(ctx context.Context) error {
	ended, t, err := Ended(ctx, r.s.config.Store, r.id)
	if err != nil {
		return err
	}
	if !ended {
		return fatal("task %q has not ended, and it cannot be made: %w", r.task.Name, r.t.Missing)
	}
	b, _, err := r.s.config.Store.Get(ctx, r.stateKey())
	if err != nil {
		return err
	}
	if r.record, err = decodeRecord(b); err != nil {
		return fatal("%w", err)
	}
	r.destroyOpen(ctx)
	r.tell(ctx)
	r.show()
	r.end(t.State, t.Why)
	return nil
}

// Ended looks up whether a task has ended, and how.
func Ended(ctx context.Context, s Store, task [32]byte) (ended bool, how End, err error) {
	r := runner{id: task}
	b, _, err := s.Get(ctx, r.taskKey())
	if errors.Is(err, ErrNotFound) {
		return false, End{}, nil // no process has led it yet
	}
	if err != nil {
		return false, End{}, err
	}
	t, err := decodeTask(b)
	if err != nil {
		return false, End{}, fatal("%w", err)
	}
	return t.State != Running, End{t.State, t.Why}, nil
}

func (r *runner) trouble(err error) {
	r.log.Warn("trying again", "phase", r.snapshot().Phase, "error", err)
	r.update(func(s *Status) { s.Error = err.Error() })
}

// lead waits for the lease and runs rounds while it is held.
func (r *runner) lead(ctx context.Context) (ended bool, err error) {
	r.phase("standby")
	// Another may be charging.
	r.update(func(s *Status) { s.State, s.Eps, s.Method, s.Source = Running, -1, "", "" })
	config := &r.s.config
	lease, err := config.Store.Acquire(ctx, "task-"+r.name(), config.Holder, config.LeaseTTL)
	if err != nil {
		return false, err
	}
	held, drop := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { drop(keep(held, lease, config.LeaseTTL)) })
	defer func() {
		drop(nil)
		wg.Wait()
		// Given up, so that another need not wait. If it is lost, another has it.
		release, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		_ = lease.Release(release)
	}()
	r.phase("starting")
	if err := config.Journal.Refresh(held); err != nil {
		return false, untrusted(err)
	}
	if ended, err := r.claim(held, lease.Token()); ended || err != nil {
		return ended, err
	}
	r.publish(nil, 0, true)
	pause := config.Backoff
	for {
		step, cancel := context.WithCancel(held)
		r.mu.Lock()
		r.interrupt = cancel
		stop, why := r.stop, r.why
		r.mu.Unlock()
		var before = r.record.Round
		if stop {
			ended, err = true, r.finish(held, Stopped, why)
		} else {
			ended, err = r.step(step)
		}
		cancel()
		if r.record.Round != before {
			pause = config.Backoff
		}
		switch {
		case held.Err() != nil:
			return false, errors.Join(err, context.Cause(held))
		case err == nil && ended:
			return true, nil
		case errors.Is(err, errFatal):
			return false, err
		case errors.Is(err, ErrConflict):
			return false, err // another leads
		case err != nil:
			ended = false
			r.pure = nil
			r.mu.Lock()
			stopping := r.stop
			r.mu.Unlock()
			if stopping && step.Err() != nil && !stop {
				continue
			}
			r.trouble(err)
			if !sleep(held, pause) {
				return false, context.Cause(held)
			}
			pause = min(2*pause, 100*config.Backoff)
			if err := r.reload(held); err != nil {
				if errors.Is(err, errFatal) || errors.Is(err, ErrConflict) {
					return false, err
				}
				r.trouble(err)
			}
		}
	}
}

// keep renews a lease until ctx ends or it is lost.
func keep(ctx context.Context, l Lease, ttl time.Duration) error {
	last := time.Now()
	for sleep(ctx, ttl/3) {
		begin := time.Now()
		renew, done := context.WithTimeout(ctx, ttl/3)
		err := l.Renew(renew)
		done()
		switch {
		case err == nil:
			last = begin
		case errors.Is(err, ErrLost) || time.Since(last) > ttl*2/3:
			return err
		}
	}
	return ctx.Err()
}

// untrusted marks the errors of a ledger after which nothing may be charged.
func untrusted(err error) error {
	if errors.Is(err, ledger.ErrChain) || errors.Is(err, ledger.ErrMark) || errors.Is(err, ledger.ErrCharged) {
		return fmt.Errorf("%w: %w", errFatal, err)
	}
	return err
}

func (r *runner) name() string       { return fmt.Sprintf("%x", r.id) }
func (r *runner) taskKey() string    { return "task." + r.name() }
func (r *runner) stateKey() string   { return "state." + r.name() }
func fatal(f string, a ...any) error { return fmt.Errorf("%w: %w", errFatal, fmt.Errorf(f, a...)) }

// claim writes the task and its first state if there are none, and takes over what
// there is under the lease's number.
func (r *runner) claim(ctx context.Context, fence uint64) (ended bool, err error) {
	store := r.s.config.Store
	t := taskRecord{Format: recordFormat, State: Running}
	b, _, err := store.Get(ctx, r.taskKey())
	switch {
	case errors.Is(err, ErrNotFound):
		if err := store.PutObject(ctx, taskName(r.id), r.t.Signed); err != nil {
			return false, err
		}
		if _, err := store.Put(ctx, r.taskKey(), encodeTask(t), 0); err != nil {
			return false, err
		}
	case err != nil:
		return false, err
	default:
		if t, err = decodeTask(b); err != nil {
			return false, fatal("%w", err)
		}
	}
	b, revision, err := store.Get(ctx, r.stateKey())
	if errors.Is(err, ErrNotFound) {
		if _, charged := r.ledger.Last(); charged {
			return false, fatal("task %q has no state, but its ledger has entries", r.task.Name)
		}
		r.record, err = r.first(ctx)
		revision = 0
	} else if err == nil {
		if r.record, err = decodeRecord(b); err != nil {
			return false, fatal("%w", err)
		}
	}
	if err != nil {
		return false, err
	}
	if fence < r.record.Fence {
		return false, fatal("the lease of task %q has number %d, its state was written under %d", r.task.Name, fence, r.record.Fence)
	}
	if t.State == Running {
		// Now, and not first when the round is: nothing is told to anyone before.
		if _, _, err := r.opened(); err != nil {
			return false, err
		}
	}
	r.revision, r.record.Fence, r.pure, r.attempts = revision, fence, nil, 0
	if err := r.save(ctx, r.record); err != nil {
		return false, err
	}
	r.show()
	if t.State != Running {
		r.destroyOpen(ctx)
		r.tell(ctx)
		r.end(t.State, t.Why)
		return true, nil
	}
	return false, nil
}

// opened returns the ledger's entry of the open round, if there is one. An entry of
// any other round that has not ended is fatal: the state is older than the ledger,
// and a round would have a second batch for one charge.
func (r *runner) opened() (last wire.Entry, opened bool, err error) {
	last, ok := r.ledger.Last()
	if !ok || last.Round <= r.record.Round {
		return last, false, nil
	}
	if last.Round > r.record.Round+1 || r.record.Open == nil {
		return last, false, fatal("round %d of task %q is charged, its state is of round %d: it is older than the ledger",
			last.Round, r.task.Name, r.record.Round)
	}
	if a, err := r.announcement(); err != nil || a.Digest() != last.Announcement {
		return last, false, fatal("round %d of task %q is charged for another announcement", last.Round, r.task.Name)
	} else if c, err := r.s.config.Shuffler.CheckClosed(a, r.record.Open.Closed); err != nil || c.Digest != last.Batch {
		return last, false, fatal("round %d of task %q is charged for another batch", last.Round, r.task.Name)
	}
	return last, true, nil
}

// show brings the status up to the record.
func (r *runner) show() {
	b, err := r.ledger.Spent()
	entries := int64(len(r.ledger.Entries()))
	r.update(func(s *Status) {
		s.Round, s.Model, s.Counts, s.Charged = r.record.Round, r.record.Model, r.record.Counts.clone(), entries
		if s.Until = s.Rounds; r.task.Participation != dp.Once {
			s.Until = min(r.task.LastRound(), s.Rounds+s.Void)
		}
		if f := r.record.Failed; f != nil {
			s.FailedRound, s.Failure = f.Round, f.Why
		}
		if s.Eps, s.Method, s.Source = b.Eps, b.Method, b.Source; err != nil {
			s.Eps, s.Method, s.Source = -1, err.Error(), ""
		}
	})
}

// publish shows clients an announcement, or none.
func (r *runner) publish(signed []byte, round int64, leading bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.announced, r.round, r.leading = signed, round, leading
	close(r.changed)
	r.changed = make(chan struct{})
}

// finish writes down that the task has ended.
func (r *runner) finish(ctx context.Context, state State, why string) error {
	store := r.s.config.Store
	b, revision, err := store.Get(ctx, r.taskKey())
	if err != nil {
		return err
	}
	t, err := decodeTask(b)
	if err != nil {
		return fatal("%w", err)
	}
	if t.State == Running {
		t.State, t.Why = state, why
		if _, err := store.Put(ctx, r.taskKey(), encodeTask(t), revision); err != nil {
			return err
		}
	}
	r.destroyOpen(ctx)
	r.tell(ctx)
	r.end(t.State, t.Why)
	return nil
}

func (r *runner) end(state State, why string) {
	r.phase(string(state))
	r.update(func(s *Status) { s.State, s.Why, s.Error = state, why, "" })
	r.log.Info("task has ended", "state", string(state), "why", why, "round", r.record.Round)
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.ended:
	default:
		close(r.ended)
	}
}

// destroyOpen has the shuffler destroy the round that a task ended in.
func (r *runner) destroyOpen(ctx context.Context) {
	if r.record.Open == nil {
		return
	}
	a, err := r.announcement()
	if err == nil {
		err = r.s.config.Shuffler.Destroy(ctx, a.Digest())
	}
	if err != nil { // it is told again at the next start
		r.log.Warn("the shuffler was not told of a task's end", "error", err)
	}
}

// tell lets the shuffler destroy the round that ended last.
func (r *runner) tell(ctx context.Context) {
	if r.record.Untold == (hash{}) {
		return
	}
	if err := r.s.config.Shuffler.Destroy(ctx, r.record.Untold); err != nil {
		r.log.Warn("the shuffler was not told of a round's end", "error", err)
		return
	}
	r.record.Untold = hash{} // written with what comes next
}

// roster refuses another enrolment where an epoch's blocks rest on it.
func (r *runner) roster(e *wire.Enrolment) error {
	if r.task.Participation == dp.Once && r.record.Roster != (hash{}) && r.record.Roster != e.Roster {
		return fmt.Errorf("the enrolment has changed: with participation once, who is in a block must stay")
	}
	return nil
}
