package coordinator

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Caches may keep for ever what never changes, for a moment what does, and no refusal; whoever asks
// gets the same.
func TestCachesAreToldHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, receipts)
		hold, held := make(chan struct{}), make(chan struct{}, 10)
		w.sh.Word = func(*wire.RoundClosed) { held <- struct{}{}; <-hold }
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer p.stop()
		<-held // a round is open
		h, task := p.Handler(), "/v1/tasks/"+hexTask(w)
		_, b, _ := get(t, h, task+"/announcement?wait=20")
		a, err := wire.Decode[wire.Announcement](b[64:])
		if err != nil {
			t.Fatal(err)
		}
		const lasting, soon, list, none = "public, max-age=31536000, immutable", "public, max-age=1, must-revalidate", "public, max-age=5, must-revalidate", "no-store"
		check := func(path string, code int, how string) {
			t.Helper()
			got, b, head := get(t, h, path)
			if got != code || head.Get("Cache-Control") != how || head.Get("Set-Cookie") != "" {
				t.Errorf("%s: %d, want %d; %v", path, got, code, head)
			}
			if code != 200 || how == none {
				return
			}
			d := digestOf(b)
			if head.Get("ETag") != fmt.Sprintf(`"%x"`, d) || head.Get("Repr-Digest") != "sha-256=:"+base64.StdEncoding.EncodeToString(d[:])+":" || head.Get("Content-Length") != fmt.Sprint(len(b)) {
				t.Errorf("%s: %v", path, head)
			}
			if code, b, again := get(t, h, path, "If-None-Match", head.Get("ETag")); code != 304 || len(b) != 0 || again.Get("Cache-Control") != how || again.Get("ETag") != head.Get("ETag") {
				t.Errorf("%s again: %d, %d bytes, %v", path, code, len(b), again)
			}
			if code, part, _ := get(t, h, path, "Range", "bytes=1-2"); how == lasting && (code != 206 || string(part) != string(b[1:3])) || how != lasting && code != 200 {
				t.Errorf("a part of %s: %d %q", path, code, part)
			}
		}
		check("/v1/tasks", 200, list)
		check(task, 200, lasting)
		check("/v1/models/"+hexOf(a.ModelDigest), 200, lasting)
		check(task+"/announcement", 200, soon)
		check(task+"/announcement?after=0&wait=20", 200, soon)
		check(task+"/announcement?after=1&wait=0", 204, soon)
		check("/v1/status", 200, none)
		unknown := strings.Repeat("ab", 32)
		for path, code := range map[string]int{"/v1/tasks/": 404, "/v1/models/": 404, "/v1/rounds/": 404} {
			suffix := map[string]string{"/v1/rounds/": "/closed"}[path]
			check(path+unknown+suffix, code, none)
			check(path+"zz"+suffix, 400, none)
		}
		check(task+"/announcement?after=x", 400, none)
		if code, _, head := get(t, h, "/v1/models/"+hexOf(a.ModelDigest), "Range", "bytes=99999999-"); code != http.StatusRequestedRangeNotSatisfiable || head.Get("Cache-Control") != none {
			t.Errorf("a range behind the end: %d %v", code, head)
		}
		// An announcement may not be kept beyond its round.
		r := p.find(wire.Digest(w.task))
		r.mu.Lock()
		r.until = time.Now().Add(-time.Second)
		r.mu.Unlock()
		check(task+"/announcement", 200, "public, max-age=0, must-revalidate")
		close(hold)
		if _, err := p.Wait(t.Context(), wire.Digest(w.task)); err != nil {
			t.Fatal(err)
		}
		rec, _, err := readRecord(t.Context(), w.disk.store(nil), wire.Digest(w.task))
		if err != nil || len(rec.Told) == 0 {
			t.Fatal(err)
		}
		round := fmt.Sprintf("/v1/rounds/%x/", rec.Told[0].Announcement)
		check(round+"closed", 200, lasting)
		check(round+"receipts", 200, lasting)
		check(task+"/announcement", 410, none)
	})
}
