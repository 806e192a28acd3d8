// Package store keeps what a role of the running system must not lose: blocks of reports, the
// ledger, the state of rounds, models. It uses NATS JetStream: either a server inside the
// process with file storage (Config.Dir) or an external cluster (Config.URL), with the same
// calls. Each trust domain has a NATS of its own: a store is never shared between operators.
// The package is for the program.
//
// # Durability
//
// A write that returned nil is on disk: the embedded server syncs every write before it
// acknowledges. JetStream has that setting per server only, so it holds for all streams and
// not just for the ledger. The operator of an external cluster must configure `sync_interval:
// always`. Without it acknowledged writes survive the death of any process, but a power
// failure only if a majority of the replicas keeps its power. Asynchronous persistence is
// never used.
//
// # Layout
//
// A domain d owns the streams d_ledger (entries of the budget), d_kv (values and leases, one
// message per key, also a deleted one), OBJ_d (objects), d_log_NAME (blocks), d_key_NAME (one secret each), d_work_NAME
// and d_done_NAME (queues), and the subjects below d. An embedded directory holds riffle-store.json (the marker), lock,
// jetstream/ with mode 0700, and in removing/ and erasing/ what is being deleted.
//
// A standalone JetStream directory that is started clustered loses its streams. So the marker
// must exist, Open starts standalone servers only, and it refuses a directory in which a
// cluster has left its files. To grow a store, move it with Migrate.
//
// # Erasure
//
// Delete removes the files of a stream or a secret, in an embedded store before they return,
// in a cluster on each node soon after. Removing is not overwriting: what a disk or a
// copy-on-write file system keeps of a removed file is out of reach, which is why report
// blocks are sealed under a per-round key. For a key, Delete overwrites the current value in place, and, if
// it had replaced another, adds a short message that says so, which stays; earlier values of the key stay in the file until it is
// compacted. So secrets are kept as secrets and not as values.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/riffle-dp/riffle/internal/durable"
)

const (
	// MaxBlock is the largest plaintext of one block of reports, in bytes.
	MaxBlock = 64 << 10
	// MaxData is the largest size of one message, ledger entry or value: a block with its
	// seal and a little framing.
	MaxData = MaxBlock + 1<<10

	maxPayload     = MaxData + 4<<10 // MaxData and headers
	defaultTimeout = 30 * time.Second
	attemptTimeout = 5 * time.Second
	dedupeWindow   = 30 * time.Second
)

// Config says where a store is and how it is opened. Domain and exactly one of Dir and URL
// are required. The fields' keys are those of a role's configuration.
type Config struct {
	// Domain is the trust domain, such as "shuffler"; it prefixes every name.
	Domain string `yaml:"-"`

	// Dir is the directory of an embedded store. Only one process at a time can open it.
	Dir string `yaml:"dir"`
	// MaxBytes limits an embedded store's disk; at the limit writes fail with
	// ErrFull. Default: three quarters of the free disk, as JetStream counts it.
	MaxBytes int64 `yaml:"max-bytes"`

	// URL names the servers of an external cluster, comma-separated.
	URL string `yaml:"url"`
	// Replicas is the number of replicas of every stream in a cluster, 1 to 5. Default 3. An
	// embedded store has one.
	Replicas int `yaml:"replicas"`
	// Credentials, TLSCA, TLSCert and TLSKey are files for URL; each may be empty.
	Credentials string `yaml:"credentials"`
	TLSCA       string `yaml:"ca"`
	TLSCert     string `yaml:"certificate"`
	TLSKey      string `yaml:"certificate-key"`
	// User is a name; Password is a file with its password. Token is a file as well. At most
	// one of credentials, user and token may be set.
	User     string `yaml:"user"`
	Password string `yaml:"password"`
	Token    string `yaml:"token"`
	// API is the prefix of JetStream's API, for a worker's user in an account of its own, which imports
	// it from the store's account. Default "$JS.API".
	API string `yaml:"-"`

	// Timeout limits how long an operation is retried after the loss of a connection or of a
	// leader. Default 30 s.
	Timeout time.Duration `yaml:"timeout"`
}

