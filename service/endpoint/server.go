package endpoint

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Defaults of a ServerConfig.
const (
	DefaultMaxBody  = 1 << 20
	DefaultMaxConns = 10000
	DefaultMaxWait  = 60 * time.Second
	DefaultGrace    = 10 * time.Second

	// DefaultShare is the part of connections, requests, bytes and rate that the
	// unproven callers of one address may have: 1,250 connections by default.
	DefaultShare = 1.0 / 8

	headerTimeout = 10 * time.Second // also for the TLS handshake
	idleTimeout   = 90 * time.Second // longer than the timeout of clients, so that clients close first
	maxHeader     = 8 << 10

	// A body may take bodyGrace, plus the time that it takes at minRate bytes a second.
	bodyGrace = 10 * time.Second
	minRate   = 4 << 10

	// One connection may carry several requests, such as polls that wait. A server serves
	// requestsPerConn posts at a time for each allowed connection, and at least minRequests, and as
	// many questions.
	requestsPerConn = 2
	minRequests     = 256

	// One server may use 1/filesPart of the files that this process may have open for
	// connections: there are two servers, and the store needs some.
	filesPart = 3

	// maxHeld bounds the bytes of bodies that strangers have sent and that are not yet judged
	// (Hold).
	maxHeld = 64 << 20

	// A connection that does not take answers is closed after the time unread. Otherwise
	// HTTP/2 would keep thousands of answers for it, answers to pings included.
	unread = 5 * time.Second

	// The strangers of one address are read at Share·maxRead bytes a second.
	maxRead = 16 << 20

	// HTTP/2 limits: streams of a connection, and the smallest possible buffers. A frame's
	// buffer is allocated when its length is announced, so no frame may be larger than the
	// size that any peer may send unasked. net/http makes some refusals itself, for instance
	// of a header above maxHeader, and holds them while the caller does not read; only the
	// streams of a connection bound their number.
	maxStreams   = 8
	peerStreams  = 32
	streamBuffer = 64 << 10
	frameBuffer  = 16 << 10
)

// ServerConfig configures an HTTPS server. Address or Listener, Certificate and Handler are required.
type ServerConfig struct {
	Name        string // the server's name in logs
	Address     string
	Listener    net.Listener // takes connections in place of one at Address
	Certificate tls.Certificate
	// Peers lists the keys that may connect; others fail in the handshake. nil: no
	// certificate is asked for. Peer returns the name of a request's peer.
	Peers   map[string][]Pin
	Handler http.Handler
	// Tickets returns the keys of the tickets by which a caller resumes an earlier connection; the
	// first seals new ones, and all open. A ticket links a caller's connections, so a server whose
	// callers do not say who they are has none. nil: each connection has a whole handshake.
	Tickets func() [][32]byte
	// Known returns the number, at least 0, of a caller that shows by a request's header that it is one of
	// the server's own, as for Prove. nil: no header shows that.
	Known func(*http.Request) (caller int, ok bool)
	// Origins are those of the web pages that may call the server, as CheckOrigin wants them. A request
	// that names another origin is refused before the handler sees it. Default: none; origins are not
	// looked at.
	Origins  []string
	MaxBody  int64         // bytes of a request's body; default 1 MiB
	MaxConns int           // connections open at a time; default 10,000, or a third of the open files that the system allows if that is less
	Share    float64       // part of all limits for an address's unproven callers; default 1/8
	Rate     float64       // posts a second over all callers, and as many questions; 0: no limit
	Burst    int           // requests at once above the rate; default one second's worth
	MaxWait  time.Duration // longest time that a handler may hold a request back; default 60 s
	// Transfer is the longest time that a body may take in either direction. Default 60 s.
	Transfer time.Duration
	Grace    time.Duration // time for requests under way at a stop; default 10 s
	Log      *slog.Logger  // Required.
}

// server serves requests until its context ends.
type server struct {
	Address  string // on which it listens
	config   ServerConfig
	http     *http.Server
	listener net.Listener
	stopping context.Context
	stop     context.CancelFunc
	gate     *gate
	pages    *pages // nil: none
	counts   counts
	active   atomic.Int64 // requests in handlers
}

type counts struct{ connection, panics, limited, tooLarge atomic.Int64 }

