// Package shuffler is the shuffler's service: it takes sealed reports over HTTP, makes
// them durable, and offers the round's batch in a uniformly random order. It is for the
// program.
//
// It drives the pure functions of riffle/protocol/shuffler, and reaches no package that
// could make or interpret what a report says. All state lies in the store, as DATA_MODEL.md
// says, so that several processes may share one: frontends take reports, the process that holds
// a task's lease closes its rounds, and all shuffle them together.
//
// A round's reports lie in a stream until its deadline, in large rounds by bucket. The place up to
// which they count is the cut. Then buckets are collected and cut into chunks, as Collect and Cutter of
// riffle/protocol/shuffler describe. A mark in the store names each round that is under way.
//
// Counts by reason are all that leaves the process about clients. No address, id or time of
// arrival is logged, measured or stored, but if Config.CountReports is set: then the store has a
// number of messages for each client, which only the client is told.
package shuffler

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/protocol/envelope"
	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// Names of peers, as in endpoint.Peer.
const (
	Coordinator = "coordinator"
	Aggregator  = "aggregator"
	Worker      = "worker" // one of the coordinator's, which may fetch chunks and nothing else
	Relay       = "relay"
)

// Config has the decisions of the shuffler's operator.
type Config struct {
	Population wire.ID // Required.
	// Roster holds the enrolled clients' signing keys, 32 bytes each, in any order. New takes the memory. Required, unless there is a
	// Registrar.
	Roster    []byte
	Registrar *Registrar
	// Operator signs the enrolment and the statements on closed rounds. Required.
	Operator ed25519.PrivateKey
	// Coordinators lists the keys that may sign announcements. Required.
	Coordinators []ed25519.PublicKey
	// Keys open reports. Required.
	Keys *envelope.Keyring
	// Aggregator holds the keys of the second aggregator; empty if there is none.
	Aggregator []wire.Key
	// MinReports is the least n-min that a round may have. Required.
	MinReports int64
	// Limits of a round; defaults: 1 s to 7 days, parts of 1 MiB together.
	Limits pure.Limits
	// Validity is the time for which an enrolment is valid; it is renewed after half of that
	// time. Default 30 days.
	Validity time.Duration
	Store    storage // Required.

	// Relay says that clients may come through a relay: sessions have passes for it.
	Relay bool
	// CountReports counts durably how many messages were taken from each client, and tells it the
	// count with its session, so that a client notices that its ledger was cut or restored.
	CountReports bool
	// FrontendOnly makes the service take reports only; other processes on the store close the
	// rounds.
	FrontendOnly bool
	// BlockWait is the time for which a report waits for others to share its block. Default
	// 10 ms.
	BlockWait time.Duration
	// Poll is how often the store is read for what other processes did. Default 1 s.
	Poll time.Duration
	// Lease is the time after which another process takes over from one that died. Default 15 s.
	Lease time.Duration
	// Bucket bounds the memory of shuffling, which takes one bucket at a time. Default 64 MiB.
	Bucket int64
	// MostOpen is the number of a coordinator's rounds that may be under way at a time,
	// neither void nor released. Each costs memory, and disk until it ends. Default 256.
	MostOpen int
	// Keep is how long after its deadline a batch waits to be fetched and released; then
	// its round is abandoned. Default 7 days.
	Keep time.Duration
	// InFlight bounds the bytes of the reports of known sessions that are being received
	// or opened. endpoint.Hold bounds those of strangers. Default 64 MiB.
	InFlight int64
	Log      *slog.Logger // Default: none.
}

