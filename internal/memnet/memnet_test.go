package memnet

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A poll of an hour takes an hour of the bubble and no time, over HTTP/1 and HTTP/2.
func TestHoursPassAtOnce(t *testing.T) {
	for _, secure := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := New()
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-time.After(time.Hour):
					_, _ = io.WriteString(w, r.RemoteAddr)
				case <-r.Context().Done():
				}
			})
			began := time.Now()
			s := n.Serve(t, h)
			if secure {
				s = n.ServeTLS(t, h)
			}
			a, err := s.Client().Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(a.Body)
			if err != nil || a.Body.Close() != nil || len(b) < len("127.0.0.1:1") {
				t.Errorf("the address %q, %v", b, err)
			}
			if d := time.Since(began); d != time.Hour {
				t.Errorf("an hour took %v", d)
			}
		})
	}
}

func TestAServerThatStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		s := n.Serve(t, ok)
		c := n.Client(t)
		get := func() error {
			a, err := c.Get(s.URL)
			if err == nil {
				err = a.Body.Close()
			}
			return err
		}
		if err := get(); err != nil {
			t.Fatal(err)
		}
		if _, err := n.ListenAt(s.Listener.Addr()); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("a second listener: %v", err)
		}
		s.Close()
		if err := get(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("nobody listens: %v", err)
		}
		l, err := n.ListenAt(s.Listener.Addr())
		if err != nil {
			t.Fatal(err)
		}
		again := &http.Server{Handler: ok}
		t.Cleanup(func() { _ = again.Close() })
		go func() { _ = again.Serve(l) }()
		if err := get(); err != nil {
			t.Errorf("started again: %v", err)
		}
	})
}

// ends returns the two ends of a connection.
func ends(t *testing.T) (near, far net.Conn) {
	n := New()
	l := n.Listen()
	accepted := make(chan net.Conn)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	near, err := n.From(net.IPv4(127, 0, 1, 1))(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far = <-accepted
	if got := far.RemoteAddr().(*net.TCPAddr); !got.IP.Equal(net.IPv4(127, 0, 1, 1)) || near.LocalAddr().String() != got.String() {
		t.Errorf("from %v, which calls itself %v", got, near.LocalAddr())
	}
	return near, far
}

// A writer waits for a reader once a connection is full. Whatever order they come in, all bytes arrive.
func TestBytesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := ends(t)
		sent := make([]byte, 5*buffer+7)
		for i := range sent {
			sent[i] = byte(i >> 8)
		}
		written := false
		go func() {
			if n, err := near.Write(sent); n != len(sent) || err != nil {
				t.Errorf("%d of %d bytes, %v", n, len(sent), err)
			}
			written = true
			near.Close()
		}()
		if synctest.Wait(); written {
			t.Error("all is written, and nothing is read")
		}
		if got, err := io.ReadAll(far); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes arrive, %v", len(got), err)
		}
		if _, err := far.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a write to nobody: %v", err)
		}
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a read after the end: %v", err)
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := ends(t)
		began := time.Now()
		if err := far.SetDeadline(began.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("a read ends after %v: %v", time.Since(began), err)
		}
		if _, err := far.Write([]byte("x")); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a write after its deadline: %v", err)
		}
		if err := far.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		go func() { // an end that waits has its deadline moved
			time.Sleep(time.Hour)
			_ = far.SetReadDeadline(began)
		}()
		if _, err := far.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) < time.Hour {
			t.Errorf("a read ends after %v: %v", time.Since(began), err)
		}
		near.Close()
		far.Close()
	})
}

// Two ends of TLS say goodbye at the same time, as they do where a request fails at both.
func TestBothEndsClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New()
		s := n.ServeTLS(t, http.NotFoundHandler())
		near, far := ends(t)
		a, b := tls.Client(near, &tls.Config{InsecureSkipVerify: true}), tls.Server(far, s.TLS)
		go func() { _ = b.Handshake() }()
		if err := a.Handshake(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		done := make(chan struct{})
		go func() { _ = a.Close(); close(done) }()
		_ = b.Close()
		if <-done; time.Since(began) != 0 {
			t.Errorf("it takes %v", time.Since(began))
		}
	})
}
