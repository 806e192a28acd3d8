package coordinator

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/registrar"
	"github.com/riffle-dp/riffle/service/shuffler"
)

// enrolling is a running registrar.
type enrolling struct {
	s        *system
	key      ed25519.PrivateKey
	operator http.Handler
	serial   int64
}

// change asks the registrar as its operator would.
func (g *enrolling) change(q registrar.Request) registrar.Change {
	g.s.t.Helper()
	b, _ := json.Marshal(q)
	var w *httptest.ResponseRecorder
	until(g.s.t, func() bool {
		w = httptest.NewRecorder()
		g.operator.ServeHTTP(w, httptest.NewRequest("POST", "/registrar/change", bytes.NewReader(b)))
		return w.Code != 503 // it has started
	})
	var c registrar.Change
	if err := json.Unmarshal(w.Body.Bytes(), &c); w.Code != 200 || err != nil {
		g.s.t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
	g.serial = c.Serial
	return c
}

// taken waits until the shuffler counts on the registrar's newest roster, and returns its enrolment.
func (g *enrolling) taken() []byte {
	g.s.t.Helper()
	var w *httptest.ResponseRecorder
	until(g.s.t, func() bool {
		w = httptest.NewRecorder()
		g.s.front.ServeHTTP(w, httptest.NewRequest("GET", "/v1/enrolment", nil))
		if w.Code != 200 {
			return false
		}
		e, err := wire.Decode[wire.Enrolment](w.Body.Bytes()[64:])
		if err != nil {
			return false
		}
		r, err := e.CheckRoster(g.key.Public().(ed25519.PublicKey))
		return err == nil && r.Serial == g.serial
	})
	return w.Body.Bytes()
}

func publicOf(k ed25519.PrivateKey) []byte { return k.Public().(ed25519.PublicKey) }

func idOf(k ed25519.PrivateKey) string {
	id := wire.ClientID(publicOf(k))
	return hex.EncodeToString(id[:])
}

// newEnrolled is a system whose clients a registrar enrols; the task counts on least of them.
func newEnrolled(t *testing.T, p dp.Participation, least, rounds int64) (*system, *enrolling) {
	t.Helper()
	g := &enrolling{key: signer(t)}
	s := newSystem(t, dp.Shuffle, p, func(w *world) {
		w.task.MinClients, w.task.Rounds, w.task.MinReports = least, rounds, 2
		w.config.BlockSize = 2
		w.enrols = func(s *system, c *shuffler.Config) {
			g.s = s
			service, err := registrar.New(registrar.Config{Population: s.task.Population, Key: g.key, Store: &memory.Store{Disk: memory.NewDisk()}})
			if err != nil {
				t.Fatal(err)
			}
			_, peers, operator := service.Handlers()
			g.operator = operator
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- service.Run(ctx) }()
			t.Cleanup(func() {
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
			c.Roster = nil
			c.Registrar = &shuffler.Registrar{Key: g.key.Public().(ed25519.PublicKey), Every: time.Second, Fetch: func(_ context.Context, have [32]byte) ([]byte, error) {
				w := httptest.NewRecorder()
				r := httptest.NewRequest("GET", fmt.Sprintf("/v1/roster?have=%x", have), nil)
				peers.ServeHTTP(w, endpoint.WithPeer(r, registrar.Shuffler))
				if w.Code/100 != 2 {
					return nil, errors.New(w.Body.String())
				}
				if w.Body.Len() == 0 {
					return nil, nil
				}
				return w.Body.Bytes(), nil
			}}
			var all registrar.Request
			for _, k := range s.clients {
				all.Add = append(all.Add, publicOf(k))
			}
			g.change(all)
		}
	})
	g.taken()
	return s, g
}

// Clients join and leave while a task runs, and it goes on: each round has the n of its own roster
// and is charged by the number that the task counts on.
func TestTaskGoesOnWhenTheRosterChanges(t *testing.T) {
	for _, p := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once} {
		bubble(t, string(p), func(t *testing.T) {
			const least = 6
			s, g := newEnrolled(t, p, least, 4)
			if p == dp.Sampled {
				s.config.Sample = 4
			}
			var charged []ledger.Entry
			// No round is announced while the roster changes.
			changing := make(chan struct{}, 1)
			s.before = func(_ http.ResponseWriter, q *http.Request) bool {
				if q.URL.Path == "/v1/enrolment" {
					changing <- struct{}{}
					<-changing
				}
				return false
			}
			s.serve(func(c *Service) {
				h := c.Handler()
				for round := range int64(4) {
					a := s.announced(h, round, []int64{8, 9, 6, 6}[round])
					changing <- struct{}{}
					s.take(a)
					switch round {
					case 0: // one leaves, two join
						one, two := signer(t), signer(t)
						g.change(registrar.Request{Revoke: []string{idOf(s.clients[7])}, Add: [][]byte{publicOf(one), publicOf(two)}})
						s.clients = append(s.clients[:7], one, two)
						g.taken()
					case 1: // three leave
						g.change(registrar.Request{Revoke: []string{idOf(s.clients[0]), idOf(s.clients[1]), idOf(s.clients[2])}})
						s.clients = s.clients[3:]
						g.taken()
					}
					<-changing
				}
				status, err := c.Wait(context.Background(), wire.Digest(s.task))
				if err != nil || status.State != Done || status.Released+status.Failed < 4 && p != dp.Once {
					t.Errorf("%+v, %v", status, err)
				}
				charged = c.find(wire.Digest(s.task)).ledger.Entries()
			})
			for _, e := range charged {
				switch {
				case p == dp.Once && (e.Event.Participation != dp.All || e.Event.Population != 2):
					t.Errorf("an epoch is charged as %+v", e.Event)
				case p != dp.Once && e.Event.Population != map[bool]int64{true: s.task.MinReports, false: least}[p == dp.All]:
					t.Errorf("round %d is charged as %+v", e.Round, e.Event)
				}
			}
			if len(charged) < 2 {
				t.Errorf("%d charges", len(charged))
			}
		})
	}
}

// announced waits for a round, which has n clients.
func (s *system) announced(h http.Handler, after, n int64) wire.Announcement {
	s.t.Helper()
	a := s.next(h, after)
	if a.Population != n || a.MinClients != s.task.MinClients {
		s.t.Fatalf("round %d has n = %d and counts on %d, want %d", a.Round, a.Population, a.MinClients, n)
	}
	return a
}

// A task waits while fewer are enrolled than it counts on, and goes on when others have joined.
func TestTaskWaitsForClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := newEnrolled(t, dp.All, 8, 1)
		g.change(registrar.Request{Revoke: []string{idOf(s.clients[7])}})
		g.taken()
		s.clients = s.clients[:7]
		s.serve(func(c *Service) {
			wait(t, c, s.task, func(now wire.Status) bool { return strings.Contains(now.Error, "counts on 8") })
			one := signer(t)
			g.change(registrar.Request{Add: [][]byte{publicOf(one)}})
			s.clients = append(s.clients, one)
			g.taken()
			s.take(s.announced(c.Handler(), 0, 8))
			if status, err := c.Wait(context.Background(), wire.Digest(s.task)); err != nil || status.Released != 1 {
				t.Errorf("%+v, %v", status, err)
			}
		})
	})
}