// Service is a shuffler. Its handlers answer while Run runs.
type Service struct {
	config    Config
	store     storage
	name      string                 // names this process among those on the store
	current   atomic.Pointer[roster] // the roster that is valid now
	sizes     map[[8]byte]wire.Suite
	slots     *weighted
	strangers chan struct{} // a slot for each stranger's report that is being opened

	lookup chan struct{} // a slot for the request that looks for a round in the store
	marks  marks         // guarded by lookup

	reading  sync.Mutex      // held while the roster is read from the store
	dropping map[string]bool // rosters that nothing needed at the last look; used by Run alone, as the next field
	dropNext time.Time

	viewing   chan struct{}     // a slot for who makes the relay's view; it guards the next two
	viewed    time.Time         // when a view was made last
	listed    map[string]listed // by name; of the last view
	counts    takenCache
	enrolment atomic.Pointer[signedEnrolment]
	verified  atomic.Pointer[verified]
	masters   masters
	running   atomic.Bool
	stopped   chan struct{} // closed when Run ends
	blocks    sync.WaitGroup
	metrics   metrics
	shuffling chan struct{} // a slot for the round that is being shuffled

	opening sync.Mutex // held while marks are counted and one is added

	mu      sync.Mutex
	rounds  map[[32]byte]*round
	readers map[string]*reader // by stream and kind
	charged string             // name of the round whose charge was seen last
	waiting sync.Map           // until when a closed round's batch waits (time.Time), by name
	wake    chan struct{}
}

// New checks the configuration. It reads and writes nothing.
func New(c Config) (*Service, error) {
	switch {
	case len(c.Operator) != ed25519.PrivateKeySize:
		return nil, errors.New("shuffler: the operator's signing key is required")
	case len(c.Coordinators) == 0:
		return nil, errors.New("shuffler: a coordinator's key is required")
	case c.Keys == nil || c.Store == nil:
		return nil, errors.New("shuffler: sealing keys and a store are required")
	case c.Registrar != nil && (len(c.Registrar.Key) != ed25519.PublicKeySize || c.Registrar.Fetch == nil || c.Registrar.Every < 0):
		return nil, errors.New("shuffler: the registrar's key and a way to fetch its roster are required")
	case c.Registrar != nil && len(c.Roster) != 0:
		return nil, errors.New("shuffler: a roster besides the registrar's")
	case c.Registrar != nil && c.Operator.Public().(ed25519.PublicKey).Equal(c.Registrar.Key):
		return nil, errors.New("shuffler: registrar and shuffler's operator have the same key: that operator could enrol anybody")
	case c.MinReports < 1 || c.Registrar == nil && c.MinReports > int64(len(c.Roster)/ed25519.PublicKeySize):
		return nil, fmt.Errorf("shuffler: n-min = %d must be at least 1 and at most the %d enrolled", c.MinReports, len(c.Roster)/ed25519.PublicKeySize)
	case c.Limits.MinDuration < 0 || c.Limits.MaxDuration < 0 || c.Limits.MaxReport < 0 || c.Validity < 0 ||
		c.BlockWait < 0 || c.Poll < 0 || c.Lease < 0 || c.Bucket < 0 || c.InFlight < 0 || c.Keep < 0 || c.MostOpen < 0:
		return nil, errors.New("shuffler: a limit below 0")
	}
	for _, k := range c.Coordinators {
		if len(k) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("shuffler: a coordinator's key of %d bytes", len(k))
		}
	}
	c.Limits.MinDuration = cmp.Or(c.Limits.MinDuration, time.Second)
	c.Limits.MaxDuration = cmp.Or(c.Limits.MaxDuration, 7*24*time.Hour)
	c.Limits.MaxReport = cmp.Or(c.Limits.MaxReport, 1<<20)
	c.Validity = cmp.Or(c.Validity, 30*24*time.Hour)
	c.BlockWait = cmp.Or(c.BlockWait, 10*time.Millisecond)
	c.Poll = cmp.Or(c.Poll, time.Second)
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.Bucket = cmp.Or(c.Bucket, pure.DefaultBucket)
	c.MostOpen = cmp.Or(c.MostOpen, 256)
	c.Keep = cmp.Or(c.Keep, 7*24*time.Hour)
	c.InFlight = cmp.Or(c.InFlight, 64<<20)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var r *roster
	if c.Registrar == nil {
		var err error
		if r, err = newRoster(c.Roster); err != nil {
			return nil, err
		}
	} else {
		own := *c.Registrar
		own.Every = cmp.Or(own.Every, 5*time.Second)
		c.Registrar = &own
	}
	c.Roster = nil // the roster has the keys
	var id [10]byte
	rand.Read(id[:]) // never fails
	s := &Service{config: c, store: c.Store, dropping: map[string]bool{}, name: encodeName(id[:]), sizes: map[[8]byte]wire.Suite{},
		slots: newWeighted(c.InFlight), stopped: make(chan struct{}), shuffling: make(chan struct{}, 1),
		rounds: map[[32]byte]*round{}, readers: map[string]*reader{}, wake: make(chan struct{}, 1)}
	s.viewing = make(chan struct{}, 1)
	s.strangers, s.lookup = make(chan struct{}, runtime.GOMAXPROCS(0)), make(chan struct{}, 1)
	if r != nil {
		s.current.Store(r)
	}
	for _, k := range c.Keys.Keys {
		s.sizes[k.ID()] = k.Suite
	}
	return s, nil
}

var nameEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// encodeName returns a name for the store: 52 characters of a digest.
func encodeName(b []byte) string { return strings.ToLower(nameEncoding.EncodeToString(b)) }

func decodeName(name string) (d [32]byte, err error) {
	b, err := nameEncoding.DecodeString(strings.ToUpper(name))
	if err != nil || len(b) != len(d) {
		return d, fmt.Errorf("shuffler: %q names no round", name)
	}
	copy(d[:], b)
	return d, nil
}

// Handlers returns what serves clients (enrolment, sessions, reports, asks), and what serves the
// coordinator, the aggregator and the relay, whom endpoint.Peer tells apart.
func (s *Service) Handlers() (clients, peers http.Handler) {
	c, m := http.NewServeMux(), http.NewServeMux()
	c.HandleFunc("GET /v1/enrolment", s.serveEnrolment)
	c.HandleFunc("POST /v1/session", s.serveSession)
	c.HandleFunc("POST /v1/report", s.serveReport)
	c.HandleFunc("POST /v1/ask", s.serveAsk)
	m.HandleFunc("GET /v1/enrolment", s.serveEnrolment)
	m.HandleFunc("POST /v1/rounds", only(s.serveOpen, Coordinator))
	m.HandleFunc("POST /v1/ledger", only(s.serveLedger, Coordinator))
	m.HandleFunc("GET /v1/rounds/{announcement}/closed", only(s.serveClosed, Coordinator, Aggregator))
	m.HandleFunc("GET /v1/rounds/{announcement}/chunks", only(s.serveDigests, Coordinator, Aggregator))
	m.HandleFunc("GET /v1/rounds/{announcement}/chunks/{index}", only(s.serveChunk, Coordinator, Aggregator, Worker))
	m.HandleFunc("DELETE /v1/rounds/{announcement}", only(s.serveRelease, Coordinator))
	m.HandleFunc("GET /v1/relay", only(s.serveRelay, Relay))
	return c, m
}

func only(next http.HandlerFunc, peers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		have := endpoint.Peer(r)
		for _, p := range peers {
			if p == have {
				next(w, r)
				return
			}
		}
		endpoint.Refuse(w, wire.NotEnrolled, "this peer may not ask that")
	}
}

// refuse answers with an error: a Refusal as it is, any other as unavailable.
func (s *Service) refuse(w http.ResponseWriter, err error) {
	var r *pure.Refusal
	if errors.As(err, &r) {
		endpoint.Refuse(w, r.Reason, r.Detail)
		return
	}
	s.config.Log.Warn("a request failed", "error", err)
	endpoint.Refuse(w, wire.Unavailable, "")
}

// Ready returns why requests cannot be served now; nil if they can.
func (s *Service) Ready(ctx context.Context) error {
	if !s.running.Load() || s.enrolment.Load() == nil {
		return errors.New("shuffler: not started")
	}
	if to := s.enrolment.Load().To; time.Now().Unix() >= to {
		return fmt.Errorf("shuffler: the enrolment has ended, and the registrar has signed no newer roster")
	}
	if _, err := s.store.Get(ctx, keyEnrolment); err != nil {
		return fmt.Errorf("shuffler: the store does not answer")
	}
	return nil
}
