package shuffler

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// A round still ends when all have reported, if some of them reported to a process
// that ended before it told how many, and not before.
func TestRoundIsCompleteAfterRestart(t *testing.T) {
	for before := range 6 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 5)
			c := w.config()
			c.Poll = time.Second
			n := w.start(c)
			ann := n.announcement(1)
			n.open(ann)
			digest := wire.Digest(ann)
			name := encodeName(digest[:])
			begin := time.Now()
			for i := range before {
				n.send(w.report(ann, i, 0))
			}
			n.stop()
			n = w.start(c)
			for i := max(0, before-1); i < 4; i++ { // one of them again
				n.send(w.report(ann, i, 0))
			}
			if before < 5 {
				time.Sleep(10 * time.Second)
				if rec, err := n.loadRecord(t.Context(), name); err != nil || rec.State != Open {
					t.Fatalf("%d before a restart: 4 of 5 have reported, state %v, %v", before, rec.State, err)
				}
				n.send(w.report(ann, 4, 0))
			}
			if word := n.closed(ann); word.Reports != 5 {
				t.Errorf("%d before a restart: %+v", before, word)
			}
			if took := time.Since(begin); took > 15*time.Second {
				t.Errorf("%d before a restart: the round ended after %v", before, took)
			}
		})
	}
}

// A batch that nobody takes does not stay for ever, and what became of it is counted.
func TestAbandonedRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		c := w.config()
		c.Keep, c.Poll = time.Hour, time.Second
		n := w.start(c)
		ann := n.announcement(1)
		n.open(ann)
		for i := range w.clients {
			n.send(w.report(ann, i, 0))
		}
		word := n.closed(ann)
		w.unlinked(ann)
		n.mu.Lock()
		if r := n.rounds[wire.Digest(ann)]; r != nil && r.seen != nil {
			t.Error("the keys of the order and the draw are still in memory")
		}
		n.mu.Unlock()
		time.Sleep(time.Until(time.UnixMilli(ann.Deadline).Add(59 * time.Minute)))
		if got := n.fetch(Coordinator, ann, word); len(got) != 5 {
			t.Errorf("%d reports within the time", len(got))
		}
		time.Sleep(2 * time.Minute)
		w.destroyed(ann)
		n.refused(wire.Closed, Coordinator, "GET", path(ann, "/chunks/0"), nil)
		if again := n.closed(ann); again.Digest != word.Digest {
			t.Error("the word has changed")
		}
		n.must(Coordinator, "DELETE", path(ann, ""), nil)
		if r := n.Snapshot().Rounds; r[Abandoned] != 1 || r[Released] != 0 {
			t.Errorf("rounds %v", r)
		}
	})
}

// A start destroys what no mark names, however much else there is, and the keys that link an offered batch to
// its clients. The batch stays.
func TestStartDestroysWhatNoMarkNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		n := w.start(w.config())
		ann := n.announcement(1)
		n.open(ann)
		for i := range w.clients {
			n.send(w.report(ann, i, 0))
		}
		word := n.closed(ann)
		n.stop()
		d := wire.Digest(ann)
		w.disk.Secrets[linksName(encodeName(d[:]))] = make([]byte, linksSize)
		for _, name := range []string{strings.Repeat("2", 52), strings.Repeat("z", 52)} { // the first and the last that there can be
			w.disk.Secrets[name], w.disk.Secrets[linksName(name)] = []byte{1}, []byte{1}
			w.disk.Streams[streamIn(name)], w.disk.Streams[streamOut(name, "1")] = []store.Message{}, []store.Message{}
			w.disk.Values[keyCounts(name)+"1"], w.disk.Values[keyWork(name)+"1"] = []byte{1}, []byte{1}
		}
		n = w.start(w.config())
		w.unlinked(ann)
		if got := n.fetch(Coordinator, ann, word); len(got) != 5 {
			t.Errorf("%d reports are in the batch", len(got))
		}
		n.must(Coordinator, "DELETE", path(ann, ""), nil)
		w.destroyed(ann)
	})
}

