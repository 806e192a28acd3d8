//go:build !js

package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

type (
	certificates = x509.CertPool
	dial         = func(ctx context.Context, network, address string) (net.Conn, error)
)

// hypertext is a Transport of net/http. Connections to the shuffler, which a client tells who it
// is, resume earlier ones by tickets. Other servers' tickets would link a client's connections,
// so none is kept.
type hypertext struct {
	shuffler string // prefix of its addresses
	known    *http.Client
	others   *http.Client
}

func newTransport(c JoinConfig) (Transport, error) {
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	to := func(tickets tls.ClientSessionCache) *http.Client {
		t := &http.Transport{
			TLSClientConfig:     &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS13, ClientSessionCache: tickets},
			DialContext:         c.Dial,
			TLSHandshakeTimeout: 10 * time.Second,
			MaxIdleConnsPerHost: c.Connections,
			IdleConnTimeout:     time.Minute,
			ForceAttemptHTTP2:   true,
			// Pings find a connection that something on the way has forgotten; requests would else
			// wait on it for minutes, one after the other.
			HTTP2:              &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
			DisableCompression: true,
		}
		return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return hypertext{shuffler: strings.TrimSuffix(c.Shuffler, "/") + "/", known: to(&tickets{most: max(1, c.Connections)}), others: to(nil)}, nil
}

// tickets are the newest tickets of one server, in memory only. Each is used once: an observer of the
// network could recognise a client by a ticket that it shows twice.
type tickets struct {
	most int
	mu   sync.Mutex
	all  []*tls.ClientSessionState
}

// Get removes a ticket and returns it.
func (t *tickets) Get(string) (*tls.ClientSessionState, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	last := len(t.all) - 1
	if last < 0 {
		return nil, false
	}
	one := t.all[last]
	t.all = t.all[:last]
	return one, true
}

// Put keeps a ticket, in place of the oldest if there are many.
func (t *tickets) Put(_ string, one *tls.ClientSessionState) {
	if one == nil {
		return // the one that was used does not count any more
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) >= t.most {
		t.all = slices.Delete(t.all, 0, 1)
	}
	t.all = append(t.all, one)
}

func (t hypertext) Do(ctx context.Context, r Request) (*Response, error) {
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	for name, value := range r.Header {
		req.Header.Set(name, value)
	}
	req.Header.Set("User-Agent", "riffle/1") // the same for all clients
	to := t.others
	if strings.HasPrefix(r.URL, t.shuffler) {
		to = t.known
	}
	resp, err := to.Do(req)
	if err != nil {
		return nil, err
	}
	return &Response{resp.StatusCode, resp.Header.Get, resp.Body}, nil
}

func (t hypertext) Close() {
	t.known.CloseIdleConnections()
	t.others.CloseIdleConnections()
}
