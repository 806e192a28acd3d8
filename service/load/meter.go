package load

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
	fleet "github.com/riffle-dp/riffle/service/client"
)

// meter is the fleet's transport. It measures requests, and makes those that clients in
// processes of their own would make besides.
type meter struct {
	config Config
	ctx    context.Context
	stop   func()
	kept   *http.Client
	cache  tls.ClientSessionCache
	turn   atomic.Int64 // of the local addresses

	sent, received, opened, resumed atomic.Int64

	mu       sync.Mutex
	next     time.Time // when the next report may begin
	begun    time.Time // of the first report
	last     time.Time // answer to a report
	rounds   int64
	taken    int64
	again    int64
	after    string // query for the announcement that is out
	model    string // address of the last model
	kinds    map[string]*histogram
	errors   map[string]map[string]int64
	declined map[string]int64
}

func newMeter(ctx context.Context, c Config, stop func()) *meter {
	m := &meter{config: c, ctx: ctx, stop: stop, kinds: map[string]*histogram{}, errors: map[string]map[string]int64{}, declined: map[string]int64{}}
	if c.Connections == Resumed {
		m.cache = tls.NewLRUClientSessionCache(1)
	}
	m.kept = m.client(nil)
	return m
}

// client returns a client with connections of its own.
func (m *meter) client(cache tls.ClientSessionCache) *http.Client {
	t := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: m.config.Join.Roots, MinVersion: tls.VersionTLS13, ClientSessionCache: cache, VerifyConnection: m.count},
		DialContext:         m.dial,
		TLSHandshakeTimeout: time.Minute,
		MaxIdleConnsPerHost: m.config.AtOnce,
		IdleConnTimeout:     time.Minute,
		ForceAttemptHTTP2:   !m.config.HTTP1,
		DisableCompression:  true,
	}
	if m.config.HTTP1 {
		t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (m *meter) count(s tls.ConnectionState) error {
	m.opened.Add(1)
	if s.DidResume {
		m.resumed.Add(1)
	}
	return nil
}

// dial connects from the next of the local addresses.
func (m *meter) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 30 * time.Second}
	if n := len(m.config.From); n > 0 {
		d.LocalAddr = &net.TCPAddr{IP: m.config.From[int(m.turn.Add(1))%n]}
	}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return meteredConn{c, m}, nil
}

// meteredConn counts bytes.
type meteredConn struct {
	net.Conn
	meter *meter
}

// Read counts what it reads.
func (c meteredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.meter.received.Add(int64(n))
	return n, err
}

// Write counts what it writes.
func (c meteredConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.meter.sent.Add(int64(n))
	return n, err
}

// Kinds of requests.
const (
	announcement = "announcement"
	model        = "model"
	report       = "report"
	again        = "again"
	poll         = "poll" // waits for an announcement: its time says nothing
	other        = "other"
)

func kindOf(path string) string {
	switch {
	case path == "/v1/report":
		return report
	case path == "/v1/session", path == "/v1/ask":
		return strings.TrimPrefix(path, "/v1/")
	case strings.HasPrefix(path, "/v1/models/"):
		return model
	case strings.HasSuffix(path, "/announcement"):
		return poll
	}
	return other
}

// Do sends a fleet's request.
func (m *meter) Do(ctx context.Context, r fleet.Request) (*fleet.Response, error) {
	// Whatever stands before the path is the servers' own.
	at := strings.Index(r.URL, "/v1/")
	if at < 0 {
		return nil, fmt.Errorf("load: %q is no address of the protocol", r.URL)
	}
	path, _, _ := strings.Cut(r.URL[at:], "?")
	kind := kindOf(path)
	if kind == model {
		m.mu.Lock()
		m.model = r.URL
		m.mu.Unlock()
	}
	if kind != report {
		return m.send(ctx, kind, r)
	}
	if m.config.Fetch {
		m.fetch(ctx)
	}
	answer, err := m.paced(ctx, kind, r)
	if err != nil || answer.Status/100 != 2 {
		return answer, err
	}
	for range m.config.Repeat {
		// What becomes of these is measured, and does not concern the fleet.
		if a, err := m.paced(ctx, again, r); err == nil {
			a.Body.Close()
		}
	}
	return answer, nil
}

// fetch gets the announcement and the model as a client in a process of its own does.
func (m *meter) fetch(ctx context.Context) {
	m.mu.Lock()
	urls := map[string]string{announcement: m.after, model: m.model}
	m.mu.Unlock()
	c := m.kept
	if m.config.Connections != Kept {
		c = m.client(nil) // no other server gives tickets
		defer c.CloseIdleConnections()
	}
	for _, kind := range []string{announcement, model} {
		if urls[kind] == "" {
			continue
		}
		if a, err := m.sendBy(ctx, c, kind, fleet.Request{Method: http.MethodGet, URL: urls[kind]}); err == nil {
			_, _ = io.Copy(io.Discard, a.Body) // errors are counted where the body is read
			a.Body.Close()
		}
	}
}

