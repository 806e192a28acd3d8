package endpoint

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/internal/memnet"
)

// resumes asks a server on a connection of its own, with the tickets in the cache, and says
// whether the connection was resumed.
func resumes(t *testing.T, network *memnet.Network, url string, cache tls.ClientSessionCache) bool {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DialContext: network.DialContext, DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, ClientSessionCache: cache, ServerName: "localhost"}}}
	res, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	return res.TLS.DidResume
}

// Servers with the same keys resume each other's connections, also with a ticket under an
// older key, and no others'.
func TestTicketsOfAllServersOfACluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) })
		cert, _ := certificate(t)
		var keys [3]atomic.Pointer[[][32]byte]
		var urls [3]string
		for i := range keys {
			keys[i].Store(&[][32]byte{})
			_, urls[i], _ = start(t, network, ServerConfig{Certificate: cert, Handler: h, Tickets: func() [][32]byte { return *keys[i].Load() }})
		}
		set := func(i int, k ...byte) {
			all := make([][32]byte, len(k))
			for j := range k {
				all[j][0] = k[j]
			}
			keys[i].Store(&all)
		}
		cache := tls.NewLRUClientSessionCache(1)
		if resumes(t, network, urls[0], cache) {
			t.Fatal("the first connection is resumed")
		}
		if !resumes(t, network, urls[0], cache) || resumes(t, network, urls[1], cache) {
			t.Error("without keys, a server resumes its own connections only")
		}
		set(0, 1)
		set(1, 2, 1)
		set(2, 3)
		if resumes(t, network, urls[0], cache) || !resumes(t, network, urls[1], cache) { // the second gives a ticket under key 2
			t.Error("a ticket under an old key that is still known")
		}
		if resumes(t, network, urls[0], cache) {
			t.Error("a ticket under a key that is not known")
		}
		if resumes(t, network, urls[2], cache) {
			t.Error("a ticket of another cluster")
		}
		set(2, 4)
		if resumes(t, network, urls[2], cache) {
			t.Error("a ticket whose key was destroyed")
		}
	})
}

// A server without keys gives no tickets, so that it cannot tell one caller's connections from
// those of several. Peers have whole handshakes, in which they prove their keys.
func TestNoTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("x")) })
		_, url, _ := start(t, network, ServerConfig{Handler: h})
		cache := tls.NewLRUClientSessionCache(1)
		for range 3 {
			if resumes(t, network, url, cache) {
				t.Fatal("resumed")
			}
		}
		if _, ok := cache.Get("localhost"); ok {
			t.Error("there is a ticket")
		}
		cert, pin := certificate(t)
		_, err := NewServer(ServerConfig{Certificate: cert, Handler: h, Log: slog.New(slog.DiscardHandler), Peers: map[string][]Pin{"a": {pin}}, Tickets: func() [][32]byte { return nil }})
		if err == nil || !strings.Contains(err.Error(), "tickets") {
			t.Errorf("tickets for peers: %v", err)
		}
	})
}