// One coordinator cannot have more rounds under way than the operator allows, and
// takes no room from another.
func TestMostRoundsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		second := signer(t)
		c := w.config()
		c.MostOpen = 3
		c.Coordinators = append(c.Coordinators, public(second))
		n := w.start(c)
		task := func(i byte) wire.Announcement {
			return n.announcement(1, func(a *wire.Announcement) { a.Task = [32]byte{i} })
		}
		first := task(1)
		n.open(first)
		n.open(task(2))
		n.open(task(3))
		n.open(first) // it is open
		extra := task(4)
		n.refused(wire.TooMany, Coordinator, "POST", "/v1/rounds", w.sign(extra))
		if got := n.Snapshot().Declined[wire.TooMany]; got != 1 {
			t.Errorf("counted %d times", got)
		}
		other := task(5)
		n.must(Coordinator, "POST", "/v1/rounds", wire.Sign(second, wire.LabelAnnouncement, wire.Encode(other)))
		// A batch that is offered takes room, until it is released.
		for i := range w.clients {
			n.send(w.report(first, i, 0))
		}
		n.closed(first)
		n.refused(wire.TooMany, Coordinator, "POST", "/v1/rounds", w.sign(extra))
		n.must(Coordinator, "DELETE", path(first, ""), nil)
		n.open(extra)
		n.refused(wire.TooMany, Coordinator, "POST", "/v1/rounds", w.sign(task(6)))
	})
}

// What is refused for its blocks leaves nothing behind, and takes nobody's room.
func TestARefusedEpochTakesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6)
		c := w.config()
		c.MostOpen = 2
		n := w.start(c)
		once := func(round, blocks int64) wire.Announcement {
			return n.announcement(round, func(a *wire.Announcement) { a.Participation, a.PerEpoch = dp.Once, blocks })
		}
		n.open(once(1, 3))
		for range 3 {
			n.refused(wire.NotEnrolled, Coordinator, "POST", "/v1/rounds", w.sign(once(2, 2)))
		}
		n.open(once(2, 3))
	})
}

// When a round closes tells nobody who is in it: one that was drawn closes at its
// deadline, though all who are drawn have reported long before. A round of all, or
// of a public block, closes when it is complete.
func TestWhenARoundClosesTellsNobodyWhoIsInIt(t *testing.T) {
	for p, waits := range map[dp.Participation]bool{dp.All: false, dp.Once: false, dp.CheckIn: true, dp.Sampled: true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 6)
			n := w.start(w.config())
			ann := n.announcement(1, func(a *wire.Announcement) {
				switch a.Participation = p; p {
				case dp.Sampled:
					a.Sample = 3
				case dp.CheckIn:
					a.Gamma = .5
				case dp.Once:
					a.PerEpoch = 2
				}
			})
			n.open(ann)
			r, err := n.round(t.Context(), wire.Digest(ann))
			if err != nil {
				t.Fatal(err)
			}
			var sent int64
			for i := range w.clients {
				if r.drawn.Has(wire.ClientID(public(w.clients[i]))) {
					n.send(w.report(ann, i, 0))
					sent++
				}
			}
			begun := time.Now()
			word := n.closed(ann)
			if early := time.Now().Before(time.UnixMilli(ann.Deadline)); early == waits || word.Reports != sent {
				t.Errorf("%s: closed after %v, before its deadline: %t; %d reports of %d", p, time.Since(begun), early, word.Reports, sent)
			}
		})
	}
}

// The shuffler's key is rotated while a round is open: what is sealed to the old key
// still opens, the round ends as it would have, and the next one has the new key.
func TestKeyIsRotatedDuringARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		n := w.start(w.config())
		ann := n.announcement(1)
		n.open(ann)
		n.send(w.report(ann, 0, 0), w.report(ann, 1, 0))
		late := [][]byte{w.report(ann, 2, 0), w.report(ann, 3, 0)} // under way
		lost := w.report(ann, 4, 0)
		n.stop()

		old := w.seal
		fresh := sealing(t, time.Now().Add(48*time.Hour))
		both, err := envelope.NewKeyring(fresh, w.shuffled)
		if err != nil {
			t.Fatal(err)
		}
		w.seal = both
		n = w.start(w.config())
		n.open(ann) // the coordinator asks again: it is the same round
		n.send(late...)
		w.seal = old
		n.send(lost) // a client that has the old enrolment
		if word := n.closed(ann); word.Reports != 5 || len(word.Rejected) != 0 {
			t.Errorf("word %+v", word)
		}
		w.seal = both
		next := n.announcement(2)
		if e := n.enrolment.Load(); e == nil || len(e.Shuffler) == 0 || e.Shuffler[0].ID() != fresh.Public.ID() {
			t.Error("the new key is not announced first")
		}
		n.open(next)
		n.send(w.report(next, 0, 0))
	})
}
