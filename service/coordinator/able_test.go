package coordinator

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/aggregator"
	"github.com/riffle-dp/riffle/service/exchange"
)

type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(p) }
func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// An aggregator that could not sum a round keeps it from being announced and charged. The task's
// status says why, the log says it once, and the task goes on as soon as the aggregator is mended.
func TestRoundsWaitForAnAggregatorThatCan(t *testing.T) {
	noTokens := func(c *aggregator.Config) { c.Shuffler.Registrar = nil }
	broken := func(out http.ResponseWriter, q *http.Request) bool {
		_, _ = out.Write([]byte("no JSON"))
		return true
	}
	for _, c := range []struct {
		name, want string
		options    []option
		lacks      func(*aggregator.Config)
		meddle     func(http.ResponseWriter, *http.Request) bool
	}{
		{"no signing key", "no signing key", []option{withProofs}, func(c *aggregator.Config) { c.Key = nil }, nil},
		{"another signing key", "its signing key is another", []option{withProofs}, func(c *aggregator.Config) { c.Key = signer(t) }, nil},
		{"no mark", "no mark", []option{withProofs}, func(c *aggregator.Config) { c.Mark = nil }, nil},
		{"no registrar's key", "no registrar's key", []option{tokens}, noTokens, nil},
		{"another registrar's key", "its registrar's key is another", []option{tokens}, func(c *aggregator.Config) { c.Shuffler.Registrar = c.Coordinator }, nil},
		{"proofs and tokens", "no registrar's key", []option{withProofs, tokens}, noTokens, nil},
		{"no JSON", "cannot be read", []option{withProofs}, nil, broken},
		{"away", "aggregator: ", []option{withProofs}, nil, func(out http.ResponseWriter, _ *http.Request) bool {
			out.WriteHeader(http.StatusServiceUnavailable)
			return true
		}},
	} {
		bubble(t, c.name, func(t *testing.T) {
			w := newWorld(t, dp.Distributed, dp.All, append(c.options, small)...)
			w.lacks, w.meddle = c.lacks, nil
			w.startAggregator(nil)
			var mended sync.Mutex // guards meddle
			meddle := c.meddle
			w.meddle = func(out http.ResponseWriter, q *http.Request) bool {
				mended.Lock()
				f := meddle
				mended.Unlock()
				return f != nil && f(out, q)
			}
			log := &lines{}
			p, err := w.start(nil, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
			if err != nil {
				t.Fatal(err)
			}
			w.await(p, func(s wire.Status) bool { return strings.Contains(s.Error, c.want) })
			time.Sleep(time.Minute) // some attempts more
			s, _ := p.Show(wire.Digest(w.task))
			var opened int
			for _, e := range w.disk.happened() {
				if e == "POST /v1/rounds" {
					opened++
				}
			}
			w.disk.Lock()
			charged := len(w.disk.Log)
			w.disk.Unlock()
			if s.State != Running || s.Phase != "waiting" || s.Round != 0 || charged != 0 || opened != 0 {
				t.Errorf("%+v: %d entries are charged, %d rounds opened", s, charged, opened)
			}
			if n := log.count("trying again"); n != 1 {
				t.Errorf("the log says it %d times", n)
			}
			w.lacks = nil
			mended.Lock()
			meddle = nil
			mended.Unlock()
			w.startAggregator(nil)
			s = w.end(p)
			w.check(s)
			if s.Error != "" || s.Released != 2 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// An aggregator that has lost what it needs while a round was open keeps the round from being charged.
func TestChargesWaitForAnAggregatorThatCan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Distributed, dp.All, withProofs)
		var asked, mended atomic.Int64
		w.meddle = func(out http.ResponseWriter, q *http.Request) bool {
			if q.URL.Path != exchange.AbilitiesPath || asked.Add(1) == 1 || mended.Load() == 1 {
				return false
			}
			_, _ = out.Write([]byte("{}"))
			return true
		}
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		s := w.await(p, func(s wire.Status) bool { return asked.Load() >= 5 && s.Error != "" })
		w.disk.Lock()
		charged := len(w.disk.Log)
		w.disk.Unlock()
		if charged != 0 || !strings.Contains(s.Error, "no signing key") {
			t.Errorf("%d entries are charged: %q", charged, s.Error)
		}
		mended.Store(1)
		s = w.end(p)
		w.check(s)
		if s.Released != 3 || s.Error != "" {
			t.Errorf("%+v", s)
		}
	})
}

// An aggregator is not asked for what no sum needs.
func TestPlainSumsAskNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := false
		w := newWorld(t, dp.Distributed, dp.All)
		w.meddle = func(_ http.ResponseWriter, q *http.Request) bool {
			asked = asked || q.URL.Path == exchange.AbilitiesPath
			return false
		}
		w.lacks = func(c *aggregator.Config) { c.Key, c.Mark = nil, nil }
		w.startAggregator(nil)
		s := w.run()
		w.check(s)
		if s.Released != 3 || asked {
			t.Errorf("asked %v: %+v", asked, s)
		}
	})
}
