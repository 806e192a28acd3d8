// Package relay is the way by which clients reach the shuffler without showing it their address:
// Oblivious HTTP (RFC 9458). The relay takes sealed requests from anyone, and passes their bytes on
// to one gateway, the shuffler's, and the answers back. It can read neither. It passes on no header,
// and keeps and logs nothing about who asked. It is for the program.
//
// The relay sees addresses, times and sizes, the shuffler ids and times. Together they see what a
// shuffler without a relay sees.
package relay

import (
	"bytes"
	"context"
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

// Service is a relay. It keeps nothing.
type Service struct {
	config                 Config
	passed, failed, refuse atomic.Int64
}

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
	return &Service{config: c}, nil
}

// Handler takes sealed requests, and requests for the enrolment, which is public and signed.
func (s *Service) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+Path, func(w http.ResponseWriter, r *http.Request) {
		r.Body = heldBody{r.Body, r.Context()}
		body, ok := endpoint.ReadBody(w, r, s.config.MaxRequest)
		if !ok {
			s.refuse.Add(1)
			return
		}
		s.forward(w, r.Context(), http.MethodPost, Path, body, maxAnswer+Framing)
	})
	mux.HandleFunc("GET /v1/enrolment", func(w http.ResponseWriter, r *http.Request) {
		path := "/v1/enrolment"
		if round := r.URL.Query().Get("round"); round != "" { // of a round: nothing else of the query is passed on
			b, err := hex.DecodeString(round)
			if err != nil || len(b) != 32 {
				s.refuse.Add(1)
				endpoint.Refuse(w, wire.Malformed, "a round is named by 64 hexadecimal digits")
				return
			}
			path += "?round=" + hex.EncodeToString(b)
		}
		s.forward(w, r.Context(), http.MethodGet, path, nil, maxEnrolment)
	})
	return mux
}

const maxEnrolment = 4 << 20

// heldBody is a body whose bytes are counted as held until its request ends: all who ask a relay are
// strangers, and each address has its share of what a server holds.
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
func (s *Service) forward(w http.ResponseWriter, ctx context.Context, method, path string, body []byte, most int64) {
	status, kind, answer, err := s.ask(ctx, method, path, body, most)
	if err != nil {
		s.failed.Add(1)
		if ctx.Err() == nil {
			s.config.Log.Warn("the gateway does not answer", "error", endpoint.Cause(err))
		}
		endpoint.Refuse(w, wire.Unavailable, "")
		return
	}
	s.passed.Add(1)
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(answer) // fails if the caller has gone
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
	if status, _, _, err := s.ask(ctx, http.MethodGet, "/v1/enrolment", nil, maxEnrolment); err != nil || status != http.StatusOK {
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
		Samples: []endpoint.Sample{sample("passed", &s.passed), sample("failed", &s.failed), sample("refused", &s.refuse)}}}
}
