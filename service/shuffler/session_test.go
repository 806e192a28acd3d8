package shuffler

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/lab/memory"
)

const oneDay = 24 * time.Hour

// held are the masters in the store.
func (w *world) held() []string {
	w.disk.Lock()
	defer w.disk.Unlock()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(w.disk.Secrets)) {
		if strings.HasPrefix(name, masterPrefix) {
			out = append(out, name)
		}
	}
	return out
}

func TestSessionRequestsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, outsider := newWorld(t, 3), newWorld(t, 1)
		n := w.start(w.config())
		const post, to = "POST", "/v1/session"
		n.refused(wire.Malformed, "", post, to, nil)
		n.refused(wire.Malformed, "", post, to, make([]byte, 200))
		n.refused(wire.NotEnrolled, "", post, to, outsider.request(0))
		n.refused(wire.NotEnrolled, "", post, to, w.request(0, func(m *wire.SessionRequest) { m.Population[0]++ }))
		n.refused(wire.BadSignature, "", post, to, w.request(0, func(m *wire.SessionRequest) { m.Client = wire.ClientID(public(w.clients[1])) }))
		n.refused(wire.BadSignature, "", post, to, wire.Sign(w.clients[0], wire.LabelAsk, w.request(0)[64:]))
		for _, key := range [][]byte{{1}, make([]byte, 32), make([]byte, 1216)} { // too short, of low order, of another suite
			n.refused(wire.Malformed, "", post, to, w.request(0, func(m *wire.SessionRequest) { m.Public = key }))
		}
		stolen := w.request(0)
		stolen[len(stolen)-1] ^= 1 // another's key in the place of the client's
		n.refused(wire.BadSignature, "", post, to, stolen)
		at := func(d time.Duration) []byte {
			return w.request(0, func(m *wire.SessionRequest) { m.Time += int64(d / time.Second) })
		}
		n.refused(wire.Expired, "", post, to, at(sessionSkew+time.Second))
		n.refused(wire.Expired, "", post, to, at(-sessionSkew-time.Second))
		for _, d := range []time.Duration{-sessionSkew, 0, sessionSkew} {
			request := at(d)
			s := w.decoded(request, n.must("", post, to, request))
			if last := time.Duration(s.Expires-time.Now().Unix()) * time.Second; last < n.config.Limits.MaxDuration+sessionSpare || last > n.config.Limits.MaxDuration+2*sessionSkew+sessionSpare+oneDay {
				t.Errorf("a clock that is %v off: the session lasts %v", d, last)
			}
		}
		// Each client has its own, and the same request the same session.
		one := w.request(0)
		first, again := n.must("", post, to, one), n.must("", post, to, one)
		if !reflect.DeepEqual(w.decoded(one, first), w.decoded(one, again)) {
			t.Error("a repeated request has another session")
		}
		if key := w.decoded(one, first).Key; bytes.Contains(first, key[:8]) {
			t.Error("the answer shows the key")
		}
		if a, b := w.decoded(one, first), w.session(1); a.Key == b.Key || a.Expires != b.Expires {
			t.Errorf("sessions until %d and %d, one key: %t", a.Expires, b.Expires, a.Key == b.Key)
		}
		// Later a repeated request is no use at all.
		time.Sleep(sessionSkew + time.Second)
		n.refused(wire.Expired, "", post, to, one)
	})
}

// A client that is no longer enrolled is refused with the session it had, and gets
// no other.
func TestSessionsOfRemovedClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		w.start(w.config())
		session, request := w.session(3), w.request(3)
		removed := w.clients[3]
		w.node.stop()
		w.clients = w.clients[:3]
		n := w.start(w.config())
		ann := n.announcement(1)
		n.open(ann)
		w.clients = append(w.clients, removed)
		r := w.unsealed(ann, 3, 0)
		wire.Authenticate(r, session)
		n.refused(wire.NotEnrolled, "", "POST", "/v1/report", w.sealed(r))
		n.refused(wire.NotEnrolled, "", "POST", "/v1/session", request)
		n.refused(wire.NotEnrolled, "", "POST", "/v1/session", w.request(3))
		for i := range 3 {
			n.send(w.report(ann, i, 0))
		}
		if word := n.closed(ann); word.Reports != 3 || rejected(word)[wire.NotEnrolled] != 1 {
			t.Errorf("word %+v", word)
		}
	})
}

// Any process of a store knows the sessions that another one gave, also one that
// is started later and one that allows other rounds.
func TestSessionsHoldEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8)
		front := func(longest time.Duration) *node {
			c := w.config()
			c.FrontendOnly, c.Limits.MaxDuration = true, longest
			return w.start(c)
		}
		worker := w.start(w.config())
		a, b := front(0), front(0)
		ann := worker.announcement(1)
		worker.open(ann)
		w.node = a
		b.send(w.report(ann, 0, 0))
		w.node = b
		a.send(w.report(ann, 1, 0))
		// Masters that were made after the start of those who meet them.
		long := front(30 * oneDay)
		w.node = long
		far := w.report(ann, 2, 0)
		a.send(far)
		b.send(far) // it looks for the master: who asks at the same time has to try again
		b.send(w.report(ann, 3, 0))
		// And before: a restart forgets nothing.
		before := [][]byte{w.report(ann, 4, 0), w.report(ann, 5, 0)}
		w.node = a
		before = append(before, w.report(ann, 6, 0))
		for _, n := range []*node{a, b, long} {
			n.stop()
		}
		b = front(time.Hour)
		b.send(before...)
		b.send(w.report(ann, 7, 0))
		if word := worker.closed(ann); word.Reports != 8 || len(word.Rejected) != 1 {
			t.Errorf("word %+v", word) // far was sent to two
		}
	})
}

