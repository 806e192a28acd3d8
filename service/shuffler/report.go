package shuffler

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/endpoint"
	"github.com/riffle-dp/riffle/envelope"
	pure "github.com/riffle-dp/riffle/shuffler"
	"github.com/riffle-dp/riffle/wire"
)

var (
	errClosed      = pure.Refuse(wire.Closed, "")
	errNotRunning  = pure.Refuse(wire.Unavailable, "not running")
	errUnavailable = pure.Refuse(wire.Unavailable, "")
)

// overhead is the most that seals, ids and MAC add to a report's parts.
const overhead = 4 << 10

// serveReport takes one sealed report and answers when it is durable.
func (s *Service) serveReport(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	size := r.ContentLength
	most := s.config.Limits.MaxReport + overhead
	if size < 0 || size > most {
		s.metrics.refused.add(wire.TooMany, 1)
		endpoint.RefuseAs(w, &endpoint.Refusal{Reason: wire.TooMany, Detail: "a report needs a length, and a smaller one", Code: http.StatusRequestEntityTooLarge})
		return
	}
	round, err := s.receive(r, size, began)
	if err == nil {
		s.metrics.accepted.Add(1)
		w.WriteHeader(http.StatusNoContent)
		return
	}
	var refusal *pure.Refusal
	if !errors.As(err, &refusal) {
		s.config.Log.Warn("a report could not be stored", "error", err)
		refusal = errUnavailable.(*pure.Refusal)
	}
	s.metrics.refused.add(refusal.Reason, 1)
	if round != nil {
		round.counts.add(refusal.Reason, 1)
	}
	endpoint.Refuse(w, refusal.Reason, refusal.Detail)
}

var errTorn = pure.Refuse(wire.Malformed, "the body did not arrive whole")

