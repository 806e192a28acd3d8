package coordinator

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/store"
)

// maxWait is the longest that a request waits for an announcement.
const maxWait = 60 * time.Second

// How long a cache in front of the coordinator may keep what it was told last. Requests that differ
// in nothing but their caller are the same to a cache, so clients beyond count ask it as one.
const (
	announcementAge = time.Second // at most to the round's deadline
	noneAge         = time.Second // that there is no further round yet
	listAge         = 5 * time.Second
)

// Handler answers the public requests of SPEC.md, and GET /v1/status.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	var tasks, status lastAnswer
	mux.HandleFunc("GET /v1/tasks", func(w http.ResponseWriter, q *http.Request) {
		var b bytes.Buffer
		for _, r := range s.List() {
			if r.State == Running || r.State == Paused { // clients look for tasks that go on
				fmt.Fprintf(&b, "%x\n", r.ID)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		endpoint.Passing(w, q, listAge, tasks.shared(b.Bytes()))
	})
	mux.HandleFunc("GET /v1/tasks/{task}", func(w http.ResponseWriter, q *http.Request) {
		if r := s.named(w, q); r != nil {
			endpoint.Lasting(w, q, digestOf(r.t.Signed), r.t.Signed)
		}
	})
	mux.HandleFunc("GET /v1/tasks/{task}/announcement", s.serveAnnouncement)
	mux.HandleFunc("GET /v1/models/{digest}", s.serveModel)
	mux.HandleFunc("GET /v1/rounds/{announcement}/closed", s.serveClosed)
	mux.HandleFunc("GET /v1/rounds/{announcement}/receipts", s.serveReceipts)
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		list := []map[string]any{}
		for _, r := range s.List() {
			list = append(list, public(r))
		}
		var b bytes.Buffer
		if err := json.NewEncoder(&b).Encode(map[string]any{"tasks": list}); err != nil {
			s.config.Log.Warn("a status cannot be written", "error", err)
			endpoint.Refuse(w, wire.Unavailable, "")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(status.shared(b.Bytes()))
	})
	return mux
}

// lastAnswer is the answer that was given last. Slow readers hold answers in memory; equal
// answers share theirs.
type lastAnswer struct {
	mu sync.Mutex
	b  []byte
}

// shared returns b, or the last answer if it is equal.
func (l *lastAnswer) shared(b []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !bytes.Equal(l.b, b) {
		l.b = b
	}
	return l.b
}

// digest reads the digest in a path. If the path has no valid digest, it answers with the
// refusal and returns false.
func digest(w http.ResponseWriter, text string) (d [32]byte, ok bool) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(d) {
		endpoint.Refuse(w, wire.Malformed, "a digest has 64 hexadecimal digits")
		return d, false
	}
	copy(d[:], b)
	return d, true
}

func (s *Service) named(w http.ResponseWriter, q *http.Request) *runner {
	id, ok := digest(w, q.PathValue("task"))
	if !ok {
		return nil
	}
	r := s.find(id)
	if r == nil {
		endpoint.Refuse(w, wire.UnknownRound, "no such task")
	}
	return r
}

// number reads an optional number of a query.
func number(w http.ResponseWriter, q *http.Request, name string) (int64, bool) {
	text := q.URL.Query().Get(name)
	if text == "" {
		return 0, true
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		endpoint.Refuse(w, wire.Malformed, name+" must be a number of at least 0")
		return 0, false
	}
	return n, true
}

func (s *Service) serveAnnouncement(w http.ResponseWriter, q *http.Request) {
	r := s.named(w, q)
	if r == nil {
		return
	}
	after, ok := number(w, q, "after")
	if !ok {
		return
	}
	seconds, ok := number(w, q, "wait")
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(q.Context(), min(maxWait, time.Duration(min(seconds, 3600))*time.Second))
	defer cancel()
	for {
		r.mu.Lock()
		signed, round, until, leading, changed := r.announced, r.round, r.until, r.leading, r.changed
		r.mu.Unlock()
		select {
		case <-r.ended:
			endpoint.Refuse(w, wire.Closed, "the task has ended")
			return
		default:
		}
		if signed != nil && round > after {
			endpoint.Passing(w, q, min(announcementAge, time.Until(until)), signed)
			return
		}
		if !leading {
			endpoint.Refuse(w, wire.Unavailable, "this coordinator does not lead the task now")
			return
		}
		select {
		case <-changed:
		case <-r.ended:
		case <-ctx.Done():
			endpoint.ShortLived(w, noneAge)
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
}

func (s *Service) serveModel(w http.ResponseWriter, q *http.Request) {
	d, ok := digest(w, q.PathValue("digest"))
	if !ok {
		return
	}
	b := s.announced(d)
	if b == nil {
		b = s.models.get(d)
	}
	if b == nil {
		var err error
		b, err = s.oldModel(q.Context(), d)
		if b != nil {
			defer s.old.release(d)
		}
		if err != nil {
			endpoint.Refuse(w, wire.Unavailable, "the model cannot be read now")
			return
		}
	}
	if b == nil {
		endpoint.Refuse(w, wire.UnknownRound, "no such model")
		return
	}
	endpoint.Lasting(w, q, d, b)
}

// announced returns the model with a digest if it is that of an open round; nil if it is not. All
// who read it share its memory.
func (s *Service) announced(d hash) []byte {
	for _, r := range s.all() {
		r.mu.Lock()
		b, offered := r.model, r.offered
		r.mu.Unlock()
		if b != nil && offered == d {
			return b
		}
	}
	return nil
}

// The search for models that are in no open round takes at most 1/lookShare of the time,
// however many digests somebody invents.
const lookShare = 20

// oldModel returns a model that is in no open round; nil if there is none. The caller must
// release it. One search runs at a time, and lookShare limits how often.
func (s *Service) oldModel(ctx context.Context, d [32]byte) ([]byte, error) {
	if b := s.old.share(d, nil); b != nil {
		return b, nil
	}
	if !s.looking.TryLock() {
		return nil, errLooking
	}
	defer s.looking.Unlock()
	if time.Now().Before(s.lookAgain) || s.old.full() {
		return nil, errLooking
	}
	began := time.Now()
	defer func() { s.lookAgain = time.Now().Add((lookShare - 1) * time.Since(began)) }()
	for _, r := range s.all() {
		b, err := s.readModel(ctx, r.id, d)
		if err == nil {
			return s.old.share(d, b), nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
	}
	return nil, nil
}

var errLooking = errors.New("coordinator: another model is being looked for")

// oldModels are old models while they are sent. All who read one, however slowly, share
// its memory.
type oldModels struct {
	mu sync.Mutex
	by map[hash]*sharedModel
}

type sharedModel struct {
	b       []byte
	readers int
}

// full says that no further model may be shared.
func (l *oldModels) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := 0
	for _, one := range l.by {
		size += len(one.b)
	}
	return len(l.by) >= cached || size >= cachedBytes
}

// share returns a model until release: the one that is shared already, or b.
func (l *oldModels) share(d hash, b []byte) []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.by[d]
	if one == nil {
		if b == nil {
			return nil
		}
		if l.by == nil {
			l.by = map[hash]*sharedModel{}
		}
		one = &sharedModel{b: b}
		l.by[d] = one
	}
	one.readers++
	return one.b
}

func (l *oldModels) release(d hash) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.by[d]
	if one.readers--; one.readers == 0 {
		delete(l.by, d)
	}
}
