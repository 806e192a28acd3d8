package client

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// rounds takes part in the rounds of one task, one after the other.
type rounds struct {
	fleet *Fleet
	terms *client.Terms

	last   int64      // the round that was announced last, taken part in or not
	digest [32]byte   // digest of its announcement
	head   *wire.Head // the ledger's head that an admitted announcement of the task told last; nil: none
	model  [32]byte   // digest of theta
	theta  []float32
	coming *download      // a model that has not come whole; nil: none
	queue  chan announced // rounds that the clients have yet to decide on
	work   sync.Pool      // a pool of *work
	late   sync.WaitGroup // for gradients that are computed, perhaps too late
	over   func()         // called when no more rounds are asked for
	making time.Duration  // from the end of an answer's time until reports leave
	leader atomic.Int32   // index of the coordinator that led the task last
	direct time.Time      // when a coordinator itself was asked last
	misled bool           // whether the cache has held a round back: it is not believed any more that there is none
}

// pollTime is the time for which a coordinator may hold back its answer about the next round.
const pollTime = 20 * time.Second

// mostQueued is how many rounds may wait while the clients decide on one. Rounds wait if a
// coordinator announces the next round before the deadline of the last.
const mostQueued = 4

// announced is a round that was checked and whose model was fetched.
type announced struct {
	ann       wire.Announcement
	digest    [32]byte
	enrolment wire.Enrolment
	theta     []float32
}

func (r *rounds) run(ctx context.Context) error {
	f := r.fleet
	r.work.New = func() any {
		// Reports of all rounds have one shape.
		return &work{report: r.terms.Reporter.ForRound([32]byte{}).NewReport()}
	}
	r.making = r.measure(ctx)
	// Polling never waits for clients: its timing would reveal who takes part.
	ctx, stop := context.WithCancelCause(ctx)
	r.queue = make(chan announced, mostQueued)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for o := range r.queue {
			if err := r.runMembers(ctx, o); errors.Is(err, errStore) {
				stop(err)
			} else if err != nil {
				f.notify(Notice{What: Retrying, Task: r.terms.ID, Round: o.ann.Round, Err: err})
			}
		}
	}()
	ended := r.follow(ctx)
	if ended {
		f.witness.before(r.terms.ID, math.MaxInt64)
	}
	r.over() // called before waiting for clients: its time must not reveal who takes part
	close(r.queue)
	<-done
	r.late.Wait() // the task's data are freed after this
	err := context.Cause(ctx)
	stop(nil)
	if errors.Is(err, errStore) {
		return err
	}
	if ended {
		f.notify(Notice{What: Ended, Task: r.terms.ID})
	}
	return nil
}

// follow fetches and checks rounds until ctx or the task has ended.
func (r *rounds) follow(ctx context.Context) (ended bool) {
	f := r.fleet
	retry := newBackoff()
	for ctx.Err() == nil {
		asked := time.Now()
		ann, ok, err := r.next(ctx)
		if err == nil && ok {
			err = r.round(ctx, ann)
		}
		refused := (*client.Refused)(nil)
		switch {
		case ctx.Err() != nil:
			return false
		case errors.Is(err, errEnded):
			return true
		case errors.As(err, &refused):
			f.notify(Notice{What: Declined, Task: r.terms.ID, Round: ann.Round, Err: refused.In(r.terms.ID, ann.Round)})
		case err != nil:
			f.notify(Notice{What: Retrying, Task: r.terms.ID, Round: ann.Round, Err: err})
		case ok || time.Since(asked) > pollTime/2:
			retry.reset()
			continue
		}
		// Pause even if the coordinator answers at once that there is no round.
		if retry.wait(ctx) != nil {
			return false
		}
	}
	return false
}

// round checks an announcement, fetches its model, and queues the round for the clients
// to decide. Its error concerns the round as a whole.
func (r *rounds) round(ctx context.Context, ann wire.Announcement) error {
	f, digest := r.fleet, wire.Digest(ann)
	switch {
	case ann.Round > r.last:
	case ann.Round == r.last && digest != r.digest:
		return client.Refuse(client.CauseEquivocate, "another announcement %x after %x", digest[:4], r.digest[:4])
	default:
		return client.Refuse(client.CauseRound, "not after round %d", r.last)
	}
	if ann.Round <= r.terms.Task.LastRound() {
		r.last, r.digest = ann.Round, digest
		f.witness.before(r.terms.ID, ann.Round)
	}
	until := time.UnixMilli(ann.Deadline)
	if !time.Now().Before(until) {
		return client.Refuse(client.CauseClock, "the deadline has passed")
	}
	inRound, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	var e wire.Enrolment
	if err := f.persist(inRound, r.terms.ID, ann.Round, func() (err error) {
		e, err = f.enrolment(inRound, ann)
		return err
	}); err != nil {
		return err
	}
	if err := r.terms.Admit(ann, e, time.Now()); err != nil {
		return err
	}
	ledger := headKey{population: e.Population, key: [8]byte(f.config.CoordinatorKey)}
	if err := f.heads.check(ledger, ann, r.head); err != nil {
		return err
	}
	r.head = ann.Ledger
	f.widen(ann, e)
	// Fetch the model whatever each client decides later, so that the download reveals
	// nothing.
	if r.theta == nil || r.model != ann.ModelDigest {
		r.theta = nil // free its memory before the next one comes
		if r.coming == nil || r.coming.digest != ann.ModelDigest {
			r.coming = newDownload(ann.ModelDigest, r.terms.Task.Parameters())
		}
		if err := f.persist(inRound, r.terms.ID, ann.Round, func() (err error) {
			r.theta, err = f.fetchModel(inRound, r.coming)
			return err
		}); err != nil {
			return err
		}
		r.model, r.coming = ann.ModelDigest, nil
	}
	if f.config.Announced != nil {
		f.config.Announced(r.terms.ID, ann.Round, time.UnixMilli(ann.Opens), until)
	}
	select {
	case r.queue <- announced{ann, digest, e, r.theta}:
	default:
		// Drop the round but keep polling, so that timing reveals nothing.
		f.notify(Notice{What: Declined, Task: r.terms.ID, Round: ann.Round,
			Err: client.Refuse(client.CauseRound, "%d rounds are open already", mostQueued+1).In(r.terms.ID, ann.Round)})
		return nil
	}
	f.mu.Lock()
	f.count.Rounds++
	f.mu.Unlock()
	return nil
}
