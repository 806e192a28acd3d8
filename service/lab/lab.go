// Package lab is, for tests, a deployment in memory: every role with a disk of its own, clients, and
// a network between them, in one testing/synctest bubble. Each role can be stopped and started again
// at any time, and fail at any operation of its store.
package lab

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/memnet"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/mark"
)

// Role names what is started and stopped.
type Role string

// The roles. Clients are all of them, in one process.
const (
	Coordinator Role = "coordinator"
	Shuffler    Role = "shuffler"
	Aggregator  Role = "aggregator"
	Registrar   Role = "registrar"
	Relay       Role = "relay"
	Clients     Role = "clients"
)

// Config says what is deployed. Its zero value is a task of three rounds, of eight clients whose
// reports a shuffler mixes.
type Config struct {
	// Roles are started by New, in this order. Default: those that the task needs.
	Roles   []Role
	Clients int // default 8
	// Relay has clients' requests go through a relay, Registrar has one enrol the clients, Tokens has it
	// give each client one token for each message.
	Relay, Registrar, Tokens bool
	// Front, if not nil, has the relay's address served as in production, with its limits, which it may change.
	Front func(*endpoint.ServerConfig)
	// Task, Job, Serve and Join change the task, how the coordinator runs it, the coordinator, and the
	// clients.
	Task  func(*wire.Task)
	Job   func(*coordinator.Job)
	Serve func(*coordinator.Config)
	Join  func(*client.JoinConfig)
	// Answers, if not nil, is told of each answer of a role before anything of it leaves.
	Answers func(q Request, status int)
}

// Lab is a deployment.
type Lab struct {
	Net  *memnet.Network
	Task wire.Task
	ID   [32]byte // of the task
	// Disks are what the roles store. Do, if a role has one, carries out each operation of its store,
	// from its next start on.
	Disks map[Role]*memory.Disk
	Do    map[Role]func(op string, f func() error) error
	// Ledger is the mark of the coordinator's ledger, Marks those of the others.
	Ledger *ledger.Mark
	Marks  map[Role]*mark.Mark
	// Service and Fleet are the coordinator and the clients that were started last.
	Service *coordinator.Service
	Fleet   *client.Fleet

	t       *testing.T
	c       Config
	dir     string
	keys    map[Role]ed25519.PrivateKey
	rings   map[Role]*envelope.Keyring
	doors   map[string]*door
	roots   *x509.CertPool
	members []client.Member
	job     coordinator.Job
	running map[Role]*process

	front net.Addr // of a relay with limits; nil: none yet

	mu       sync.Mutex
	asked    []Request
	enrolled bool
}

// Request is one that a role was asked.
type Request struct {
	Of     Role
	Method string
	Path   string
}

// process is a role that runs.
type process struct {
	stop context.CancelFunc
	done chan error
}

// accountant is that of clients and coordinators. It remembers what it has counted, so that a test
// binary counts each cost once.
var accountant = new(account.Accountant)

// New starts a deployment, which stops with the test. It belongs into a bubble.
func New(t *testing.T, c Config) *Lab {
	t.Helper()
	if c.Clients == 0 {
		c.Clients = 8
	}
	c.Registrar = c.Registrar || c.Tokens
	l := &Lab{Net: memnet.New(), t: t, c: c, dir: t.TempDir(), Disks: map[Role]*memory.Disk{}, Do: map[Role]func(string, func() error) error{},
		Ledger: new(ledger.Mark), Marks: map[Role]*mark.Mark{}, keys: map[Role]ed25519.PrivateKey{}, rings: map[Role]*envelope.Keyring{},
		doors: map[string]*door{}, roots: x509.NewCertPool(), running: map[Role]*process{}}
	for _, r := range []Role{Coordinator, Shuffler, Aggregator, Registrar} {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		l.must(err)
		k, err := envelope.GenerateKey(wire.X25519, time.Now().Add(1000*time.Hour))
		l.must(err)
		l.keys[r], l.Disks[r], l.Marks[r] = key, memory.NewDisk(), new(mark.Mark)
		l.rings[r], err = envelope.NewKeyring(k)
		l.must(err)
	}
	for i := range c.Clients {
		credential, err := client.NewCredential()
		l.must(err)
		l.members = append(l.members, client.Member{Credential: credential, Source: client.Func(Dim, GradientOf(int64(i)))})
	}
	l.must(client.CreateLedger(l.ledger()))
	_, err := l.promises().Create(t.Context(), nil, nil, nil)
	l.must(err)
	for name, of := range fronts {
		l.doors[name] = l.open(of.role, of.peer)
	}
	l.makeTask()
	roles := c.Roles
	if roles == nil {
		roles = l.needed()
	}
	t.Cleanup(func() {
		for _, r := range []Role{Clients, Coordinator, Aggregator, Relay, Shuffler, Registrar} {
			if l.running[r] != nil {
				l.Stop(r)
			}
		}
	})
	for _, r := range roles {
		l.Start(r)
	}
	return l
}

