package client

import (
	"context"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// session proves to the shuffler that a report is its client's own. It is in memory
// only: a process that starts again asks for another.
type session struct {
	population wire.ID
	wire.Session
}

// sessionSpare is how long a session must last after a round's deadline: the shuffler's
// clock may be ahead, and a report that is sent at the last moment takes time to arrive.
const sessionSpare = time.Minute

// lasts says whether the session can be used for a round with this deadline.
func (s session) lasts(p wire.ID, deadline time.Time) bool {
	return s.population == p && s.Expires > deadline.Add(sessionSpare).Unix()
}

// prepare asks for every client's session before a task's first round and before any client's
// data are touched, so that the time of asking says nothing about the data. A client that gets
// no session here asks again during the round.
func (f *Fleet) prepare(ctx context.Context, t *client.Terms) {
	e, err := func() (wire.Enrolment, error) {
		if err := f.enrolled.lock(ctx); err != nil {
			return wire.Enrolment{}, err
		}
		defer f.enrolled.unlock()
		return f.latestEnrolment(ctx)
	}()
	if err != nil || e.Population != t.Task.Population {
		return // the round's announcement names its enrolment
	}
	now := time.Now()
	key, err := f.config.Policy.ShufflerKey(e, now)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTime)
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, f.config.Connections)
	for _, m := range f.members {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			_, _, _ = f.session(ctx, m, e.Population, key.Suite, now, now)
		})
	}
	wg.Wait()
}

// prepareTime is the longest time that a task waits for sessions.
const prepareTime = 2 * time.Minute

// current returns the member's session; ok says that it lasts for the round.
func (m *member) current(p wire.ID, deadline time.Time) (session, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.session, m.session.lasts(p, deadline)
}

// forget drops a session that the shuffler does not know, unless the member has another
// by now.
func (m *member) forget(old session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.session.Expires == old.Expires && m.session.Key == old.Key {
		m.session = session{}
	}
}

// session returns a session of the client that outlives a round, as the client sends the same
// sealed bytes until they are answered. If the client has none, session asks for one at the
// time at; fresh says that it did. The answer is sealed to a key that is made for it, of the
// suite that reports are sealed with.
func (f *Fleet) session(ctx context.Context, m *member, p wire.ID, suite wire.Suite, deadline, at time.Time) (s session, fresh bool, err error) {
	if s, ok := m.current(p, deadline); ok {
		return s, false, nil
	}
	if err := sleep(ctx, time.Until(at)); err != nil {
		return s, true, client.Refuse(client.CauseSession, "%v", err)
	}
	select { // two tasks may ask at the same time
	case m.asking <- struct{}{}:
	case <-ctx.Done():
		return s, true, client.Refuse(client.CauseSession, "%v", ctx.Err())
	}
	defer func() { <-m.asking }()
	if refused := m.stopped(); refused != nil {
		return s, true, refused
	}
	if s, ok := m.current(p, deadline); ok {
		return s, true, nil
	}
	key, err := envelope.GenerateKey(suite, time.Time{})
	if err != nil {
		return s, true, client.Refuse(client.CauseSession, "%v", err)
	}
	request := wire.SessionRequest{Population: p, Client: m.id, Time: time.Now().Unix(), Suite: suite, Public: key.Public.Public}
	a, err := f.post(ctx, "/v1/session", wire.Sign(m.credential.key, wire.LabelSession, wire.Encode(request)))
	if err != nil {
		return s, true, client.Refuse(client.CauseSession, "%v", err)
	}
	if a.status != statusOK {
		return s, true, client.Refuse(client.CauseSession, "%v", a.unexpected("session"))
	}
	next := session{population: p}
	if next.Session, err = key.OpenSession(request, a.body); err != nil {
		return s, true, client.Refuse(client.CauseSession, "%v", err)
	}
	if refused := m.missing(next.Taken, f.config.Policy.Count); refused != nil {
		m.stop(refused)
		return s, true, refused
	}
	if !next.lasts(p, deadline) {
		return s, true, client.Refuse(client.CauseSession, "it ends at %s, the round at %s", time.Unix(next.Expires, 0).UTC().Format(time.RFC3339), deadline.UTC().Format(time.RFC3339))
	}
	if len(next.Passes) > 0 && f.config.Relay != "" {
		f.passes.Store(&passes{request.Time / wire.PassDay, next.Passes})
	}
	next.Passes = nil // members need none of their own
	m.mu.Lock()
	defer m.mu.Unlock()
	m.session = next
	return next, true, nil
}

// missing compares the number of messages that the shuffler has taken from the client with the
// client's own ledger, which has charged each of them before it was sent. More were taken than
// charged if the ledger was cut or restored from a copy, or if another process reports with the
// same credential. needed refuses a shuffler that does not tell.
func (m *member) missing(taken *int64, needed bool) *client.Refused {
	if taken == nil {
		if needed {
			return client.Refuse(client.CauseSession, "the shuffler does not tell how many messages it has taken of this client")
		}
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if charged := m.history.Messages(); *taken > charged {
		return client.Refuse(client.CauseLedger, "the shuffler has taken %d messages of this client, its ledger has charged %d: "+
			"the ledger was cut or restored from an old copy, or the credential is used elsewhere too. "+
			"This client reports no more until dir: has its newest ledger again", *taken, charged)
	}
	return nil
}

// stop keeps the member from all further rounds if its ledger is not whole.
func (m *member) stop(why *client.Refused) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if why.Cause == client.CauseLedger {
		m.over = why
	}
}

// stopped returns why the member takes part in no further round; nil if it does.
func (m *member) stopped() *client.Refused {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over == nil {
		return nil
	}
	again := *m.over
	return &again
}
