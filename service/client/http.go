//go:build !js

package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"
)

type certificates = x509.CertPool

// hypertext is a Transport of net/http.
type hypertext struct{ http *http.Client }

func newTransport(c JoinConfig) (Transport, error) {
	t := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS13},
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: c.Connections,
		IdleConnTimeout:     time.Minute,
		ForceAttemptHTTP2:   true,
		// Pings find a connection that something on the way has forgotten; requests would else
		// wait on it for minutes, one after the other.
		HTTP2:              &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		DisableCompression: true,
	}
	return hypertext{&http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
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
	resp, err := t.http.Do(req)
	if err != nil {
		return nil, err
	}
	return &Response{resp.StatusCode, resp.Header.Get, resp.Body}, nil
}

func (t hypertext) Close() { t.http.CloseIdleConnections() }
