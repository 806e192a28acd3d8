package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/memnet"
	"github.com/riffle-dp/riffle/protocol/client"
)

// fleetOf returns a fleet that only fetches, from servers with these handlers.
func fleetOf(t *testing.T, handlers ...http.HandlerFunc) *Fleet {
	t.Helper()
	roots, n := x509.NewCertPool(), memnet.New()
	f := &Fleet{}
	for _, h := range handlers {
		s := n.ServeTLS(t, h)
		roots.AddCert(s.Certificate())
		f.coordinators = append(f.coordinators, s.URL)
	}
	var err error
	if f.web, err = newWeb(JoinConfig{Roots: roots, Dial: n.DialContext, Connections: 4}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.web.Close)
	return f
}

// modelOf returns a model of dim parameters in its stored form.
func modelOf(dim int) []byte {
	b := make([]byte, 4*dim)
	for j := range dim {
		binary.LittleEndian.PutUint32(b[4*j:], math.Float32bits(float32(j)+.5))
	}
	return b
}

// serving answers with a model or its ranges, and tells which were asked for.
func serving(b []byte, asked func(text string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		asked(r.Header.Get("Range"))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	}
}

func sameModel(t *testing.T, theta []float32, b []byte) {
	t.Helper()
	if 4*len(theta) != len(b) {
		t.Fatalf("%d values of %d bytes", len(theta), len(b))
	}
	for j, v := range theta {
		if math.Float32bits(v) != binary.LittleEndian.Uint32(b[4*j:]) {
			t.Fatalf("value %d is %v", j, v)
		}
	}
}

func TestModelComesInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, dim := range map[string]int{"small": pieceBytes / 4, "large": pieceBytes/4 + 1, "five": 5*pieceBytes/4 - 3} {
			b := modelOf(dim)
			var mu sync.Mutex
			var asked []string
			f := fleetOf(t, serving(b, func(text string) { mu.Lock(); asked = append(asked, text); mu.Unlock() }))
			theta, err := f.fetchModel(t.Context(), newDownload(sha256.Sum256(b), int64(dim)))
			if err != nil {
				t.Fatal(err)
			}
			sameModel(t, theta, b)
			want := []string{""} // a model that fits a piece is asked for as ever
			if name != "small" {
				want = nil
				for at := 0; at < len(b); at += pieceBytes {
					want = append(want, fmt.Sprintf("bytes=%d-%d", at, min(at+pieceBytes, len(b))-1))
				}
			}
			if !slices.Equal(asked, want) {
				t.Errorf("%s: asked for %q, want %q", name, asked, want)
			}
		}
	})
}

// breaking cuts answers off after so many bytes, all but every third.
type breaking struct {
	http.ResponseWriter
	left int
}

func (w *breaking) Write(p []byte) (int, error) {
	if len(p) > w.left {
		_, _ = w.ResponseWriter.Write(p[:w.left])
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	w.left -= len(p)
	return w.ResponseWriter.Write(p)
}

// A connection that breaks costs no byte that has come, and memory grows with what comes.
func TestModelIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dim := longtest.Pick(3*pieceBytes/4+7, 10_000_000)
		b := modelOf(dim)
		digest := sha256.Sum256(b)
		var tries, sent atomic.Int64
		var most uint64 // of the heap, when more is asked for
		var before runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		f := fleetOf(t, func(w http.ResponseWriter, r *http.Request) {
			var m runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc-min(m.HeapAlloc, before.HeapAlloc))
			n := tries.Add(1)
			if n%3 != 0 {
				w = &breaking{w, 1<<20 + 4097*int(n) + 1}
			}
			serving(b, func(string) {})(counting{w, &sent}, r)
		})
		d := newDownload(digest, int64(dim))
		for breaks := 0; ; breaks++ {
			had := d.received()
			theta, err := f.fetchModel(t.Context(), d)
			if err == nil {
				sameModel(t, theta, b)
				if breaks < 3 {
					t.Errorf("it broke %d times only", breaks)
				}
				break
			}
			if refused := (*client.Refused)(nil); errors.As(err, &refused) || d.received() <= had {
				t.Fatalf("after %d of %d bytes: %v", d.received(), len(b), err)
			}
		}
		if s := sent.Load(); s > int64(len(b))+tries.Load()*(1<<17) { // what was on its way when it broke
			t.Errorf("%d bytes were sent of a model of %d", s, len(b))
		}
		t.Logf("%d parameters: %d requests, %.1f MB sent, heap up to %.1f MB", dim, tries.Load(), float64(sent.Load())/1e6, float64(most)/1e6)
		if longtest.On && most > 2*uint64(len(b)) {
			t.Errorf("the heap grew by %d bytes for a model of %d", most, len(b))
		}
	})
}

type counting struct {
	http.ResponseWriter
	sent *atomic.Int64
}

func (w counting) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.sent.Add(int64(n))
	return n, err
}

