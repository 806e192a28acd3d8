package endpoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/riffle-dp/riffle/internal/memnet"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func certificate(t *testing.T) (tls.Certificate, Pin) {
	t.Helper()
	cert, key, pin, err := GenerateCertificate([]string{"localhost", "127.0.0.1"}, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return c, pin
}

// start runs a server until the test ends and returns its address.
func start(t *testing.T, network *memnet.Network, c ServerConfig) (s *server, url string, stop func() error) {
	t.Helper()
	c.Listener = network.Listen()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if len(c.Certificate.Certificate) == 0 {
		c.Certificate, _ = certificate(t)
	}
	s, err := NewServer(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return s, "https://" + s.Address, stop
}

func newClient(t *testing.T, network *memnet.Network, c ClientConfig) *http.Client {
	t.Helper()
	h, err := NewClient(c)
	if err != nil {
		t.Fatal(err)
	}
	h.Transport.(*http.Transport).DialContext = network.DialContext
	t.Cleanup(h.CloseIdleConnections)
	return h
}

// dialTLS connects to a server.
func dialTLS(t *testing.T, network *memnet.Network, address string, c *tls.Config) (*tls.Conn, error) {
	t.Helper()
	raw, err := network.DialContext(t.Context(), "tcp", address)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = raw.Close() })
	conn := tls.Client(raw, c)
	return conn, conn.Handshake()
}

func leafPin(t *testing.T, c tls.Certificate) Pin {
	t.Helper()
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return pinOf(leaf)
}

func TestEveryReasonHasItsStatus(t *testing.T) {
	want := map[wire.Reason]int{wire.Malformed: 400, wire.WrongSize: 400, wire.WrongKey: 400, wire.BadSignature: 401, wire.Expired: 401, wire.NotEnrolled: 403,
		wire.NotDrawn: 403, wire.Refused: 403, wire.UnknownRound: 404, wire.SecondReport: 409, wire.Closed: 410, wire.TooMany: 429, wire.Unavailable: 503,
		wire.Duplicate: 204, wire.OutOfRange: 400, wire.Excluded: 409, wire.Unequal: 409, wire.BadProof: 400,
		wire.NoToken: 400, wire.SpentToken: 409, wire.OldLedger: 412}
	for _, r := range wire.Reasons() {
		if got := status(r); got != want[r] {
			t.Errorf("%s is %d, want %d", r, got, want[r])
		}
		w := httptest.NewRecorder()
		Refuse(w, r, "why")
		err := check(w.Result())
		if r == wire.Duplicate {
			if err != nil {
				t.Errorf("a duplicate is refused: %v", err)
			}
			continue
		}
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Reason != r || refusal.Detail != "why" || refusal.Code != want[r] {
			t.Errorf("%s came back as %v", r, err)
		}
	}
	if status("made up") != 500 {
		t.Error("an unknown reason has a status")
	}
}

func TestForeignAnswersAreRefusalsToo(t *testing.T) {
	for code, want := range map[int]wire.Reason{502: wire.Unavailable, 429: wire.Unavailable, 404: wire.Malformed, 302: wire.Malformed} {
		for _, body := range []string{"<html>", `{"reason":"made up"}`, ""} {
			w := httptest.NewRecorder()
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
			var r *Refusal
			if err := check(w.Result()); !errors.As(err, &r) || r.Reason != want || r.Code != code {
				t.Errorf("%d %q is %v", code, body, err)
			}
		}
	}
}

