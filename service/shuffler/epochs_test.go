package shuffler

import (
	"crypto/ed25519"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// ledgers plays coordinators that run rounds of participation once, three to an epoch, and tell how
// far their ledgers were written.
type ledgers struct {
	*node
	c    Config
	keys [2]ed25519.PrivateKey
	who  int // whose rounds are announced
}

func at(entries int64) *wire.Head {
	if entries < 0 {
		return nil
	}
	if entries == 0 {
		return &wire.Head{}
	}
	return &wire.Head{Entries: entries, Digest: [32]byte{1, byte(entries)}}
}

func (l *ledgers) announced(round, entries int64, change ...func(*wire.Announcement)) wire.Announcement {
	l.w.t.Helper()
	return l.announcement(round, append([]func(*wire.Announcement){func(a *wire.Announcement) {
		a.Participation, a.PerEpoch, a.Ledger = dp.Once, 3, at(entries)
	}}, change...)...)
}

func (l *ledgers) signed(ann wire.Announcement) []byte {
	return wire.Sign(l.keys[l.who], wire.LabelAnnouncement, wire.Encode(ann))
}

// begun opens a round; what was told of the ledger when it was announced, -1: nothing.
func (l *ledgers) begun(round, entries int64, change ...func(*wire.Announcement)) wire.Announcement {
	l.w.t.Helper()
	ann := l.announced(round, entries, change...)
	l.must(Coordinator, "POST", "/v1/rounds", l.signed(ann))
	return ann
}

// full has all clients of the round's block report.
func (l *ledgers) full(ann wire.Announcement) wire.Announcement {
	l.w.t.Helper()
	r, err := l.round(l.w.t.Context(), wire.Digest(ann))
	if err != nil {
		l.w.t.Fatal(err)
	}
	for i := range l.w.clients {
		if r.drawn.Has(wire.ClientID(public(l.w.clients[i]))) {
			l.send(l.w.report(ann, i, 0))
		}
	}
	if l.closed(ann).Void {
		l.w.t.Fatalf("round %d is void", ann.Round)
	}
	return ann
}

// ran is a round in which all of the block report.
func (l *ledgers) ran(round, entries int64) wire.Announcement {
	l.w.t.Helper()
	return l.full(l.begun(round, entries))
}

func (l *ledgers) isVoid(ann wire.Announcement) {
	l.w.t.Helper()
	if !l.closed(ann).Void {
		l.w.t.Fatalf("round %d is not void", ann.Round)
	}
}

// told tells how far the ledger is, and returns how far the shuffler knows it to be.
func (l *ledgers) told(entries int64) int64 {
	l.w.t.Helper()
	m := wire.HeadStatement{Population: l.c.Population, Head: *at(entries)}
	b := l.must(Coordinator, "POST", "/v1/ledger", wire.Sign(l.keys[l.who], wire.LabelHead, wire.Encode(m)))
	m, err := wire.Decode[wire.HeadStatement](b)
	if err != nil {
		l.w.t.Fatal(err)
	}
	return m.Head.Entries
}

// withheld wants that a batch is not given, whoever asks.
func (l *ledgers) withheld(ann wire.Announcement) {
	l.w.t.Helper()
	for _, peer := range []string{Coordinator, Worker} {
		l.refused(wire.OldLedger, peer, "GET", path(ann, "/chunks/0"), nil)
	}
	l.refused(wire.OldLedger, Coordinator, "GET", path(ann, "/chunks"), nil)
}

// given wants that a batch is given, and ends the round.
func (l *ledgers) given(ann wire.Announcement) {
	l.w.t.Helper()
	if got := l.fetch(Coordinator, ann, l.closed(ann)); len(got) != 2 {
		l.w.t.Errorf("round %d: %d reports", ann.Round, len(got))
	}
	l.must(Coordinator, "DELETE", path(ann, ""), nil)
}

// paid wants that a batch is given when the next entry is told, and not before.
func (l *ledgers) paid(ann wire.Announcement) {
	l.w.t.Helper()
	l.withheld(ann)
	l.told(ann.Ledger.Entries + 1)
	l.given(ann)
}

func (l *ledgers) restart() {
	l.w.t.Helper()
	l.stop()
	l.c.Store = l.w.config().Store // of the disk as it is now
	l.node = l.w.start(l.c)
}

// Where the ledger's head is told, an epoch of participation once is paid for by one charge: that of
// its first round that is not void, or that trust local charges anyway. No batch is given before that charge was told, and all are after.
func TestWhatPaysForAnEpoch(t *testing.T) {
	for name, run := range map[string]func(l *ledgers){
		"two epochs": func(l *ledgers) {
			l.paid(l.ran(1, 0))
			l.given(l.ran(2, 1))
			l.given(l.ran(3, 1))
			l.paid(l.ran(4, 1)) // the record of the epoch before was there
			l.given(l.ran(5, 2))
			l.given(l.ran(6, 2))
		},
		"restarts": func(l *ledgers) {
			for i, entries := range []int64{0, 1, 1, 1, 2} {
				ann := l.begun(int64(i+1), entries)
				l.restart()
				l.full(ann)
				l.restart()
				if i%3 == 0 {
					l.withheld(ann)
					l.told(entries + 1)
					l.restart()
				}
				l.given(ann)
			}
		},
		"the first blocks are void": func(l *ledgers) {
			l.isVoid(l.begun(1, 0))
			l.isVoid(l.begun(2, 0))
			l.paid(l.ran(3, 0))
			l.isVoid(l.begun(4, 1))
			l.restart()
			l.paid(l.ran(5, 1))
			l.given(l.ran(6, 2))
		},
		"a later block is void": func(l *ledgers) {
			l.paid(l.ran(1, 0))
			l.isVoid(l.begun(2, 1))
			l.given(l.ran(3, 1))
		},
		"the first block is void, and charged": func(l *ledgers) {
			local := func(a *wire.Announcement) { a.Trust = dp.Local }
			l.isVoid(l.begun(1, 0, local))
			l.told(1)
			l.given(l.full(l.begun(2, 1, local)))
			l.isVoid(l.begun(3, 1, local))
			l.paid(l.full(l.begun(4, 1, local)))
		},
		"another task charges after a void block": func(l *ledgers) {
			l.isVoid(l.begun(1, 0))
			l.told(1) // for the other task
			l.paid(l.ran(2, 1))
			l.told(5)
			l.given(l.ran(3, 5))
		},
		"the first block told no head": func(l *ledgers) {
			l.given(l.ran(1, -1))
			l.told(3)
			l.given(l.ran(2, 3)) // charged before the first head was told
			l.paid(l.ran(4, 3))
		},
		"the first block told no head, and nothing is charged": func(l *ledgers) {
			l.given(l.ran(1, -1))
			l.paid(l.ran(2, 0))
		},
		"the first block told no head and is void": func(l *ledgers) {
			l.isVoid(l.begun(1, -1))
			l.told(3)
			l.paid(l.ran(2, 3))
			l.given(l.ran(3, 4))
		},
		"another participation that names blocks": func(l *ledgers) {
			l.paid(l.ran(1, 0))
			l.told(4)
			ann := l.begun(2, 4, func(a *wire.Announcement) { a.Participation = dp.All })
			for i := range 2 {
				l.send(l.w.report(ann, i, 0))
			}
			l.closed(ann)
			l.paid(ann)
		},
		"another coordinator of the task": func(l *ledgers) {
			l.paid(l.ran(1, 0))
			l.who = 1
			l.told(5)
			l.paid(l.ran(2, 5))
			l.given(l.ran(3, 6))
		},
		"an older ledger": func(l *ledgers) {
			l.paid(l.ran(1, 0))
			if n := l.told(0); n != 1 {
				l.w.t.Errorf("the shuffler knows of %d entries", n)
			}
			l.refused(wire.OldLedger, Coordinator, "POST", "/v1/rounds", l.signed(l.announced(2, 0)))
			l.refused(wire.OldLedger, Coordinator, "POST", "/v1/rounds", l.signed(l.announced(2, -1)))
			l.given(l.ran(2, 1))
		},
		// The draw is lost: clients would be in two blocks of an epoch that is charged for one.
		"a store from before the epoch": func(l *ledgers) {
			copied := l.w.disk.Copy()
			l.paid(l.ran(1, 0))
			l.stop()
			l.w.disk = copied
			l.restart()
			l.withheld(l.ran(2, 1))
			l.paid(l.ran(4, 1))
			l.given(l.ran(5, 2))
		},
		"a store from before the charge": func(l *ledgers) {
			ann := l.ran(1, 0)
			copied := l.w.disk.Copy()
			l.paid(ann)
			l.stop()
			l.w.disk = copied
			l.restart()
			l.withheld(ann)
			l.given(l.ran(2, 1))
		},
		"a store from before the first block closed": func(l *ledgers) {
			ann := l.begun(1, 0)
			copied := l.w.disk.Copy()
			l.paid(l.full(ann))
			l.stop()
			l.w.disk = copied
			l.restart()
			l.isVoid(ann)
			l.withheld(l.ran(2, 1)) // nothing tells that it was paid
			l.paid(l.ran(4, 1))
		},
		"nobody takes the first batch": func(l *ledgers) {
			ann := l.ran(1, 0)
			l.told(1)
			time.Sleep(3 * time.Minute) // longer than it is kept
			l.refused(wire.Closed, Coordinator, "GET", path(ann, "/chunks/0"), nil)
			l.given(l.ran(2, 1))
		},
		"two blocks at once": func(l *ledgers) {
			one := l.begun(1, 0)
			l.told(1) // for another task
			two := l.full(l.begun(2, 1))
			l.withheld(two) // the first is open
			l.isVoid(one)
			l.paid(two)
		},
		"a round that was never opened": func(l *ledgers) {
			ann := l.begun(1, 0)
			digest := wire.Digest(ann)
			l.stop()
			delete(l.w.disk.Values, keyRecord(encodeName(digest[:])))
			l.restart()
			l.told(1)
			l.paid(l.ran(2, 1))
		},
		"two frontends": func(l *ledgers) {
			other := l.w.start(l.c)
			both := func(ann wire.Announcement) wire.Announcement {
				l.w.t.Helper()
				var wg sync.WaitGroup
				for _, n := range []*node{l.node, other} {
					wg.Go(func() {
						for range 20 {
							if code, _ := n.do(Coordinator, "POST", "/v1/rounds", l.signed(ann)); code == 204 {
								return
							}
							time.Sleep(time.Millisecond)
						}
						l.w.t.Error("the round is not opened")
					})
				}
				wg.Wait()
				return ann
			}
			l.isVoid(both(l.announced(1, 0)))
			l.told(1)
			l.paid(l.full(both(l.announced(2, 1))))
			l.given(l.full(both(l.announced(3, 2))))
			l.paid(l.full(both(l.announced(4, 2))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 6)
				l := &ledgers{c: w.config(), keys: [2]ed25519.PrivateKey{w.coordinator, signer(t)}}
				l.c.Coordinators = append(l.c.Coordinators, public(l.keys[1]))
				l.c.Keep, l.c.Poll = time.Minute, time.Second
				l.node = w.start(l.c)
				run(l)
			})
		})
	}
}
