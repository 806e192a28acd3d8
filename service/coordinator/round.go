package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/store"
)

// maxAttempts is the number of times that a charged batch is fetched if it turns out to
// differ from the signed one. After that the round gives no step.
const maxAttempts = 3

// step continues the open round, or a new one, until that round has ended. ended says that the
// task has ended.
func (r *runner) step(ctx context.Context) (ended bool, err error) {
	if !r.compared { // before anything is announced, charged or opened
		if err := r.s.CompareLedger(ctx, r.task.Population); err != nil {
			return false, err
		}
		r.compared = true
	}
	if r.record.Open == nil {
		// While the mark cannot be written no batch may be fetched, so no client should report either.
		if err := r.s.config.Journal.SaveMark(); err != nil {
			return false, err
		}
		if ended, err := r.announce(ctx); ended || err != nil || r.record.Open == nil {
			return ended, err
		}
	}
	a, err := r.announcement()
	if err != nil {
		return false, fatal("%w", err)
	}
	if r.record.Open.Closed == nil {
		if gone, err := r.collect(ctx, a); gone || err != nil {
			return false, err
		}
	}
	closed, err := r.s.config.Shuffler.CheckClosed(a, r.record.Open.Closed)
	if err != nil {
		return false, fatal("%w", err) // the document was checked before it was stored
	}
	if r.pure == nil {
		if err := r.load(ctx, a.Population); err != nil {
			return false, err
		}
	}
	if closed.Void && !r.task.Trust.Is(dp.Alone) {
		return false, r.void(ctx, &closed)
	}
	if !r.record.Open.Charged { // the aggregator may have been started otherwise since the announcement
		if err := r.able(ctx); err != nil {
			return false, err
		}
	}
	if ended, err := r.charge(ctx, a, &closed); ended || err != nil || r.record.Open == nil {
		return ended, err
	}
	// Before the batch is fetched the mark counts the charge, also one that an earlier try has written and
	// whose mark has failed: what is not marked is forgotten with a store that is restored from an older copy.
	if err := r.s.config.Journal.SaveMark(); err != nil {
		return false, err
	}
	if err := r.s.CompareLedger(ctx, r.task.Population); err != nil {
		return false, err
	}
	return false, r.open(ctx, a, &closed)
}

// collect has the shuffler open the round, and waits for its signed statement that the round is
// closed. gone says that the round has ended without that statement.
func (r *runner) collect(ctx context.Context, a *wire.Announcement) (gone bool, err error) {
	source := &r.s.config.Shuffler
	signed := r.record.Open.Announcement
	r.phase("announcing")
	word, err := source.Closed(ctx, a, 0)
	if refused := batch.IsRefused(err); refused != nil && refused.Code == http.StatusNotFound {
		if time.Now().UnixMilli() >= a.Deadline {
			// The shuffler never had the round, and nobody has seen it: announce it anew.
			return true, r.forget(ctx)
		}
		if err := source.Open(ctx, signed); err != nil {
			refused := batch.IsRefused(err)
			if refused == nil {
				return false, err
			}
			r.log.Warn("the shuffler refuses a round", "round", a.Round, "reason", string(refused.Reason), "detail", refused.Detail)
			if refused.Reason == wire.OldLedger {
				r.compared = false // compare again: another process may have charged meanwhile
			}
			if refused.Code == http.StatusConflict || refused.Code == http.StatusGone {
				return true, r.abandon(ctx) // the shuffler has had this round, or a later one
			}
			return true, errors.Join(r.forget(ctx), err)
		}
		word, err = nil, nil
	}
	if err != nil {
		return false, err
	}
	r.phase("collecting")
	model, err := r.s.model(ctx, r.id, r.record.Model)
	if err != nil {
		return false, err
	}
	r.publish(signed, a, model, true)
	defer r.publish(nil, nil, nil, true)
	for word == nil {
		word, err = source.Closed(ctx, a, r.s.config.Poll)
		if refused := batch.IsRefused(err); refused != nil {
			r.log.Warn("the shuffler has lost a round", "round", a.Round, "reason", string(refused.Reason))
			return true, r.abandon(ctx)
		}
		if err != nil {
			return false, err
		}
		if word == nil && !sleep(ctx, 5*time.Millisecond) {
			return false, ctx.Err()
		}
	}
	next := r.record
	next.Open = &openRound{Announcement: signed, Closed: word}
	return false, r.save(ctx, next)
}