func TestPins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		server, serverPin := certificate(t)
		peer, peerPin := certificate(t)
		stranger, strangerPin := certificate(t)
		if p, err := ParsePin(serverPin.String()); err != nil || p != serverPin {
			t.Fatal(p, err)
		}
		for _, bad := range []string{"", "sha256:", "sha256:AAAA", "md5:" + serverPin.String()[7:], serverPin.String() + "A"} {
			if _, err := ParsePin(bad); err == nil {
				t.Errorf("%q is a pin", bad)
			}
		}
		_, url, _ := start(t, network, ServerConfig{Certificate: server, Peers: map[string][]Pin{"coordinator": {peerPin}, "aggregator": {{1}}},
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, Peer(r)) })})

		get := func(c ClientConfig) (string, error) {
			resp, err := newClient(t, network, c).Get(url)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			return string(b), err
		}
		if who, err := get(ClientConfig{Pins: []Pin{serverPin}, Certificate: &peer}); err != nil || who != "coordinator" {
			t.Errorf("the peer is %q, %v", who, err)
		}
		if leafPin(t, peer) != peerPin {
			t.Error("the pin is another key's")
		}
		for name, c := range map[string]ClientConfig{
			"another server":      {Pins: []Pin{strangerPin}, Certificate: &peer},
			"no pins":             {Pins: []Pin{}, Certificate: &peer},
			"unknown certificate": {Certificate: &peer},
			"a stranger":          {Pins: []Pin{serverPin}, Certificate: &stranger},
			"nobody":              {Pins: []Pin{serverPin}},
		} {
			if who, err := get(c); err == nil {
				t.Errorf("%s was served as %q", name, who)
			}
		}
	})
}

func TestOnlyTLS13(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		_, url, _ := start(t, network, ServerConfig{Handler: http.NotFoundHandler()})
		_, err := dialTLS(t, network, strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12})
		if err == nil {
			t.Error("TLS 1.2 was taken")
		}
	})
}

func TestBodyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		server, pin := certificate(t)
		var bodies [][]byte
		_, url, _ := start(t, network, ServerConfig{Certificate: server, MaxBody: 100, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if b, ok := ReadBody(w, r, 1<<20); ok {
				bodies = append(bodies, b)
				w.WriteHeader(http.StatusNoContent)
			}
		})})
		client := newClient(t, network, ClientConfig{Pins: []Pin{pin}})
		post := func(body io.Reader) error {
			resp, err := client.Post(url, "application/octet-stream", body)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			return check(resp)
		}
		fits := bytes.Repeat([]byte("x"), 100)
		if err := post(bytes.NewReader(fits)); err != nil || len(bodies) != 1 || !bytes.Equal(bodies[0], fits) {
			t.Errorf("%d bodies, %v", len(bodies), err)
		}
		if err := post(io.MultiReader(bytes.NewReader(fits))); err != nil || len(bodies) != 2 {
			t.Errorf("without a length: %d bodies, %v", len(bodies), err)
		}
		long := append(fits, 'x')
		for name, body := range map[string]io.Reader{"announced": bytes.NewReader(long), "unannounced": io.MultiReader(bytes.NewReader(long))} {
			if err, refusal := post(body), (*Refusal)(nil); !errors.As(err, &refusal) || refusal.Reason != wire.TooMany || refusal.Code != http.StatusRequestEntityTooLarge {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// A poll outlasts the time that bodies have, and other requests go on.
func TestLongPollOutlivesTheTransferTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		server, pin := certificate(t)
		_, url, _ := start(t, network, ServerConfig{Certificate: server, Transfer: 500 * time.Millisecond, MaxWait: 10 * time.Second,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, ok := ReadBody(w, r, 1<<20); !ok {
					return
				}
				select {
				case <-time.After(800 * time.Millisecond):
					w.WriteHeader(http.StatusNoContent)
				case <-r.Context().Done():
					Refuse(w, wire.Unavailable, "context ended")
				}
			})})
		for _, protocol := range []string{"h2", "http/1.1"} {
			client := newClient(t, network, ClientConfig{Pins: []Pin{pin}})
			if protocol == "http/1.1" {
				onlyHTTP1(client)
			}
			for method, body := range map[string]io.Reader{http.MethodGet: nil, http.MethodPost: strings.NewReader("body")} {
				req, err := http.NewRequest(method, url, body)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Errorf("%s %s: %v", protocol, method, err)
					continue
				}
				if err := check(resp); err != nil {
					t.Errorf("%s %s: %v", protocol, method, err)
				}
				resp.Body.Close()
			}
		}
	})
}

func TestStopEndsPollsAndFinishesReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		server, pin := certificate(t)
		begun := make(chan struct{}, 2)
		_, url, stop := start(t, network, ServerConfig{Certificate: server, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			begun <- struct{}{}
			wait := time.Minute
			if r.Method == http.MethodPost {
				wait = 200 * time.Millisecond
			}
			select {
			case <-r.Context().Done():
				Refuse(w, wire.Unavailable, "stopping")
			case <-time.After(wait):
				w.WriteHeader(http.StatusNoContent)
			}
		})})
		client := newClient(t, network, ClientConfig{Pins: []Pin{pin}})
		answers := make(chan error, 2)
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			go func() {
				req, _ := http.NewRequest(method, url, http.NoBody)
				resp, err := client.Do(req)
				if err == nil {
					err = check(resp)
					resp.Body.Close()
				}
				if refusal := (*Refusal)(nil); method == http.MethodGet && errors.As(err, &refusal) && refusal.Reason == wire.Unavailable {
					err = nil
				}
				answers <- err
			}()
		}
		<-begun
		<-begun
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(began); d > 30*time.Second {
			t.Errorf("the stop took %v", d)
		}
	})
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		now := time.Now()
		b := newBucket(10, 3)
		took := func() (n int) {
			for b.take(now, 0) {
				n++
			}
			return n
		}
		if n := took(); n != 3 {
			t.Errorf("a burst of %d, want 3", n)
		}
		now = now.Add(250 * time.Millisecond)
		if n := took(); n != 2 {
			t.Errorf("%d after a quarter of a second, want 2", n)
		}
		now = now.Add(-time.Hour)
		if n := took(); n != 0 {
			t.Errorf("%d after the clock went back", n)
		}
		_, url, _ := start(t, network, ServerConfig{Rate: 1e-9, Burst: 2, Share: 1, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
		client := &http.Client{Transport: &http.Transport{DialContext: network.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		t.Cleanup(client.CloseIdleConnections)
		for i, want := range []int{200, 200, 429} {
			resp, err := client.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("request %d: %s", i, resp.Status)
			}
		}
	})
}

