package client

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// A model comes whole whatever a cache does, and one that lies is named.
func TestModelFromACache(t *testing.T) {
	b := modelOf(longtest.Pick(2*pieceBytes/4+5, 5*pieceBytes/4+5))
	changed := bytes.Clone(b)
	changed[len(b)/2] ^= 1
	whole := func(b []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b) }
	}
	good := serving(b, func(string) {})
	for name, c := range map[string]struct {
		cache http.HandlerFunc
		named string // empty: nothing is wrong, and no coordinator is asked
	}{
		"good":           {good, ""},
		"no ranges":      {whole(b), ""},
		"changed":        {serving(changed, func(string) {}), "its digest is not"},
		"changed, whole": {whole(changed), "its digest is not"},
		"cut off": {func(w http.ResponseWriter, r *http.Request) {
			good(&breaking{w, pieceBytes / 3}, r)
		}, "EOF"},
		"too short": {whole(b[:len(b)-8]), "bytes, the task's have"},
		"too long":  {whole(append(bytes.Clone(b), 0)), "more bytes than"},
		"empty":     {whole(nil), "0 bytes"},
		"another range": {func(w http.ResponseWriter, r *http.Request) {
			r.Header.Set("Range", "bytes=0-99")
			good(w, r)
		}, "asked for was bytes"},
		"a piece of all": {func(w http.ResponseWriter, r *http.Request) { // ranges of something shorter
			w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", pieceBytes-1, len(b)))
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(b[:pieceBytes/2])
		}, "asked for were"},
		"unknown": {http.NotFound, "status 404"},
		"broken":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, "status 502"},
		"moved": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.example/", http.StatusFound)
		}, "status 302"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var origin, cached atomic.Int64
				f := fleetOf(t, serving(b, func(string) { origin.Add(1) }),
					func(w http.ResponseWriter, r *http.Request) { cached.Add(1); c.cache(w, r) })
				f.cache.base, f.coordinators = f.coordinators[1], f.coordinators[:1]
				u, err := url.Parse(f.cache.base)
				if err != nil {
					t.Fatal(err)
				}
				var told []string
				f.config.Watch = func(n Notice) { told = append(told, n.Err.Error()) }
				d := newDownload(sha256.Sum256(b), int64(len(b)/4))
				theta, err := f.fetchModel(t.Context(), d)
				if err != nil {
					t.Fatal(err)
				}
				sameModel(t, theta, b)
				if c.named == "" {
					if origin.Load() != 0 || len(told) != 0 {
						t.Errorf("%d requests to the coordinator, %q", origin.Load(), told)
					}
					return
				}
				if origin.Load() == 0 || len(told) != 1 || !strings.Contains(told[0], c.named) || !strings.Contains(told[0], "cache "+u.Host) {
					t.Errorf("%d requests to the coordinator, %q", origin.Load(), told)
				}
				// It is left alone for a while.
				f.cache.again = time.Now().Add(time.Hour)
				before := cached.Load()
				if _, err := f.fetchModel(t.Context(), newDownload(d.digest, d.dim)); err != nil || cached.Load() != before {
					t.Errorf("%v, %d requests to the cache", err, cached.Load()-before)
				}
			})
		})
	}
}

// A coordinator that lies as well is refused, and not its cache.
func TestModelOfNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := modelOf(10)
		digest := sha256.Sum256(b)
		b[3] ^= 1
		f := fleetOf(t, serving(b, func(string) {}), serving(b, func(string) {}))
		f.cache.base, f.coordinators = f.coordinators[1], f.coordinators[:1]
		if _, err := f.fetchModel(t.Context(), newDownload(digest, 10)); err == nil || strings.Contains(err.Error(), "cache") || !strings.Contains(err.Error(), "its digest is not") {
			t.Errorf("%v", err)
		}
	})
}

// A cache that fails again and again is asked ever more seldom, and as ever once it is well.
func TestPausesOfACache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Fleet{cache: cache{base: "https://cdn.example"}}
		for i, least := range []time.Duration{2, 4, 9, 19, 39, 79, 149, 149} {
			f.doubt(t.Context(), "model", [32]byte{}, 0, errBeyond)
			if left := time.Until(f.cache.again); left < least*time.Second || left > lastPause*3/2 {
				t.Errorf("failure %d: %v", i, left)
			}
			if f.cache.usable() != "" {
				t.Errorf("failure %d: it is asked at once", i)
			}
		}
		f.cache.good()
		f.doubt(t.Context(), "model", [32]byte{}, 0, errBeyond)
		if left := time.Until(f.cache.again); left > 2*firstPause {
			t.Errorf("after it was well: %v", left)
		}
	})
}