// A cache may ignore ranges.
func TestModelWithoutRanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dim := pieceBytes/4 + 5
		b := modelOf(dim)
		tries := 0
		f := fleetOf(t, func(w http.ResponseWriter, r *http.Request) {
			if tries++; tries == 1 {
				(&breaking{w, pieceBytes / 2}).Write(b)
			}
			_, _ = w.Write(b)
		})
		d := newDownload(sha256.Sum256(b), int64(dim))
		if _, err := f.fetchModel(t.Context(), d); err == nil {
			t.Fatal("the first try did not break")
		}
		theta, err := f.fetchModel(t.Context(), d)
		if err != nil || tries != 2 {
			t.Fatalf("%d tries: %v", tries, err)
		}
		sameModel(t, theta, b)
	})
}

// A server that lies about a model costs what it sends, and no more; another one is asked.
func TestModelOfALiar(t *testing.T) {
	dim := pieceBytes/4 + 100
	b := modelOf(dim)
	other := bytes.Clone(b)
	other[pieceBytes+7]++
	piece := func(w http.ResponseWriter, head string, body []byte) {
		w.Header().Set("Content-Range", head)
		w.WriteHeader(http.StatusPartialContent)
		_, _ = w.Write(body)
	}
	head := fmt.Sprintf("bytes 0-%d/%d", pieceBytes-1, len(b))
	for name, of := range map[string]struct {
		answer func(w http.ResponseWriter, r *http.Request)
		want   string
		retry  bool // no refusal
	}{
		"another model":   {serving(other, func(string) {}), "digest", false},
		"a longer model":  {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(append(bytes.Clone(b), 0)) }, "more than the", false},
		"a shorter model": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b[:len(b)-4]) }, "bytes, the task's have", false},
		"another range":   {func(w http.ResponseWriter, _ *http.Request) { piece(w, "bytes 4-7/8", b[4:8]) }, "asked for was", false},
		"a hostile range": {func(w http.ResponseWriter, _ *http.Request) { piece(w, strings.Repeat("x", 2000), nil) }, "asked for was", false},
		"no range":        {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPartialContent) }, "asked for was", false},
		"a longer piece":  {func(w http.ResponseWriter, _ *http.Request) { piece(w, head, b[:pieceBytes+1]) }, "more than the", false},
		"an empty piece":  {func(w http.ResponseWriter, _ *http.Request) { piece(w, head, nil) }, "bytes, the task's have", false},
		"without end": {func(w http.ResponseWriter, _ *http.Request) {
			for write(w, make([]byte, 1<<16)) {
			}
		}, "more than the", false},
		"a huge length": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000000000000000")
			_, _ = w.Write(b[:8])
		}, "", true},
		"not satisfiable": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(416) }, "status 416", true},
		"another direction": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "https://nowhere/")
			w.WriteHeader(302)
		}, "status 302", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fleetOf(t, of.answer)
				d := newDownload(sha256.Sum256(b), int64(dim))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := f.fetchModel(ctx, d)
				refused := (*client.Refused)(nil)
				if err == nil || !strings.Contains(err.Error(), of.want) || errors.As(err, &refused) == of.retry || refused != nil && refused.Cause != client.CauseModel || strings.Contains(err.Error(), "\x1b") || len(err.Error()) > 400 {
					t.Errorf("%v, want %s", err, of.want)
				}
				if cap(d.theta) > dim {
					t.Errorf("memory for %d values", cap(d.theta))
				}
			})
		})
	}
}

// A server that sends one byte at a time, each as a whole answer, is asked once and then after a
// pause.
func TestModelByBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := modelOf(pieceBytes/4 + 100)
		var asked atomic.Int64
		f := fleetOf(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			var from, to int
			if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to); err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(b)))
			w.WriteHeader(http.StatusPartialContent)
			_ = http.NewResponseController(w).Flush() // so that the answer has no length
			_, _ = w.Write(b[from : from+1])
		})
		d := newDownload(sha256.Sum256(b), int64(len(b)/4))
		for n := int64(1); n <= 6; n++ {
			if _, err := f.fetchModel(t.Context(), d); err == nil || !strings.Contains(err.Error(), "1 bytes of a model, asked for were") {
				t.Errorf("error %v", err)
			}
			if asked.Load() != n || d.received() != n {
				t.Errorf("%d requests, %d bytes, want %d", asked.Load(), d.received(), n)
			}
		}
	})
}

func write(w http.ResponseWriter, b []byte) bool {
	_, err := w.Write(b)
	return err == nil
}

// Memory is at most eight times what has come, and one copy of the model in the end.
func TestDownloadGrowsWithWhatComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, dim := range []int64{1, 5, 100, 4096, 100_003} {
			d := newDownload([32]byte{}, dim)
			b := modelOf(int(dim))
			for size := 1; len(b) > 0; size = size%7001 + 13 {
				n := min(size, len(b))
				if _, err := d.Write(b[:n]); err != nil {
					t.Fatal(err)
				}
				b = b[n:]
				if got := int64(cap(d.theta)); got > dim || got > ahead*int64(len(d.theta))+1 {
					t.Fatalf("room for %d of %d values after %d", got, dim, len(d.theta))
				}
			}
			if _, err := d.Write([]byte{1}); !errors.Is(err, errBeyond) {
				t.Errorf("a byte more: %v", err)
			}
			sameModel(t, d.theta, modelOf(int(dim)))
		}
	})
}
