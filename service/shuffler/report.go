package shuffler

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/protocol/envelope"
	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
)

var (
	errClosed      = pure.Refuse(wire.Closed, "")
	errNotRunning  = pure.Refuse(wire.Unavailable, "not running")
	errUnavailable = pure.Refuse(wire.Unavailable, "")
)

// overhead is the most bytes that seals, ids, MAC and pass add to a report's parts.
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

// errTorn is for a report that did not arrive whole; the client may send it again.
var errTorn = pure.Refuse(wire.Unavailable, "the body did not arrive whole")

// receive reads a report of this size, authenticates it and stores it. For a known session
// room for the whole report is reserved before it is read. A stranger's report takes room
// as it arrives, from its address's share, and is opened only when it is whole.
func (s *Service) receive(r *http.Request, size int64, began time.Time) (*round, error) {
	ctx := r.Context()
	var room [wire.ReportHeader]byte
	header := room[:min(size, int64(len(room)))]
	if _, err := io.ReadFull(r.Body, header); err != nil {
		return nil, errTorn
	}
	round, err := s.targetRound(ctx, header, size, time.Now())
	if err != nil {
		return round, err
	}
	place, known, err := round.passes.admit(header)
	if err != nil {
		return round, err
	}
	var body []byte
	if known {
		defer round.passes.leave(place)
		endpoint.Prove(ctx, endpoint.Client(round.roster.ids[place]))
		if s.slots.acquire(ctx, size) != nil {
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
		body = (*buf)[:size]
		if _, err := io.ReadFull(r.Body, body[copy(body, header):]); err != nil {
			return nil, errTorn
		}
	} else if body, err = hold(ctx, r.Body, header, size); err != nil {
		return nil, err
	}
	// Read to the end, so that the server can reuse the connection.
	var rest [1]byte
	_, _ = r.Body.Read(rest[:])
	s.metrics.receive.since(began)
	now := time.Now()
	if round.closed.Load() || now.After(round.deadline) {
		return round, errClosed
	}
	authenticate := s.authenticateStranger
	if known {
		authenticate = s.authenticate
	}
	report, at, err := authenticate(ctx, round, body, now)
	if err != nil {
		return round, err
	}
	if known && at != int(place) {
		return round, errMAC // another client's pass
	}
	endpoint.Prove(ctx, endpoint.Client(report.Client))
	s.noteSession(report.Client, report.Session)
	return round, s.storeReport(ctx, round, report, at)
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

// firstHeld is the room that a stranger's body has at first. It doubles as it fills.
const firstHeld = 4 << 10

// hold reads a stranger's body. Its memory grows with the bytes that arrive.
func hold(ctx context.Context, from io.Reader, header []byte, size int64) ([]byte, error) {
	room := min(size, firstHeld)
	if !endpoint.Hold(ctx, room) {
		return nil, errFull
	}
	body := append(make([]byte, 0, room), header...)
	for {
		at := len(body)
		body = body[:room]
		if _, err := io.ReadFull(from, body[at:]); err != nil {
			return nil, errTorn
		}
		if room == size {
			return body, nil
		}
		next := min(size, 2*room)
		if !endpoint.Hold(ctx, next-room) {
			return nil, errFull
		}
		body, room = append(make([]byte, 0, next), body...), next
	}
}

var errFull = pure.Refuse(wire.Unavailable, "too much is being received")

// targetRound returns the round that a report is for, if the round takes reports of this
// size under this key. With an error it returns the round too, if that is known.
func (s *Service) targetRound(ctx context.Context, header []byte, size int64, now time.Time) (*round, error) {
	if !s.running.Load() {
		return nil, errNotRunning
	}
	h, _, err := wire.DecodeHeader(header)
	if err != nil {
		return nil, pure.Refuse(wire.Malformed, "no report of this version")
	}
	r, err := s.roundForStranger(ctx, h.Announcement)
	if err != nil {
		return nil, err
	}
	if r.closed.Load() || now.After(r.deadline) {
		return r, errClosed
	}
	want, ok := r.sizes[h.Key]
	if !ok {
		return r, pure.Refuse(wire.WrongKey, "")
	}
	if want != size {
		return r, pure.Refuse(wire.WrongSize, "")
	}
	return r, nil
}

// authenticateStranger is authenticate for bytes that may not be a client's. It opens at most
// one report per processor at a time, so that clients never wait for more than that.
func (s *Service) authenticateStranger(ctx context.Context, r *round, body []byte, now time.Time) (wire.Report, int, error) {
	select {
	case s.strangers <- struct{}{}:
	case <-ctx.Done():
		return wire.Report{}, 0, errUnavailable
	}
	defer func() { <-s.strangers }()
	return s.authenticate(ctx, r, body, now)
}

// stays says whether a client is enrolled now: it may have been revoked since a round was opened.
func (s *Service) stays(id wire.ID) bool {
	now := s.members()
	if now == nil {
		return false
	}
	_, _, ok := now.find(id)
	return ok
}

// authenticate opens a report and returns the place of its client in the round's roster.
func (s *Service) authenticate(ctx context.Context, r *round, body []byte, now time.Time) (report wire.Report, place int, err error) {
	began := time.Now()
	report, err = s.config.Keys.OpenReport(body, r.ann.PartBytes(), r.ann.ShareBytes)
	s.metrics.open.since(began)
	switch {
	case errors.Is(err, envelope.ErrOpen), errors.Is(err, envelope.ErrKey):
		return report, 0, pure.Refuse(wire.WrongKey, "")
	case err != nil:
		return report, 0, pure.Refuse(wire.Malformed, "")
	}
	place, _, ok := r.roster.find(report.Client)
	if !ok || !s.stays(report.Client) {
		return report, 0, pure.Refuse(wire.NotEnrolled, "")
	}
	began = time.Now()
	session, err := s.sessionKey(ctx, report.Client, report.Session, now)
	if err != nil {
		return report, 0, err
	}
	err = wire.Authentic(&report, session)
	s.metrics.verify.since(began)
	if err != nil {
		return report, 0, errMAC
	}
	return report, place, nil
}

// storeReport stores a report, and returns when it is durable.
func (s *Service) storeReport(ctx context.Context, r *round, report wire.Report, place int) error {
	// Check this only after authentication: only the client itself may learn whether it is drawn.
	if !r.has(report.Client) {
		return pure.Refuse(wire.NotDrawn, "")
	}
	tag := pure.Tag(r.order, make([]byte, 0, pure.TagSize), report.Client, report.ID)
	mark := binary.BigEndian.Uint64(tag[16:]) | 1
	if seen := r.seen[place].Load(); seen == mark {
		// The report is durable; its answer may have been lost.
		r.counts.add(wire.Duplicate, 1)
		return nil
	} else if seen != 0 {
		return pure.Refuse(wire.SecondReport, "")
	}
	began := time.Now()
	err := r.pack.add(ctx, tag, report.Part, report.Share)
	s.metrics.store.since(began)
	if err != nil {
		return err
	}
	if r.seen[place].CompareAndSwap(0, mark) && r.accepted.Add(1) >= r.drawn.Size {
		s.nudge()
	}
	return nil
}

// maxSmall bounds the size of a request for a session, and of an ask.
const maxSmall = 2 << 10

// serveAsk tells a client whether it is drawn.
func (s *Service) serveAsk(w http.ResponseWriter, r *http.Request) {
	body, ok := endpoint.ReadBody(w, r, maxSmall)
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
	m, err := wire.Decode[wire.Ask](body)
	if err != nil {
		return false, pure.Refuse(wire.Malformed, "no ask of this version")
	}
	if !s.stays(m.Client) {
		return false, pure.Refuse(wire.NotEnrolled, "")
	}
	key, err := s.sessionKey(ctx, m.Client, m.Session, now)
	if err != nil {
		return false, err
	}
	if wire.Authentic(&m, key) != nil {
		return false, errMAC
	}
	endpoint.Prove(ctx, endpoint.Client(m.Client))
	s.noteSession(m.Client, m.Session)
	r, err := s.roundForStranger(ctx, m.Announcement)
	if err != nil {
		return false, err
	}
	if r.closed.Load() || now.After(r.deadline) {
		return false, errClosed
	}
	if _, _, ok := r.roster.find(m.Client); !ok {
		return false, pure.Refuse(wire.NotEnrolled, "joined after the round was announced")
	}
	return r.has(m.Client), nil
}

// weighted is a semaphore for bytes; who waits longest goes first.
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
	w.free += n // the n units were granted meanwhile
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