// NewServer listens; Run serves.
func NewServer(c ServerConfig) (*server, error) {
	if c.Log == nil || c.Handler == nil || len(c.Certificate.Certificate) == 0 {
		return nil, errors.New("endpoint: certificate, handler and log are required")
	}
	if c.MaxBody < 0 || c.MaxConns < 0 || !(c.Rate >= 0) || c.Burst < 0 || !(c.Share >= 0 && c.Share <= 1) || c.MaxWait < 0 || c.Transfer < 0 || c.Grace < 0 {
		return nil, errors.New("endpoint: a limit below 0, or a share above 1")
	}
	if c.Peers != nil && len(c.Peers) == 0 {
		return nil, errors.New("endpoint: a server for peers needs one")
	}
	if c.Peers != nil && (len(c.Origins) > 0 || c.Tickets != nil) {
		return nil, errors.New("endpoint: peers are no pages, and get no tickets")
	}
	callers, err := newPages(c.Origins)
	if err != nil {
		return nil, err
	}
	c.MaxBody = cmp.Or(c.MaxBody, DefaultMaxBody)
	c.MaxConns = cmp.Or(c.MaxConns, DefaultMaxConns)
	c.Share = cmp.Or(c.Share, DefaultShare)
	share := max(1, int64(c.Share*float64(c.MaxConns))) // a share of the configured number, because that is what clients need
	if most := openFiles() / filesPart; most > 0 && most < uint64(c.MaxConns) {
		c.Log.Info("fewer connections are let in than configured: the system allows too few open files (ulimit -n)", "server", c.Name, "connections", most, "configured", c.MaxConns)
		c.MaxConns = int(most)
	}
	c.MaxWait = cmp.Or(c.MaxWait, DefaultMaxWait)
	c.Transfer = cmp.Or(c.Transfer, 60*time.Second)
	c.Grace = cmp.Or(c.Grace, DefaultGrace)
	s := &server{config: c, pages: callers}
	s.stopping, s.stop = context.WithCancel(context.Background())
	most := max(minRequests, requestsPerConn*int64(c.MaxConns))
	s.gate = newGate(amounts{connections: int64(c.MaxConns), posts: most, bytesHeld: maxHeld, questions: most}, c.Share)
	share = min(share, int64(c.MaxConns))
	s.gate.share[connections], s.gate.share[posts], s.gate.share[questions] = share, share, share // one poll for each connection
	s.gate.ofBytes, s.gate.body = c.Share*maxRead, c.MaxBody
	s.gate.share[bytesHeld] = max(s.gate.share[bytesHeld], c.MaxBody) // room for at least one body
	if c.Rate > 0 {
		for kind := range s.gate.rates {
			s.gate.rates[kind] = newBucket(c.Rate, float64(cmp.Or(c.Burst, int(max(1, c.Rate)))))
		}
	}
	s.http = &http.Server{
		Handler: s.limit(c.Handler), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ReadTimeout: c.Transfer, WriteTimeout: c.MaxWait + c.Transfer,
		TLSConfig: serverTLS(c),
		// net/http would answer OPTIONS * itself and count it nowhere.
		DisableGeneralOptionsHandler: true,
		// The server's log lines contain addresses, so they are counted and not kept.
		ErrorLog: log.New(counter{&s.counts.connection}, "", 0),
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReadFrameSize: frameBuffer,
			SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, WriteByteTimeout: unread},
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, guestKey{}, guestOf(conn))
		},
	}
	if c.Peers != nil { // a peer is known, and sends much
		s.http.HTTP2.MaxConcurrentStreams = peerStreams
	} else {
		s.http.HTTP2.MaxReceiveBufferPerConnection, s.http.HTTP2.MaxReceiveBufferPerStream = streamBuffer, streamBuffer
	}
	if c.Listener == nil {
		if c.Listener, err = net.Listen("tcp", c.Address); err != nil {
			return nil, fmt.Errorf("endpoint: %s: %v", c.Name, err)
		}
	}
	s.listener, s.Address = &gateListener{c.Listener, s.gate}, c.Listener.Addr().String()
	return s, nil
}

