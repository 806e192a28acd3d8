package operate

import (
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/store"
)

// sharing returns n coordinators on one store, of a population whose budget is at
// δ = 1e-5.
func sharing(t *testing.T, n int) []*coordinatorProcess {
	t.Helper()
	c := store.Config{Domain: RoleCoordinator, Dir: filepath.Join(t.TempDir(), "data")}
	if err := store.Init(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	mark := filepath.Join(t.TempDir(), "mark")
	if err := coordinator.MarkFile(mark).Save(ledger.Mark{}); err != nil {
		t.Fatal(err)
	}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out []*coordinatorProcess
	for range n {
		r := &coordinatorProcess{store: s, population: wire.ID{7}, known: map[string]bool{}, tasks: map[[32]byte]*train.Setup{}}
		r.config.Holder, r.config.Mark, r.own.Key = "test", mark, key
		r.config.Budget.Epsilon, r.config.Budget.Delta = 10, 1e-5
		if r.journal, err = coordinator.OpenJournal(t.Context(), s, mark, r.population, populationLimit(r.config)); err != nil {
			t.Fatal(err)
		}
		r.journal.Lookup = r.lookup
		out = append(out, r)
	}
	return out
}

func sumTask(t *testing.T, name string, delta float64) *train.Setup {
	t.Helper()
	table := filepath.Join(t.TempDir(), "table.csv")
	if err := os.WriteFile(table, []byte("x,label\n"+strings.Repeat("1,no\n0,yes\n", 600)), 0o600); err != nil {
		t.Fatal(err)
	}
	c := train.Default()
	c.Data, c.Label, c.Trust, c.Participation, c.Model, c.Rounds, c.Epsilon, c.Delta = table, "label", "vector-sum", "all", "linear", 2, 1, delta
	task, err := train.NewTask(t.Context(), name, c, train.Enrolled{Population: wire.ID{7}, Clients: 1000, MinReports: 2})
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// Of sums that two coordinators create at the same time no more are taken than the
// population has δ for, though neither has learned of the other's.
func TestTasksAreEnteredOneAtATime(t *testing.T) {
	embedded(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	rs := sharing(t, 2)
	const each = 6e-5 // 16 times the population's delta, 1.6e-4, holds two of them
	tasks := []*train.Setup{sumTask(t, "a", each), sumTask(t, "b", each), sumTask(t, "c", each), sumTask(t, "d", each)}
	enter := func(ctx context.Context, r *coordinatorProcess, task *train.Setup) error {
		made := created{Signed: wire.Sign(r.own.Key, wire.LabelTask, wire.Encode(task.Wire)), Round: time.Second}
		return r.storeTask(ctx, wire.Digest(task.Wire), task.Limit, made)
	}
	// While another enters one, nobody does.
	lease, _, err := rs[0].store.Acquire(ctx, "create", "another", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	short, done := context.WithTimeout(ctx, 2*time.Second) // time to see who holds it
	defer done()
	if err := enter(short, rs[1], tasks[0]); !errors.Is(err, store.ErrHeld) {
		t.Errorf("beside another: %v", err)
	}
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
	results := make([]error, len(tasks))
	var wg sync.WaitGroup
	for i, task := range tasks {
		wg.Go(func() { results[i] = enter(ctx, rs[i%2], task) })
	}
	wg.Wait()
	taken := 0
	for i, err := range results {
		switch {
		case err == nil:
			taken++
		case !errors.Is(err, ledger.ErrBudget):
			t.Errorf("task %d: %v", i, err)
		}
	}
	keys, err := rs[0].store.List(ctx, store.Values, "created.")
	if err != nil || len(keys) != 2 || taken != 2 {
		t.Errorf("%d tasks are taken and %d written down, want 2 (%v)", taken, len(keys), err)
	}
	// The same once more is none, and leaves the lease free.
	for i, err := range results {
		if err != nil {
			continue
		}
		if err := enter(ctx, rs[(i+1)%2], tasks[i]); !errors.Is(err, train.ErrInput) {
			t.Errorf("a task again: %v", err)
		}
	}
}

// The operator API names the mode of trust that a task was created with. Its description on
// the wire has the recorded one, which is shown of a task that this process has not read.
func TestAPINamesTheChosenTrust(t *testing.T) {
	embedded(t)
	r := &coordinatorProcess{tasks: map[[32]byte]*train.Setup{}}
	task := sumTask(t, "a", 4e-6)
	s := wire.Status{Task: task.Wire, ID: wire.Digest(task.Wire)}
	if got := r.message(s); got.Trust != "distributed" || got.LargestReport != 0 {
		t.Errorf("unread: trust %q, largest report %v", got.Trust, got.LargestReport)
	}
	read, err := train.ReadTask(task.Wire)
	if err != nil {
		t.Fatal(err)
	}
	r.remember(read)
	if got := r.message(s); got.Trust != "vector-sum" || got.LargestReport != 0 {
		t.Errorf("without data: trust %q, largest report %v", got.Trust, got.LargestReport)
	}
	r.remember(task)
	if got := r.message(s); got.Trust != "vector-sum" || got.Participation != "all" || got.NMin != task.Wire.MinReports || !(got.LargestReport > 0) {
		t.Errorf("%v", got)
	}
}

// The operator API tells the ε₀ that a report is charged with beside the asked one, and of
// seeds only how many of them a client is taken to try.
func TestAPITellsWhatAReportIs(t *testing.T) {
	for _, encoding := range []string{randomizer.Seed, randomizer.Values} {
		made := labelledIn(t, false, encoding)
		id := wire.Digest(made.Wire)
		r := &coordinatorProcess{tasks: map[[32]byte]*train.Setup{id: made}}
		got := r.message(wire.Status{Task: made.Wire, ID: id})
		one, _ := made.LocalEps()
		if got.Eps0 != one || !(one > 1) || got.Eps0Asked != 1 || !(got.LargestReport > 0) {
			t.Errorf("%s: %v asked, %v charged, want %v; largest report %v", encoding, got.Eps0Asked, got.Eps0, one, got.LargestReport)
		}
		if want := map[string]int64{randomizer.Seed: 1 << randomizer.TriesExponent}[encoding]; got.LargestReportTries != want {
			t.Errorf("%s: %d seeds are tried, want %d", encoding, got.LargestReportTries, want)
		}
	}
}

// A budget is looked up of what this operator has signed, and of nothing else.
func TestLookup(t *testing.T) {
	embedded(t)
	r := sharing(t, 1)[0]
	task := sumTask(t, "a", 4e-6)
	id := wire.Digest(task.Wire)
	if _, ok, err := r.lookup(t.Context(), id); ok || err != nil {
		t.Errorf("of no task: %v, %v", ok, err)
	}
	signed := wire.Sign(r.own.Key, wire.LabelTask, wire.Encode(task.Wire))
	_, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		id    [32]byte
		value []byte
	}{
		"another's signature": {[32]byte{1}, created{Signed: wire.Sign(other, wire.LabelTask, wire.Encode(task.Wire))}.encode()},
		"another task":        {[32]byte{2}, created{Signed: signed}.encode()},
		"no record":           {[32]byte{3}, []byte("{}")},
	} {
		if _, err := r.store.Put(t.Context(), createdKey(c.id), c.value, 0); err != nil {
			t.Fatal(err)
		}
		if _, ok, err := r.lookup(t.Context(), c.id); ok || err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := r.store.Put(t.Context(), createdKey(id), created{Signed: signed}.encode(), 0); err != nil {
		t.Fatal(err)
	}
	limit, ok, err := r.lookup(t.Context(), id)
	want := task.Limit
	if err != nil || !ok || limit.Tail != want.Tail || limit.Delta != want.Delta || !(limit.Tail > 0) {
		t.Errorf("%+v, %v, %v; want the tail of %+v", limit, ok, err, want)
	}
}