func (c Config) check() (Config, error) {
	if err := checkName("domain", c.Domain); err != nil {
		return c, err
	}
	if (c.Dir == "") == (c.URL == "") {
		return c, errors.New("store: exactly one of a directory and a URL is required")
	}
	if c.Timeout < 0 || c.MaxBytes < 0 {
		return c, errors.New("store: a limit below 0")
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Dir != "" {
		if c.Replicas > 1 {
			return c, fmt.Errorf("store: %d replicas: an embedded store has one", c.Replicas)
		}
		if c.Credentials+c.TLSCA+c.TLSCert+c.TLSKey+c.User+c.Password+c.Token+c.API != "" {
			return c, errors.New("store: credentials are for a URL")
		}
		c.Replicas = 1
		return c, nil
	}
	if c.MaxBytes != 0 {
		return c, errors.New("store: the disk limit of a cluster is set in its servers")
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		return c, errors.New("store: a TLS certificate and its key go together")
	}
	if (c.User == "") != (c.Password == "") {
		return c, errors.New("store: a user and the file of its password go together")
	}
	proofs := 0
	for _, p := range []string{c.Credentials, c.User, c.Token} {
		if p != "" {
			proofs++
		}
	}
	if proofs > 1 {
		return c, errors.New("store: of credentials, user and token only one is used")
	}
	if c.Replicas == 0 {
		c.Replicas = 3
	}
	if c.Replicas < 1 || c.Replicas > 5 {
		return c, fmt.Errorf("store: %d replicas: must be 1 to 5", c.Replicas)
	}
	return c, nil
}

// checkName allows names that can be a directory on every file system and a token of a
// subject. It refuses upper case, because some file systems do not distinguish case.
func checkName(what, name string) error {
	if name == "" || len(name) > 64 {
		return fmt.Errorf("store: %s %q: must have 1 to 64 characters", what, name)
	}
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && (c != '_' || what == "domain") {
			return fmt.Errorf("store: %s %q: only a-z, 0-9, - and _ are allowed (no _ in a domain)", what, name)
		}
	}
	return nil
}

// Store is an open store. It is safe for concurrent use.
type Store struct {
	config  Config
	session string       // identifies this opening; leases of earlier openings of an embedded store are dead
	unlock  func() error // unlocks the directory
	server  *server.Server
	log     *serverLog
	nc      *nats.Conn
	js      jetstream.JetStream
	settled settled       // what of an embedded store's directories is durable
	async   chan struct{} // bounds what all Appenders together have in flight

	// open is a context that ends when the store is closed.
	open  context.Context
	end   context.CancelFunc
	close sync.Once
	// Each write holds gate for reading, and Migrate for writing.
	gate  sync.RWMutex
	state atomic.Pointer[marker] // only Migrate changes it

	mu      sync.Mutex
	streams map[string]jetstream.Stream // handles of the fixed streams
	barred  map[string]jetstream.Stream // handles that Before keeps
	tried   map[string]observation      // leases that TryAcquire has found held
}

