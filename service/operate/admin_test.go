package operate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/endpoint"
)

func TestAdmin(t *testing.T) {
	ready := errors.New("the store does not answer")
	a, err := newAdmin("127.0.0.1:0", func(context.Context) error { return ready },
		func() []endpoint.Metric {
			return []endpoint.Metric{
				{Name: "riffle_rejected_total", Help: "By \"reason\".", Kind: endpoint.Counter, Samples: []endpoint.Sample{{Labels: []string{"reason", `a"b\c` + "\n", "role", "x"}, Value: 3}}},
				{Name: "riffle_rejected_total", Help: "By \"reason\".", Kind: endpoint.Counter, Samples: []endpoint.Sample{{Labels: []string{"reason", "z"}, Value: 1e300}}},
			}
		}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.run(ctx) }()
	get := func(path string) (int, string) {
		resp, err := http.Get("http://" + a.listener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	if code, text := get("/healthz"); code != 200 || text != "ok\n" {
		t.Error(code, text)
	}
	if code, text := get("/readyz"); code != 503 || !strings.Contains(text, "does not answer") {
		t.Error(code, text)
	}
	ready = nil
	if code, _ := get("/readyz"); code != 200 {
		t.Error(code)
	}
	code, text := get("/metrics")
	want := "# HELP riffle_rejected_total By \"reason\".\n# TYPE riffle_rejected_total counter\n" +
		`riffle_rejected_total{reason="a\"b\\c\n",role="x"} 3` + "\n" + `riffle_rejected_total{reason="z"} 1e+300` + "\n"
	if code != 200 || !strings.HasPrefix(text, want) || !strings.Contains(text, "\nriffle_goroutines ") {
		t.Errorf("%d\n%s", code, text)
	}
	if code, _ := get("/"); code != 404 {
		t.Error(code)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
	for _, bad := range []endpoint.Metric{{Name: "a b"}, {Name: ""}, {Name: "a", Samples: []endpoint.Sample{{Labels: []string{"1", ""}}}}, {Name: "a", Samples: []endpoint.Sample{{Labels: []string{"b"}}}}} {
		if writeMetrics(io.Discard, []endpoint.Metric{bad}) == nil {
			t.Errorf("%+v was written", bad)
		}
	}
	if writeMetrics(io.Discard, []endpoint.Metric{{Name: "a", Kind: endpoint.Gauge}, {Name: "a", Kind: endpoint.Counter}}) == nil {
		t.Error("a metric of two kinds was written")
	}
}

func TestSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "sock") // short: a socket's path is at most some 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "operator")
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "operator") })
	s, err := newSocketServer(path, h)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	if _, err := newSocketServer(path, h); err == nil {
		t.Error("a socket that is served was taken over")
	}
	client := newSocketClient(path)
	resp, err := client.Get("http://operator/")
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if string(b) != "operator" {
		t.Errorf("%q", b)
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	// A file that is none is not removed.
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := newSocketServer(path, h); err == nil {
		t.Error("a file was replaced by a socket")
	}
}

// A web site whose name points at this machine reads nothing.
func TestAdminChecksTheHost(t *testing.T) {
	for address, strict := range map[string]bool{"127.0.0.1:0": true, "[::1]:0": true, ":0": false} {
		a, err := newAdmin(address, func(context.Context) error { return nil }, func() []endpoint.Metric { return nil }, slog.New(slog.DiscardHandler))
		if err != nil {
			if strings.Contains(address, "::1") {
				continue // a machine without it
			}
			t.Fatal(err)
		}
		for host, ours := range map[string]bool{"127.0.0.1:8460": true, "localhost": true, "evil.example": false, "evil.example:8460": false, "": false} {
			r := httptest.NewRequest("GET", "/metrics", nil)
			r.Host = host
			w := httptest.NewRecorder()
			a.handler.ServeHTTP(w, r)
			if want := ours || !strict; (w.Code == http.StatusOK) != want || !want && bytes.Contains(w.Body.Bytes(), []byte("riffle_")) {
				t.Errorf("%s asked as %q: %d", address, host, w.Code)
			}
		}
		if err := a.listener.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A page of another origin has nothing asked here.
func TestAdminRefusesOtherPages(t *testing.T) {
	a, err := newAdmin("127.0.0.1:0", func(context.Context) error { return nil }, func() []endpoint.Metric { return nil }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer a.listener.Close()
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		for site, want := range map[string]int{"cross-site": http.StatusForbidden, "same-site": http.StatusForbidden, "same-origin": http.StatusOK, "none": http.StatusOK, "": http.StatusOK} {
			r := httptest.NewRequest("GET", path, nil)
			r.Host = "127.0.0.1:8460"
			if site != "" {
				r.Header.Set("Sec-Fetch-Site", site)
			}
			w := httptest.NewRecorder()
			if a.handler.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%s from %q: %d", path, site, w.Code)
			}
		}
	}
}

// The operator's socket is never there with another mode than its last.
func TestSocketIsNeverOpen(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes")
	}
	dir, err := os.MkdirTemp("", "sock") // short: a socket's path is at most some 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	stop, done := make(chan struct{}), make(chan os.FileMode, 1)
	go func() {
		seen := os.FileMode(0o600)
		for {
			select {
			case <-stop:
				done <- seen
				return
			default:
			}
			if info, err := os.Lstat(path); err == nil && info.Mode().Perm() != 0o600 {
				seen = info.Mode().Perm()
			}
		}
	}()
	for range 100 {
		s, err := newSocketServer(path, http.NotFoundHandler())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if mode := <-done; mode != 0o600 {
		t.Errorf("the socket was there with mode %v", mode)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

func TestRootsAreCertificates(t *testing.T) {
	dir := t.TempDir()
	if _, err := config.GenerateTLS(dir, []string{"localhost"}, time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := loadRoots(filepath.Join(dir, config.CertificateFile)); err != nil {
		t.Error(err)
	}
	if _, err := loadRoots(filepath.Join(dir, config.CertificateKey)); err == nil {
		t.Error("a key is a root")
	}
}
