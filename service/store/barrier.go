package store

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go/jetstream"
)

// A barrier is a message that a stream has once: the first that was written with its suffix.
// It parts the stream into what lies before it and what comes later. In a cluster a server
// that does not know yet that another leads may answer questions from an older state. A barrier
// does not depend on such answers: it is written, so it lies after every message that was
// acknowledged before, and Before and ReadTo look at states that hold the place in question.

// AppendOnce writes the message with this suffix, unless the stream has one, and returns the
// sequence of the one that the stream has. It may be called again, by any process, at any time.
func (s *Store) AppendOnce(ctx context.Context, stream, suffix string, data []byte) (uint64, error) {
	m, err := s.message(stream, "", suffix, data)
	if err != nil {
		return 0, err
	}
	done, err := s.writing()
	if err != nil {
		return 0, err
	}
	defer done()
	full := s.logName(stream)
	seq, err := s.publish(ctx, write{stream: full, msg: m, expect: lastOfSubject})
	if !errors.Is(err, ErrConflict) {
		return seq, err
	}
	got, err := retry(ctx, s, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		h, err := s.js.Stream(ctx, full)
		if err != nil {
			return nil, err
		}
		return h.GetLastMsgForSubject(ctx, m.Subject)
	})
	if err = s.fail("barrier of "+full, err); errors.Is(err, ErrNotFound) {
		// It is being written, or the server that was asked is behind the one that refused.
		return 0, fmt.Errorf("store: barrier of %s: %w", full, ErrUnavailable)
	}
	if err != nil {
		return 0, err
	}
	return got.Sequence, s.settle(full)
}

// Before says whether the stream has the barrier with this suffix at a sequence before place,
// which must be one that was acknowledged. The answer is from a state that holds all up to place;
// if the server that answers has no such state, Before fails with ErrUnavailable.
func (s *Store) Before(ctx context.Context, stream, suffix string, place uint64) (bool, error) {
	if err := errors.Join(checkName("stream", stream), checkSuffix(suffix, false)); err != nil {
		return false, err
	}
	full, subject := s.logName(stream), s.logSubject(stream, suffix)
	type found struct{ last, barrier uint64 }
	h, err := s.handle(ctx, full)
	if err != nil {
		return false, err
	}
	got, err := retry(ctx, s, func(ctx context.Context) (f found, err error) {
		// The server takes its state before it counts the subject's messages.
		info, err := h.Info(ctx, jetstream.WithSubjectFilter(subject))
		if err != nil {
			return f, err
		}
		f.last = info.State.LastSeq
		if info.State.Subjects[subject] == 0 {
			return f, nil
		}
		m, err := h.GetLastMsgForSubject(ctx, subject)
		if err == nil {
			f.barrier = m.Sequence
		}
		return f, err
	})
	switch {
	case err != nil:
		return false, s.fail("barrier of "+full, err)
	case got.barrier == 0 && got.last < place:
		return false, fmt.Errorf("store: barrier of %s: the server knows %d messages of %d: %w", full, got.last, place, ErrUnavailable)
	}
	return got.barrier != 0 && got.barrier < place, nil
}

// mostHandles bounds the handles of streams that are kept for Before.
const mostHandles = 64

// handle returns a handle of a stream, which may have been deleted meanwhile.
func (s *Store) handle(ctx context.Context, full string) (jetstream.Stream, error) {
	s.mu.Lock()
	h := s.barred[full]
	s.mu.Unlock()
	if h != nil {
		return h, nil
	}
	h, err := retry(ctx, s, func(ctx context.Context) (jetstream.Stream, error) { return s.js.Stream(ctx, full) })
	if err != nil {
		return nil, s.fail("barrier of "+full, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.barred) >= mostHandles {
		clear(s.barred)
	}
	s.barred[full] = h
	return h, nil
}

// ReadTo yields the messages of a stream that match one of the filters, as Read does, up to the
// one at sequence to. That one must match, too: only when it was seen is it certain that
// nothing before it is missing, whichever server was asked. Else ReadTo ends with ErrUnavailable.
func (s *Store) ReadTo(ctx context.Context, stream string, to uint64, filters ...string) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		if to == 0 {
			return
		}
		for m, err := range s.readAll(ctx, stream, 0, filters...) {
			if err == nil && m.Seq > to {
				break // the one at to was not there
			}
			if !yield(m, err) || err != nil || m.Seq == to {
				return
			}
		}
		yield(Message{}, fmt.Errorf("store: read %s: message %d was not seen: %w", s.logName(stream), to, ErrUnavailable))
	}
}
