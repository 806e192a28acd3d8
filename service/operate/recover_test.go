package operate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/store"
)

// charged returns a coordinator's configuration whose ledger has three entries, and its heads after each.
func charged(t *testing.T) (path string, c config.Coordinator, heads []wire.Head) {
	t.Helper()
	l := Loopback{Dir: filepath.Join(t.TempDir(), "deployment"), Clients: 4, Processes: 1, MinReports: 2, Suite: wire.X25519, Epsilon: 10, Delta: 1e-5, Data: "mnist"}
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	path = l.Config(RoleCoordinator)
	c, err := config.Load[config.Coordinator](path)
	if err != nil {
		t.Fatal(err)
	}
	s, err := openStore(t.Context(), c.Store)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	j, err := coordinator.OpenJournal(t.Context(), s, c.Mark, c.ID, populationLimit(c))
	if err != nil {
		t.Fatal(err)
	}
	task := [32]byte{1}
	if _, err := j.Task(task, populationLimit(c)); err != nil {
		t.Fatal(err)
	}
	heads = append(heads, wire.Head{})
	event := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: .1}, Trust: dp.Shuffle, Participation: dp.All, Reports: 100, Population: 100}
	for round := int64(1); round <= 3; round++ {
		if err := j.Charge(t.Context(), ledger.Charge{Task: task, Round: round, Announcement: [32]byte{byte(round)}, Batch: [32]byte{9}, Event: event}); err != nil {
			t.Fatal(err)
		}
		j.View(func(b *ledger.Book) { heads = append(heads, b.Head()) })
	}
	return path, c, heads
}

// A lost mark is made again if the ledger has all that others were told of, and not of an old copy.
func TestRecoverMark(t *testing.T) {
	embedded(t)
	_, c, heads := charged(t)
	public := make([]byte, 32)
	again := func(told wire.Head, clients ...wire.Head) error {
		_, err := recoverMark(t.Context(), c, public, told, clients)
		return err
	}
	if err := again(heads[3]); !errors.Is(err, config.ErrInvalid) {
		t.Errorf("nothing is missing: %v", err)
	}
	whole, err := coordinator.MarkFile(c.Mark).Load()
	if err != nil || whole.Entries != 3 {
		t.Fatal(whole, err)
	}
	for _, name := range []string{c.Mark, string(promisesOf(c))} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	further, other := wire.Head{Entries: 4, Digest: [32]byte{4}}, wire.Head{Entries: 2, Digest: [32]byte{2}}
	for name, err := range map[string]error{"the shuffler knows more": again(further), "the shuffler knows another": again(other), "the shuffler knows nothing": again(wire.Head{}),
		"a client knows more": again(heads[3], heads[1], further), "a client knows another": again(heads[2], other)} {
		if !errors.Is(err, ledger.ErrMark) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := coordinator.MarkFile(c.Mark).Load(); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a mark was made: %v", err)
	}
	if err := again(heads[2], heads[3], heads[1]); err != nil {
		t.Fatal(err)
	}
	if m, err := coordinator.MarkFile(c.Mark).Load(); err != nil || m != whole {
		t.Errorf("%+v, want %+v: %v", m, whole, err)
	}
	if err := os.Remove(string(promisesOf(c))); err != nil {
		t.Fatal(err)
	}
	if err := again(heads[3]); err != nil {
		t.Errorf("promises alone: %v", err)
	}
	if _, err := promisesOf(c).Load(); err != nil {
		t.Error(err)
	}
}

// A mark that lags is told by verify, fsck and --check, and by nothing when it was written again.
func TestLaggingMarkIsTold(t *testing.T) {
	embedded(t)
	path, c, heads := charged(t)
	told := func() []string {
		t.Helper()
		var all []string
		r, err := ReadLedger(t.Context(), path, false)
		if r == nil || r.Entries != 3 {
			t.Fatal(r, err)
		}
		if err != nil {
			all = append(all, "verify: "+err.Error())
		}
		checked, err := Check(t.Context(), RoleCoordinator, path)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range checked.Problems {
			if p.Where == "ledger" && !strings.Contains(p.What, "does not know it") { // there is no such task
				all = append(all, "fsck: "+p.What)
			}
		}
		list, err := Inspect(t.Context(), RoleCoordinator, path, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			if f.What == "mark" && f.Error+f.Note != "" {
				all = append(all, "check: "+f.Error+f.Note)
			}
		}
		return all
	}
	if all := told(); len(all) != 0 {
		t.Errorf("%q", all)
	}
	if err := os.Remove(c.Mark); err != nil {
		t.Fatal(err)
	}
	if err := coordinator.MarkFile(c.Mark).Save(ledger.Mark{Entries: 1, Digest: heads[1].Digest}); err != nil {
		t.Fatal(err)
	}
	all := told()
	for _, text := range all {
		if !strings.Contains(text, "the high-water mark lags: it is at entry 1 of 3") {
			t.Error(text)
		}
	}
	if len(all) != 3 {
		t.Errorf("%q", all)
	}
}

// Of two that make a coordinator, or its clients, at the same time one does.
func TestInitIsOnes(t *testing.T) {
	embedded(t)
	l := Loopback{Dir: filepath.Join(t.TempDir(), "deployment"), Clients: 4, Processes: 1, MinReports: 2, Suite: wire.X25519, Epsilon: 10, Delta: 1e-5, Data: "mnist"}
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := l.Config(RoleCoordinator)
	c, err := config.Load[config.Coordinator](path)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := errors.Join(os.RemoveAll(c.Store.Dir), os.RemoveAll(c.Mark), os.RemoveAll(string(promisesOf(c)))); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		errs := make([]error, 3)
		for i := range errs {
			wg.Go(func() { errs[i] = Init(context.Background(), RoleCoordinator, path) })
		}
		wg.Wait()
		made := 0
		for _, err := range errs {
			switch {
			case err == nil:
				made++
			case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrLocked):
				t.Error(err)
			}
		}
		if made > 1 {
			t.Errorf("%d made it", made)
		}
		if made == 0 { // each was in the other's way; the next one makes it
			if err := Init(t.Context(), RoleCoordinator, path); err != nil {
				t.Error(err)
			}
		}
	}
}
