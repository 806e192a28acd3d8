package coordinator

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Clients get ranges of the open round's model from one place in memory, however many and
// whatever they ask for.
func TestModelInRanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times atomic.Int64
		w := newWorld(t, dp.Shuffle, dp.All)
		hold, held := make(chan struct{}), make(chan struct{}, 10)
		w.sh.Word = func(*wire.RoundClosed) { held <- struct{}{}; <-hold }
		p, err := w.start(nil, func(c *Config) { c.Store = looked{copying{c.Store}, &times} })
		if err != nil {
			t.Fatal(err)
		}
		<-held // a round is open
		h := p.Handler()
		code, b, _ := get(t, h, "/v1/tasks/"+hexOf(wire.Digest(w.task))+"/announcement?wait=20")
		a, err := wire.Decode[wire.Announcement](b[64:])
		if code != 200 || err != nil {
			t.Fatal(code, err)
		}
		path := "/v1/models/" + hexOf(a.ModelDigest)
		code, whole, head := get(t, h, path)
		size := len(whole)
		if code != 200 || digestOf(whole) != a.ModelDigest || head.Get("Accept-Ranges") != "bytes" || size < 12 {
			t.Fatalf("%d, %d bytes, %v", code, size, head)
		}
		times.Store(0)
		tag := `"` + hexOf(a.ModelDigest) + `"`
		for text, of := range map[string]struct {
			from, to int // -1: none of it
			code     int
		}{
			"bytes=0-3": {0, 4, 206}, "bytes=4-": {4, size, 206}, "bytes=5-6": {5, 7, 206}, "bytes=0-99999999": {0, size, 206},
			"bytes=0-999999999999999999": {0, size, 206}, "bytes=000-1": {0, 2, 206},
			"bytes=99999999-": {0, 0, 416}, "bytes=99999998-99999999": {0, 0, 416}, "bytes=999999999999999999-": {0, 0, 416},
			// What is no range is not taken for one, and the answer is the model.
			"bytes=3-2": {0, size, 200}, "bytes=-4": {0, size, 200}, "bytes=0-3,5-6": {0, size, 200}, "bytes=" + strings.Repeat("0-0,", 500) + "0-0": {0, size, 200},
			"bytes=a-b": {0, size, 200}, "bytes=+1-2": {0, size, 200}, "bytes=1 -2": {0, size, 200}, "bytes=1000000000000000000000-": {0, size, 200},
			"lines=0-3": {0, size, 200}, "bytes=0--3": {0, size, 200}, "bytes=": {0, size, 200}, "bytes=-": {0, size, 200}, "0-3": {0, size, 200},
		} {
			code, b, head := get(t, h, path, "Range", text)
			if code != of.code || code != 416 && !bytes.Equal(b, whole[of.from:of.to]) {
				t.Errorf("%.40q: %d with %d bytes, want %d with %d", text, code, len(b), of.code, of.to-of.from)
			}
			if got := head.Get("Content-Range"); (got != "") != (code != 200) {
				t.Errorf("%.40q: Content-Range %q", text, got)
			}
		}
		if code, b, head := get(t, h, path, "Range", "bytes=4-7", "If-Range", tag); code != 206 || len(b) != 4 || head.Get("Content-Range") == "" {
			t.Errorf("if it is this one: %d with %d bytes", code, len(b))
		}
		if code, b, _ := get(t, h, path, "Range", "bytes=4-7", "If-Range", `"other"`); code != 200 || len(b) != size {
			t.Errorf("if it is another one: %d with %d bytes", code, len(b))
		}
		if code, _, _ := get(t, h, path, "Range", "bytes=4-7", "If-None-Match", tag); code != 304 {
			t.Errorf("if it is not there yet: %d", code)
		}
		for range 1000 {
			if code, _, _ := get(t, h, path, "Range", "bytes=0-0"); code != 206 {
				t.Fatalf("%d", code)
			}
		}
		// Other models that are read meanwhile do not push it out.
		for i := range 2 * cached {
			p.models.put(hash{byte(i)}, make([]byte, 1+i*cachedBytes/8))
		}
		if one, two := p.announced(a.ModelDigest), p.announced(a.ModelDigest); one == nil || &one[0] != &two[0] {
			t.Error("the model lies in several places")
		}
		if code, _, _ := get(t, h, path, "Range", "bytes=0-0"); code != 206 || times.Load() != 0 {
			t.Errorf("%d, %d reads of the store", code, times.Load())
		}
		close(hold)
		w.end(p)
	})
}

// The cache's memory is bounded, but for one model that is larger.
func TestCachedModels(t *testing.T) {
	var c cache
	size := func() (n int) {
		for _, b := range c.models {
			n += len(b)
		}
		return n
	}
	for i := range longtest.Pick(30, 100) {
		c.put(hash{byte(i)}, make([]byte, (i%5)*cachedBytes/4+1))
		if size() > cachedBytes && len(c.models) > 1 || size() != c.bytes || len(c.models) != len(c.names) || len(c.models) > cached || c.get(hash{byte(i)}) == nil {
			t.Fatalf("after %d: %d models of %d bytes, %d counted", i, len(c.models), size(), c.bytes)
		}
	}
}
