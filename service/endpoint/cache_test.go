package endpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// What RFC 9110 says of ranges, tags and their order.
func TestLasting(t *testing.T) {
	b := []byte("what never changes")
	digest := sha256.Sum256(b)
	tag := `"` + hex.EncodeToString(digest[:]) + `"`
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { Lasting(w, r, digest, b) })
	for name, c := range map[string]struct {
		method string
		head   map[string]string
		code   int
		body   string
	}{
		"whole":                     {"GET", nil, 200, string(b)},
		"HEAD":                      {"HEAD", map[string]string{"Range": "bytes=0-3"}, 200, ""},
		"a range":                   {"GET", map[string]string{"Range": "bytes=5-9"}, 206, "never"},
		"an open range":             {"GET", map[string]string{"Range": "bytes=11-"}, 206, "changes"},
		"several":                   {"GET", map[string]string{"Range": "bytes=0-1,3-4"}, 200, string(b)},
		"behind the end":            {"GET", map[string]string{"Range": "bytes=18-"}, 416, ""},
		"known":                     {"GET", map[string]string{"If-None-Match": tag}, 304, ""},
		"known among others":        {"GET", map[string]string{"If-None-Match": `"a", W/` + tag}, 304, ""},
		"any":                       {"GET", map[string]string{"If-None-Match": "*"}, 304, ""},
		"known, HEAD":               {"HEAD", map[string]string{"If-None-Match": tag}, 304, ""},
		"another":                   {"GET", map[string]string{"If-None-Match": `"` + strings.Repeat("0", 64) + `"`}, 200, string(b)},
		"a part of the tag":         {"GET", map[string]string{"If-None-Match": tag[:20]}, 200, string(b)},
		"known before the range":    {"GET", map[string]string{"If-None-Match": tag, "Range": "bytes=5-9"}, 304, ""},
		"known before a bad range":  {"GET", map[string]string{"If-None-Match": tag, "Range": "bytes=18-"}, 304, ""},
		"if it is this":             {"GET", map[string]string{"If-Range": tag, "Range": "bytes=5-9"}, 206, "never"},
		"if it is weakly this":      {"GET", map[string]string{"If-Range": "W/" + tag, "Range": "bytes=5-9"}, 200, string(b)},
		"if it is another":          {"GET", map[string]string{"If-Range": `"a"`, "Range": "bytes=5-9"}, 200, string(b)},
		"if it is another, bad":     {"GET", map[string]string{"If-Range": `"a"`, "Range": "bytes=18-"}, 200, string(b)},
		"if it is as old as a date": {"GET", map[string]string{"If-Range": "Tue, 24 Nov 2026 04:00:00 GMT", "Range": "bytes=5-9"}, 200, string(b)},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		for k, v := range c.head {
			r.Header.Set(k, v)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, r)
		head := rec.Result().Header
		if c.method == "HEAD" { // net/http leaves the body out
			rec.Body.Reset()
		}
		if rec.Code != c.code || c.code != 416 && rec.Body.String() != c.body {
			t.Errorf("%s: %d %q", name, rec.Code, rec.Body)
		}
		if c.code == 416 {
			if head.Get("Cache-Control") != "no-store" || head.Get("ETag") != "" || head.Get("Repr-Digest") != "" || head.Get("Content-Range") != "bytes */18" {
				t.Errorf("%s: %v", name, head)
			}
			continue
		}
		if head.Get("ETag") != tag || head.Get("Cache-Control") != "public, max-age=31536000, immutable" ||
			head.Get("Repr-Digest") != "sha-256=:"+base64.StdEncoding.EncodeToString(digest[:])+":" || (head.Get("Content-Range") != "") != (c.code == 206) {
			t.Errorf("%s: %v", name, head)
		}
		if length := head.Get("Content-Length"); c.code == 206 && length != map[string]string{"never": "5", "changes": "7"}[c.body] || c.code == 200 && length != "18" {
			t.Errorf("%s: length %q", name, length)
		}
	}
}

// What may change is kept for a moment, and asked for again by its tag.
func TestPassing(t *testing.T) {
	age := 1500 * time.Millisecond
	ask := func(tag string) *http.Response {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("If-None-Match", tag)
		r.Header.Set("Range", "bytes=0-0")
		rec := httptest.NewRecorder()
		rec.Header().Set("Content-Type", "text/plain")
		Passing(rec, r, age, []byte("now"))
		if got := rec.Body.Bytes(); rec.Code == 200 && !bytes.Equal(got, []byte("now")) {
			t.Errorf("%q", got)
		}
		return rec.Result()
	}
	first := ask("")
	if h := first.Header; first.StatusCode != 200 || h.Get("Cache-Control") != "public, max-age=1, must-revalidate" || h.Get("Content-Type") != "text/plain" || h.Get("Accept-Ranges") != "" {
		t.Errorf("%d %v", first.StatusCode, h)
	}
	age = -time.Hour
	if again := ask(first.Header.Get("ETag")); again.StatusCode != 304 || again.Header.Get("Cache-Control") != "public, max-age=0, must-revalidate" || again.Header.Get("ETag") != first.Header.Get("ETag") {
		t.Errorf("%d %v", again.StatusCode, again.Header)
	}
}

// Where pages may call, a cache keeps an answer for each origin apart.
func TestCacheableAnswersVaryByOrigin(t *testing.T) {
	p, err := newPages([]string{"https://shop.example"})
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(nil)
	for _, origin := range []string{"", "https://shop.example"} {
		r := httptest.NewRequest("GET", "/", nil)
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		rec := httptest.NewRecorder()
		if p.greet(rec, r) {
			t.Fatal("refused")
		}
		Lasting(rec, r, digest, nil)
		if h := rec.Result().Header; h.Get("Vary") != "Origin" || h.Get("Access-Control-Allow-Origin") != origin || h.Get("Set-Cookie") != "" {
			t.Errorf("%q: %v", origin, h)
		}
	}
}
