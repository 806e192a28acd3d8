package coordinator

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/memnet"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	pure "github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/aggregator"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/batch/batchtest"
	"github.com/riffle-dp/riffle/service/shuffler"
)

func TestMain(m *testing.M) {
	messagePlaces = 3
	if os.Getenv(loadChild) != "" {
		loadMain()
	}
	debug.SetGCPercent(400) // most of what is allocated here is of a world that is over
	goleak.VerifyTestMain(m)
}

// bubble runs a subtest in a bubble, where hours pass at once.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// within is how long a task may take. In a bubble that is its time, so no test hangs.
const within = time.Hour

// until lets the bubble's time pass until f holds. It asks f while all wait.
func until(t testing.TB, f func() bool) {
	t.Helper()
	for late := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		if synctest.Wait(); f() {
			return
		}
		if time.Now().After(late) {
			t.Fatal("it does not come")
		}
	}
}

// plain counts ε₀ of every report and 1/σ² of every sum: enough to see a budget end.
type plain struct{}

func (p plain) Eps(ev dp.Event, delta float64) (dp.Bound, error) {
	b := dp.Bound{Method: "plain", Guarantee: dp.Guarantee{Delta: delta}}
	switch e := ev.(type) {
	case dp.Sequence:
		for _, x := range e {
			one, err := p.Eps(x, delta)
			if err != nil {
				return b, err
			}
			b.Eps += one.Eps
		}
	case dp.Repeat:
		one, err := p.Eps(e.Event, delta)
		if err != nil {
			return b, err
		}
		b.Eps = one.Eps * float64(e.Times)
	case dp.Round:
		b.Eps = e.Report.Eps0
		if e.Report.Class == dp.Gaussian {
			b.Eps = 1
		}
	default:
		return b, errors.New("plain: unknown event")
	}
	return b, nil
}

func (p plain) EpsAdaptive(ev dp.Event, _, delta float64) (dp.Bound, error) { return p.Eps(ev, delta) }

func limit(eps float64) ledger.Config {
	return ledger.Config{Accountant: plain{}, Delta: 1e-6, Tail: vecsum.TailShare, MaxEps: eps}
}

// Wait waits until a task has ended and returns its last status.
func (s *Service) Wait(ctx context.Context, id [32]byte) (wire.Status, error) {
	r := s.find(id)
	if r == nil {
		return wire.Status{}, fmt.Errorf("%w: %x", ErrNoTask, id[:8])
	}
	select {
	case <-r.ended:
		return r.snapshot(), nil
	case <-ctx.Done():
		return r.snapshot(), ctx.Err()
	}
}

// await lets time pass until the task's status is such, and returns it.
func (w *world) await(p *process, f func(wire.Status) bool) (s wire.Status) {
	w.t.Helper()
	until(w.t, func() bool { s, _ = p.Show(wire.Digest(w.task)); return f(s) })
	return s
}

// world is a task with its shuffler, and the reports of all its rounds.
type world struct {
	t       testing.TB
	net     *memnet.Network
	key     ed25519.PrivateKey
	ring    *envelope.Keyring
	second  *envelope.Keyring
	task    wire.Task
	mech    randomizer.Randomizer
	sh      *batchtest.Shuffler
	disk    *disk
	config  Job
	n       int64
	garbage map[int]int // place of a part to spoil, by round: kind of garbage
	server  *httptest.Server
	peer    *httptest.Server // the shuffler, to the aggregator
	agg     atomic.Pointer[aggregator.Service]
	aggHTTP *httptest.Server
	aggDisk *aggDisk
	present func(round int64, client int64) bool
	lie     func(round int64) bool                        // at place 3, a share of something else
	tells   bool                                          // whether the coordinator announces its ledger's head
	enrols  func(*system, *shuffler.Config)               // lets a registrar enrol the clients
	meddle  func(http.ResponseWriter, *http.Request) bool // answers in the aggregator's place
	lacks   func(*aggregator.Config)                      // changes the aggregator that starts
	aggKey  ed25519.PrivateKey
	proofs  bool
	bureau  *bureau                                                                                                              // issues the tokens; nil: there are none
	attack  func(place int, announcement [32]byte, of *proved.Round, x [][]int64, part, share []byte) (newPart, newShare []byte) // of reports with proofs, of a vector and perhaps noise
	sums    map[int64][][]int64                                                                                                  // what RecordSum was told, by round
	fails   func(round int64) bool                                                                                               // whether a charged round ends without a sum
	spoils  func(round int64) bool                                                                                               // whether the proofs of all its reports are spoilt
	forgets map[int64]bool                                                                                                       // rounds that are released without earlier ones, of correlated noise
}

const dim = 5

type option func(*world)