// Masters come and go; a session holds as long as it says.
func TestMastersRotate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		w.reader = sealing(t, time.Now().Add(30*oneDay))
		var err error
		if w.seal, err = envelope.NewKeyring(sealing(t, time.Now().Add(30*oneDay))); err != nil {
			t.Fatal(err)
		}
		c := w.config()
		c.Poll, c.FrontendOnly = 10*time.Minute, true
		n := w.start(c)
		c.FrontendOnly = false
		worker := w.start(c)
		w.node = n
		first := w.session(0)
		old := wire.Session{Expires: first.Expires - int64(oneDay/time.Second), Key: first.Key}
		keys := map[wire.SessionKey]bool{first.Key: true}
		report := func(ann wire.Announcement, s wire.Session, i int) []byte {
			r := w.unsealed(ann, i, 0)
			wire.Authenticate(r, s)
			return w.sealed(r)
		}
		ends := map[int64]bool{first.Expires: true}
		for day := range 12 {
			ann := n.announcement(int64(day)+1, func(a *wire.Announcement) { a.Deadline = time.Now().Add(10 * time.Minute).UnixMilli() })
			n.open(ann)
			body := report(ann, first, 0)
			if time.Now().Unix() < first.Expires {
				n.send(body)
			} else {
				n.refused(wire.Expired, "", "POST", "/v1/report", body)
			}
			old.Expires = first.Expires + int64(day)*int64(oneDay/time.Second) // its key, another end
			if day > 0 && time.Now().Unix() < old.Expires {
				n.refused(wire.BadSignature, "", "POST", "/v1/report", report(ann, old, 0))
				time.Sleep(2 * masterPause)
			}
			now := w.session(1)
			if !reflect.DeepEqual(worker.decodedSession(1), now) {
				t.Fatal("two processes, two sessions")
			}
			if left := now.Expires - time.Now().Unix(); left < int64((7*oneDay+sessionSpare)/time.Second) {
				t.Errorf("day %d: a session of %d s", day, left)
			}
			keys[now.Key], ends[now.Expires] = true, true
			n.send(report(ann, now, 1), w.report(ann, 2, 0))
			if held := w.held(); len(held) < 2 || len(held) > 12 {
				t.Errorf("day %d: masters %v", day, held)
			}
			time.Sleep(oneDay)
			worker.closed(ann)
			worker.must(Coordinator, "DELETE", path(ann, ""), nil)
		}
		if len(keys) != 13 || len(ends) != 12 {
			t.Errorf("%d keys, %d ends in 12 days", len(keys), len(ends))
		}
		for _, name := range w.held() {
			var end int64
			if _, err := fmt.Sscanf(name, masterPrefix+"%d", &end); err != nil || over(end, time.Now().Add(-20*time.Minute)) {
				t.Errorf("%s is still held (%v)", name, err)
			}
		}
	})
}

func (n *node) decodedSession(i int) wire.Session {
	n.w.t.Helper()
	request := n.w.request(i)
	return n.w.decoded(request, n.must("", "POST", "/v1/session", request))
}

// Whoever names sessions that never were costs one look at the store in a while,
// and nobody else anything.
func TestUnknownSessionsAreNotLookedForEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		looked := 0
		c := w.config()
		c.Store = &memory.Store{Disk: w.disk, Do: memory.Failing(func(op string, _ bool) error {
			if op == "list secrets" {
				looked++
			}
			return nil
		})}
		c.FrontendOnly = true
		n := w.start(c)
		ann := n.announcement(1)
		n.open(ann)
		started := looked
		r := w.unsealed(ann, 1, 0)
		for i := range 50 {
			wire.Authenticate(r, wire.Session{Expires: w.session(1).Expires + int64(100+i)*int64(oneDay/time.Second)})
			want := wire.Unavailable
			if i == 0 {
				want = wire.BadSignature
			}
			n.refused(want, "", "POST", "/v1/report", w.sealed(r))
		}
		n.send(w.report(ann, 1, 0))
		if looked != started+1 {
			t.Errorf("looked %d times", looked-started)
		}
		time.Sleep(masterPause)
		n.refused(wire.BadSignature, "", "POST", "/v1/report", w.sealed(r))
	})
}

// All processes on a store seal tickets with the same key, which changes from day to day. Old
// keys open tickets until their masters are destroyed.
func TestTicketKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		idle, err := New(w.config())
		if err != nil {
			t.Fatal(err)
		}
		if keys := idle.TicketKeys(); len(keys) != 0 {
			t.Errorf("%d keys before the masters are known", len(keys))
		}
		c := w.config()
		c.Poll = time.Hour
		a, b := w.start(c), w.start(c)
		synctest.Wait()
		first := a.TicketKeys()
		if len(first) == 0 || !slices.Equal(first, b.TicketKeys()) {
			t.Fatalf("%d keys, not the same at another process", len(first))
		}
		if session := w.session(0); session.Key == wire.SessionKey(first[0]) {
			t.Error("a client has the key of tickets")
		}
		time.Sleep(oneDay + time.Minute)
		synctest.Wait()
		next := a.TicketKeys()
		if next[0] == first[0] || !slices.Contains(next, first[0]) {
			t.Error("after a day: want a new key first, and the old one")
		}
		if !slices.Equal(next, b.TicketKeys()) {
			t.Error("the keys of two processes differ after a day")
		}
		time.Sleep(30 * oneDay)
		if slices.Contains(a.TicketKeys(), first[0]) {
			t.Error("a key is there after its master's end")
		}
		if len(a.TicketKeys()) > 12 {
			t.Errorf("%d keys", len(a.TicketKeys()))
		}
		a.stop()
		b.stop()
	})
}