// Init makes an empty store with its ledger. It refuses to replace a store: a fresh ledger
// would be a fresh budget. An interrupted Init can be run again.
func Init(ctx context.Context, c Config) error {
	c, err := c.check()
	if err != nil {
		return err
	}
	if c.Dir != "" {
		if err := errors.Join(durable.MkdirAll(c.Dir, 0o700), durable.Own(c.Dir)); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	s, err := connect(ctx, c)
	if err != nil {
		return err
	}
	err = s.create(ctx)
	return errors.Join(err, s.Close())
}

// create makes the fixed streams and, last, the marker.
func (s *Store) create(ctx context.Context) error {
	if _, err := s.readMarker(ctx); !errors.Is(err, ErrNotFound) {
		if err == nil || errors.Is(err, ErrNewer) || errors.Is(err, ErrSealed) {
			err = fmt.Errorf("store: %s holds a store already: %w", s.where(), ErrExists)
		}
		return err
	}
	for _, c := range s.fixedStreams() {
		if _, err := s.js.CreateStream(ctx, c); err != nil {
			return s.fail("create "+c.Name, err)
		}
		if err := s.settleStream(c.Name); err != nil {
			return err
		}
	}
	info, err := s.ledgerInfo(ctx)
	if err != nil {
		return err
	}
	if info.last != 0 {
		return fmt.Errorf("store: %s has no marker but a ledger of %d entries; refusing: %w", s.where(), info.last, ErrExists)
	}
	// No lock keeps another Init from a cluster. Of two that come as far as this one writes the marker.
	err = s.putMarker(ctx, newMarker(s.config), 0)
	if errors.Is(err, ErrConflict) {
		err = fmt.Errorf("store: %s holds a store already: %w", s.where(), ErrExists)
	}
	return err
}

// Open opens a store made by Init. It refuses, each with its own message, a
// place without marker (ErrNotFound), one that was migrated away (ErrSealed)
// or is being filled (ErrSealed), one that a cluster has used, one of a newer
// format (ErrNewer), a directory that is open elsewhere (ErrLocked), and one in
// which a stream is there but cannot be read (ErrDamaged).
func Open(ctx context.Context, c Config) (*Store, error) {
	s, err := open(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := s.marker().usable(s.where()); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if s.server != nil {
		s.dropChunks(ctx)
	}
	return s, nil
}

// open opens a store for Migrate, too. The store may be sealed or partly filled; it then takes
// writes from Migrate only.
func open(ctx context.Context, c Config) (*Store, error) {
	c, err := c.check()
	if err != nil {
		return nil, err
	}
	if c.Dir != "" {
		if err := durable.Own(c.Dir); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		// The marker is read before a server starts, because the server would make files.
		if _, err := readMarkerFile(c.Dir); err != nil {
			return nil, err
		}
	}
	s, err := connect(ctx, c)
	if err != nil {
		return nil, err
	}
	m, err := s.readMarker(ctx)
	if err == nil {
		s.state.Store(&m)
		err = m.belongs(c, s.where())
	}
	if err == nil && s.server != nil {
		err = s.finishErasures(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// connect locks and starts the embedded server or dials the cluster.
func connect(ctx context.Context, c Config) (_ *Store, err error) {
	s := &Store{config: c, session: randomID(), settled: settled{streams: map[string]*blocks{}}, streams: map[string]jetstream.Stream{}, barred: map[string]jetstream.Stream{}, tried: map[string]observation{}, async: make(chan struct{}, asyncWindow)}
	s.open, s.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	opts := []nats.Option{
		nats.Name("riffle " + c.Domain), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		// A message that cannot be sent now fails at once; its caller retries.
		nats.ReconnectBufSize(-1),
	}
	if c.Dir != "" {
		if err := s.startServer(); err != nil {
			return nil, err
		}
		opts = append(opts, nats.InProcessServer(s.server))
	} else {
		// A server that vanished is left within half a minute.
		opts = append(opts, nats.PingInterval(10*time.Second), nats.MaxPingsOutstanding(2))
		more, err := urlOptions(c)
		if err != nil {
			return nil, err
		}
		opts = append(opts, more...)
	}
	if s.nc, err = nats.Connect(c.URL, opts...); err != nil {
		return nil, fmt.Errorf("store: connect to %s: %w", s.where(), err)
	}
	s.js, err = jetstream.NewWithAPIPrefix(s.nc, cmp.Or(c.API, jetstream.DefaultAPIPrefix), jetstream.WithDefaultTimeout(attemptTimeout),
		jetstream.WithPublishAsyncMaxPending(asyncWindow), jetstream.WithPublishAsyncTimeout(attemptTimeout))
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	if s.server != nil {
		return s, s.allRecovered(ctx)
	}
	return s, nil
}

func urlOptions(c Config) (opts []nats.Option, err error) {
	for _, path := range []string{c.Credentials, c.TLSCA, c.TLSCert, c.TLSKey} {
		if path == "" {
			continue
		}
		f, err := durable.Open(path) // the client of NATS would wait at a pipe
		if err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
		f.Close()
	}
	if c.Credentials != "" {
		opts = append(opts, nats.UserCredentials(c.Credentials))
	}
	if c.TLSCA != "" {
		opts = append(opts, nats.RootCAs(c.TLSCA))
	}
	if c.TLSCert != "" {
		opts = append(opts, nats.ClientCert(c.TLSCert, c.TLSKey))
	}
	if c.User != "" {
		password, err := secretFile(c.Password)
		if err != nil {
			return nil, err
		}
		opts = append(opts, nats.UserInfo(c.User, password))
	}
	if c.Token != "" {
		token, err := secretFile(c.Token)
		if err != nil {
			return nil, err
		}
		opts = append(opts, nats.Token(token))
	}
	return opts, nil
}

// secretFile reads a file of one line.
func secretFile(path string) (string, error) {
	b, err := durable.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("store: %w", err)
	}
	text := strings.TrimRight(string(b), "\r\n")
	if text == "" || strings.ContainsAny(text, "\r\n") {
		return "", fmt.Errorf("store: %s must hold one line", path)
	}
	return text, nil
}

// where names the store in messages, without the user in a URL.
func (s *Store) where() string {
	if s.config.Dir != "" {
		return s.config.Dir
	}
	return redact(s.config.URL)
}

// Close closes the store. Writes that were not acknowledged may or may not have been stored.
// An embedded server has stopped when Close returns.
func (s *Store) Close() error {
	s.close.Do(func() {
		s.end()
		// Every appender gives its places back at once. When all places can be taken, no
		// appender is left.
		for range cap(s.async) {
			s.async <- struct{}{}
		}
	})
	// CleanupPublisher is not called. The client's goroutine that watches the connection ends
	// with the connection, but it would wait for ever if it were released before it runs.
	if s.nc != nil {
		closed := s.nc.StatusChanged(nats.CLOSED)
		if !s.nc.IsClosed() {
			s.nc.Close()
			select {
			case <-closed:
			case <-time.After(attemptTimeout):
			}
		}
		s.nc.RemoveStatusListener(closed)
	}
	if s.server != nil {
		s.server.Shutdown()
		s.server.WaitForShutdown()
	}
	if s.log != nil {
		s.log.fill()
	}
	if s.unlock != nil {
		unlock := s.unlock
		s.unlock = nil
		return unlock()
	}
	return nil
}

// marker returns the marker as last read or written.
func (s *Store) marker() marker {
	if m := s.state.Load(); m != nil {
		return *m
	}
	return marker{} // before Init writes it
}

// writing lets a write begin, unless the store is sealed or being filled. The caller calls
// done after the write was answered.
func (s *Store) writing() (done func(), err error) {
	s.gate.RLock()
	if err := s.marker().usable(s.where()); err != nil {
		s.gate.RUnlock()
		return nil, err
	}
	return s.gate.RUnlock, nil
}

// fixed returns the handle of a stream that exists as long as the store.
func (s *Store) fixed(ctx context.Context, name string) (jetstream.Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h := s.streams[name]; h != nil {
		return h, nil
	}
	h, err := retry(ctx, s, func(ctx context.Context) (jetstream.Stream, error) { return s.js.Stream(ctx, name) })
	if err != nil {
		return nil, s.fail("open "+name, err)
	}
	s.streams[name] = h
	return h, nil
}

func (s *Store) ledgerName() string { return s.config.Domain + "_ledger" }
func (s *Store) kvName() string     { return s.config.Domain + "_kv" }

func (s *Store) fixedStreams() []jetstream.StreamConfig {
	ledger := s.base(s.ledgerName(), s.config.Domain+".ledger")
	ledger.DenyDelete, ledger.DenyPurge = true, true
	kv := s.base(s.kvName(), s.config.Domain+".kv.>")
	kv.MaxMsgsPerSubject = 1
	// This is the stream that the client's object store would make, except for base.
	objects := s.base(s.objectsName(), "$O."+s.config.Domain+".C.>")
	objects.Subjects = append(objects.Subjects, "$O."+s.config.Domain+".M.>")
	objects.AllowRollup = true
	return []jetstream.StreamConfig{ledger, kv, objects}
}

// base returns the settings that all streams share. AllowDirect stays off: a read must see
// every acknowledged write, and a replica may lag.
func (s *Store) base(name, subject string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: name, Subjects: []string{subject}, Storage: jetstream.FileStorage, Replicas: s.config.Replicas,
		Discard: jetstream.DiscardNew, Duplicates: dedupeWindow, MaxMsgSize: maxPayload,
		Metadata: map[string]string{"riffle-format": fmt.Sprint(format)},
	}
}

func (s *Store) streamDir(name string) string {
	return filepath.Join(s.config.Dir, server.JetStreamStoreDir, server.DEFAULT_GLOBAL_ACCOUNT, "streams", name)
}