// needed are the roles that the task needs, those first that others ask.
func (l *Lab) needed() (roles []Role) {
	if l.c.Registrar && l.running[Registrar] == nil {
		roles = append(roles, Registrar)
	}
	roles = append(roles, Shuffler)
	if l.c.Relay {
		roles = append(roles, Relay)
	}
	if l.Task.Trust.Is(dp.SumsOnly) {
		roles = append(roles, Aggregator)
	}
	return append(roles, Coordinator, Clients)
}

func (l *Lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *Lab) ledger() string { return filepath.Join(l.dir, "ledger") }

func (l *Lab) promises() coordinator.PromiseFile {
	return coordinator.PromiseFile(filepath.Join(l.dir, "promises"))
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

// front is an address of a role: for clients, or for a peer.
type front struct {
	role Role
	peer string
}

// door is a server whose role may be away.
type door struct {
	url  string
	peer string
	now  atomic.Pointer[http.Handler]
}

// open serves an address: HTTPS for clients. In place of the peers' certificates, each peer has an
// address of its own. A role that is away breaks its callers' connections.
func (l *Lab) open(r Role, peer string) *door {
	d := &door{peer: peer}
	h := http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		now := d.now.Load()
		if now == nil {
			panic(http.ErrAbortHandler)
		}
		asked := Request{r, q.Method, q.URL.Path}
		l.mu.Lock()
		l.asked = append(l.asked, asked)
		l.mu.Unlock()
		if f := l.c.Answers; f != nil {
			w = &watched{ResponseWriter: w, tell: func(status int) { f(asked, status) }}
		}
		if peer != "" {
			q = endpoint.WithPeer(q, peer)
		}
		(*now).ServeHTTP(w, q)
	})
	if peer != "" {
		d.url = l.Net.Serve(l.t, h).URL
		return d
	}
	s := l.Net.ServeTLS(l.t, h)
	d.url = s.URL
	l.roots.AddCert(s.Certificate())
	return d
}

// watched tells an answer's status before anything is written.
type watched struct {
	http.ResponseWriter
	tell func(status int) // nil: it was told
}

// Unwrap is for http.ResponseController.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *watched) WriteHeader(status int) {
	if f := w.tell; f != nil && status >= 200 {
		w.tell = nil
		f(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *watched) Write(b []byte) (int, error) {
	if w.tell != nil {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// let has an address answered by a handler.
func (l *Lab) let(name string, h http.Handler) { l.doors[name].now.Store(&h) }

// Asked returns the requests until now, in order.
func (l *Lab) Asked() []Request {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.asked)
}

// Start starts a role that does not run.
func (l *Lab) Start(r Role) {
	l.t.Helper()
	if l.running[r] != nil {
		l.t.Fatalf("%s runs", r)
	}
	ctx, stop := context.WithCancel(context.Background())
	run, err := starts[r](l, ctx)
	if err != nil {
		stop()
		l.t.Fatalf("%s: %v", r, err)
	}
	p := &process{stop, make(chan error, 1)}
	l.running[r] = p
	go func() { p.done <- run(ctx) }()
	if r == Registrar {
		l.enrol()
	}
}

// Stop ends a role, as SIGTERM does.
func (l *Lab) Stop(r Role) {
	l.t.Helper()
	p := l.running[r]
	delete(l.running, r)
	for name, of := range fronts {
		if of.role == r {
			l.doors[name].now.Store(nil)
		}
	}
	p.stop()
	if err := <-p.done; err != nil {
		l.t.Errorf("%s: %v", r, err)
	}
}

// Restart stops a role and starts it again.
func (l *Lab) Restart(r Role) {
	l.t.Helper()
	l.Stop(r)
	l.Start(r)
}

// Until lets time pass until f holds. It asks f while all wait.
func (l *Lab) Until(f func() bool) {
	l.t.Helper()
	for late := time.Now().Add(24 * time.Hour); ; time.Sleep(100 * time.Millisecond) {
		if synctest.Wait(); f() {
			return
		}
		if time.Now().After(late) {
			s, err := l.Service.Show(l.ID)
			l.t.Fatalf("it does not come: %+v, %v", s, err)
		}
	}
}

// Await lets time pass until the task's status is such, and returns it.
func (l *Lab) Await(f func(wire.Status) bool) (s wire.Status) {
	l.t.Helper()
	l.Until(func() bool {
		var err error
		s, err = l.Service.Show(l.ID)
		return err == nil && f(s)
	})
	return s
}
