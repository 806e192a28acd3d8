package coordinator

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/store"
)

// With the tightest accountant a task says what its entries cost, and stops below
// its budget.
func TestRealAccountant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := new(account.Accountant)
		w := newWorld(t, dp.Shuffle, dp.All)
		w.config.Budget = ledger.Config{Accountant: a, Delta: 1e-6, MaxEps: 100}
		s := w.run()
		w.check(s)
		var events dp.Sequence
		m := w.disk.store(nil)
		b, err := ledger.Verify(t.Context(), onLedger{m}, w.disk.mark, w.task.Population)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range b.Entries() {
			events = append(events, e.Event)
		}
		want, err := a.Eps(events, 1e-6)
		if err != nil || float64(s.Eps) != want.Eps || s.Method != want.Method || s.Charged != 3 {
			t.Errorf("ε = %v by %s, want %v by %s (%v)", s.Eps, s.Method, want.Eps, want.Method, err)
		}
		show, err := ledger.Show(b, w.config.Budget, nil)
		if err != nil || show.Spent.Eps != want.Eps || show.Tasks[0].Spent.Eps != want.Eps {
			t.Errorf("%+v, %v", show, err)
		}
		w = newWorld(t, dp.Shuffle, dp.All)
		w.config.Budget = ledger.Config{Accountant: a, Delta: 1e-6, MaxEps: want.Eps * .9}
		if s := w.run(); s.State != Refused || s.Released != 2 || !(float64(s.Eps) <= want.Eps*.9) {
			t.Errorf("%+v", s)
		}
	})
}

// With a mark in a file: no ledger is made on the way, and a mark or a ledger that is
// missing or older stops the start.
func TestStoredLedger(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	db := memory.NewDisk()
	open := func(db *memory.Disk) (*ledger.Journal, error) {
		log, err := OpenLog(t.Context(), &memory.Store{Disk: db})
		if err != nil {
			return nil, err
		}
		return ledger.OpenJournal(t.Context(), log, MarkFile(mark), [16]byte{1}, limit(3))
	}
	if _, err := open(db); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("without a mark: %v", err)
	}
	if err := MarkFile(mark).Save(ledger.Mark{}); err != nil {
		t.Fatal(err)
	}
	j, err := open(db)
	if err != nil {
		t.Fatal(err)
	}
	l, err := j.Task([32]byte{1}, limit(3))
	if err != nil {
		t.Fatal(err)
	}
	event := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 1}, Trust: dp.Shuffle, Participation: dp.All, Population: 5}
	charge := func(l *ledger.TaskLedger, task [32]byte, round int64) error {
		return l.Charge(t.Context(), ledger.Charge{Task: task, Round: round, Announcement: [32]byte{1}, Batch: [32]byte{2}, Event: event})
	}
	for round := int64(1); round <= 2; round++ {
		if err := charge(l, [32]byte{1}, round); err != nil {
			t.Fatal(err)
		}
	}
	// Another process over the same ledger has written meanwhile.
	k, err := open(db)
	if err != nil {
		t.Fatal(err)
	}
	other, err := k.Task([32]byte{2}, limit(3))
	if err != nil {
		t.Fatal(err)
	}
	if err := charge(other, [32]byte{2}, 1); err != nil {
		t.Fatal(err)
	}
	if err := charge(l, [32]byte{1}, 3); !errors.Is(err, ledger.ErrBudget) {
		t.Errorf("over what both have charged: %v", err)
	}
	m, err := MarkFile(mark).Load()
	if err != nil || m.Entries != 3 || m.Eps != 3 {
		t.Errorf("%+v %v", m, err)
	}
	if _, err := open(memory.NewDisk()); !errors.Is(err, ledger.ErrMark) {
		t.Errorf("a fresh ledger under an old mark: %v", err)
	}
	if err := os.WriteFile(mark, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(db); err == nil {
		t.Error("with a broken mark")
	}
}

// Of a vector sum that relies on half of the clients, chance is credited among
// that half: the others may stay away from all rounds but one client's.
func TestChanceIsCreditedAmongHonestClientsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Distributed, dp.CheckIn, func(w *world) {
			w.n, w.task.MinReports = 12, 4
			p, err := vecsum.Tight(vecsum.Target{Eps: 5, Delta: 1e-6, Users: w.n, MinUsers: 4, Honest: .5, Dim: dim, Radius: 1})
			if err != nil {
				t.Fatal(err)
			}
			sigma, _, err := p.Sigma(t.Context(), w.task.Delta, w.task.Rounds)
			if err != nil {
				t.Fatal(err)
			}
			m, err := mechanism.NewVectorSum(p, sigma)
			if err != nil {
				t.Fatal(err)
			}
			w.task.Mechanism = m.Describe()
			w.present = func(_, client int64) bool { return client < 5 }
		})
		if s := w.run(); s.Released+s.Failed == 0 {
			t.Fatalf("%+v", s)
		}
		for _, b := range w.disk.Log {
			e, err := wire.Decode[wire.Entry](b)
			if err != nil {
				t.Fatal(err)
			}
			if e.Event.Population > 6 {
				t.Errorf("round %d is charged as %d of n = %d clients, of whom 6 are honest", e.Round, e.Event.Reports, e.Event.Population)
			}
		}
	})
}
