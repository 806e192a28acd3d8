package client

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/internal/memnet"
)

// A client's connections to the shuffler are resumed, each with a ticket that it shows once. No
// ticket of another server is kept, though both give some.
func TestOnlyTheShufflerResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var shown []string
		var resumed []bool
		roots, network := x509.NewCertPool(), memnet.New()
		serve := func() *httptest.Server {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				resumed = append(resumed, r.TLS.DidResume)
				mu.Unlock()
				w.Header().Set("Connection", "close")
				_, _ = io.WriteString(w, "x")
			}))
			keys := &tls.Config{}
			s.TLS = &tls.Config{MinVersion: tls.VersionTLS13,
				WrapSession: func(c tls.ConnectionState, what *tls.SessionState) ([]byte, error) {
					return keys.EncryptTicket(c, what)
				},
				UnwrapSession: func(ticket []byte, c tls.ConnectionState) (*tls.SessionState, error) {
					mu.Lock()
					shown = append(shown, string(ticket))
					mu.Unlock()
					return keys.DecryptTicket(ticket, c)
				}}
			s.Listener.Close() // the one on a real port
			s.Listener = network.Listen()
			s.StartTLS()
			t.Cleanup(s.Close)
			roots.AddCert(s.Certificate())
			return s
		}
		shuffler, coordinator := serve(), serve()
		c, err := newTransport(JoinConfig{Roots: roots, Dial: network.DialContext, Shuffler: shuffler.URL, Connections: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ask := func(url string) {
			t.Helper()
			a, err := c.Do(t.Context(), Request{Method: methodGet, URL: url + "/v1/x"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(a.Body); err != nil {
				t.Fatal(err)
			}
			a.Body.Close()
		}
		for range 3 {
			ask(coordinator.URL)
		}
		if len(shown) != 0 || slices.Contains(resumed, true) {
			t.Errorf("the coordinator was shown %d tickets", len(shown))
		}
		resumed = nil
		for range 4 {
			ask(shuffler.URL)
		}
		if !slices.Equal(resumed, []bool{false, true, true, true}) {
			t.Errorf("resumed: %v", resumed)
		}
		slices.Sort(shown)
		if len(shown) != 3 || len(slices.Compact(shown)) != 3 {
			t.Errorf("%d tickets shown, want 3 different ones", len(shown))
		}
		ask(coordinator.URL)
		if len(shown) != 3 {
			t.Error("the coordinator was shown a ticket of the shuffler's")
		}
	})
}
