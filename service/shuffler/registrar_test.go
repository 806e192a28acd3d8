package shuffler

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/store"
)

// registry is a registrar for tests: it gives whatever it is told to.
type registry struct {
	w      *world
	key    ed25519.PrivateKey
	serial int64
	mu     sync.Mutex
	last   []byte
}

// give sets what the registrar answers; nil: nothing.
func (g *registry) give(b []byte) {
	g.mu.Lock()
	g.last = b
	g.mu.Unlock()
}

// answer is what the registrar answers.
func (g *registry) answer() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

func (w *world) registry() *registry { return &registry{w: w, key: signer(w.t)} }

// members is the signed roster of clients of the world.
func (g *registry) members(serial int64, clients []int, change ...func(*wire.Roster)) []byte {
	var keys []byte
	var ids []wire.ID
	for _, i := range clients {
		k := public(g.w.clients[i])
		keys, ids = append(keys, k...), append(ids, wire.ClientID(k))
	}
	now := time.Now()
	r := wire.Roster{Population: wire.ID{7}, Serial: serial, Clients: int64(len(ids)), Digest: wire.RosterDigest(ids), From: now.Unix(), To: now.Add(10 * 24 * time.Hour).Unix()}
	for _, f := range change {
		f(&r)
	}
	return wire.EncodeMembers(wire.Sign(g.key, wire.LabelRegistrar, wire.Encode(r)), keys)
}

// sign makes the next roster.
func (g *registry) sign(clients ...int) {
	g.serial++
	g.give(g.members(g.serial, clients))
}

func (g *registry) config() Config {
	c := g.w.config()
	c.Roster, c.Poll = nil, 500*time.Millisecond
	c.Registrar = &Registrar{Key: public(g.key), Every: time.Second, Fetch: func(context.Context, [32]byte) ([]byte, error) {
		if b := g.answer(); b != nil {
			return b, nil
		}
		return nil, errors.New("away")
	}}
	return c
}

// taken waits until a roster was taken.
func (n *node) taken(serial int64) {
	n.w.t.Helper()
	for range 100 {
		if e := n.enrolment.Load(); e != nil {
			if r, err := e.CheckRoster(n.config.Registrar.Key); err == nil && r.Serial == serial {
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	n.w.t.Fatalf("roster %d was not taken", serial)
}

func upTo(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

func counts(n int64) func(*wire.Announcement) {
	return func(a *wire.Announcement) { a.MinClients = n }
}

// A round goes on with the clients of its own roster but for those who were revoked since; who
// joined waits for the next round.
func TestRosterChangesWhileARoundIsOpen(t *testing.T) {
	for _, p := range []dp.Participation{dp.All, dp.CheckIn, dp.Sampled} {
		t.Run(string(p), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 7)
				g := w.registry()
				g.sign(upTo(6)...)
				n := w.start(g.config())
				n.taken(1)
				shape := func(a *wire.Announcement) {
					a.Participation, a.MinClients = p, 5
					if p == dp.Sampled {
						a.Sample = a.Population
					} else if p == dp.CheckIn {
						a.Gamma = .5
					}
				}
				ann := n.announcement(1, shape)
				n.open(ann)
				first := n.enrolment.Load()
				revoked := w.session(5)
				old := w.report(ann, 5, 0)
				n.send(w.report(ann, 0, 0), w.report(ann, 1, 0))

				g.sign(0, 1, 2, 3, 4, 6) // 5 is revoked, 6 joins
				n.taken(2)
				n.refused(wire.NotEnrolled, "", "POST", "/v1/report", old)
				n.refused(wire.NotEnrolled, "", "POST", "/v1/session", w.request(5))
				n.refused(wire.NotEnrolled, "", "POST", "/v1/ask", w.ask(ann, 5, revoked))
				n.refused(wire.NotEnrolled, "", "POST", "/v1/report", w.report(ann, 6, 0))
				n.refused(wire.NotEnrolled, "", "POST", "/v1/ask", w.ask(ann, 6, w.session(6)))
				if b := n.must("", "GET", fmt.Sprintf("/v1/enrolment?round=%x", wire.Digest(ann)), nil); !slices.Equal(b, first.signed) {
					t.Error("the round's enrolment is another")
				}

				// The same after a restart, from what is stored.
				n.stop()
				n = w.start(g.config())
				n.taken(2)
				n.refused(wire.NotEnrolled, "", "POST", "/v1/report", old)
				n.refused(wire.NotEnrolled, "", "POST", "/v1/report", w.report(ann, 6, 1))
				n.send(w.report(ann, 4, 0))
				if word := n.closed(ann); word.Void || word.Reports != 3 {
					t.Errorf("word %+v", word)
				}
				next := n.announcement(2, shape)
				if next.Population != 6 || next.Enrolment == ann.Enrolment {
					t.Fatalf("the next round has n = %d", next.Population)
				}
				n.open(next)
				n.send(w.report(next, 6, 0), w.report(next, 0, 0))
				n.refused(wire.NotEnrolled, "", "POST", "/v1/report", func() []byte {
					r := w.unsealed(next, 5, 0)
					wire.Authenticate(r, revoked)
					return w.sealed(r)
				}())
			})
		})
	}
}