// Whatever goes wrong, and whatever a caller hands to the log by mistake, no
// line names a client.
func TestLogNamesNoClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		var b bytes.Buffer
		var mu sync.Mutex
		logger := NewLogger(lockedWriter{&mu, &b}, slog.LevelDebug)
		var client wire.ID
		var report wire.ID
		_, _ = rand.Read(client[:])
		_, _ = rand.Read(report[:])
		server, pin := certificate(t)
		s, url, stop := start(t, network, ServerConfig{Certificate: server, Log: logger, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			logger.Info("report", "client", client, "report", report, "request", r, "full", wire.Report{Client: client, ID: report})
			panic(fmt.Sprintf("%x from %s", client, r.RemoteAddr))
		})})
		var ports []string
		h := newClient(t, network, ClientConfig{Pins: []Pin{pin}})
		h.Transport.(*http.Transport).DialContext = func(ctx context.Context, kind, addr string) (net.Conn, error) {
			c, err := network.DialContext(ctx, kind, addr)
			if err == nil {
				_, port, _ := net.SplitHostPort(c.LocalAddr().String())
				ports = append(ports, port)
				logger.Warn("by mistake", "from", c.LocalAddr(), "error", &net.OpError{Op: "read", Net: "tcp", Source: c.RemoteAddr(), Addr: c.LocalAddr(), Err: io.EOF})
			}
			return c, err
		}
		if resp, err := h.Post(url, "", strings.NewReader("x")); err == nil {
			resp.Body.Close()
			t.Error("a panic was answered")
		}
		// A handshake that fails.
		if c, err := network.DialContext(t.Context(), "tcp", s.Address); err == nil {
			_, port, _ := net.SplitHostPort(c.LocalAddr().String())
			ports = append(ports, port)
			_, _ = c.Write([]byte("GET / HTTP/1.0\r\n\r\n"))
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		mu.Lock()
		text := b.String()
		mu.Unlock()
		if !strings.Contains(text, "panic in a handler") || !strings.Contains(text, "by mistake") || !strings.Contains(text, `"client":"withheld"`) {
			t.Errorf("the log lacks its lines:\n%s", text)
		}
		for _, port := range ports {
			if strings.Contains(text, ":"+port) {
				t.Errorf("a client's port is in the log:\n%s", text)
			}
		}
		for _, id := range [][]byte{client[:], report[:]} {
			if strings.Contains(text, hex.EncodeToString(id)) || strings.Contains(text, fmt.Sprint(id)) {
				t.Errorf("an id is in the log:\n%s", text)
			}
		}
		if n := s.counts.connection.Load(); n < 1 {
			t.Errorf("%d failed connections were counted", n)
		}
		if s.counts.panics.Load() != 1 {
			t.Error("the panic was not counted")
		}
	})
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func TestConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		server, pin := certificate(t)
		_, url, _ := start(t, network, ServerConfig{Certificate: server, MaxConns: 1, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
		first, second := newClient(t, network, ClientConfig{Pins: []Pin{pin}}), newClient(t, network, ClientConfig{Pins: []Pin{pin}})
		resp, err := first.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if resp, err := second.Do(req); err == nil {
			resp.Body.Close()
			t.Error("two connections where one is allowed")
		}
		first.CloseIdleConnections()
		synctest.Wait()
		if resp, err = second.Get(url); err != nil {
			t.Fatalf("the slot was not given back: %v", err)
		}
		resp.Body.Close()
	})
}

// A connection does not multiply what may wait. Those who are known are not closed
// in favour of each other.
func TestRequestsUnderWayAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		wait := make(chan struct{})
		server, pin := certificate(t)
		own, ownPin := certificate(t)
		_, url, _ := start(t, network, ServerConfig{Certificate: server, Peers: map[string][]Pin{"peer": {ownPin}}, MaxConns: 20, Share: 1,
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/first" {
					<-wait
				}
			})})
		release := sync.OnceFunc(func() { close(wait) })
		t.Cleanup(release) // before the server's own, which waits for handlers
		// Each has a connection, and has seen how many requests that may carry.
		var clients []*http.Client
		for range 10 {
			client := newClient(t, network, ClientConfig{Pins: []Pin{pin}, Certificate: &own, Conns: 1})
			resp, err := client.Get(url + "/first")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			clients = append(clients, client)
		}
		const n = minRequests + 40
		codes := make(chan int, n)
		for i := range n {
			go func() {
				code := 0
				if resp, err := clients[i%len(clients)].Get(url); err == nil {
					code = resp.StatusCode
					resp.Body.Close()
				}
				codes <- code
			}()
		}
		for range n - minRequests {
			if code := <-codes; code != http.StatusServiceUnavailable {
				t.Errorf("status %d of a request too many", code)
			}
		}
		release()
		for range minRequests {
			if code := <-codes; code != http.StatusOK {
				t.Errorf("status %d of a request that may wait", code)
			}
		}
	})
}

func TestCertificateFiles(t *testing.T) {
	dir := t.TempDir()
	cert, key, pin, err := GenerateCertificate([]string{"localhost"}, time.Now(), time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	if err := errors.Join(os.WriteFile(certFile, cert, 0o644), os.WriteFile(keyFile, key, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, got, err := LoadCertificate(certFile, keyFile); err != nil || got != pin {
		t.Errorf("%v %v", got, err)
	}
	if err := os.Chmod(keyFile, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadCertificate(certFile, keyFile); err == nil {
		t.Error("a key that the group may read was taken")
	}
}
