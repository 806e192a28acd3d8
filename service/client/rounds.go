package client

import (
	"context"
	"errors"
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

	last   int64    // round that was announced last, taken part in or not
	digest [32]byte // of its announcement
	model  [32]byte // digest of theta
	theta  []float32
	open   chan announced
	work   sync.Pool // of *work
	over   func()    // no more rounds are asked for
	leads  atomic.Int32
}

// pollTime is how long a coordinator is asked to wait for the next round.
const pollTime = 20 * time.Second

// waiting is how many rounds may wait for the one that is being decided: they do
// where a coordinator does not wait for deadlines.
const waiting = 4

// announced is a round that was checked and whose model is here.
type announced struct {
	ann       wire.Announcement
	digest    [32]byte
	enrolment wire.Enrolment
	theta     []float32
	begun     time.Time
}

func (r *rounds) run(ctx context.Context) error {
	f := r.fleet
	r.work.New = func() any {
		return &work{make([]float32, r.terms.Mechanism.Dim()), r.terms.Mechanism.NewReport()}
	}
	// What is asked of the coordinator, and when, does not wait for what clients
	// decide and send: who is in a round would come back later than who is not.
	ctx, stop := context.WithCancelCause(ctx)
	r.open = make(chan announced, waiting)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for o := range r.open {
			if err := r.members(ctx, o); errors.Is(err, errStore) {
				stop(err)
			} else if err != nil {
				f.tell(Notice{What: Retrying, Task: r.terms.ID, Round: o.ann.Round, Err: err})
			}
		}
	}()
	ended := r.follow(ctx)
	r.over() // before members are waited for, for the same reason
	close(r.open)
	<-done
	err := context.Cause(ctx)
	stop(nil)
	if errors.Is(err, errStore) {
		return err
	}
	if ended {
		f.tell(Notice{What: Ended, Task: r.terms.ID})
	}
	return nil
}

// follow fetches and checks rounds until ctx or the task has ended.
func (r *rounds) follow(ctx context.Context) (ended bool) {
	f := r.fleet
	retry := newBackoff()
	for ctx.Err() == nil {
		asked := time.Now()
		ann, ok, err := f.fetchAnnouncement(ctx, &r.leads, r.terms.ID, r.last, pollTime)
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
			f.tell(Notice{What: Declined, Task: r.terms.ID, Round: ann.Round, Err: refused.In(r.terms.ID, ann.Round)})
		case err != nil:
			f.tell(Notice{What: Retrying, Task: r.terms.ID, Round: ann.Round, Err: err})
		case ok || time.Since(asked) > pollTime/2:
			retry.reset()
			continue
		}
		// Also where a coordinator does not wait before it says that there is nothing.
		if retry.wait(ctx) != nil {
			return false
		}
	}
	return false
}

// round checks one announcement, fetches its model and has every client decide.
// What it returns is about the round as a whole.
func (r *rounds) round(ctx context.Context, ann wire.Announcement) error {
	f, digest := r.fleet, ann.Digest()
	switch {
	case ann.Round > r.last:
	case ann.Round == r.last && digest != r.digest:
		return client.Refuse(client.CauseEquivocate, "another announcement %x after %x", digest[:4], r.digest[:4])
	default:
		return client.Refuse(client.CauseRound, "not after round %d", r.last)
	}
	if ann.Round <= r.terms.Task.LastRound() {
		r.last, r.digest = ann.Round, digest
	}
	until := time.UnixMilli(ann.Deadline)
	if !time.Now().Before(until) {
		return client.Refuse(client.CauseClock, "the deadline has passed")
	}
	inRound, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	var e wire.Enrolment
	if err := f.persist(inRound, r.terms.ID, ann.Round, func() (err error) {
		e, err = f.enrolment(inRound, ann.Enrolment)
		return err
	}); err != nil {
		return err
	}
	begun := time.Now()
	if err := r.terms.Admit(ann, e, begun); err != nil {
		return err
	}
	// Whatever each client then decides, so that the download tells nothing.
	if r.theta == nil || r.model != ann.ModelDigest {
		if err := f.persist(inRound, r.terms.ID, ann.Round, func() (err error) {
			r.theta, err = f.fetchModel(inRound, ann.ModelDigest, r.terms.Task.Mechanism.Dim)
			return err
		}); err != nil {
			r.theta = nil
			return err
		}
		r.model = ann.ModelDigest
	}
	select {
	case r.open <- announced{ann, digest, e, r.theta, begun}:
	default:
		// As if there were room, so that when the next is asked for says nothing of
		// whether members are still waiting to send.
		f.tell(Notice{What: Declined, Task: r.terms.ID, Round: ann.Round,
			Err: client.Refuse(client.CauseRound, "%d rounds are open already", waiting+1).In(r.terms.ID, ann.Round)})
		return nil
	}
	f.mu.Lock()
	f.count.Rounds++
	f.mu.Unlock()
	return nil
}
