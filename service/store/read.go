package store

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

type sequenced struct {
	msg jetstream.Msg
	seq uint64
}

const (
	readAhead = 4 << 20 // bytes that a reader asks for at a time, with another such part on its way
	mostAhead = 256     // messages that it asks for at a time
	// firstPull is how long a reader waits at first for messages that it knows to be there. In a
	// cluster the first request to a new consumer may be lost: the server that is asked may not know
	// the consumer yet.
	firstPull  = 500 * time.Millisecond
	mostSilent = 2 // requests without an answer, after which the consumer is made anew
)

// read delivers what the stream has now. In a cluster any replica may serve its consumer, even one that is
// behind; so at what seems to be the end read asks the stream's leader whether there is more.
func (s *Store) read(ctx context.Context, full string, from uint64, subjects ...string) iter.Seq2[sequenced, error] {
	return func(yield func(sequenced, error) bool) {
		r := reading{s: s, stream: full, subjects: subjects, next: max(from, 1), wait: firstPull}
		defer r.forget(ctx)
		fail := func(err error) { yield(sequenced{}, s.fail("read "+full, err)) }
		// The number of messages now marks the end.
		h, err := retry(ctx, s, func(ctx context.Context) (jetstream.Stream, error) { return s.js.Stream(ctx, full) })
		if err != nil {
			fail(err)
			return
		}
		last := h.CachedInfo().State.LastSeq
		for r.next <= last {
			// patience counts from the last message on.
			patience, cancel := s.patience(ctx)
			part, err := r.part(patience, h, last)
			cancel()
			if err != nil {
				fail(err)
				return
			}
			if len(part) == 0 {
				return
			}
			if r.next <= last {
				r.ahead(ctx)
			}
			for _, m := range part {
				if m.seq > last || !yield(m, nil) {
					return
				}
			}
		}
	}
}

// reading is a place in a stream, and a consumer that delivers from there on. The consumer is made anew
// when something it sent was lost.
type reading struct {
	s        *Store
	stream   string
	subjects []string
	next     uint64        // sequence of the stream after the last message that was delivered
	wait     time.Duration // for an answer

	consumer  jetstream.Consumer // nil: to be made
	delivered uint64             // number of messages that the consumer has delivered
	pending   uint64             // number of messages that it has after those, or more
	largest   int                // bytes of the largest message so far
	silent    int                // requests in turn that nothing came for

	asked     jetstream.MessageBatch // what was asked for already, or nil
	number    int                    // of the messages that were asked for
	stopAsked context.CancelFunc
}

// part returns the next messages; none if there are none up to last.
func (r *reading) part(ctx context.Context, h jetstream.Stream, last uint64) ([]sequenced, error) {
	for {
		if r.consumer == nil {
			if err := r.renew(ctx); err != nil {
				return nil, err
			}
		}
		if r.asked == nil {
			if r.pending == 0 {
				if ok, err := r.s.more(ctx, h, r.next, last, r.subjects...); !ok {
					return nil, err
				}
			}
			if err := r.ask(ctx); err != nil {
				return nil, err
			}
		}
		part, err := r.receive()
		if len(part) > 0 {
			r.silent = 0
			return part, nil
		}
		if err == nil {
			err = context.DeadlineExceeded // nothing came
		}
		if ctx.Err() != nil || r.s.hopeless() {
			return nil, err
		}
		// The request was lost, or the consumer's server is gone.
		if r.silent++; r.silent == mostSilent || !unanswered(err) {
			r.drop()
		}
		if !sleep(ctx, 10*time.Millisecond) {
			return nil, err
		}
	}
}

// renew makes a consumer from the next message on.
func (r *reading) renew(ctx context.Context) error {
	limit := time.Second // of the first attempt: a server that has just gone answers none
	c, err := retry(ctx, r.s, func(ctx context.Context) (jetstream.Consumer, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		limit = min(2*limit, attemptTimeout)
		return r.s.js.CreateConsumer(ctx, r.stream, jetstream.ConsumerConfig{FilterSubjects: r.subjects, DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
			OptStartSeq: r.next, AckPolicy: jetstream.AckNonePolicy, MaxDeliver: 1, MemoryStorage: true, Replicas: 1, InactiveThreshold: 30 * time.Second})
	})
	if err != nil {
		return err
	}
	r.consumer, r.delivered, r.pending = c, 0, c.CachedInfo().NumPending
	return nil
}

// ask sends a request for the next messages.
func (r *reading) ask(ctx context.Context) error {
	size := r.largest
	if size == 0 {
		size = MaxData
	}
	n := min(max(r.pending, 1), mostAhead, uint64(max(1, readAhead/size)))
	attempt, cancel := context.WithTimeout(ctx, r.wait)
	batch, err := r.consumer.Fetch(int(n), jetstream.FetchContext(attempt))
	if errors.Is(err, jetstream.ErrInvalidOption) {
		err = context.DeadlineExceeded // its time was over at once
	}
	if err != nil {
		cancel()
		return err
	}
	r.asked, r.number, r.stopAsked = batch, int(n), cancel
	return nil
}

// ahead asks for what follows the messages that have come, so that it is on its way meanwhile.
func (r *reading) ahead(ctx context.Context) {
	if r.consumer == nil || r.pending == 0 || r.ask(ctx) != nil {
		r.asked = nil
	}
}

// receive returns the messages that came for the request. If one before them was lost, they are left
// out, and the consumer with them.
func (r *reading) receive() (part []sequenced, err error) {
	defer func() { r.stopAsked(); r.asked = nil }()
	for m := range r.asked.Messages() {
		meta, bad := m.Metadata()
		if bad != nil || meta.Sequence.Consumer != r.delivered+1 {
			r.drop()
			return part, bad
		}
		if meta.Sequence.Stream < r.next {
			r.delivered, r.pending = meta.Sequence.Consumer, meta.NumPending
			continue // a replica that is behind began earlier than it was asked to
		}
		part = append(part, sequenced{m, meta.Sequence.Stream})
		r.delivered, r.pending, r.next = meta.Sequence.Consumer, meta.NumPending, meta.Sequence.Stream+1
		r.largest = max(r.largest, len(m.Data()))
	}
	if len(part) < r.number {
		r.wait = min(2*r.wait, attemptTimeout/2)
	}
	return part, r.asked.Error()
}

// drop leaves the consumer to its InactiveThreshold; its server may not answer.
func (r *reading) drop() { r.consumer, r.silent = nil, 0 }

// forget deletes the consumer.
func (r *reading) forget(ctx context.Context) {
	if r.asked != nil {
		r.stopAsked()
		r.asked = nil
	}
	if r.consumer != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), attemptTimeout)
		defer cancel()
		_ = r.s.js.DeleteConsumer(ctx, r.stream, r.consumer.CachedInfo().Name)
		r.consumer = nil
	}
}

// more asks the stream's leader for a message of one of the subjects whose sequence lies between
// next and last.
func (s *Store) more(ctx context.Context, h jetstream.Stream, next, last uint64, subjects ...string) (bool, error) {
	for _, subject := range subjects {
		if next > last {
			return false, nil
		}
		m, err := retry(ctx, s, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
			return h.GetMsg(ctx, next, jetstream.WithGetMsgSubject(subject))
		})
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		if err != nil || m.Sequence <= last {
			return err == nil, err
		}
	}
	return false, nil
}