func serverTLS(c ServerConfig) *tls.Config {
	t := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{c.Certificate}, NextProtos: []string{"h2", "http/1.1"}}
	t.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if g := guestOf(hello.Conn); g != nil {
			g.speak(time.Now())
		}
		return nil, nil // keep this configuration
	}
	if c.Tickets == nil {
		t.SessionTicketsDisabled = true
	} else {
		k := &tickets{keys: c.Tickets}
		t.WrapSession = func(s tls.ConnectionState, what *tls.SessionState) ([]byte, error) {
			return k.current().EncryptTicket(s, what)
		}
		t.UnwrapSession = func(ticket []byte, s tls.ConnectionState) (*tls.SessionState, error) {
			return k.current().DecryptTicket(ticket, s)
		}
	}
	if c.Peers != nil {
		var all []Pin
		for _, pins := range c.Peers {
			all = append(all, pins...)
		}
		t.ClientAuth = tls.RequireAnyClientCert
		t.VerifyConnection = verifyPins(all)
	}
	return t
}

// tickets seals and opens tickets of TLS. Before there are keys it has one of its own.
type tickets struct {
	keys   func() [][32]byte
	mu     sync.Mutex
	last   [][32]byte
	config tls.Config // only its keys are used
}

func (t *tickets) current() *tls.Config {
	keys := t.keys()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(keys) > 0 && !slices.Equal(keys, t.last) {
		t.config.SetSessionTicketKeys(keys)
		t.last = keys
	}
	return &t.config
}

// Run serves until ctx ends, lets requests under way finish within Grace, and returns nil.
// Requests that only read, such as long polls, end at once.
func (s *server) Run(ctx context.Context) error {
	s.config.Log.Info("listening", "server", s.config.Name, "address", s.Address)
	done := make(chan error, 1)
	go func() { done <- s.http.ServeTLS(s.listener, "", "") }()
	select {
	case err := <-done:
		s.stop()
		return fmt.Errorf("endpoint: %s: %v", s.config.Name, err)
	case <-ctx.Done():
	}
	s.stop()
	err := s.shutdown()
	<-done
	s.config.Log.Info("stopped", "server", s.config.Name)
	return err
}

// settle is the time for answers to reach their connections after the last handler has
// returned. Without it, the server would wait until Grace is over for connections that
// carried no request, such as a client's second connection.
const settle = 500 * time.Millisecond

func (s *server) shutdown() error {
	grace, cancel := context.WithTimeout(context.Background(), s.config.Grace)
	defer cancel()
	shut := make(chan error, 1)
	go func() { shut <- s.http.Shutdown(grace) }()
	tick := time.NewTicker(settle / 10)
	defer tick.Stop()
	busy, quiet := s.active.Load() > 0, time.Now()
	for {
		select {
		case err := <-shut:
			if err == nil {
				return nil
			}
			if busy {
				s.config.Log.Warn("requests were cut off at the stop", "server", s.config.Name)
			}
			return s.http.Close()
		case <-tick.C:
			if busy = s.active.Load() > 0; busy {
				quiet = time.Now()
			} else if time.Since(quiet) > settle {
				cancel()
			}
		}
	}
}

// limit wraps every handler with the limits.
func (s *server) limit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.active.Add(1)
		defer s.active.Add(-1)
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.counts.panics.Add(1)
			// Log neither the value nor the request: both may hold a client's data.
			s.config.Log.Error("panic in a handler", "server", s.config.Name, "type", fmt.Sprintf("%T", p), "stack", string(debug.Stack()))
			panic(http.ErrAbortHandler)
		}()
		v := &visit{question: r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions}
		v.guest, _ = r.Context().Value(guestKey{}).(*guest)
		if s.config.Peers != nil {
			v.peer = s.peer(r)
			if v.peer != "" && v.guest != nil {
				v.guest.prove(nobody)
			}
		}
		// Before the request is counted: who is known needs no room among strangers.
		if s.config.Known != nil && v.guest != nil && !v.guest.free.Load() {
			if caller, ok := s.config.Known(r); ok {
				v.guest.prove(caller)
			}
		}
		wrong := s.pages.greet(w, r)
		if why := v.begin(time.Now()); why != "" {
			s.counts.limited.Add(1)
			reason := wire.Unavailable
			if why == overRate {
				reason = wire.TooMany
			}
			if r.ProtoMajor == 2 && v.guest != nil && !v.guest.free.Load() {
				// The answer has no body, because writing one could wait for a stranger to
				// read it.
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(status(reason))
				return
			}
			Refuse(w, reason, why)
			return
		}
		defer v.end()
		if r.ContentLength > s.config.MaxBody {
			s.counts.tooLarge.Add(1)
			RefuseAs(w, tooLarge(s.config.MaxBody))
			return
		}
		if v.question && r.ContentLength != 0 {
			Refuse(w, wire.Malformed, "a question has no body") // a body would wait in memory until somebody reads it
			return
		}
		s.body(w, r, v)
		ctx := context.WithValue(r.Context(), visitKey{}, v)
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(s.stopping, cancel)()
		}
		r = r.WithContext(ctx)
		switch {
		case wrong:
			s.pages.refuse(w)
		case s.pages.preflight(w, r):
		default:
			next.ServeHTTP(w, r)
		}
		if r.ProtoMajor == 2 && v.guest != nil && !v.guest.free.Load() {
			// A caller that does not read the answer keeps its request under way.
			_ = http.NewResponseController(w).Flush()
		}
	})
}