// A round in which fewer clients stay enrolled than it counts on is void.
func TestRoundsAreVoidBelowWhatTheyCountOn(t *testing.T) {
	for name, c := range map[string]struct {
		counts  int64
		revoke  int
		joining bool
		void    bool
	}{
		"none revoked":             {0, 0, false, false},
		"one joins":                {0, 0, true, false},
		"one revoked, all counted": {0, 1, false, true},
		"one revoked, one joins":   {0, 1, true, true}, // joins do not make up for it
		"one revoked, one less":    {5, 1, false, false},
		"two revoked, one less":    {5, 2, true, true},
		"two revoked, two less":    {4, 2, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 7)
				g := w.registry()
				g.sign(upTo(6)...)
				n := w.start(g.config())
				n.taken(1)
				ann := n.announcement(1, counts(c.counts))
				n.open(ann)
				n.send(w.report(ann, 0, 0), w.report(ann, 1, 0), w.report(ann, 5, 0))
				left := upTo(6 - c.revoke)
				if c.joining {
					left = append(left, 6)
				}
				g.sign(left...)
				n.taken(2)
				if word := n.closed(ann); word.Void != c.void || !c.void && word.Reports != 3 {
					t.Errorf("word %+v, want void %v", word, c.void)
				}
			})
		})
	}
}

// Whatever a registrar's answer is, only one that it signed for this population, newer than the one
// taken last, changes the roster.
func TestForgedRostersAreNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6)
		g := w.registry()
		g.serial = 4
		g.sign(0, 1, 2, 3)
		n := w.start(g.config())
		n.taken(5)
		other := w.registry()
		added := g.members(6, []int{0, 1, 2})
		added = append(added, public(w.clients[5])...)
		for name, answer := range map[string][]byte{
			"another key":           other.members(6, upTo(6)),
			"another population":    g.members(6, upTo(6), func(r *wire.Roster) { r.Population[0]++ }),
			"older":                 g.members(4, upTo(6)),
			"the same serial":       g.members(5, upTo(6)),
			"one more client":       added,
			"one client for other":  wire.EncodeMembers(g.answer()[4:4+binaryLength(g.answer())], []byte(slices.Concat(public(w.clients[0]), public(w.clients[1]), public(w.clients[2]), public(w.clients[5])))),
			"a client twice":        g.members(6, []int{0, 1, 1}),
			"n overstated":          g.members(6, upTo(4), func(r *wire.Roster) { r.Clients = 100 }),
			"has ended":             g.members(6, upTo(6), func(r *wire.Roster) { r.From, r.To = 1, 2 }),
			"torn":                  g.answer()[:len(g.answer())-1],
			"empty":                 {1},
			"a length beyond bytes": {0xff, 0xff, 0xff, 0xff, 1},
		} {
			g.give(answer)
			time.Sleep(time.Second)
			if r, err := n.enrolment.Load().CheckRoster(public(g.key)); err != nil || r.Serial != 5 || n.enrolment.Load().Clients != 4 {
				t.Errorf("%s: taken: %+v, %v", name, r, err)
			}
		}
		g.serial = 5
		g.sign(upTo(6)...)
		n.taken(6)
		// The shuffler's operator cannot enrol with a roster of its own either.
		c := g.config()
		c.Roster = slices.Concat(public(w.clients[0]), public(w.clients[1]))
		if _, err := New(c); err == nil {
			t.Error("a roster besides the registrar's")
		}
		c = g.config()
		c.Registrar.Key = public(w.operator)
		if _, err := New(c); err == nil {
			t.Error("the operator as registrar")
		}
	})
}

