package operate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/riffle-dp/riffle/learn/external"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/endpoint"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
	"github.com/riffle-dp/riffle/service/store"
)

// Options are the program's settings for a server.
type Options struct {
	Log     *slog.Logger // Required.
	Version string
	// Level, if not nil, is set to the configuration's level.
	Level *slog.LevelVar
	// Pages are further pages of a coordinator's dashboard, by name.
	Pages map[string]http.Handler
	// Hold, if not nil, keeps a coordinator from announcing rounds until it is closed.
	Hold <-chan struct{}
	// Ready, if not nil, is called once: when clients have agreed to all tasks that their
	// configuration names, and have sessions and their data.
	Ready func()
	// Gradients and Answer, if not zero, are a client's program and the time for its answers, in
	// place of those of the configuration, and of its data.
	Gradients string
	Answer    time.Duration
	// Evaluate, if not empty, is the program that evaluates a coordinator's models of programs, in
	// place of the configuration's.
	Evaluate string
}

// Serve runs a role until ctx ends, finishes what was begun and returns nil. Clients end with
// the last of the tasks that their configuration names, too.
func Serve(ctx context.Context, role, path string, o Options) error {
	if role == RoleAll {
		return serveAll(ctx, path, o)
	}
	if left := config.Placeholders(path); len(left) > 0 {
		return config.Errorf("%s", left[0])
	}
	if role == RoleClient {
		return serveClients(ctx, path, o)
	}
	o.Log = o.Log.With("role", role)
	switch role {
	case RoleShuffler:
		return serveShuffler(ctx, path, o)
	case RoleCoordinator:
		return serveCoordinator(ctx, path, o)
	case RoleAggregator:
		return serveAggregator(ctx, path, o)
	case RoleRegistrar:
		return serveRegistrar(ctx, path, o)
	case RoleRelay:
		return serveRelay(ctx, path, o)
	case RoleWorker:
		return serveWorker(ctx, path, o)
	}
	return config.Errorf("no role %q", role)
}

func serveAll(ctx context.Context, path string, o Options) error {
	c, err := config.Load[config.All](path)
	if err != nil {
		return err
	}
	var parts []func(context.Context) error
	for _, r := range rolesOf(c) {
		parts = append(parts, func(ctx context.Context) error {
			if err := Serve(ctx, r.role, r.path, o); err != nil {
				return fmt.Errorf("role %s: %w", r.role, err)
			}
			return nil
		})
	}
	return together(ctx, parts...)
}