// body bounds a request's body, in size and in time.
func (s *server) body(w http.ResponseWriter, r *http.Request, v *visit) {
	if r.Body == nil || r.Body == http.NoBody {
		return
	}
	b := &timedBody{ReadCloser: r.Body, visit: v, writer: w}
	size := r.ContentLength
	if size < 0 { // else net/http gives no more than the length, which limit has checked
		size = s.config.MaxBody
		b.ReadCloser = http.MaxBytesReader(w, r.Body, size)
	}
	// The server's own deadline is Transfer, which net/http lifts once the body has arrived. Over
	// HTTP/2 each deadline costs a message between goroutines, so an earlier one is set by a
	// timer, only when it has passed.
	if d := bodyGrace + time.Duration(size)*time.Second/minRate; d < s.config.Transfer {
		v.slow = time.AfterFunc(d, b.cut)
	}
	r.Body = b
}

// timedBody is a body that is cut off if it comes too slowly.
type timedBody struct {
	io.ReadCloser
	visit  *visit
	writer http.ResponseWriter
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.visit.arrived()
	}
	return n, err
}

// cut ends a body that comes too slowly.
func (b *timedBody) cut() {
	b.visit.body.Lock()
	defer b.visit.body.Unlock()
	if !b.visit.whole { // the handler still runs, so its writer may be used
		_ = http.NewResponseController(b.writer).SetReadDeadline(time.Unix(1, 0))
	}
}

type guestKey struct{}

func (s *server) peer(r *http.Request) string {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return ""
	}
	pin := pinOf(r.TLS.PeerCertificates[0])
	for name, pins := range s.config.Peers {
		for _, p := range pins {
			if p == pin {
				return name
			}
		}
	}
	return ""
}

// Peer returns the name under which the caller's key is pinned, or "".
func Peer(r *http.Request) string {
	if v := visitOf(r.Context()); v != nil {
		return v.peer
	}
	return ""
}

// WithPeer is for tests of handlers: it returns a request as a named peer would send it.
func WithPeer(r *http.Request, name string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), visitKey{}, &visit{peer: name}))
}

// Metrics returns the server's own counts.
func (s *server) Metrics() []Metric {
	label := []string{"server", s.config.Name}
	one := func(name, help string, v *atomic.Int64) Metric {
		return Metric{Name: name, Help: help, Kind: Counter, Samples: []Sample{{label, float64(v.Load())}}}
	}
	all := []Metric{
		one("riffle_connection_errors_total", "Connections that failed, as in the handshake.", &s.counts.connection),
		one("riffle_handler_panics_total", "Panics of handlers.", &s.counts.panics),
		one("riffle_rate_limited_total", "Requests refused for the rate, or because too many were under way.", &s.counts.limited),
		one("riffle_connections_closed_total", "Connections of callers who had not shown who they are, closed in favour of others.", &s.gate.closed),
		one("riffle_turned_away_total", "Connections, and bodies, that there was no room for.", &s.gate.turned),
		one("riffle_too_large_total", "Requests refused for their announced size.", &s.counts.tooLarge),
	}
	if s.pages != nil {
		all = append(all, one("riffle_origins_refused_total", "Requests of web pages whose origin is not listed.", &s.pages.refused))
	}
	return all
}

// counter counts the lines written to it and forgets them.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(1)
	return len(p), nil
}
