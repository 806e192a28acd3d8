package memnet

import (
	"errors"
	"io"
	"net/http"
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
