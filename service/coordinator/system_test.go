package coordinator

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
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
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/shuffler"
)

// opened is what a coordinator recorded of a round.
type opened struct {
	reports []*randomizer.Report
	sum     []int64
	n       int64
}

// system is all three services, each on a disk of its own.
type system struct {
	*world
	clients []ed25519.PrivateKey
	seal    *envelope.Keyring
	front   http.Handler
	service *shuffler.Service
	rounds  map[int64]*opened
	source  batch.Source
	agg     *Aggregator
	// before, if not nil, answers in place of the shuffler where it returns true.
	before   func(http.ResponseWriter, *http.Request) bool
	operator ed25519.PrivateKey
}

func newSystem(t *testing.T, trust dp.Trust, p dp.Participation, options ...option) *system {
	t.Helper()
	s := &system{world: newWorld(t, trust, p, options...), seal: ring(t), rounds: map[int64]*opened{}}
	s.config.Round = time.Minute
	operator := signer(t)
	public := s.key.Public().(ed25519.PublicKey)
	c := shuffler.Config{Population: s.task.Population, Operator: operator, Coordinators: []ed25519.PublicKey{public}, Keys: s.seal,
		Aggregator: s.second.Keys, MinReports: 2, Store: &memory.Store{Disk: memory.NewDisk()}}
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
		return s.net.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if f := s.before; f != nil && f(w, q) {
				return
			}
			h.ServeHTTP(w, endpoint.WithPeer(q, name))
		}))
	}
	one, two := peer(shuffler.Coordinator), peer(shuffler.Aggregator)
	s.operator = operator
	s.source = batch.Source{URL: one.URL, Key: operator.Public().(ed25519.PublicKey), Client: s.client(nil)}
	if c.Registrar != nil {
		s.source.Registrar = c.Registrar.Key
	}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if trust == dp.Distributed {
		a, err := aggregator.New(ctx, aggregator.Config{Coordinator: public, Keyring: s.second, Store: &memory.Store{Disk: memory.NewDisk()},
			Shuffler: batch.Source{URL: two.URL, Key: s.source.Key, Client: s.client(nil)}})
		if err != nil {
			t.Fatal(err)
		}
		s.agg = &Aggregator{URL: s.net.Serve(t, a.PeerHandler()).URL, Client: s.client(nil)}
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

// serve runs a coordinator on its disk while f runs.
func (s *system) serve(f func(*Service)) {
	s.t.Helper()
	if err := s.served(f); err != nil {
		s.t.Error(err)
	}
}

// served is serve; it returns what Run returned.
func (s *system) served(f func(*Service)) error {
	s.t.Helper()
	p, err := s.start(nil, func(c *Config) { c.Shuffler, c.Aggregator, c.Promises = s.source, s.agg, nil })
	if err != nil {
		s.t.Fatal(err)
	}
	f(p.Service)
	p.stop()
	return <-p.done
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

// take has all clients take part in a round.
func (s *system) take(a wire.Announcement) {
	s.t.Helper()
	digest := wire.Digest(a)
	var out []int // who is not drawn
	for i, key := range s.clients {
		switch a.Participation {
		case dp.Sampled, dp.Once: // a round may close when all that are drawn have reported, so all ask first
			ask := wire.Ask{Announcement: digest, Client: wire.ClientID(key.Public().(ed25519.PublicKey))}
			wire.Authenticate(&ask, s.session(key))
			code, b := s.post("/v1/ask", wire.Encode(ask))
			if code != 200 || len(b) != 1 {
				s.t.Fatalf("ask: %d %s", code, b)
			}
			if b[0] == 0 {
				out = append(out, i)
			}
		}
	}
	for i, key := range s.clients {
		if slices.Contains(out, i) {
			continue
		}
		r := s.report(a.Round, int64(i), a.ModelDigest, 0)
		report := wire.Report{Announcement: digest, Client: wire.ClientID(key.Public().(ed25519.PublicKey))}
		rand.Read(report.ID[:])
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
			report.Part = append(report.Part, sealed...)
		}
		if share != nil {
			if report.Share, err = envelope.SealPart(a.Aggregator, envelope.Aggregator, digest, share); err != nil {
				s.t.Fatal(err)
			}
		}
		wire.Authenticate(&report, s.session(key))
		sealed, err := envelope.SealReport(s.seal.Keys[0], &report, wire.ID{})
		if err != nil {
			s.t.Fatal(err)
		}
		if code, b := s.post("/v1/report", sealed); code != 204 {
			s.t.Fatalf("%d %s", code, b)
		}
	}
}

// next waits for the announcement of a later round.
func (s *system) next(h http.Handler, after int64) wire.Announcement {
	s.t.Helper()
	var code int
	var b []byte
	until(s.t, func() bool {
		code, b, _ = get(s.t, h, fmt.Sprintf("/v1/tasks/%s/announcement?after=%d&wait=20", hexTask(s.world), after))
		return code != 204 && code != 503
	})
	if code != 200 {
		s.t.Fatalf("announcement: %d %s", code, b)
	}
	m, err := wire.Verify(s.key.Public().(ed25519.PublicKey), wire.LabelAnnouncement, b)
	if err != nil {
		s.t.Fatal(err)
	}
	a, err := wire.Decode[wire.Announcement](m)
	if err != nil || a.Round != after+1 {
		s.t.Fatalf("round %d, want %d: %v", a.Round, after+1, err)
	}
	return a
}

// run takes part in rounds up to the last.
func (s *system) run(h http.Handler, after, last int64) {
	s.t.Helper()
	for ; after < last; after++ {
		s.take(s.next(h, after))
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

// All services, with a coordinator that is stopped between two rounds and comes back: the model is what
// the recorded reports give.
func TestSystem(t *testing.T) {
	for _, c := range []struct {
		trust dp.Trust
		p     dp.Participation
		also  option
	}{
		{dp.Shuffle, dp.Sampled, func(*world) {}},
		{dp.Shuffle, dp.Once, func(*world) {}},
		{dp.Shuffle, dp.All, several},
		{dp.Distributed, dp.All, func(*world) {}},
	} {
		bubble(t, fmt.Sprint(c.trust, " ", c.p), func(t *testing.T) {
			s := newSystem(t, c.trust, c.p, c.also)
			s.serve(func(co *Service) { s.run(co.Handler(), 0, 2) })
			s.serve(func(co *Service) {
				s.run(co.Handler(), 2, 3)
				status, err := co.Wait(t.Context(), wire.Digest(s.task))
				if err != nil {
					t.Fatal(err)
				}
				if want := s.again(); status.State != Done || status.Model != want || status.Released != 3 {
					t.Errorf("%+v, want model %x", status, want)
				}
			})
		})
	}
}