// together runs all parts. When ctx ends or one part returns, it ends the others, waits for
// them, and returns the first error.
func together(ctx context.Context, parts ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	for _, f := range parts {
		wg.Go(func() {
			defer cancel()
			if err := f(ctx); err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	wg.Wait()
	return first
}

// server is the common part of the roles' processes.
type server struct {
	role    string
	process config.Process
	options Options
	store   *store.Store
	front   []func(context.Context) error // the servers, which stop first
	started time.Time
	ready   func(context.Context) error
	peers   *peers // the roles that this one calls; nil: none
	metrics []func() []endpoint.Metric
	// operator, if not nil, answers what the operator asks beside the operator API.
	operator http.Handler
}

// openServer opens a role's store, which Init must have made.
func openServer(ctx context.Context, p config.Process, role string, o Options, open func(context.Context) (*store.Store, error)) (*server, error) {
	if o.Level != nil {
		o.Level.Set(p.Level)
	}
	s, err := open(ctx)
	if err != nil {
		return nil, err
	}
	return &server{role: role, process: p, options: o, store: s, started: time.Now()}, nil
}

// openStore opens a role's store. If there is none, the configuration is wrong.
func openStore(ctx context.Context, c store.Config) (*store.Store, error) {
	s, err := store.Open(ctx, c)
	if errors.Is(err, store.ErrNoStore) {
		return nil, config.Errorf("%w", err)
	}
	return s, err
}

func roleStore(p config.Process) func(context.Context) (*store.Store, error) {
	return func(ctx context.Context) (*store.Store, error) { return openStore(ctx, p.Store) }
}

// openCoordinatorStore opens a coordinator's store. If there is none, and its mark counts
// charges, the error says that the ledger is lost: a new one would be a new budget.
func openCoordinatorStore(ctx context.Context, c config.Coordinator) (*store.Store, error) {
	s, err := openStore(ctx, c.Store)
	if errors.Is(err, store.ErrNoStore) {
		if mark, bad := coordinator.MarkFile(c.Mark).Load(); bad == nil && mark.Entries > 0 {
			return nil, fmt.Errorf("%w: the mark %s knows of %d charges: %w", ledger.ErrMark, c.Mark, mark.Entries, err)
		}
	}
	return s, err
}

// listenTo serves clients. Origins are those of pages whose visitors may be clients. A role
// that knows its callers anyway has keys for tickets of TLS; others have nil.
func (s *server) listenTo(origins []string, address string, rate float64, maxBody int64, tickets func() [][32]byte, h http.Handler) error {
	return s.open(endpoint.ServerConfig{Name: "clients", Address: address, Origins: origins, Handler: h, Tickets: tickets, MaxBody: maxBody, Rate: rate})
}

func (s *server) listen(name, address string, peers map[string][]endpoint.Pin, maxBody int64, h http.Handler) error {
	return s.open(endpoint.ServerConfig{Name: name, Address: address, Peers: peers, Handler: h, MaxBody: maxBody})
}

// open opens a server with the process's certificate and limits.
func (s *server) open(c endpoint.ServerConfig) error {
	cert, _, err := endpoint.LoadCertificate(s.process.Certificate, s.process.CertificateKey)
	if err != nil {
		return config.Errorf("%w", err)
	}
	c.Certificate, c.MaxConns, c.Share, c.Log = cert, s.process.MaxConnections, s.process.AddressShare, s.options.Log
	e, err := endpoint.NewServer(c)
	if err != nil {
		return err
	}
	s.front = append(s.front, e.Run)
	s.metrics = append(s.metrics, e.Metrics)
	return nil
}

// run serves until ctx ends. Then the servers stop, then service, then the store is closed.
func (s *server) run(ctx context.Context, api operatorAPI, service func(context.Context) error) (err error) {
	defer func() { err = errors.Join(err, s.store.Close()) }()
	if s.peers != nil {
		own := s.ready
		s.ready = func(ctx context.Context) error { return errors.Join(own(ctx), s.peers.trouble()) }
		s.front = append(s.front, s.peers.watch)
		s.metrics = append(s.metrics, s.peers.metrics)
	}
	if s.process.Admin != config.NoAddress {
		a, err := newAdmin(s.process.Admin, s.ready, func() (all []endpoint.Metric) {
			for _, f := range s.metrics {
				all = append(all, f()...)
			}
			return all
		}, s.options.Log)
		if err != nil {
			return err
		}
		s.front = append(s.front, a.run)
	}
	api.server = s
	most := 1 << 20
	if api.coordinator != nil {
		most += 4 * external.MaxDim // the parameters that a task starts from
	}
	mux := http.NewServeMux()
	path, handler := operatorv1.NewOperatorServiceHandler(api, connect.WithReadMaxBytes(most))
	mux.Handle(path, handler)
	if s.operator != nil {
		mux.Handle("/", s.operator)
	}
	socket, err := newSocketServer(s.process.Operator, mux)
	if err != nil {
		return err
	}
	s.front = append(s.front, socket.run)

	// Servers stop before the service, which still makes durable what they have accepted.
	back, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	fronts, stopFronts := context.WithCancel(ctx)
	defer stopFronts()
	ended := make(chan error, 1)
	go func() {
		ended <- service(back)
		stopFronts()
	}()
	s.options.Log.Info("started")
	err = together(fronts, s.front...)
	stop()
	err = errors.Join(err, <-ended)
	s.options.Log.Info("ended")
	return err
}

// peerClient returns an HTTP client for another role.
func (s *server) peerClient(p config.Party) (*http.Client, error) {
	cert, _, err := endpoint.LoadCertificate(s.process.Certificate, s.process.CertificateKey)
	if err != nil {
		return nil, config.Errorf("%w", err)
	}
	return endpoint.NewClient(endpoint.ClientConfig{Pins: p.Pinned, Certificate: &cert})
}
