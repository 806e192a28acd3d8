// Package relay is the way by which clients reach the shuffler without showing it their address:
// Oblivious HTTP (RFC 9458). The relay takes sealed requests from anyone, and passes their bytes on
// to one gateway, the shuffler's, and the answers back. It can read neither. It passes on no header,
// and keeps and logs nothing about who asked. It is for the program.
//
// What the shuffler tells everyone the relay answers by itself, from a view of it that it fetches for
// all who ask. With a client's session come passes: who shows one is no stranger to the relay. A pass
// names nobody, and is another one each day.
//
// The relay sees addresses, times and sizes, and which of its callers of a day have the same pass; the
// shuffler ids and times. Together they see what a shuffler without a relay sees.
package relay

import (
	"bytes"
	"context"
	"crypto/hmac"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// Config has the decisions of the relay's operator.
type Config struct {
	// Gateway is the shuffler's address for peers. All requests go there, and to no other server.
	// Required.
	Gateway string
	// Client shows the relay's certificate and checks the shuffler's. Required.
	Client *http.Client
	// MaxRequest is the size of the largest sealed request. Default 1 MiB.
	MaxRequest int64
	Log        *slog.Logger // Default: none.
}

// Service is a relay. It keeps nothing but a view of what its shuffler tells everyone. It knows passes
// while Run runs.
type Service struct {
	config                      Config
	view                        *looks[view]
	passed, own, failed, refuse atomic.Int64
}

// view is what the shuffler has told.
type view struct {
	keys   []wire.SessionKey
	newest []byte // the signed enrolment
	rounds map[[32]byte][]byte
}

const (
	// viewPause lies between two looks at the shuffler, however many ask for what the relay does not
	// know, so a stranger waits so long for the answer that there is no such round.
	viewPause = 250 * time.Millisecond
	viewTime  = 10 * time.Second
	maxView   = 4 << 20
)

// New checks the configuration.
func New(c Config) (*Service, error) {
	u, err := url.Parse(c.Gateway)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || c.Client == nil || c.MaxRequest < 0 {
		return nil, fmt.Errorf("relay: %q is not the address of a gateway, or there is no HTTP client for it", c.Gateway)
	}
	c.Gateway = strings.TrimSuffix(c.Gateway, "/")
	if c.MaxRequest == 0 {
		c.MaxRequest = endpoint.DefaultMaxBody
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{config: c}
	s.view = newLooks(viewPause, viewTime, s.look)
	return s, nil
}

// look fetches the shuffler's view.
func (s *Service) look(ctx context.Context) (v view, err error) {
	defer func() {
		if err != nil {
			s.config.Log.Warn("the gateway does not answer", "error", endpoint.Cause(err))
		}
	}()
	status, _, body, err := s.ask(ctx, http.MethodGet, Path, nil, maxView)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("relay: status %d", status)
	}
	if err != nil {
		return v, err
	}
	m, err := wire.Decode[wire.RelayView](body)
	if err != nil || len(m.Enrolments) == 0 {
		return v, errors.New("relay: an answer that is not the shuffler's")
	}
	v = view{m.Keys, m.Enrolments[0], map[[32]byte][]byte{}}
	for _, r := range m.Rounds {
		v.rounds[r.Announcement] = m.Enrolments[r.Enrolment]
	}
	return v, nil
}

// Times between looks for keys of passes. The shuffler makes them a day before they are used.
const looksAgain, looksSoon = time.Minute, time.Second

// Run looks for new keys of passes until ctx ends, and returns nil.
func (s *Service) Run(ctx context.Context) error {
	for {
		next := looksAgain
		if _, err := s.view.now(ctx); err != nil {
			next = looksSoon
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(next):
		}
	}
}

// PassHeader has a pass, in base64 for URLs without padding.
const PassHeader = "Riffle-Pass"

// passSkew is how much clocks may differ where a day begins.
const passSkew = time.Hour

// Known returns the number of a caller that shows a pass of the day, for [endpoint.ServerConfig]. The
// number is the pass's own.
func (s *Service) Known(r *http.Request) (caller int, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(r.Header.Get(PassHeader))
	v, some := s.view.before()
	if err != nil || len(b) != len(wire.ID{}) || !some {
		return 0, false
	}
	pass, now := wire.ID(b), time.Now()
	last := now.Add(passSkew).Unix() / wire.PassDay
	for day := now.Add(-passSkew).Unix() / wire.PassDay; day <= last; day++ {
		for _, k := range v.keys {
			if made := k.RelayPass(day, [8]byte(pass[:8])); hmac.Equal(made[:], pass[:]) {
				return endpoint.Client(pass), true
			}
		}
	}
	return 0, false
}

// Handler takes sealed requests, and answers requests for the enrolment, which is public and signed.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, func(w http.ResponseWriter, r *http.Request) {
		r.Body = heldBody{r.Body, r.Context()}
		body, ok := endpoint.ReadBody(w, r, s.config.MaxRequest)
		if !ok {
			s.refuse.Add(1)
			return
		}
		s.forward(w, r.Context(), body)
	})
	mux.HandleFunc("GET /v1/enrolment", s.serveEnrolment)
	return mux
}