// receive reads a report of that size and takes it. Room for it is reserved only
// once its header names an open round that has reports of this size: announcing
// sizes and sending nothing costs a stranger a connection each, and us no more.
func (s *Service) receive(r *http.Request, size int64, began time.Time) (*round, error) {
	var header [wire.ReportHeader]byte
	if _, err := io.ReadFull(r.Body, header[:min(size, wire.ReportHeader)]); err != nil {
		return nil, errTorn
	}
	if round, err := s.meant(r.Context(), header[:min(size, wire.ReportHeader)], size, time.Now()); err != nil {
		return round, err
	}
	if err := s.slots.acquire(r.Context(), size); err != nil {
		return nil, errUnavailable
	}
	buf := buffers.Get().(*[]byte)
	defer func() {
		s.slots.release(size)
		buffers.Put(buf)
	}()
	if int64(cap(*buf)) < size {
		*buf = make([]byte, size)
	}
	body := (*buf)[:size]
	if _, err := io.ReadFull(r.Body, body[copy(body, header[:]):]); err != nil {
		return nil, errTorn
	}
	// The end is read too: the server then knows that the connection is free.
	var rest [1]byte
	_, _ = r.Body.Read(rest[:])
	s.metrics.receive.since(began)
	return s.take(r.Context(), body, time.Now())
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// meant returns the round that a report is for, if it takes reports of this size
// under this key. A round is returned with an error if it is known which was meant.
func (s *Service) meant(ctx context.Context, header []byte, size int64, now time.Time) (*round, error) {
	if !s.running.Load() {
		return nil, errNotRunning
	}
	key, digest, _, _, err := wire.DecodeReportHeader(header)
	if err != nil {
		return nil, pure.Refuse(wire.Malformed, "no report of this version")
	}
	r, err := s.round(ctx, digest)
	if err != nil {
		return nil, err
	}
	if r.closed.Load() || now.After(r.deadline) {
		return r, errClosed
	}
	want, ok := r.sizes[key]
	if !ok {
		return r, pure.Refuse(wire.WrongKey, "")
	}
	if want != size {
		return r, pure.Refuse(wire.WrongSize, "")
	}
	return r, nil
}

// take does all there is to do for a report and returns when it is durable, with
// the round as meant does.
func (s *Service) take(ctx context.Context, body []byte, now time.Time) (*round, error) {
	r, err := s.meant(ctx, body, int64(len(body)), now)
	if err != nil {
		return r, err
	}
	began := time.Now()
	report, err := s.config.Keys.OpenReport(body, r.ann.ReportBytes, r.ann.ShareBytes)
	s.metrics.open.since(began)
	switch {
	case errors.Is(err, envelope.ErrOpen), errors.Is(err, envelope.ErrKey):
		return r, pure.Refuse(wire.WrongKey, "")
	case err != nil:
		return r, pure.Refuse(wire.Malformed, "")
	}
	place, _, ok := s.roster.find(report.Client)
	if !ok {
		return r, pure.Refuse(wire.NotEnrolled, "")
	}
	began = time.Now()
	session, err := s.sessionKey(ctx, report.Client, report.Session, now)
	if err != nil {
		return r, err
	}
	err = report.Verify(session)
	s.metrics.verify.since(began)
	if err != nil {
		return r, errMAC
	}
	// Only now: who is drawn is told to nobody but the client itself.
	if !r.drawn.Has(report.Client) {
		return r, pure.Refuse(wire.NotDrawn, "")
	}
	var tag [pure.TagSize]byte
	r.tagger.Tag(tag[:0], report.Client, report.ID)
	mark := binary.BigEndian.Uint64(tag[16:]) | 1
	if seen := r.seen[place].Load(); seen == mark {
		// The answer to the first may have been lost. It is durable already.
		r.counts.add(wire.Duplicate, 1)
		return r, nil
	} else if seen != 0 {
		return r, pure.Refuse(wire.SecondReport, "")
	}
	began = time.Now()
	err = r.pack.add(ctx, tag[:], report.Part, report.Share)
	s.metrics.store.since(began)
	if err != nil {
		return r, err
	}
	if r.seen[place].CompareAndSwap(0, mark) && r.accepted.Add(1) >= r.drawn.Len() {
		s.nudge()
	}
	return r, nil
}

// serveAsk tells a client whether it is drawn.
func (s *Service) serveAsk(w http.ResponseWriter, r *http.Request) {
	body, ok := endpoint.ReadBody(w, r)
	if !ok {
		return
	}
	drawn, err := s.ask(r.Context(), body, time.Now())
	if err != nil {
		s.refuse(w, err)
		return
	}
	answer := []byte{0}
	if drawn {
		answer[0] = 1
	}
	writeBytes(w, answer)
}

func (s *Service) ask(ctx context.Context, body []byte, now time.Time) (bool, error) {
	if !s.running.Load() {
		return false, errNotRunning
	}
	m, err := wire.DecodeAsk(body)
	if err != nil {
		return false, pure.Refuse(wire.Malformed, "no ask of this version")
	}
	if _, _, ok := s.roster.find(m.Client); !ok {
		return false, pure.Refuse(wire.NotEnrolled, "")
	}
	key, err := s.sessionKey(ctx, m.Client, m.Session, now)
	if err != nil {
		return false, err
	}
	if m.Verify(key) != nil {
		return false, errMAC
	}
	r, err := s.round(ctx, m.Announcement)
	if err != nil {
		return false, err
	}
	if r.closed.Load() || now.After(r.deadline) {
		return false, errClosed
	}
	return r.drawn.Has(m.Client), nil
}

// weighted bounds the bytes that are held at a time.
type weighted struct {
	mu    sync.Mutex
	free  int64
	total int64
	next  []waiter
}

type waiter struct {
	n     int64
	ready chan struct{}
}

func newWeighted(n int64) *weighted { return &weighted{free: n, total: n} }

func (w *weighted) acquire(ctx context.Context, n int64) error {
	n = min(n, w.total)
	w.mu.Lock()
	if len(w.next) == 0 && w.free >= n {
		w.free -= n
		w.mu.Unlock()
		return nil
	}
	me := waiter{n, make(chan struct{})}
	w.next = append(w.next, me)
	w.mu.Unlock()
	select {
	case <-me.ready:
		return nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, o := range w.next {
		if o.ready == me.ready {
			w.next = append(w.next[:i], w.next[i+1:]...)
			w.grant()
			return ctx.Err()
		}
	}
	w.free += n // it was granted meanwhile
	w.grant()
	return ctx.Err()
}

func (w *weighted) release(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free += min(n, w.total)
	w.grant()
}

func (w *weighted) grant() {
	for len(w.next) > 0 && w.free >= w.next[0].n {
		w.free -= w.next[0].n
		close(w.next[0].ready)
		w.next = w.next[1:]
	}
}
