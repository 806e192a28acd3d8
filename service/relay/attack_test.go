package relay

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/internal/memnet"
	"github.com/riffle-dp/riffle/protocol/bhttp"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// sealer returns a keyring, and what seals requests for a path to it.
func sealer(t *testing.T) (*envelope.Keyring, func(path string, size int) []byte) {
	t.Helper()
	key, err := envelope.GenerateKey(wire.X25519, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	ring, err := envelope.NewKeyring(key)
	if err != nil {
		t.Fatal(err)
	}
	return ring, func(path string, size int) []byte {
		q := bhttp.Request{Method: http.MethodPost, Scheme: "https", Authority: "x", Path: path}
		b, _, err := envelope.SealRequest(key.Public, q.Append(nil, size))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// A report for an invented round waits for the shuffler's next look at the store. However many of
// them come through the relay, others' requests do not wait for them.
func TestInventedRoundsDoNotFillTheGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring, seal := sealer(t)
		hold := make(chan struct{})
		var waiting atomic.Int64
		g := Gateway(ring, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if q.URL.Path == "/v1/report" {
				waiting.Add(1)
				<-hold
			}
		}), 1<<20)
		var all sync.WaitGroup
		invented := seal("/v1/report", 3000)
		for range 1250 { // what one address may have under way at the relay
			all.Go(func() {
				g.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", Path, bytes.NewReader(invented)))
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", Path, bytes.NewReader(seal("/v1/session", 3000))))
		if w.Code != http.StatusOK || ctx.Err() != nil {
			t.Errorf("a session's request waits for %d invented reports: %d", waiting.Load(), w.Code)
		}
		close(hold)
		all.Wait()
	})
}

// A relay that announces the largest requests, and sends none of their bytes, has room for so many
// only; when it has gone all of the room is free.
func TestGatewayBoundsAnnouncedBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring, seal := sealer(t)
		g := Gateway(ring, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), 1<<20)
		var reading, most atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for n := range 300 {
			all.Go(func() {
				q := httptest.NewRequestWithContext(ctx, "POST", Path, stalled{ctx, &reading, &most})
				q.ContentLength = 1<<20 + Framing
				if n%2 == 0 {
					q.ContentLength = -1
				}
				g.ServeHTTP(httptest.NewRecorder(), q)
			})
		}
		synctest.Wait()
		if n := most.Load(); n < atOnce/2 || n > atOnce {
			t.Errorf("%d of the largest requests are read at a time, want at most %d", n, atOnce)
		}
		cancel()
		all.Wait()
		for range 3 * atOnce {
			w := httptest.NewRecorder()
			g.ServeHTTP(w, httptest.NewRequest("POST", Path, bytes.NewReader(seal("/v1/session", 1<<19))))
			if w.Code != http.StatusOK {
				t.Fatalf("afterwards: %d", w.Code)
			}
		}
		if n := len(g.(*gateway).room); n != 0 {
			t.Errorf("%d units of room are lost", n)
		}
	})
}

// stalled is a body of which no byte comes.
type stalled struct {
	ctx           context.Context
	reading, most *atomic.Int64
}

func (s stalled) Read([]byte) (int, error) {
	if n := s.reading.Add(1); n > s.most.Load() {
		s.most.Store(n)
	}
	defer s.reading.Add(-1)
	<-s.ctx.Done()
	return 0, s.ctx.Err()
}

// While the gateway does not answer, one address has no more than its share of bytes at the relay,
// and another address gets through.
func TestOneAddressHoldsItsShareOfARelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const body = 64 << 10
		var at, most atomic.Int64
		second := make(chan struct{}, 1)
		network := memnet.New()
		shuffler := network.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
			b, _ := io.ReadAll(q.Body)
			if bytes.HasPrefix(b, []byte("second")) {
				second <- struct{}{}
				return
			}
			if n := at.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer at.Add(-1)
			<-q.Context().Done()
		}))
		service, err := New(Config{Gateway: shuffler.URL, Client: shuffler.Client(), MaxRequest: body})
		if err != nil {
			t.Fatal(err)
		}
		_, key, _ := ed25519.GenerateKey(rand.Reader)
		leaf := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		const share = 8 // bodies
		front, err := endpoint.NewServer(endpoint.ServerConfig{Name: "clients", Listener: network.Listen(), Handler: service.Handler(), MaxBody: body,
			Share: share * float64(body) / (64 << 20), MaxConns: 10000, Certificate: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- front.Run(ctx) }()
		from := func(address string) *http.Client {
			return &http.Client{Transport: &http.Transport{DialContext: network.From(net.ParseIP(address)), DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		}
		asking, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		ask := func(c *http.Client, b []byte) int {
			q, err := http.NewRequestWithContext(asking, "POST", "https://"+front.Address+Path, bytes.NewReader(b))
			if err != nil {
				t.Error(err)
				return 0
			}
			res, err := c.Do(q)
			if err != nil {
				return 0
			}
			res.Body.Close()
			return res.StatusCode
		}
		flood := from("127.0.0.1")
		for range share + share/2 {
			all.Go(func() { ask(flood, make([]byte, body)) })
		}
		synctest.Wait()
		if code := ask(from("127.0.1.1"), append([]byte("second"), make([]byte, body/2)...)); code != http.StatusOK || len(second) != 1 {
			t.Errorf("another address: %d", code)
		}
		time.Sleep(time.Minute)
		if n := most.Load(); n < share-1 || n > share+1 { // one that is closed may still be counted
			t.Errorf("one address holds %d bodies at a time, want %d", n, share)
		}
		stop()
		all.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