// serveEnrolment answers with the newest enrolment, or with that of an open round, as the shuffler does.
func (s *Service) serveEnrolment(w http.ResponseWriter, r *http.Request) {
	find := func(v view) []byte { return v.newest }
	name := r.URL.Query().Get("round")
	if name != "" {
		b, err := hex.DecodeString(name)
		if err != nil || len(b) != 32 {
			s.refuse.Add(1)
			endpoint.Refuse(w, wire.Malformed, "a round is named by 64 hexadecimal digits")
			return
		}
		find = func(v view) []byte { return v.rounds[[32]byte(b)] }
	}
	var enrolment []byte
	if v, ok := s.view.before(); ok && name != "" {
		enrolment = find(v) // which never changes
	}
	if enrolment == nil {
		v, err := s.view.now(r.Context())
		if err != nil {
			s.failed.Add(1)
			endpoint.Refuse(w, wire.Unavailable, "")
			return
		}
		enrolment = find(v)
	}
	s.own.Add(1)
	if enrolment == nil {
		endpoint.Refuse(w, wire.UnknownRound, "")
		return
	}
	answer(w, http.StatusOK, "application/octet-stream", enrolment)
}

// heldBody is a body whose bytes are counted as held until its request ends: each address has its share of
// what a server holds of strangers, and each pass.
type heldBody struct {
	io.ReadCloser
	ctx context.Context // of the request
}

func (b heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && !endpoint.Hold(b.ctx, int64(n)) {
		return 0, errors.New("relay: too much is being received")
	}
	return n, err
}

// forward asks the gateway, and answers what it answers: status, content type and body.
func (s *Service) forward(w http.ResponseWriter, ctx context.Context, body []byte) {
	status, kind, b, err := s.ask(ctx, http.MethodPost, Path, body, maxAnswer+Framing)
	if err != nil {
		s.failed.Add(1)
		if ctx.Err() == nil {
			s.config.Log.Warn("the gateway does not answer", "error", endpoint.Cause(err))
		}
		endpoint.Refuse(w, wire.Unavailable, "")
		return
	}
	s.passed.Add(1)
	answer(w, status, kind, b)
}

func answer(w http.ResponseWriter, status int, kind string, b []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b) // fails if the caller has gone
}

func (s *Service) ask(ctx context.Context, method, path string, body []byte, most int64) (status int, kind string, answer []byte, err error) {
	q, err := http.NewRequestWithContext(ctx, method, s.config.Gateway+path, bytes.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	q.Header.Set("User-Agent", "riffle/1")
	if method == http.MethodPost {
		q.Header.Set("Content-Type", "message/ohttp-req")
	}
	res, err := s.config.Client.Do(q)
	if err != nil {
		return 0, "", nil, err
	}
	defer res.Body.Close()
	if answer, err = io.ReadAll(io.LimitReader(res.Body, most+1)); err != nil {
		return 0, "", nil, err
	}
	if int64(len(answer)) > most || res.StatusCode < 200 || res.StatusCode >= 300 && res.StatusCode < 400 {
		return 0, "", nil, errors.New("relay: an answer that is not the gateway's")
	}
	return res.StatusCode, res.Header.Get("Content-Type"), answer, nil
}

// Ready returns why requests cannot be passed on now; nil if they can.
func (s *Service) Ready(ctx context.Context) error {
	if _, err := s.view.now(ctx); err != nil {
		return errors.New("relay: the gateway does not answer")
	}
	return nil
}

// Metrics counts requests.
func (s *Service) Metrics() []endpoint.Metric {
	sample := func(result string, n *atomic.Int64) endpoint.Sample {
		return endpoint.Sample{Labels: []string{"result", result}, Value: float64(n.Load())}
	}
	return []endpoint.Metric{{Name: "riffle_relay_requests_total", Help: "Requests to the relay, by what became of them.", Kind: endpoint.Counter,
		Samples: []endpoint.Sample{sample("passed", &s.passed), sample("answered", &s.own), sample("failed", &s.failed), sample("refused", &s.refuse)}}}
}