// forget drops an announcement that the shuffler never had; the round is announced again.
func (r *runner) forget(ctx context.Context) error {
	next := r.record
	next.Open = nil
	return r.save(ctx, next)
}

// abandon ends a round that was not charged and that the shuffler no longer has.
func (r *runner) abandon(ctx context.Context) error {
	return r.endVoid(ctx, nil)
}

// void ends a round of too few reports.
func (r *runner) void(ctx context.Context, c *wire.RoundClosed) error {
	if err := r.pure.Void(); err != nil {
		return fatal("%w", err)
	}
	return r.endVoid(ctx, c.Rejected)
}

func (r *runner) endVoid(ctx context.Context, rejected []wire.Rejection) error {
	a, err := r.announcement()
	if err != nil {
		return fatal("%w", err)
	}
	next := r.record
	r.noteVoid(&next, a.Round, rejected)
	next.Round, next.Untold, next.Open = a.Round, wire.Digest(*a), nil
	r.pure, r.list = nil, nil
	unlisted, err := r.tell(ctx, &next, next.Untold)
	if err != nil {
		return err
	}
	if err := r.save(ctx, next); err != nil {
		return err
	}
	r.show()
	r.dropLists(ctx, unlisted)
	r.sweepOpenings(ctx)
	r.log.Info("round is void", "round", a.Round)
	return nil
}

// charge pays for the batch before any of it is fetched.
func (r *runner) charge(ctx context.Context, a *wire.Announcement, c *wire.RoundClosed) (ended bool, err error) {
	r.phase("charging")
	switch err := r.pure.Receive(ctx, *c); {
	case err == nil:
	case errors.Is(err, coordinator.ErrBatch):
		// The shuffler's statement cannot be true of this task: nothing is charged or opened.
		r.log.Warn("a batch is refused", "round", a.Round, "error", err)
		return false, r.abandon(ctx)
	case errors.Is(err, ledger.ErrBudget) || errors.Is(err, ledger.ErrUncounted):
		return true, r.finish(ctx, Refused, err.Error())
	default:
		return false, untrusted(err)
	}
	if r.record.Open.Charged {
		return false, nil
	}
	next := r.record
	next.Open = &openRound{Announcement: r.record.Open.Announcement, Closed: r.record.Open.Closed, Charged: true}
	return false, r.save(ctx, next)
}

// gone says whether a peer has refused for good.
func gone(err error) bool {
	r := batch.IsRefused(err)
	return r != nil && (r.Code == http.StatusNotFound || r.Code == http.StatusConflict || r.Code == http.StatusGone)
}