func newWorld(t testing.TB, trust dp.Trust, participation dp.Participation, options ...option) *world {
	t.Helper()
	w := &world{t: t, net: memnet.New(), n: 8, disk: newDisk(t), garbage: map[int]int{}}
	w.key, w.ring, w.second, w.aggKey = signer(t), ring(t), ring(t), signer(t)
	w.task = wire.Task{Population: wire.ID{1}, Name: "test", Trust: trust, Participation: participation,
		MinReports: 3, Rounds: 3, Delta: 1e-6}
	w.present = func(int64, int64) bool { return true }
	w.config = Job{Sample: 5, Gamma: .9, BlockSize: 4, Round: time.Hour, Budget: limit(1e9)}
	if participation != dp.Sampled {
		w.config.Sample = 0
	}
	if participation != dp.CheckIn {
		w.config.Gamma = 0
	}
	if trust == dp.Distributed {
		w.task.Mechanism = sumMechanism(t, w.n, w.task.MinReports)
	} else {
		w.task.Mechanism = wire.Mechanism{Name: "privunit", Dim: dim, Clip: 1, ClipMode: "norm", Eps0: 2}
	}
	for _, o := range options {
		o(w)
	}
	if participation == dp.Sampled && !w.config.Declinable && w.task.MinClients == 0 {
		w.task.MinClients = w.n
	}
	var err error
	if w.mech, err = mechanism.New(w.task.Mechanism); err != nil {
		t.Fatal(err)
	}
	w.config.Report = w.mech.Event()
	if w.bureau != nil {
		w.bureau.join(w)
	}
	w.config.Signed = wire.Sign(w.key, wire.LabelTask, wire.Encode(w.task))
	w.config.Optimizer = newOptimizer
	w.sh = batchtest.New(w.n, 2, w.second.Keys...)
	w.sh.Fill = w.fill
	if w.sent() {
		w.sh.PerChunk = 1 // three would be longer than the peers take
	}
	if w.bureau != nil {
		w.bureau.enrol(w)
	}
	public := w.key.Public().(ed25519.PublicKey)
	w.server = w.net.Serve(t, w.sh.Handler(public, false))
	w.peer = w.net.Serve(t, w.sh.Handler(public, true))
	w.sh.Asked = func(method, path string) { w.disk.event(method + " " + path) }
	if trust == dp.Distributed {
		w.aggDisk = newAggDisk()
		w.startAggregator(nil)
		w.aggHTTP = w.net.Serve(t, http.HandlerFunc(func(out http.ResponseWriter, q *http.Request) {
			if w.meddle == nil || !w.meddle(out, q) {
				w.agg.Load().PeerHandler().ServeHTTP(out, q)
			}
		}))
	}
	return w
}

func (w *world) startAggregator(crash *stop) {
	w.t.Helper()
	c := aggregator.Config{Coordinator: w.key.Public().(ed25519.PublicKey), Keyring: w.second, Workers: 2,
		Shuffler: batch.Source{URL: w.peer.URL, Key: w.sh.Public, Client: w.client(crash), Registrar: w.bureau.key()}, Store: w.aggDisk.store(crash), Mark: w.aggDisk.marks(crash), Key: w.aggKey}
	if w.lacks != nil {
		w.lacks(&c)
	}
	a, err := aggregator.New(context.Background(), c)
	if errors.Is(err, errCrash) {
		return // Died has started another
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.agg.Store(a)
}

func newOptimizer() (pure.Learner, error) {
	return optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: dim, Schedule: func(int64) float64 { return .5 }, Momentum: .5})
}

var sums = map[[2]int64]wire.Mechanism{}

// sumMechanism designs a vector sum.
func sumMechanism(t testing.TB, users, least int64) wire.Mechanism {
	t.Helper()
	if m, ok := sums[[2]int64{users, least}]; ok {
		return m
	}
	p, err := vecsum.Tight(vecsum.Target{Eps: 5, Delta: 1e-6, Users: users, MinUsers: least, Dim: dim, Radius: 1})
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(t.Context(), 1e-6, 3)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewVectorSum(p, sigma)
	if err != nil {
		t.Fatal(err)
	}
	sums[[2]int64{users, least}] = m.Describe()
	return m.Describe()
}

func signer(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func ring(t testing.TB) *envelope.Keyring {
	t.Helper()
	k, err := envelope.GenerateKey(wire.X25519, time.Now().Add(48*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	r, err := envelope.NewKeyring(k)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// client makes a client whose requests a crash stops.
func (w *world) client(crash *stop) *http.Client {
	return &http.Client{Transport: transport{crash, w.net.Client(w.t).Transport}}
}

// process is a running coordinator.
type process struct {
	*Service
	done chan error
	stop context.CancelFunc
}

// start runs a coordinator on the world's disk; crash may stop it.
func (w *world) start(crash *stop, change ...func(*Config)) (*process, error) {
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	if crash != nil {
		crash.Died = cancel
	}
	journal, err := w.disk.journal(ctx, crash, w.task.Population, w.budget())
	if err != nil {
		cancel()
		return nil, err
	}
	c := Config{Key: w.key, Keyring: w.ring, Store: w.disk.store(crash), Journal: journal, Tasks: []Job{w.config}, Workers: 3, Promises: memoryPromises{w.disk, crash},
		Shuffler:       batch.Source{URL: w.server.URL, Key: w.sh.Public, Client: w.client(crash), Registrar: w.bureau.key()},
		AnnounceLedger: w.tells}
	if w.aggHTTP != nil {
		c.Aggregator = &Aggregator{URL: w.aggHTTP.URL, Client: w.client(crash), Key: w.aggKey.Public().(ed25519.PublicKey)}
	}
	for _, f := range change {
		f(&c)
	}
	s, err := New(c)
	if err != nil {
		cancel()
		return nil, err
	}
	p := &process{Service: s, done: make(chan error, 1), stop: cancel}
	go func() { p.done <- s.Run(ctx) }()
	return p, nil
}

// budget is the population's.
func (w *world) budget() ledger.Config {
	if w.proofs {
		return limit(mechanism.MostEps)
	}
	return limit(1e9)
}

// end waits for the task to end and stops the process.
func (w *world) end(p *process) wire.Status {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	s, err := p.Wait(ctx, wire.Digest(w.task))
	if err != nil {
		w.t.Fatalf("the task does not end: %v: %+v", err, s)
	}
	p.stop()
	if err := <-p.done; err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) run(change ...func(*Config)) wire.Status {
	w.t.Helper()
	p, err := w.start(nil, change...)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.end(p)
}
