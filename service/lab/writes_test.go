package lab_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/lab"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/store"
)

// write is one of the writes of a role, by its name.
type write struct {
	role lab.Role
	op   string
}

// guards follows what each role has written, and looks at every answer that leaves: what it releases must be
// covered by all that would notice an older copy of the store that it came from.
type guards struct {
	t  *testing.T
	l  *lab.Lab
	mu sync.Mutex
	// entries are those of a role's ledger or list, and marked how many its mark counts.
	entries, marked map[lab.Role]int
	seen            map[write]int
	fails           func(write) bool
	failed          int
	released        int // answers that were looked at
}

// do carries out a role's operations.
func (g *guards) do(r lab.Role) func(op string, f func() error) error {
	return func(op string, f func() error) error {
		if !memory.Writes(op) {
			return f()
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		w := write{r, op}
		if words := strings.Fields(op); len(words[len(words)-1]) == 52 { // a round's name
			w.op = strings.Join(words[:len(words)-1], " ")
		}
		g.seen[w]++
		if g.fails != nil && g.fails(w) {
			g.failed++
			return store.ErrUnavailable
		}
		err := f()
		switch {
		case err != nil:
		case op == "append entry":
			g.entries[r]++
		case op == "write mark":
			g.marked[r] = g.entries[r]
		}
		return err
	}
}

// answers looks at an answer.
func (g *guards) answers(q lab.Request, status int) {
	if status != 200 {
		return
	}
	of := func(r lab.Role) {
		g.released++
		if g.marked[r] != g.entries[r] {
			g.t.Errorf("%s %s is answered, and the %s's mark counts %d of %d entries", q.Method, q.Path, r, g.marked[r], g.entries[r])
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	switch _, what, _ := strings.Cut(strings.TrimPrefix(q.Path, "/v1/rounds/"), "/"); {
	case q.Of == lab.Shuffler && strings.HasPrefix(what, "chunks"):
		of(lab.Coordinator)
		g.head()
	case q.Of == lab.Aggregator && (what == "sum" || what == "proofs"):
		of(lab.Aggregator)
	case q.Of == lab.Registrar && q.Method == "POST" && strings.HasPrefix(q.Path, "/v1/tokens"):
		of(lab.Registrar)
	}
}

// head holds that the shuffler keeps the head of the ledger as it is when it gives a batch.
func (g *guards) head() {
	d := g.l.Disks[lab.Shuffler]
	d.Lock()
	defer d.Unlock()
	for name, b := range d.Values {
		if strings.HasPrefix(name, "head.") {
			var h struct{ Entries int }
			if err := json.Unmarshal(b, &h); err != nil || h.Entries != g.entries[lab.Coordinator] {
				g.t.Errorf("a batch is given, and the shuffler keeps a head of %d entries of %d: %v", h.Entries, g.entries[lab.Coordinator], err)
			}
			return
		}
	}
	g.t.Error("a batch is given, and the shuffler keeps no head")
}

// run runs a deployment in which a write fails, from before the clients start for some rounds.
func run(t *testing.T, c lab.Config, failing *write) *guards {
	t.Helper()
	g := &guards{t: t, entries: map[lab.Role]int{}, marked: map[lab.Role]int{}, seen: map[write]int{}}
	c.Answers, c.Roles, c.Job = g.answers, []lab.Role{}, func(j *coordinator.Job) { j.Round = time.Minute }
	g.l = lab.New(t, c)
	roles := []lab.Role{lab.Shuffler, lab.Aggregator, lab.Coordinator}
	if c.Tokens { // its registrar has made the keys of the task
		g.l.Stop(lab.Registrar)
		roles = append([]lab.Role{lab.Registrar}, roles...)
	}
	for _, r := range roles {
		g.l.Do[r] = g.do(r)
		g.l.Start(r)
	}
	g.l.Await(func(s wire.Status) bool { return s.Phase == "collecting" })
	if failing != nil {
		g.mu.Lock()
		g.fails = func(w write) bool { return w == *failing }
		g.mu.Unlock()
	}
	g.l.Start(lab.Clients)
	time.Sleep(5 * time.Minute / 2)
	synctest.Wait()
	g.mu.Lock()
	g.fails = nil
	g.mu.Unlock()
	s := g.l.Await(func(s wire.Status) bool { return s.State != coordinator.Running })
	if s.State != coordinator.Done || s.Released+s.Failed != g.l.Task.Rounds || s.Released == 0 {
		t.Errorf("%v: %+v", failing, s)
	}
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !maps.Equal(g.entries, g.marked) || g.entries[lab.Coordinator] != int(s.Released+s.Failed) {
		t.Errorf("%v: entries %v, marked %v of %+v", failing, g.entries, g.marked, s.Counts)
	}
	return g
}

// Each write of each role fails in turn, for some rounds, while all others succeed. Whatever is tried again
// meanwhile, nothing leaves a role that its mark, or the shuffler's word on the ledger, does not cover;
// and when the write succeeds again the task goes on to its end.
func TestEachWriteFails(t *testing.T) {
	for name, c := range map[string]struct {
		make  func(*testing.T) lab.Config
		marks []write // whose failure is tried by default, too; nil: none
	}{
		"shuffle, tokens": {func(*testing.T) lab.Config {
			return lab.Config{Tokens: true, Clients: 4, Task: func(w *wire.Task) { w.Rounds = 2 }}
		}, nil},
		"proofs": {func(t *testing.T) lab.Config {
			m := lab.Proved(t, 4, 2)
			return lab.Config{Clients: 4, Task: func(w *wire.Task) { w.Trust, w.Rounds, w.Mechanism = dp.Distributed, 2, m }}
		}, []write{{lab.Coordinator, "write mark"}, {lab.Shuffler, "put head"}, {lab.Aggregator, "write mark"}}},
	} {
		if c.marks == nil && !longtest.On { // the keys of tokens take seconds
			continue
		}
		var all []write
		bubble(t, name, func(t *testing.T) {
			g := run(t, c.make(t), nil)
			if g.released == 0 {
				t.Error("no answer was looked at")
			}
			for w := range g.seen {
				all = append(all, w)
			}
		})
		slices.SortFunc(all, func(a, b write) int { return strings.Compare(string(a.role)+a.op, string(b.role)+b.op) })
		for _, w := range all {
			if slices.Contains([]string{"acquire", "renew", "release"}, w.op) { // of leases, which others take over
				continue
			}
			if !longtest.On && !slices.Contains(c.marks, w) {
				continue
			}
			bubble(t, name+", "+string(w.role)+" "+w.op, func(t *testing.T) {
				if g := run(t, c.make(t), &w); g.failed == 0 {
					t.Logf("%v: it was not tried while it would have failed", w)
				}
			})
		}
	}
}
