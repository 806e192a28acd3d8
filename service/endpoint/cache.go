package endpoint

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Lasting answers a GET with bytes that never change under their address. digest is their SHA-256.
// Every cache may keep them and answer with ranges of them (RFC 9110, 9111; Repr-Digest of RFC 9530).
func Lasting(w http.ResponseWriter, r *http.Request, digest [32]byte, b []byte) {
	tag := tagOf(digest)
	from, to, asked := int64(0), int64(len(b)), false
	if when := r.Header.Get("If-Range"); r.Method == http.MethodGet && (when == "" || when == tag) {
		from, to, asked = span(r.Header.Get("Range"), int64(len(b)))
	}
	h := w.Header()
	if asked && from >= to && !holds(r, tag) {
		h.Set("Content-Range", fmt.Sprintf("bytes */%d", len(b)))
		RefuseAs(w, &Refusal{wire.OutOfRange, "there are no such bytes", http.StatusRequestedRangeNotSatisfiable})
		return
	}
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Accept-Ranges", "bytes")
	if asked {
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(b)))
	}
	tagged(w, r, digest, b, from, to, asked)
}

// Passing answers a GET with bytes that may be others soon. Caches may keep them for so long, in
// whole seconds, and must ask again then.
func Passing(w http.ResponseWriter, r *http.Request, age time.Duration, b []byte) {
	ShortLived(w, age)
	tagged(w, r, sha256.Sum256(b), b, 0, int64(len(b)), false)
}

// ShortLived says for how long caches may keep an answer, in whole seconds. They must not give it
// later, not even if the server cannot be reached.
func ShortLived(w http.ResponseWriter, age time.Duration) {
	w.Header().Set("Cache-Control", fmt.Sprintf("public, max-age=%d, must-revalidate", int64(max(0, age)/time.Second)))
}

// tagged sends the bytes from … to, part of b or all of it, or says that the caller has them.
func tagged(w http.ResponseWriter, r *http.Request, digest [32]byte, b []byte, from, to int64, part bool) {
	h, tag := w.Header(), tagOf(digest)
	h.Set("ETag", tag)
	h.Set("Repr-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(digest[:])+":")
	if holds(r, tag) {
		h.Del("Content-Range")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/octet-stream")
	}
	h.Set("Content-Length", strconv.FormatInt(to-from, 10))
	if part {
		w.WriteHeader(http.StatusPartialContent)
	}
	_, _ = w.Write(b[from:to]) // fails if the caller has gone
}

func tagOf(digest [32]byte) string { return `"` + hex.EncodeToString(digest[:]) + `"` }

// holds says whether the caller has the bytes with a tag already.
func holds(r *http.Request, tag string) bool {
	for _, line := range r.Header.Values("If-None-Match") {
		for one := range strings.SplitSeq(line, ",") {
			if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
				return true
			}
		}
	}
	return false
}

// span reads a Range header, bytes=FIRST-LAST or bytes=FIRST-, for so many bytes: it is empty if
// there are none of them. Any other header is not taken for a question, as several ranges at once:
// the answer is the whole.
func span(text string, size int64) (from, to int64, asked bool) {
	whole := func() (int64, int64, bool) { return 0, size, false }
	first, last, ok := strings.Cut(strings.TrimPrefix(text, "bytes="), "-")
	digits := func(text string) bool { return len(text) <= 18 && strings.Trim(text, "0123456789") == "" }
	if !ok || !strings.HasPrefix(text, "bytes=") || first == "" || !digits(first) || !digits(last) {
		return whole()
	}
	from, _ = strconv.ParseInt(first, 10, 64) // at most 18 digits
	if last == "" {
		return from, size, true
	}
	to, _ = strconv.ParseInt(last, 10, 64)
	if to < from { // RFC 9110 has the header ignored
		return whole()
	}
	return from, min(to+1, size), true
}