// paced sends a report at its time.
func (m *meter) paced(ctx context.Context, kind string, r fleet.Request) (*fleet.Response, error) {
	m.mu.Lock()
	now := time.Now()
	wait := time.Duration(0)
	if m.config.Rate > 0 {
		if m.next.Before(now) {
			m.next = now
		}
		wait = m.next.Sub(now)
		m.next = m.next.Add(time.Duration(float64(time.Second) / m.config.Rate))
	}
	if m.begun.IsZero() {
		m.begun = now
	}
	m.mu.Unlock()
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	answer, err := m.send(ctx, kind, r)
	if err != nil || answer.Status/100 != 2 {
		return answer, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = time.Now()
	if kind == again {
		m.again++
	} else if m.taken++; m.taken == m.config.Reports {
		defer m.stop()
	}
	return answer, nil
}

func (m *meter) send(ctx context.Context, kind string, r fleet.Request) (*fleet.Response, error) {
	if m.config.Connections == Kept || kind == poll || kind == other {
		return m.sendBy(ctx, m.kept, kind, r)
	}
	c := m.client(m.cache)
	answer, err := m.sendBy(ctx, c, kind, r)
	if err != nil {
		c.CloseIdleConnections()
		return nil, err
	}
	answer.Body = closing{answer.Body, c.CloseIdleConnections}
	return answer, nil
}

// closing is a body after which something else is closed.
type closing struct {
	io.ReadCloser
	after func()
}

// Close closes the body and calls after.
func (c closing) Close() error {
	defer c.after()
	return c.ReadCloser.Close()
}

// maxRefusal bounds how much of a refusal is read.
const maxRefusal = 4 << 10

func (m *meter) sendBy(ctx context.Context, c *http.Client, kind string, r fleet.Request) (*fleet.Response, error) {
	begun := time.Now()
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	for name, value := range r.Header {
		req.Header.Set(name, value)
	}
	req.Header.Set("User-Agent", "riffle/1")
	res, err := c.Do(req)
	if err != nil {
		m.failed(kind, err)
		return nil, err
	}
	answer := &fleet.Response{Status: res.StatusCode, Header: res.Header.Get, Body: res.Body}
	if res.StatusCode >= 400 {
		b, _ := io.ReadAll(io.LimitReader(res.Body, maxRefusal)) // half a refusal is counted by its status
		if kind != poll || res.StatusCode != http.StatusGone {   // which says that the task has ended
			m.refused(kind, res.StatusCode, b)
		}
		answer.Body = closing{io.NopCloser(bytes.NewReader(b)), func() { res.Body.Close() }}
		return answer, nil
	}
	answer.Body = &timed{ReadCloser: res.Body, meter: m, kind: kind, begun: begun}
	return answer, nil
}

// timed is the body of a good answer. Its request is counted when the body is closed.
type timed struct {
	io.ReadCloser
	meter *meter
	kind  string
	begun time.Time
	err   error
	once  sync.Once
}

// Read keeps the error.
func (t *timed) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if err != nil && err != io.EOF {
		t.err = err
	}
	return n, err
}

// Close counts the request.
func (t *timed) Close() error {
	t.once.Do(func() {
		if t.err != nil {
			t.meter.failed(t.kind, t.err)
			return
		}
		if t.kind == poll {
			return
		}
		t.meter.mu.Lock()
		defer t.meter.mu.Unlock()
		h := t.meter.kinds[t.kind]
		if h == nil {
			h = new(histogram)
			t.meter.kinds[t.kind] = h
		}
		h.add(time.Since(t.begun))
	})
	return t.ReadCloser.Close()
}

// failed counts a request without an answer. Those that the end of the load has cut off do not count.
func (m *meter) failed(kind string, err error) {
	if m.ctx.Err() != nil {
		return
	}
	why := "broken off"
	var dial *net.OpError
	var slow net.Error
	switch {
	case errors.As(err, &slow) && slow.Timeout(), errors.Is(err, context.DeadlineExceeded):
		why = "timeout"
	case errors.As(err, &dial) && dial.Op == "dial":
		why = "no connection"
	}
	m.fault(kind, why)
}

func (m *meter) refused(kind string, status int, body []byte) {
	why := fmt.Sprintf("status %d", status)
	var r struct{ Reason wire.Reason }
	if json.Unmarshal(body, &r) == nil {
		for _, known := range wire.Reasons() {
			if r.Reason == known {
				why = string(known)
			}
		}
	}
	m.fault(kind, why)
}

func (m *meter) fault(kind, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.errors[kind] == nil {
		m.errors[kind] = map[string]int64{}
	}
	m.errors[kind][why]++
}

func (m *meter) announced(task [32]byte, round int64, _, _ time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.after = fmt.Sprintf("%s/v1/tasks/%x/announcement?after=%d&wait=0", strings.TrimSuffix(m.config.Join.Coordinator, "/"), task, round-1)
	if m.rounds++; m.config.Rounds > 0 && m.rounds > m.config.Rounds {
		m.rounds--
		m.stop()
	}
}

func (m *meter) watch(n fleet.Notice) {
	refused := (*client.Refused)(nil)
	if !errors.As(n.Err, &refused) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.declined[string(refused.Cause)]++
}

// Close closes idle connections.
func (m *meter) Close() { m.kept.CloseIdleConnections() }

func (m *meter) result() *Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &Result{Clients: len(m.config.Credentials), Connections: m.config.Connections, Rounds: m.rounds, Reports: m.taken, Again: m.again,
		Sent: m.sent.Load(), Received: m.received.Load(), Opened: m.opened.Load(), Resumed: m.resumed.Load(),
		Requests: map[string]Times{}, Errors: map[string]map[string]int64{}, Declined: maps.Clone(m.declined)}
	if m.last.After(m.begun) {
		r.Seconds = m.last.Sub(m.begun).Seconds()
		r.Rate = float64(m.taken+m.again) / r.Seconds
	}
	for kind, h := range m.kinds {
		r.Requests[kind] = h.times()
	}
	for kind, all := range m.errors {
		r.Errors[kind] = maps.Clone(all)
	}
	return r
}
