// Package memnet is, for tests, a network in memory. A testing/synctest bubble counts its connections
// as blocked while nothing comes, so that hours of polls and deadlines pass at once. Listeners have
// addresses of this machine, which no other process can reach.
package memnet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Network connects the listeners of one test. Make it inside the bubble that uses it.
type Network struct {
	mu        sync.Mutex
	next      int
	listeners map[string]*listener
}

// New makes a network without listeners.
func New() *Network { return &Network{next: 1023, listeners: map[string]*listener{}} }

// port returns an address that the network has not given before.
func (n *Network) port() *net.TCPAddr {
	n.next++
	return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: n.next}
}

// Listen returns a listener at an address of its own.
func (n *Network) Listen() net.Listener {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.listen(n.port())
}

// ListenAt returns a listener at an address that Listen has given before and whose listener is
// closed: a server that starts again.
func (n *Network) ListenAt(address net.Addr) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[address.String()] != nil {
		return nil, fmt.Errorf("memnet: %s: %w", address, syscall.EADDRINUSE)
	}
	return n.listen(address.(*net.TCPAddr)), nil
}

func (n *Network) listen(address *net.TCPAddr) *listener {
	l := &listener{n, address, make(chan net.Conn), make(chan struct{})}
	n.listeners[address.String()] = l
	return l
}

// DialContext connects to the listener at an address. Like TCP it refuses where nobody listens.
func (n *Network) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	return n.dial(ctx, net.IPv4(127, 0, 0, 1), address)
}

// From returns a DialContext whose connections come from another machine's address.
func (n *Network) From(ip net.IP) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, address string) (net.Conn, error) { return n.dial(ctx, ip, address) }
}

func (n *Network) dial(ctx context.Context, ip net.IP, address string) (net.Conn, error) {
	n.mu.Lock()
	l, from := n.listeners[address], n.port()
	n.mu.Unlock()
	from.IP = ip
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: from, Err: syscall.ECONNREFUSED}
	if l == nil {
		return nil, refused
	}
	near, far := pipe(from, l.address)
	select {
	case l.waiting <- far:
		return near, nil
	case <-l.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Client returns a client for plain HTTP on this network. Its connections close with the test.
func (n *Network) Client(t testing.TB) *http.Client {
	transport := &http.Transport{DialContext: n.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Serve serves HTTP until the test ends.
func (n *Network) Serve(t testing.TB, h http.Handler) *httptest.Server {
	s := n.server(t, h)
	s.Start()
	n.finish(t, s)
	return s
}

// ServeTLS serves HTTPS until the test ends. Its certificate is for the names of that of
// net/http/httptest, whose RSA key makes each handshake dear.
func (n *Network) ServeTLS(t testing.TB, h http.Handler) *httptest.Server {
	own, err := Certificate()
	if err != nil {
		t.Fatal(err)
	}
	s := n.server(t, h)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
	s.StartTLS()
	n.finish(t, s)
	return s
}

// Certificate returns that of ServeTLS.
var Certificate = sync.OnceValues(func() (c tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return c, err
	}
	// Bubbles begin in the year 2000.
	m := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Date(2084, 1, 29, 0, 0, 0, 0, time.UTC),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true, DNSNames: []string{"example.com"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}}
	der, err := x509.CreateCertificate(rand.Reader, m, m, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
})

func (n *Network) server(t testing.TB, h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close() // the one on a real port
	s.Listener = n.Listen()
	return s
}

// finish lets a server's own client dial here.
func (n *Network) finish(t testing.TB, s *httptest.Server) {
	t.Cleanup(s.Close)
	s.Client().Transport.(*http.Transport).DialContext = n.DialContext
}

type listener struct {
	network *Network
	address *net.TCPAddr
	waiting chan net.Conn
	closed  chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.waiting:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.network.listeners[l.address.String()] == l {
		delete(l.network.listeners, l.address.String())
		close(l.closed)
	}
	return nil
}

func (l *listener) Addr() net.Addr { return l.address }
