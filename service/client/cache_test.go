package client_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/service/client"
)

// cdn is a cache in front of a server: it keeps what it may for as long as it may, and asks once for
// all who ask for the same meanwhile.
type cdn struct {
	origin *httptest.Server
	change func(w http.ResponseWriter, r *http.Request) bool // answers in place of the cache where it returns true

	mu   sync.Mutex
	kept map[string]*copied
	from map[string]int // requests to the origin, by what they are for
}

type copied struct {
	mu    sync.Mutex
	code  int
	head  http.Header
	body  []byte
	until time.Time
}

var (
	maxAge = regexp.MustCompile(`^public, max-age=(\d+), (immutable|must-revalidate)$`)
	digits = regexp.MustCompile(`[0-9a-f]{64}`)
)

func newCDN(t *testing.T, w *world, change func(w http.ResponseWriter, r *http.Request) bool) (*cdn, *httptest.Server) {
	c := &cdn{origin: w.servers[0], change: change, kept: map[string]*copied{}, from: map[string]int{}}
	return c, w.network.ServeTLS(t, c)
}

func (c *cdn) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.change != nil && c.change(w, r) {
		return
	}
	c.mu.Lock()
	k := c.kept[r.URL.String()]
	if k == nil {
		k = &copied{}
		c.kept[r.URL.String()] = k
	}
	c.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if !time.Now().Before(k.until) {
		if err := c.renew(k, r); err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
	}
	maps.Copy(w.Header(), k.head)
	if k.code == http.StatusOK {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(k.body)) // ranges and tags
		return
	}
	w.WriteHeader(k.code)
	_, _ = w.Write(k.body)
}

func (c *cdn) renew(k *copied, r *http.Request) error {
	q, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), http.MethodGet, c.origin.URL+r.URL.String(), nil)
	if err != nil {
		return err
	}
	if tag := k.head.Get("ETag"); tag != "" {
		q.Header.Set("If-None-Match", tag)
	}
	c.mu.Lock()
	c.from[digits.ReplaceAllString(r.URL.Path, "*")]++
	c.mu.Unlock()
	a, err := c.origin.Client().Do(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		return err
	}
	how := maxAge.FindStringSubmatch(a.Header.Get("Cache-Control"))
	if a.StatusCode != http.StatusNotModified {
		k.code, k.head, k.body = a.StatusCode, a.Header, b
	}
	k.until = time.Time{}
	if how != nil {
		seconds, _ := strconv.Atoi(how[1])
		k.until = time.Now().Add(time.Duration(seconds) * time.Second)
	} else if a.Header.Get("Cache-Control") != "no-store" {
		return http.ErrNotSupported
	}
	return nil
}

// forEver has the cache keep what it has much longer than it may.
func (c *cdn) forEver() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.kept {
		if k.mu.TryLock() {
			if k.code == http.StatusOK {
				k.until = time.Now().Add(time.Hour)
			}
			k.mu.Unlock()
		}
	}
}

// runBehind has three fleets of two clients report in rounds rounds behind a cache, and returns what
// they were told of failures.
func runBehind(t *testing.T, w *world, cache string, roots *httptest.Server, rounds int64, every time.Duration) (told []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 3 {
		config := w.config()
		config.Cache = cache
		if roots != nil {
			config.Roots.AddCert(roots.Certificate())
		}
		config.Watch = func(n client.Notice) {
			mu.Lock()
			defer mu.Unlock()
			if n.Err != nil {
				told = append(told, n.Err.Error())
			}
		}
		fleet, err := client.NewFleet(config, w.members[2*i:2*i+2])
		if err != nil {
			t.Fatal(err)
		}
		fleet.DirectEvery(every)
		wg.Go(func() {
			if err := fleet.Run(ctx); err != nil {
				t.Error(err)
			}
			if err := fleet.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for round := int64(1); round <= rounds; round++ {
		theta := []float32{float32(round), 2, 3, 4, 5}
		w.publish(w.announcement(round, theta), theta, nil)
		w.wait(ctx, 6)
	}
	w.end()
	wg.Wait()
	mu.Lock()
	defer mu.Unlock()
	return told
}

// A cache takes the coordinator's load: however many ask, each model and each task leave it once, and
// the clients' rounds are those without a cache.
func TestClientsBehindACache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6, shuffleTask())
		c, s := newCDN(t, w, nil)
		told := runBehind(t, w, s.URL, s, 3, time.Hour)
		if len(told) != 0 {
			t.Errorf("told %q", told)
		}
		if c.from["/v1/models/*"] != 3 || c.from["/v1/tasks/*"] != 1 || w.asked("GET model") != 3 || w.asked("GET task") != 1 {
			t.Errorf("the cache asked %v; %d models and %d tasks left the coordinator", c.from, w.asked("GET model"), w.asked("GET task"))
		}
	})
}

// Whatever a cache does, no round is missed, none is entered twice, and a liar is named.
func TestClientsBehindABadCache(t *testing.T) {
	isAnnouncement := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/announcement") }
	for name, c := range map[string]struct {
		change func(old *cdn, w http.ResponseWriter, r *http.Request) bool
		named  string // empty: nothing needs to be told
	}{
		"older announcements": {func(old *cdn, _ http.ResponseWriter, r *http.Request) bool {
			if isAnnouncement(r) { // one copy for all rounds
				r.URL.RawQuery = "after=0&wait=20"
			}
			old.forEver()
			return false
		}, "of round 1, asked for was one after"},
		"kept for ever": {func(old *cdn, _ http.ResponseWriter, r *http.Request) bool { old.forEver(); return false }, ""},
		"the task has ended": {func(_ *cdn, w http.ResponseWriter, r *http.Request) bool {
			if isAnnouncement(r) {
				w.WriteHeader(http.StatusGone)
			}
			return isAnnouncement(r)
		}, "which a coordinator does not say"},
		"nothing new": {func(_ *cdn, w http.ResponseWriter, r *http.Request) bool {
			if isAnnouncement(r) {
				w.WriteHeader(http.StatusNoContent)
			}
			return isAnnouncement(r)
		}, "it says that there is no round after"},
		"forged": {func(_ *cdn, w http.ResponseWriter, r *http.Request) bool {
			_, _ = w.Write(make([]byte, 300))
			return true
		}, "refused (signature)"},
		"another status": {func(_ *cdn, w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusTeapot)
			return true
		}, "status 418"},
		"a page of its own": {func(_ *cdn, w http.ResponseWriter, r *http.Request) bool {
			_, _ = w.Write([]byte(strings.Repeat("<html>", 1<<20)))
			return true
		}, "longer than it may be"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 6, shuffleTask())
				var cache *cdn
				cache, s := newCDN(t, w, func(rw http.ResponseWriter, r *http.Request) bool { return c.change(cache, rw, r) })
				told := runBehind(t, w, s.URL, s, 3, time.Second)
				u, err := url.Parse(s.URL)
				if err != nil {
					t.Fatal(err)
				}
				found := false
				for _, text := range told {
					if !strings.Contains(text, "the cache "+u.Host) {
						t.Errorf("told %q", text)
					}
					found = found || strings.Contains(text, c.named)
				}
				if c.named != "" && !found {
					t.Errorf("nobody is told of %q: %q", c.named, told)
				}
			})
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 6, shuffleTask())
			s := w.network.ServeTLS(t, nil)
			s.Close()
			if told := runBehind(t, w, s.URL, nil, 2, time.Second); len(told) == 0 || !strings.Contains(told[0], "the cache ") {
				t.Errorf("told %q", told)
			}
		})
	})
}
