package client

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/wire"
)

// session is what a client proves to the shuffler with that a report is its own.
// It is in memory only: a process that starts again asks for another.
type session struct {
	mu         sync.Mutex // held while it is asked for
	population wire.Population
	wire.Session
}

// sessionSpare is how long a session has to hold after a round's deadline: as far as
// the shuffler's clock may be ahead, and what is sent at the last moment on its way.
const sessionSpare = time.Minute

// lasts says whether a report of a round that ends then can be made with it.
func (s *session) lasts(p wire.Population, deadline time.Time) bool {
	return s.population == p && s.Expires > deadline.Add(sessionSpare).Unix()
}

// session returns a session of the client's that outlives a round: the sealed bytes
// do not change until they are answered, so that it must not end before. at is when
// one is asked for, if it has none. again says that one was asked for.
func (f *Fleet) session(ctx context.Context, m *member, p wire.Population, deadline, at time.Time) (s wire.Session, again bool, err error) {
	h := &m.session
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lasts(p, deadline) {
		return h.Session, false, nil
	}
	if err := sleep(ctx, time.Until(at)); err != nil {
		return s, true, err
	}
	request := wire.SessionRequest{Population: p, Client: m.id, Time: time.Now().Unix()}
	a, err := f.post(ctx, "/v1/session", wire.Sign(m.credential.key, wire.LabelSession, request.Append(nil)))
	if err != nil {
		return s, true, err
	}
	if a.status != http.StatusOK {
		return s, true, refuse(CauseSession, "%v", a.unexpected("session"))
	}
	next := session{population: p}
	if next.Session, err = wire.DecodeSession(a.body); err != nil {
		return s, true, refuse(CauseSession, "%v", err)
	}
	if !next.lasts(p, deadline) {
		return s, true, refuse(CauseSession, "it ends at %s, the round at %s", time.Unix(next.Expires, 0).UTC().Format(time.RFC3339), deadline.UTC().Format(time.RFC3339))
	}
	h.population, h.Session = p, next.Session
	return h.Session, true, nil
}

// forget drops a session that the shuffler does not know, unless it is another by now.
func (s *session) forget(old wire.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Session == old {
		s.Session = wire.Session{}
	}
}