// open sums the charged batch and releases the model once.
func (r *runner) open(ctx context.Context, a *wire.Announcement, c *wire.RoundClosed) error {
	r.phase("opening")
	tallies, rejected, err := r.sumUp(ctx, a, c)
	if err != nil && ctx.Err() != nil {
		return err
	}
	if errors.Is(err, batch.ErrLie) {
		if r.attempts++; r.attempts < maxAttempts {
			return err
		}
	}
	o := outcome{rejected: rejected}
	if err != nil {
		if o.failed = asFailure(err); o.failed == nil {
			return err
		}
		tallies = nil
	}
	r.phase("releasing")
	before, best, err := r.guarded()
	if err != nil {
		return err
	}
	var opened int64
	for _, t := range tallies {
		opened += t.Accepted
	}
	o.accepted, _, err = r.pure.End(tallies...)
	clear(tallies) // their sums are as large as the model
	if again := opened - o.accepted; err == nil && again > 0 {
		add(o.rejected, wire.Duplicate, again) // equal seeds count once
	}
	switch {
	case err != nil && o.failed == nil:
		o.failed = &failure{FailedStep, "the optimiser takes no such step", err}
		if errors.Is(err, coordinator.ErrRange) {
			who := "a client has sent a share of something else"
			if r.proved != nil {
				who = "no reports with proofs have such a sum, so the aggregator's share is not theirs"
			}
			o.failed = noStep(FailedRange, "the sum is outside its range: %s", who)
		}
		if _, _, err := r.pure.End(); err != nil {
			return err
		}
	case err != nil:
		return err
	case o.failed == nil && o.accepted == 0:
		o.failed = noStep(FailedStep, "none of %d reports is valid", c.Reports)
	}
	o.accepted /= r.task.PerClient() // counted as reports, not as messages
	o.short = r.pure.Shortened
	var evaluation any
	if o.failed == nil && r.t.Evaluate != nil && r.t.Guard != nil && !r.t.Guard.Private {
		r.phase("evaluating")
		evaluation = r.t.Evaluate(slices.Clone(r.pure.Parameters))
		if o.failed, o.best = r.t.Guard.judge(evaluation, best); o.failed != nil {
			if err := r.pure.TakeBack(before); err != nil {
				return err
			}
		}
		r.phase("releasing")
	}
	if why := r.pure.Held(); o.failed == nil && why != "" {
		o.failed, o.held = noStep(FailedGuard, "%s", why), true
	}
	if o.failed != nil {
		r.log.Warn("a charged round gives no step", "round", a.Round, "reason", string(o.failed.reason), "error", o.failed)
		o.accepted = 0
		if r.t.Discard != nil && !o.held { // of a round that was held back the measurement counts
			if err := r.t.Discard(c.Round); err != nil {
				return fmt.Errorf("coordinator: record: %w", err)
			}
		}
	}
	return r.release(ctx, c, o, evaluation)
}

// release stores the model and, by one compare-and-swap, that the round has ended.
func (r *runner) release(ctx context.Context, c *wire.RoundClosed, o outcome, evaluation any) error {
	db := r.s.config.Store
	next := r.record
	if err := r.hold(ctx, c, &next); err != nil {
		return err
	}
	model, state := encodeModel(r.pure.Parameters), encodeState(r.pure.State().Optimizer)
	r.collectGarbage()
	old := next.Step
	next.Model, next.Step = digestOf(model), digestOf(state)
	if err := db.PutObject(ctx, stateName(r.id, next.Step), state); err != nil {
		return err
	}
	if err := db.PutObject(ctx, modelName(r.id, next.Model), model); err != nil {
		return err
	}
	r.note(&next, c.Round, o)
	for _, x := range c.Rejected {
		next.Counts.Rejected[x.Reason] += x.Count
	}
	var dropped []hash
	next.Recent, dropped = recent(next.Recent, next.Model)
	next.Round, next.Untold, next.Open = c.Round, c.Announcement, nil
	unlisted, err := r.tell(ctx, &next, c.Announcement)
	if err != nil {
		return err
	}
	if err := r.save(ctx, next); err != nil {
		return err
	}
	r.dropLists(ctx, unlisted)
	r.show()
	r.sweepNoise(ctx, false)
	r.sweepOpenings(ctx)
	r.showMeasured()
	step := o.failed == nil || o.held
	r.log.Info("round has ended", "round", c.Round, "reports", o.accepted, "step", o.failed == nil)
	r.destroyEnded(ctx)
	model, state = nil, nil
	r.collectGarbage()
	if r.t.Evaluate != nil && step {
		if evaluation == nil {
			r.phase("evaluating")
			evaluation = r.t.Evaluate(slices.Clone(r.pure.Parameters))
		}
		r.update(func(s *wire.Status) { s.Evaluation, s.EvaluatedAt = evaluation, s.Round })
	}
	if r.t.Beside != nil && step {
		r.besides.offer(c.Round, r.pure.Parameters)
	}
	// An object that is not deleted here only takes space.
	if old != next.Step {
		_ = db.Delete(ctx, store.Objects, stateName(r.id, old))
	}
	for _, h := range dropped {
		_ = db.Delete(ctx, store.Objects, modelName(r.id, h))
	}
	return nil
}

// newTallies returns n tallies.
func (r *runner) newTallies(n int) ([]*coordinator.Tally, error) {
	out := make([]*coordinator.Tally, n)
	for i := range out {
		var err error
		if out[i], err = r.pure.NewTally(); err != nil {
			return nil, err
		}
	}
	return out, nil
}
