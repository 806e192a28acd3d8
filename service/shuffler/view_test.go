package shuffler

import (
	"bytes"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// told is what the relay is told.
func (n *node) told() wire.RelayView {
	n.w.t.Helper()
	v, err := wire.Decode[wire.RelayView](n.must(Relay, "GET", "/v1/relay", nil))
	if err != nil {
		n.w.t.Fatal(err)
	}
	return v
}

// A session has a pass for each of its days, which the relay knows by what it is told and which are the same
// however often the client asks. They name nobody.
func TestSessionsHavePassesForTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		c := w.config()
		n := w.start(c)
		if s := w.session(0); s.Passes != nil {
			t.Error("passes without a relay")
		}
		n.stop()
		c.Relay = true
		n = w.start(c)
		for _, peer := range []string{Coordinator, Aggregator, Worker} {
			n.refused(wire.NotEnrolled, peer, "GET", "/v1/relay", nil)
		}
		keys, today := n.told().Keys, time.Now().Unix()/wire.PassDay
		made := func(pass wire.ID, day int64) bool {
			return slices.ContainsFunc(keys, func(k wire.SessionKey) bool { return k.RelayPass(day, [8]byte(pass[:8])) == pass })
		}
		all := map[wire.ID]bool{}
		for i := range w.clients {
			s := w.session(i)
			if days := s.Expires/wire.PassDay - today; int64(len(s.Passes)) != days {
				t.Errorf("%d passes for %d days", len(s.Passes), days)
			}
			for j, p := range s.Passes {
				all[p] = true
				if day := today + int64(j); !made(p, day) || made(p, day+1) {
					t.Errorf("pass %d of client %d is not for its day", j, i)
				}
				if id := wire.ClientID(public(w.clients[i])); bytes.Contains(p[:], id[:4]) {
					t.Error("a pass names its client")
				}
			}
			time.Sleep(time.Minute) // another request, another session key's seal: the same passes
			if again := w.session(i); !slices.Equal(again.Passes, s.Passes) {
				t.Error("asking again gives further passes")
			}
			if len(all) != (i+1)*len(s.Passes) {
				t.Error("two passes are the same")
			}
		}
		// Another process of the store makes the same ones, and so does this one after a restart.
		before := w.session(1).Passes
		n.stop()
		n = w.start(c)
		if !slices.Equal(w.session(1).Passes, before) || !slices.Equal(n.told().Keys, keys) {
			t.Error("passes end with the process")
		}
	})
}

// The relay is told of each open round's enrolment, at once, and gets few views however often it asks.
func TestViewForTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 7)
		g := w.registry()
		g.sign(upTo(6)...)
		c := g.config()
		c.Relay = true
		n := w.start(c)
		n.taken(1)
		if v := n.told(); len(v.Rounds) != 0 || !bytes.Equal(v.Enrolments[0], n.enrolment.Load().signed) {
			t.Errorf("%+v before any round", v)
		}
		ann := n.announcement(1, counts(5))
		n.open(ann)
		first := n.enrolment.Load().signed
		if v := n.told(); !slices.Equal(v.Rounds, []wire.RelayRound{{Announcement: wire.Digest(ann)}}) || len(v.Enrolments) != 1 {
			t.Errorf("%+v of an open round", v)
		}
		g.sign(0, 1, 2, 3, 4, 6)
		n.taken(2)
		n.stop()
		n = w.start(c)
		n.taken(2)
		v := n.told()
		if len(v.Enrolments) != 2 || !bytes.Equal(v.Enrolments[0], n.enrolment.Load().signed) || !bytes.Equal(v.Enrolments[1], first) ||
			!slices.Equal(v.Rounds, []wire.RelayRound{{Announcement: wire.Digest(ann), Enrolment: 1}}) {
			t.Errorf("%d enrolments, rounds %v after another roster", len(v.Enrolments), v.Rounds)
		}
		begun := time.Now()
		for range 10 {
			n.told()
		}
		if took := time.Since(begun); took < 9*markPause {
			t.Errorf("ten views took %v", took)
		}
		n.closed(ann)
		time.Sleep(time.Until(time.UnixMilli(ann.Deadline)) + time.Second)
		if v := n.told(); len(v.Rounds) != 0 || len(v.Enrolments) != 1 {
			t.Errorf("%d enrolments, rounds %v after its end", len(v.Enrolments), v.Rounds)
		}
	})
}