func binaryLength(b []byte) int { return int(b[0]) | int(b[1])<<8 }

// A restored store of the shuffler, or a registrar's old backup, does not bring an older roster back
// while the newer one is known; another key needs another configuration, and the stored roster is
// then refused.
func TestAnotherRegistrarsStoreIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		g := w.registry()
		g.sign(upTo(4)...)
		n := w.start(g.config())
		n.taken(1)
		n.stop()
		other := w.registry()
		other.sign(upTo(4)...)
		s, err := New(other.config())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Run(context.Background()); !errors.Is(err, wire.ErrSignature) {
			t.Errorf("another registrar's key: %v", err)
		}
	})
}

// While the registrar is away nothing changes, until its roster ends.
func TestRegistrarAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		g := w.registry()
		n := w.start(g.config())
		if err := n.Ready(context.Background()); err == nil {
			t.Error("ready without a roster")
		}
		n.refused(wire.Unavailable, "", "POST", "/v1/session", w.request(0))
		n.refused(wire.Unavailable, "", "GET", "/v1/enrolment", nil)
		g.give(g.members(1, upTo(4), func(r *wire.Roster) { r.To = r.From + 600 }))
		n.taken(1)
		g.give(nil)
		time.Sleep(9 * time.Minute)
		if err := n.Ready(context.Background()); err != nil {
			t.Error(err)
		}
		if e := n.enrolment.Load(); e.To <= time.Now().Unix() {
			t.Errorf("the enrolment ended at %d", e.To)
		}
		time.Sleep(2 * time.Minute)
		if err := n.Ready(context.Background()); err == nil {
			t.Error("ready with a roster that has ended")
		}
	})
}

// In Once an epoch's blocks stay those of the roster at its begin: nobody is in two of them, whatever
// the roster does, and who joins waits for the next epoch.
func TestOnceWithARosterThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const blocks = 3
		w := newWorld(t, 14)
		g := w.registry()
		g.sign(upTo(12)...)
		n := w.start(g.config())
		n.taken(1)
		seen := map[int]int{}
		joined := map[int]bool{12: true, 13: true}
		rosters := [][]int{upTo(12), append(upTo(11), 12), append(upTo(10), 12, 13)}
		for block := range int64(2 * blocks) {
			epoch := block / blocks
			if block < blocks && block > 0 {
				g.sign(rosters[block]...)
				n.taken(g.serial)
			}
			now := rosters[min(int(block), 2)]
			ann := n.announcement(block+1, func(a *wire.Announcement) {
				a.Participation, a.PerEpoch, a.MinClients, a.MinReports = dp.Once, blocks, 9, 2
			})
			n.open(ann)
			if block == blocks {
				clear(seen)
			}
			var drawnNow [][]byte
			for i := range w.clients {
				if !slices.Contains(now, i) {
					continue
				}
				drawn, err := n.ask(context.Background(), w.ask(ann, i, w.session(i)), time.Now())
				if err != nil {
					t.Fatal(err)
				}
				if !drawn {
					continue
				}
				if seen[i]++; epoch == 0 && joined[i] {
					t.Errorf("client %d joined during epoch 1 and is drawn in it", i)
				}
				drawnNow = append(drawnNow, w.report(ann, i, 0))
			}
			n.send(drawnNow...)
			n.closed(ann)
			n.must(Coordinator, "DELETE", path(ann, ""), nil)
		}
		for i, times := range seen {
			if times != 1 {
				t.Errorf("client %d was in %d blocks of epoch 2", i, times)
			}
		}
		if len(seen) != 12 {
			t.Errorf("%d clients in epoch 2, want the 12 of its roster", len(seen))
		}
	})
}

