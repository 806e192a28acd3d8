package endpoint

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/riffle-dp/riffle/internal/durable"
)

// ClientConfig configures an HTTPS client. Without Pins and Roots the system's roots are
// trusted.
type ClientConfig struct {
	Pins        []Pin            // the server's key must be one of these; its certificate does not matter
	Roots       *x509.CertPool   // trusted instead of Pins
	Certificate *tls.Certificate // the certificate that this side shows
	// Header is the time in which a server must begin to answer, long polls included. Default
	// 90 s.
	Header time.Duration
	Conns  int // connections to one server at a time; default no limit
	// Dial connects to a server. Default: TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// NewClient makes a client. It follows no redirects.
func NewClient(c ClientConfig) (*http.Client, error) {
	if c.Pins != nil && c.Roots != nil {
		return nil, errors.New("endpoint: pins and roots contradict each other")
	}
	if c.Header < 0 || c.Conns < 0 {
		return nil, errors.New("endpoint: a limit below 0")
	}
	t := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: c.Roots, ClientSessionCache: tls.NewLRUClientSessionCache(16)}
	if c.Certificate != nil {
		t.Certificates = []tls.Certificate{*c.Certificate}
	}
	if c.Pins != nil {
		// The pin replaces the check of the certificate chain. It is checked on every
		// connection.
		t.InsecureSkipVerify = true
		t.VerifyConnection = verifyPins(c.Pins)
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	return &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: t, ForceAttemptHTTP2: true, MaxConnsPerHost: c.Conns, MaxIdleConnsPerHost: 16,
			DialContext:         c.Dial,
			TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second,
			ResponseHeaderTimeout: cmp.Or(c.Header, 90*time.Second),
			// Pings reveal a vanished peer while a poll waits.
			HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// LoadCertificate reads a certificate and its key, both in PEM. The key must not
// be readable by others.
func LoadCertificate(certFile, keyFile string) (tls.Certificate, Pin, error) {
	if err := CheckSecret(keyFile); err != nil {
		return tls.Certificate{}, Pin{}, err
	}
	var c tls.Certificate
	cert, err := durable.ReadFile(certFile)
	key, errKey := durable.ReadFile(keyFile)
	if err = errors.Join(err, errKey); err == nil {
		c, err = tls.X509KeyPair(cert, key)
	}
	if err != nil {
		return tls.Certificate{}, Pin{}, fmt.Errorf("endpoint: %s: %v", certFile, err)
	}
	return c, pinOf(c.Leaf), nil
}