// wait waits for a status.
func wait(t *testing.T, c *Service, task wire.Task, f func(wire.Status) bool) {
	t.Helper()
	var now wire.Status
	until(t, func() bool {
		var err error
		if now, err = c.Show(wire.Digest(task)); err != nil {
			t.Fatal(err)
		}
		return f(now)
	})
}

// Whatever the shuffler's operator signs, no round is announced with clients that the registrar has
// not signed, nor with an old roster, also after a start.
func TestEnrolmentsBesideTheRegistrar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, g := newEnrolled(t, dp.All, 4, 100)
		old := g.taken()
		g.change(registrar.Request{Revoke: []string{idOf(s.clients[7])}})
		good := g.taken()
		s.clients = s.clients[:7]
		enrolment, err := wire.Decode[wire.Enrolment](good[64:])
		if err != nil {
			t.Fatal(err)
		}
		roster, err := wire.Decode[wire.Roster](enrolment.Registrar[64:])
		if err != nil {
			t.Fatal(err)
		}
		other := signer(t)
		with := func(f func(e *wire.Enrolment, r *wire.Roster), key ed25519.PrivateKey) []byte {
			e, r := enrolment, roster
			e.Serial += 10
			f(&e, &r)
			if key != nil {
				e.Registrar = wire.Sign(key, wire.LabelRegistrar, wire.Encode(r))
			}
			return wire.Sign(s.operator, wire.LabelEnrolment, wire.Encode(e))
		}
		attacks := map[string][]byte{
			"an old roster":      old,
			"one more client":    with(func(e *wire.Enrolment, _ *wire.Roster) { e.Clients++; e.Roster[0]++ }, nil),
			"n overstated":       with(func(e *wire.Enrolment, _ *wire.Roster) { e.Clients += 100 }, nil),
			"no statement":       with(func(e *wire.Enrolment, _ *wire.Roster) { e.Registrar = nil }, nil),
			"another key":        with(func(e *wire.Enrolment, r *wire.Roster) { r.Serial++ }, other),
			"the operator's key": with(func(e *wire.Enrolment, r *wire.Roster) { r.Serial++ }, s.operator),
			"another population": with(func(_ *wire.Enrolment, r *wire.Roster) { r.Population[0]++; r.Serial++ }, g.key),
			"two of one serial":  with(func(_ *wire.Enrolment, r *wire.Roster) { r.To++ }, g.key),
			"beyond the roster":  with(func(e *wire.Enrolment, r *wire.Roster) { e.To = r.To + 1 }, nil),
		}
		var announced, asked atomic.Int64
		serving := func(b []byte) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, q *http.Request) bool {
				if q.Method == "POST" && q.URL.Path == "/v1/rounds" {
					body, _ := io.ReadAll(q.Body)
					if a, err := wire.Decode[wire.Announcement](body[64:]); err != nil || a.Enrolment != wire.Digest(enrolment) {
						announced.Add(1)
					}
					q.Body = io.NopCloser(bytes.NewReader(body))
				}
				if q.URL.Path == "/v1/enrolment" {
					asked.Add(1)
				}
				if q.URL.Path != "/v1/enrolment" || b == nil {
					return false
				}
				_, _ = w.Write(b)
				return true
			}
		}
		after := int64(0)
		s.serve(func(c *Service) { s.take(s.announced(c.Handler(), after, 7)) }) // it sees the newest roster
		for name, b := range attacks {
			// A round that was announced before goes on; after it, or without one, there is trouble.
			s.before = serving(b)
			s.serve(func(c *Service) {
				before := asked.Load()
				wait(t, c, s.task, func(now wire.Status) bool { return asked.Load() > before+2 && now.Error != "" })
			})
			s.before = nil
			if announced.Load() != 0 {
				t.Fatalf("%s: a round is announced with it", name)
			}
			var now wire.Status
			s.serve(func(c *Service) {
				wait(t, c, s.task, func(st wire.Status) bool { now = st; return st.Phase == "collecting" })
				s.take(s.announced(c.Handler(), now.Round, 7))
			})
			if t.Failed() {
				t.Fatal(name)
			}
		}
	})
}
