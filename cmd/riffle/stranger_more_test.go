//go:build linux && (long || soak)

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// unheard holds as many requests as are granted that net/http answers itself, before
// any handler of ours: with no window for the answer, or with a body that stalls.
func unheard(window bool, header []byte, body []byte) func(context.Context, *hall, string) error {
	return func(ctx context.Context, h *hall, from string) error {
		c, err := dialTLS(ctx, from, h.shuffler, "h2")
		if err != nil {
			return err
		}
		f := &frames{Conn: c, settled: make(chan struct{}), ended: make(chan struct{})}
		f.granted.Store(100)
		defer c.Close()
		var settings []byte
		if !window {
			settings = []byte{0, 4, 0, 0, 0, 0}
		}
		_, err = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
		if err = errors.Join(err, f.write(4, 0, 0, settings)); err != nil {
			return nil
		}
		go f.read()
		select {
		case <-f.settled:
		case <-f.ended:
			return nil
		case <-ctx.Done():
			return nil
		}
		flags := byte(4)
		if body == nil {
			flags = 5
		}
		for i := range f.granted.Load() {
			if h.grown.Load() || ctx.Err() != nil {
				break
			}
			err := f.write(1, flags, uint32(2*i+1), header)
			if body != nil {
				err = errors.Join(err, f.write(0, 0, uint32(2*i+1), body))
			}
			if err != nil {
				return nil
			}
		}
		select {
		case <-f.ended:
		case <-ctx.Done():
		}
		return nil
	}
}

// resets asks, and takes back what it asked, as fast as that is read.
func resets(ctx context.Context, h *hall, from string) error {
	f, err := openFrames(ctx, from, h.shuffler)
	if err != nil {
		return err
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()
	// Method GET, scheme https, path /, authority a: all of static tables.
	ask := []byte{0x82, 0x87, 0x84, 0x01, 1, 'a'}
	var b []byte
	for id := uint32(1); ctx.Err() == nil && id < 1<<30; {
		b = b[:0]
		for range 100 {
			n := []byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}
			b = append(append(append(b, 0, 0, byte(len(ask)), 1, 5), n...), ask...)
			b = append(append(append(b, 0, 0, 4, 3, 0), n...), 0, 0, 0, 8)
			id += 2
		}
		if _, err := f.Write(b); err != nil {
			return nil
		}
	}
	return nil
}

// hellos begins handshakes with the same bytes, which cost it nothing, and ends them
// when the server has answered.
func hellos(ctx context.Context, h *hall, from string) error {
	c, err := dialer(from).DialContext(ctx, "tcp", h.shuffler)
	if err != nil {
		return err
	}
	defer c.Close()
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write(helloBytes()); err != nil {
		return nil
	}
	_, _ = c.Read(make([]byte, 1))
	return nil
}

// helloBytes is what a client of this machine says first.
var helloBytes = sync.OnceValue(func() []byte {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		_ = tls.Client(far, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).Handshake()
		far.Close()
	}()
	b := make([]byte, 4<<10)
	n, _ := near.Read(b)
	return b[:n]
})

// listedPage is the origin whose pages may call the services.
const listedPage = "https://shop.test"

// preflight is a browser's question whether a page may send a report.
func preflight(origin string) []byte {
	return literal(literal(request("OPTIONS", "/v1/report", 0), "origin", origin), "access-control-request-method", "POST")
}