// Rosters that nothing needs are deleted, and no other.
func TestOldRostersAreDeleted(t *testing.T) {
	if testing.Short() {
		t.Skip("twenty minutes of polls")
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6)
		g := w.registry()
		g.sign(upTo(6)...)
		n := w.start(g.config())
		n.taken(1)
		ann := n.announcement(1, counts(2), func(a *wire.Announcement) { a.Deadline += (10 * time.Minute).Milliseconds() })
		n.open(ann)
		for left := 5; left > 2; left-- {
			g.sign(upTo(left)...)
			n.taken(g.serial)
		}
		time.Sleep(3 * time.Minute)
		stored := func() int {
			w.disk.Lock()
			defer w.disk.Unlock()
			return len(w.disk.Objects)
		}
		if k := stored(); k != 2 {
			t.Errorf("%d rosters are stored, want the open round's and the newest", k)
		}
		n.stop()
		n = w.start(g.config())
		n.send(w.report(ann, 0, 0), w.report(ann, 1, 0))
		time.Sleep(time.Until(time.UnixMilli(ann.Deadline)))
		if word := n.closed(ann); word.Void {
			t.Error("void")
		}
		n.must(Coordinator, "DELETE", path(ann, ""), nil)
		time.Sleep(3 * time.Minute)
		if k := stored(); k != 1 {
			t.Errorf("%d rosters are stored, want the newest", k)
		}
	})
}

// The store fails before or after each write while rosters are taken, rounds are opened and closed;
// the process dies. The next one goes on: it never has an older roster, a round that was opened keeps
// its own, and nothing is left that cannot be read.
func TestRosterSurvivesCrashes(t *testing.T) {
	steps, stride := 0, longtest.Pick(4, 1)
	for at := 0; ; at += stride {
		done := false
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 6)
			g := w.registry()
			g.sign(upTo(6)...)
			n := w.start(g.config())
			n.taken(1)
			ann := n.announcement(1, counts(3))
			n.open(ann)
			n.send(w.report(ann, 0, 0), w.report(ann, 1, 0), w.report(ann, 2, 0))
			n.stop()

			// This process fails at operation number at, and from then on at all.
			var mu sync.Mutex
			k, dead := 0, false
			c := g.config()
			c.Store = &memory.Store{Disk: w.disk, Do: memory.Failing(func(op string, after bool) error {
				mu.Lock()
				defer mu.Unlock()
				if dead {
					return store.ErrUnavailable
				}
				if !regexp.MustCompile("^(put|delete|append|create)").MatchString(op) {
					return nil
				}
				if k++; k > at {
					dead = true
					return store.ErrUnavailable
				}
				return nil
			})}
			g.sign(0, 1, 2, 3, 5)
			s, err := New(c)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			time.Sleep(3 * time.Second)
			mu.Lock()
			if e := s.enrolment.Load(); e != nil && e.Clients == 5 && !dead {
				done = true
			}
			mu.Unlock()
			cancel()
			<-ended
			steps = max(steps, k)

			n = w.start(g.config())
			n.taken(2)
			if e := n.enrolment.Load(); e.Clients != 5 {
				t.Errorf("step %d: n = %d", at, e.Clients)
			}
			n.refused(wire.NotEnrolled, "", "POST", "/v1/session", w.request(4))
			if word := n.closed(ann); word.Void || word.Reports != 3 {
				t.Errorf("step %d: word %+v", at, word)
			}
			if code, b := n.do("", "GET", "/v1/enrolment", nil); code != http.StatusOK {
				t.Errorf("step %d: %d %s", at, code, b)
			}
		})
		if t.Failed() {
			t.Fatalf("at step %d", at)
		}
		if done {
			break
		}
	}
	if steps < 8 {
		t.Errorf("only %d writes were made to fail", steps)
	}
	t.Logf("%d writes", steps)
}
