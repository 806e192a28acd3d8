package coordinator

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	pure "github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/aggregator"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/shuffler"
	"github.com/riffle-dp/riffle/service/store"
)

// opened is what a coordinator recorded of a round.
type opened struct {
	reports []*randomizer.Report
	sum     []int64
	n       int64
}

// system is all three services on embedded stores.
type system struct {
	*world
	clients []ed25519.PrivateKey
	seal    *envelope.Keyring
	front   http.Handler
	service *shuffler.Service
	dir     string
	rounds  map[int64]*opened
	source  batch.Source
	agg     *Aggregator
	// before, if not nil, answers in place of the shuffler where it returns true.
	before   func(http.ResponseWriter, *http.Request) bool
	operator ed25519.PrivateKey
	late     bool // a client came after a round's deadline
}

func openStore(t *testing.T, dir, domain string) *store.Store {
	t.Helper()
	c := store.Config{Domain: domain, Dir: dir}
	ctx := context.Background()
	if err := store.Init(ctx, c); err != nil && !errors.Is(err, store.ErrExists) {
		t.Fatal(err)
	}
	s, err := store.Open(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newSystem(t *testing.T, trust dp.Trust, p dp.Participation, round time.Duration, options ...option) *system {
	t.Helper()
	s := &system{world: newWorld(t, trust, p, options...), dir: t.TempDir(), seal: ring(t), rounds: map[int64]*opened{}}
	s.config.Round = round
	operator := signer(t)
	public := s.key.Public().(ed25519.PublicKey)
	db := openStore(t, filepath.Join(s.dir, "shuffler"), "shuffler")
	c := shuffler.Config{Population: s.task.Population, Operator: operator, Coordinators: []ed25519.PublicKey{public}, Keys: s.seal,
		Aggregator: s.second.Keys, MinReports: 2, Store: db, Poll: 5 * time.Millisecond, Lease: time.Second}
	for range s.n {
		k := signer(t)
		s.clients = append(s.clients, k)
		c.Roster = append(c.Roster, k.Public().(ed25519.PublicKey)...)
	}
	if s.enrols != nil {
		s.enrols(s, &c)
	}
	var err error
	if s.service, err = shuffler.New(c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.service.Run(ctx) }()
	var h http.Handler
	s.front, h = s.service.Handlers()
	peer := func(name string) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if f := s.before; f != nil && f(w, q) {
				return
			}
			h.ServeHTTP(w, endpoint.WithPeer(q, name))
		}))
	}
	one, two := peer(shuffler.Coordinator), peer(shuffler.Aggregator)
	s.operator = operator
	s.source = batch.Source{URL: one.URL, Key: operator.Public().(ed25519.PublicKey), Client: client(t, nil)}
	if c.Registrar != nil {
		s.source.Registrar = c.Registrar.Key
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		one.Close()
		two.Close()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if trust == dp.Distributed {
		db := openStore(t, filepath.Join(s.dir, "aggregator"), "aggregator")
		a, err := aggregator.New(context.Background(), aggregator.Config{Coordinator: public, Keyring: s.second, Store: db,
			Shuffler: batch.Source{URL: two.URL, Key: s.source.Key, Client: client(t, nil)}})
		if err != nil {
			t.Fatal(err)
		}
		h := httptest.NewServer(a.PeerHandler())
		s.agg = &Aggregator{URL: h.URL, Client: client(t, nil)}
		t.Cleanup(func() {
			h.Close()
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	s.config.Record = func(_ [32]byte, round, place int64, r *randomizer.Report) error {
		if place == 0 {
			s.rounds[round] = &opened{}
		}
		s.rounds[round].reports = append(s.rounds[round].reports, r)
		return nil
	}
	s.config.RecordSum = func(round int64, counts []int64, n int64) error {
		s.rounds[round] = &opened{sum: counts, n: n}
		return nil
	}
	return s
}

// serve runs a coordinator on its embedded store while f runs.
func (s *system) serve(f func(*Service)) {
	s.t.Helper()
	if err := s.served(f); err != nil {
		s.t.Error(err)
	}
}

// served is serve; it returns what Run returned.
func (s *system) served(f func(*Service)) error {
	s.t.Helper()
	t := s.t.(*testing.T)
	db := openStore(t, filepath.Join(s.dir, "coordinator"), "coordinator")
	mark := filepath.Join(s.dir, "mark.json")
	if _, err := os.Stat(mark); errors.Is(err, os.ErrNotExist) {
		if err := MarkFile(mark).Save(ledger.Mark{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	j, err := OpenJournal(ctx, db, mark, s.task.Population, limit(1e9))
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Key: s.key, Keyring: s.ring, Shuffler: s.source, Aggregator: s.agg, Store: db, Journal: j,
		Tasks: []Job{s.config}, Backoff: 5 * time.Millisecond, AnnounceLedger: s.tells})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	f(c)
	cancel()
	ran := <-done
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	return ran
}

// post asks the shuffler as a client.
func (s *system) post(path string, b []byte) (int, []byte) {
	r := httptest.NewRecorder()
	s.front.ServeHTTP(r, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(b)))
	return r.Code, r.Body.Bytes()
}

// session is a client's, with the shuffler.
func (s *system) session(key ed25519.PrivateKey) wire.Session {
	s.t.Helper()
	m := wire.SessionRequest{Population: s.task.Population, Client: wire.ClientID(key.Public().(ed25519.PublicKey)), Time: time.Now().Unix()}
	mine, err := envelope.GenerateKey(wire.X25519, time.Time{})
	if err != nil {
		s.t.Fatal(err)
	}
	m.Suite, m.Public = wire.X25519, mine.Public.Public
	code, b := s.post("/v1/session", wire.Sign(key, wire.LabelSession, wire.Encode(m)))
	session, err := mine.OpenSession(m, b)
	if code != 200 || err != nil {
		s.t.Fatalf("session: %d %s", code, b)
	}
	return session
}

// in says whether a client came in time, and fails the test if it was refused for
// another reason.
func (s *system) in(code, want int, body []byte) bool {
	s.t.Helper()
	if code == http.StatusGone && bytes.Contains(body, []byte(`"closed"`)) {
		s.late = true
		return false
	}
	if code != want {
		s.t.Fatalf("%d %s", code, body)
	}
	return true
}

// take has all clients take part in a round.
func (s *system) take(a wire.Announcement) {
	s.t.Helper()
	digest := wire.Digest(a)
	for i, key := range s.clients {
		id := wire.ClientID(key.Public().(ed25519.PublicKey))
		switch a.Participation {
		case dp.Sampled, dp.Once:
			ask := wire.Ask{Announcement: digest, Client: id}
			wire.Authenticate(&ask, s.session(key))
			code, b := s.post("/v1/ask", wire.Encode(ask))
			if !s.in(code, 200, b) {
				return
			}
			if len(b) != 1 {
				s.t.Fatalf("ask: %s", b)
			}
			if b[0] == 0 {
				continue
			}
		}
		r := s.report(a.Round, int64(i), a.ModelDigest, 0)
		out := wire.Report{Announcement: digest, Client: id}
		rand.Read(out.ID[:])
		var part, share []byte
		var err error
		if sum, ok := s.mech.(*mechanism.VectorSum); ok {
			shares, err := sum.Shares(digest)
			if err != nil {
				s.t.Fatal(err)
			}
			counts := make([]int64, len(r.Value))
			for j, v := range r.Value {
				counts[j] = int64(v)
			}
			m, err := shares.Messages(rng.Secure(), counts)
			if err != nil {
				s.t.Fatal(err)
			}
			part, share = m[0], m[1]
		} else if part, err = randomizer.AppendReport(nil, s.mech, r); err != nil {
			s.t.Fatal(err)
		}
		for j := range int(a.PerClient()) {
			if j > 0 {
				if part, err = randomizer.AppendReport(nil, s.mech, s.report(a.Round, int64(i), a.ModelDigest, j)); err != nil {
					s.t.Fatal(err)
				}
			}
			sealed, err := envelope.SealPart(a.Coordinator, envelope.Coordinator, digest, part)
			if err != nil {
				s.t.Fatal(err)
			}
			out.Part = append(out.Part, sealed...)
		}
		if share != nil {
			if out.Share, err = envelope.SealPart(a.Aggregator, envelope.Aggregator, digest, share); err != nil {
				s.t.Fatal(err)
			}
		}
		wire.Authenticate(&out, s.session(key))
		sealed, err := envelope.SealReport(s.seal.Keys[0], &out, wire.ID{})
		if err != nil {
			s.t.Fatal(err)
		}
		if code, b := s.post("/v1/report", sealed); !s.in(code, 204, b) {
			return
		}
	}
}

// until takes part in rounds up to the last, or to one that a client missed.
func (s *system) until(h http.Handler, after, last int64) {
	s.t.Helper()
	for after < last && !s.late {
		code, b, _ := get(s.t, h, fmt.Sprintf("/v1/tasks/%s/announcement?after=%d&wait=20", hexTask(s.world), after))
		if code == 204 || code == 503 {
			time.Sleep(time.Millisecond)
			continue
		}
		if code != 200 {
			s.t.Fatalf("announcement: %d %s", code, b)
		}
		m, err := wire.Verify(s.key.Public().(ed25519.PublicKey), wire.LabelAnnouncement, b)
		if err != nil {
			s.t.Fatal(err)
		}
		a, err := wire.Decode[wire.Announcement](m)
		if err != nil {
			s.t.Fatal(err)
		}
		s.take(a)
		s.late = s.late || a.Round > after+1 // nobody saw the one before
		after = a.Round
	}
}

// again computes the model from what was recorded.
func (s *system) again() [32]byte {
	s.t.Helper()
	l, err := ledger.New(s.config.Budget)
	if err != nil {
		s.t.Fatal(err)
	}
	o, _ := newOptimizer()
	c := pure.Config{Task: wire.Digest(s.task), Optimizer: o, Mechanism: s.mech, Report: s.config.Report, Ledger: l, Trust: s.task.Trust,
		Participation: s.task.Participation, Population: s.n, Sample: s.config.Sample, MinReports: s.task.MinReports, Messages: s.task.Messages, Clip: 1}
	if s.task.Participation == dp.Once {
		c.Blocks, _ = schedule.NewBlocks(s.n, s.config.BlockSize)
	}
	co, err := pure.New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	for round := int64(1); round <= s.task.Rounds; round++ {
		r := s.rounds[round]
		if r == nil {
			s.t.Fatalf("round %d was not recorded", round)
		}
		if err := co.Receive(s.t.Context(), wire.RoundClosed{Round: round, Reports: max(r.n, int64(len(r.reports))/s.task.PerClient())}); err != nil {
			s.t.Fatal(err)
		}
		tally, err := co.NewTally()
		if err != nil {
			s.t.Fatal(err)
		}
		for _, x := range r.reports {
			tally.Open(x)
		}
		if r.sum != nil {
			if err := tally.AddSum(r.sum, r.n); err != nil {
				s.t.Fatal(err)
			}
		}
		if _, _, err := co.End(tally); err != nil {
			s.t.Fatal(err)
		}
	}
	return co.Announce().ModelDigest
}

// All services on their stores, with a coordinator that is stopped between two
// rounds and comes back: the model is what the recorded reports give.
func TestSystem(t *testing.T) {
	for _, c := range []struct {
		trust dp.Trust
		p     dp.Participation
		round time.Duration
		also  option
	}{
		{dp.Shuffle, dp.Sampled, 1500 * time.Millisecond, func(*world) {}}, // such a round lasts to its deadline
		{dp.Shuffle, dp.Once, 20 * time.Second, func(*world) {}},
		{dp.Shuffle, dp.All, 20 * time.Second, several},
		{dp.Distributed, dp.All, 20 * time.Second, func(*world) {}},
	} {
		if testing.Short() && c.p != dp.All {
			continue // one is enough
		}
		// Deadlines are of the real clock. On a machine where a client comes late
		// the rounds are made longer.
		for late := true; late; c.round *= 4 {
			if c.round > 10*time.Minute {
				t.Fatalf("%s %s: clients are late for rounds of %v", c.trust, c.p, c.round)
			}
			t.Run(fmt.Sprintf("%s %s %v", c.trust, c.p, c.round), func(t *testing.T) {
				s := newSystem(t, c.trust, c.p, c.round, c.also)
				s.run(t)
				late = s.late
			})
			if t.Failed() {
				return
			}
		}
	}
}

func (s *system) run(t *testing.T) {
	s.serve(func(co *Service) { s.until(co.Handler(), 0, 2) })
	if s.late {
		return
	}
	s.serve(func(co *Service) {
		s.until(co.Handler(), 2, 3)
		if s.late {
			return
		}
		status, err := co.Wait(t.Context(), wire.Digest(s.task))
		if err != nil {
			t.Fatal(err)
		}
		if want := s.again(); status.State != Done || status.Model != want || status.Released != 3 {
			t.Errorf("%+v, want model %x", status, want)
		}
	})
}
