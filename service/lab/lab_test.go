package lab_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/lab"
	"github.com/riffle-dp/riffle/service/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs a subtest in a bubble, where hours pass at once.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// check holds that the task has ended as it should, without any failure on the way.
func check(t *testing.T, l *lab.Lab, charges int) {
	t.Helper()
	s := ended(t, l, charges)
	if f := l.Fleet.Snapshot(); len(s.Rejected) != 0 || len(f.Declined) != 0 {
		t.Errorf("rejected %v; the clients: %+v", s.Rejected, f)
	}
}

// ended holds that the task has ended: each round was charged once and released, no batch was fetched before
// its charge, and no client found that something does not fit.
func ended(t *testing.T, l *lab.Lab, charges int) wire.Status {
	t.Helper()
	s := l.Await(func(s wire.Status) bool { return s.State != coordinator.Running })
	if s.State != coordinator.Done || s.Released != l.Task.Rounds || s.Failed+s.Void != 0 {
		t.Errorf("%+v", s)
	}
	if n := len(l.Disks[lab.Coordinator].Log); n != charges {
		t.Errorf("%d charges, want %d", n, charges)
	}
	charged := map[string]bool{}
	for _, b := range l.Disks[lab.Coordinator].Log {
		e, err := wire.Decode[wire.Entry](b)
		if err != nil {
			t.Fatal(err)
		}
		charged[fmt.Sprintf("%x", e.Announcement)] = true
	}
	for _, q := range l.Asked() {
		if name, rest, ok := strings.Cut(strings.TrimPrefix(q.Path, "/v1/rounds/"), "/chunks"); ok && rest != "" && q.Of == lab.Shuffler && l.Task.Participation != dp.Once && !charged[name] {
			t.Errorf("%s was fetched, and is not charged", q.Path)
		}
	}
	if f := l.Fleet.Snapshot().Compared; f.Missing+f.Unfit+f.Untold+f.Half != 0 {
		t.Errorf("the clients found %+v", f)
	}
	return s
}

// All roles together, in every trust: what clients send is shuffled, charged, opened and released.
func TestDeployments(t *testing.T) {
	sum := func(t *testing.T) func(*wire.Task) {
		m := lab.Sum(t, 8, 3, 2)
		return func(w *wire.Task) { w.Trust, w.Rounds, w.Mechanism = dp.Distributed, 2, m }
	}
	proved := func(t *testing.T) func(*wire.Task) {
		m := lab.Proved(t, 8, 2)
		return func(w *wire.Task) { w.Trust, w.Rounds, w.Mechanism = dp.Distributed, 2, m }
	}
	with := func(f func(*wire.Task)) func(*testing.T) func(*wire.Task) {
		return func(*testing.T) func(*wire.Task) { return f }
	}
	for name, c := range map[string]struct {
		lab.Config
		task    func(*testing.T) func(*wire.Task)
		charges int
	}{
		"shuffle":           {lab.Config{}, with(func(w *wire.Task) { w.Receipts = true }), 3},
		"shuffle, sampled":  {lab.Config{}, with(func(w *wire.Task) { w.Participation = dp.Sampled }), 3},
		"shuffle, messages": {lab.Config{}, with(func(w *wire.Task) { w.Messages = 2 }), 3},
		"once, relay":       {lab.Config{Relay: true}, with(func(w *wire.Task) { w.Participation, w.Rounds = dp.Once, 2 }), 1},
		"local, tokens":     {lab.Config{Tokens: true}, with(func(w *wire.Task) { w.Trust, w.Rounds = dp.Local, 2 }), 2},
		"registrar":         {lab.Config{Registrar: true, Relay: true}, with(func(w *wire.Task) { w.Rounds = 1 }), 1},
		"vector sum":        {lab.Config{}, sum, 2},
		"proofs":            {lab.Config{Relay: true}, proved, 2},
	} {
		bubble(t, name, func(t *testing.T) {
			c.Config.Task = c.task(t)
			check(t, lab.New(t, c.Config), c.charges)
		})
	}
}

// Every role is stopped and started again while clients report, one after the other.
func TestRestarts(t *testing.T) {
	all := []lab.Role{lab.Clients, lab.Shuffler, lab.Coordinator, lab.Relay, lab.Registrar}
	for name, c := range map[string]struct {
		lab.Config
		task  func(*testing.T, *wire.Task)
		roles []lab.Role
	}{
		"shuffle": {lab.Config{Relay: true, Registrar: true}, func(_ *testing.T, w *wire.Task) { w.Receipts = true }, all},
		"vector sum": {lab.Config{}, func(t *testing.T, w *wire.Task) {
			w.Trust, w.Mechanism = dp.Distributed, lab.Sum(t, 8, 3, 3)
		}, []lab.Role{lab.Aggregator, lab.Coordinator, lab.Shuffler}},
		"proofs": {lab.Config{}, func(t *testing.T, w *wire.Task) {
			w.Trust, w.Mechanism = dp.Distributed, lab.Proved(t, 8, 3)
		}, []lab.Role{lab.Clients, lab.Aggregator, lab.Coordinator}},
	} {
		bubble(t, name, func(t *testing.T) {
			c.Config.Task = func(w *wire.Task) { c.task(t, w) }
			l := lab.New(t, c.Config)
			for i, r := range c.roles {
				l.Await(func(s wire.Status) bool { return s.Phase == "collecting" && s.Round >= int64(i)/2 })
				time.Sleep(time.Duration(2+5*i) * time.Second) // some have reported
				l.Restart(r)
			}
			check(t, l, 3)
		})
	}
}

// Stores fail again and again, before or after they have written.
func TestStoresThatFail(t *testing.T) {
	bubble(t, "vector sum", func(t *testing.T) {
		m := lab.Sum(t, 8, 3, 3)
		l := lab.New(t, lab.Config{Registrar: true, Roles: []lab.Role{}, Task: func(w *wire.Task) { w.Trust, w.Mechanism, w.Receipts = dp.Distributed, m, true }})
		var failed atomic.Int64
		var failing atomic.Bool // a role that cannot start ends, and its supervisor starts it again
		for i, r := range []lab.Role{lab.Coordinator, lab.Shuffler, lab.Aggregator} {
			var mu sync.Mutex
			chance := rng.Replay(uint64(i))
			l.Do[r] = func(op string, f func() error) error {
				if !failing.Load() {
					return f()
				}
				mu.Lock()
				v := chance.Uint64() % 40
				mu.Unlock()
				switch v {
				case 0:
					failed.Add(1)
					return store.ErrUnavailable
				case 1:
					failed.Add(1)
					return errors.Join(f(), store.ErrUnavailable)
				}
				return f()
			}
		}
		for _, r := range []lab.Role{lab.Registrar, lab.Shuffler, lab.Aggregator, lab.Coordinator, lab.Clients} {
			l.Start(r)
		}
		l.Await(func(s wire.Status) bool { return s.Phase == "collecting" })
		failing.Store(true)
		ended(t, l, 3)
		if n := failed.Load(); n < 10 {
			t.Errorf("only %d operations failed", n)
		}
	})
}
