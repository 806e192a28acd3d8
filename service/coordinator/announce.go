package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// This file announces rounds: whether there is a further one, and what is said of it. round.go has what
// follows.

// announce stores the next announcement, unless the task ends here.
func (r *runner) announce(ctx context.Context) (ended bool, err error) {
	r.destroyEnded(ctx)
	if why := r.complete(); why != "" {
		return true, r.finish(ctx, Done, why)
	}
	if r.record.Paused != "" {
		if err := r.pause(ctx); err != nil {
			return false, err
		}
	}
	r.phase("waiting")
	if hold := r.s.config.Hold; hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if !sleep(ctx, r.t.Pause) {
		return false, ctx.Err()
	}
	now := time.Now()
	e, err := r.s.config.Shuffler.Enrolment(ctx, r.task.Population, now)
	if err != nil {
		return false, err
	}
	if err := r.checkRoster(&e); err != nil {
		return true, r.finish(ctx, Refused, err.Error())
	}
	if err := r.s.noteRoster(ctx, &e); err != nil {
		return false, err
	}
	if least := r.task.MinClients; e.Clients < least {
		return false, fmt.Errorf("coordinator: %d clients are enrolled, the task counts on %d: the next round waits for others to join", e.Clients, least)
	}
	if err := r.load(ctx, e.Clients); err != nil {
		return false, err
	}
	if users := r.users(); users > 0 {
		most, err := r.mostReports(e.Clients)
		if err != nil {
			return false, err
		}
		if most > users {
			return false, fmt.Errorf("coordinator: up to %d clients may report, the vector sum is made for %d", most, users)
		}
	}
	// Clients should not report to a round that the budgets do not allow. The charge itself
	// decides.
	event, charged, err := r.pure.Planned()
	if err != nil {
		return false, err
	}
	if err := r.ledger.Affords(event); charged && err != nil {
		state, why := r.spent(err)
		return true, r.finish(ctx, state, why)
	}
	if err := r.able(ctx); err != nil {
		return false, err
	}
	a, err := r.compose(&e, now)
	if err != nil {
		return false, err
	}
	next := r.record
	next.Roster = e.Roster
	next.Open = &openRound{Announcement: wire.Sign(r.s.config.Key, wire.LabelAnnouncement, wire.Encode(a))}
	r.attempts = 0
	if err := r.save(ctx, next); err != nil {
		return false, err
	}
	r.update(func(s *wire.Status) { s.Error = "" }) // what kept the round from being announced is over
	return false, nil
}

// complete says why no further round is announced; it is empty if there is one. Void rounds do
// not count, because they are in no model and not in the ledger. There is still a last round,
// so that a task to which too few clients come ends.
func (r *runner) complete() string {
	t, n := r.task, r.record.Counts
	last := t.LastRound()
	switch run := n.Released + n.Failed; {
	case run >= t.Rounds && t.Rounds == 1:
		return "its round was run"
	case run >= t.Rounds, r.record.Round >= last && t.Rounds == last:
		return fmt.Sprintf("all %d rounds were run", t.Rounds)
	case r.record.Round >= last:
		return fmt.Sprintf("%d of %d rounds were run, the others of %d attempts, the most there are, were void", run, t.Rounds, last)
	}
	return ""
}

// spent says how a task ends whose next round the ledger refuses. Where noise is correlated void rounds are charged with
// the next that is not void, so a task with void rounds may have had all that its budget was made for.
func (r *runner) spent(err error) (state, why string) {
	if n, t := r.record.Counts, r.task; t.Every > 0 && r.record.Round >= t.Rounds && errors.Is(err, ledger.ErrBudget) {
		return Done, fmt.Sprintf("%d of %d rounds were run, and %d void; where noise is correlated these count: %v", n.Released+n.Failed, t.Rounds, n.Void, err)
	}
	return Refused, err.Error()
}

// users is the most reports that the task's vector sum is made for; 0 if it is none.
func (r *runner) users() int64 {
	switch {
	case r.sum != nil:
		return r.sum.Params.Users
	case r.proved != nil:
		return r.proved.Users
	}
	return 0
}

// mostReports is how many of n clients can report in a round.
func (r *runner) mostReports(n int64) (int64, error) {
	switch r.task.Participation {
	case dp.Sampled:
		return r.t.Sample, nil
	case dp.Once:
		b, err := r.blocks(n)
		if err != nil {
			return 0, err
		}
		_, largest := b.Range(0) // the first blocks are the largest
		return largest, nil
	}
	return n, nil
}

// compose adds to the pure announcement what a network needs: times, keys and sizes.
func (r *runner) compose(e *wire.Enrolment, now time.Time) (wire.Announcement, error) {
	a := r.pure.Announce()
	deadline := now.Add(r.t.Round)
	a.Enrolment, a.Opens, a.Deadline = wire.Digest(*e), now.UnixMilli(), deadline.UnixMilli()
	a.Coordinator = r.s.config.Keyring.Keys[0]
	if err := a.Coordinator.Valid(deadline); err != nil {
		return a, err
	}
	var err error
	if a.ReportBytes, err = envelope.PartSize(a.Coordinator.Suite, r.partSize); err != nil {
		return a, err
	}
	if r.s.config.AnnounceLedger {
		head := r.head()
		a.Ledger = &head
	}
	if r.users() == 0 {
		return a, nil
	}
	if len(e.Aggregator) == 0 {
		return a, errors.New("coordinator: the enrolment names no aggregator")
	}
	a.Aggregator = e.Aggregator[0]
	if err := a.Aggregator.Valid(deadline); err != nil {
		return a, err
	}
	a.ShareBytes, err = envelope.PartSize(a.Aggregator.Suite, r.shareSize)
	return a, err
}
