package coordinator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// back puts a copy of the coordinator's machine, store and mark, in its place.
func (s *system) back(copied string) {
	s.t.Helper()
	for _, name := range []string{"coordinator", "mark.json"} {
		if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
			s.t.Fatal(err)
		}
	}
	s.copyTo(copied, s.dir)
}

func (s *system) copyTo(from, to string) {
	s.t.Helper()
	if err := os.CopyFS(filepath.Join(to, "coordinator"), os.DirFS(filepath.Join(from, "coordinator"))); err != nil {
		s.t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(from, "mark.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(to, "mark.json"), b, 0o600)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// The coordinator's machine is restored from a copy, store and mark: the services refuse it, and
// nothing is opened that is not charged. Without announced heads nobody would notice.
func TestRestoredMachine(t *testing.T) {
	for _, tells := range []bool{true, false} {
		t.Run(fmt.Sprint(tells), func(t *testing.T) {
			s := newSystem(t, dp.Shuffle, dp.All, 20*time.Second, func(w *world) { w.task.Rounds = 6; w.tells = tells })
			copied := t.TempDir()
			s.serve(func(co *Service) { s.until(co.Handler(), 0, 2); s.released(co, 2) })
			s.copyTo(s.dir, copied)
			s.serve(func(co *Service) { s.until(co.Handler(), 2, 4); s.released(co, 4) })
			if s.late {
				t.Skip("clients were late")
			}
			s.back(copied)
			before := len(s.rounds)
			if !tells {
				s.serve(func(co *Service) {
					s.until(co.Handler(), 4, 6) // the shuffler has had rounds 3 and 4
					for !s.late && co.List()[0].Round < 6 {
						time.Sleep(time.Millisecond)
					}
				})
				if s.late {
					t.Skip("clients were late")
				}
				if n := s.charges(); len(s.rounds) <= n {
					t.Errorf("%d rounds were opened, %d charged: the attack of this test does not work any more", len(s.rounds), n)
				}
				return
			}
			err := s.served(func(co *Service) {
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for co.List()[0].Phase != "failed" {
						time.Sleep(time.Millisecond)
					}
				}()
				select {
				case <-ended:
				case <-time.After(2 * time.Minute):
					t.Error("it did not refuse to start")
				}
			})
			if !errors.Is(err, errFatal) || !strings.Contains(err.Error(), "the ledger has 2 entries, the shuffler was told of 4") {
				t.Errorf("it ended with %v", err)
			}
			if n := s.charges(); len(s.rounds) != before || n != 2 {
				t.Errorf("%d rounds were opened after the restore, %d are charged", len(s.rounds)-before, n)
			}
		})
	}
}

// released waits until so many rounds were released.
func (s *system) released(co *Service, n int64) {
	s.t.Helper()
	for range 120000 {
		if s.late || co.List()[0].Released >= n {
			return
		}
		time.Sleep(time.Millisecond)
	}
	s.t.Fatalf("round %d is not released: %+v", n, co.List()[0])
}

// charges counts the entries of the coordinator's ledger.
func (s *system) charges() (n int) {
	s.t.Helper()
	db := openStore(s.t.(*testing.T), filepath.Join(s.dir, "coordinator"), "coordinator")
	defer db.Close()
	j, err := OpenJournal(context.Background(), db, filepath.Join(s.dir, "mark.json"), s.task.Population, limit(1e9))
	if err != nil {
		s.t.Fatal(err)
	}
	j.View(func(b *ledger.Book) { n = int(b.Head().Entries) })
	return n
}

// The shuffler was told of a head that this ledger never had, further or not: the coordinator
// says which, and announces nothing. A shuffler that lies stops it, and no more.
func TestForeignHead(t *testing.T) {
	for _, c := range []struct {
		entries int64
		text    string
	}{{9, "the ledger has 2 entries, the shuffler was told of 9"}, {2, "entry 2 is not the one"}, {3, "the ledger has 2 entries, the shuffler was told of 3"}} {
		w := newWorld(t, dp.Shuffle, dp.All, small)
		w.tells = true
		w.check(w.run())
		opened := len(w.sh.Opened)
		w.sh.Tell(wire.Head{Entries: c.entries, Digest: [32]byte{5}})
		w.task.Name = "next" // another task of the population
		w.config.Signed = wire.Sign(w.key, wire.LabelTask, wire.Encode(w.task))
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case err = <-p.done:
		case <-time.After(2 * time.Minute):
			t.Fatal("it does not end")
		}
		if !errors.Is(err, errFatal) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v, want %s", err, c.text)
		}
		if len(w.sh.Opened) != opened || len(w.disk.entries) != 2 {
			t.Errorf("%d rounds were opened, %d charged", len(w.sh.Opened)-opened, len(w.disk.entries))
		}
	}
}

// Void rounds leave the head as it is.
func TestHeadOfVoidRounds(t *testing.T) {
	w := newWorld(t, dp.Shuffle, dp.All, small)
	w.tells = true
	w.present = func(round, _ int64) bool { return round != 2 }
	w.check(w.run())
	var heads []int64
	for _, a := range w.sh.Opened {
		heads = append(heads, a.Ledger.Entries)
	}
	if fmt.Sprint(heads) != "[0 1 1]" {
		t.Errorf("announced after %v entries, want [0 1 1]", heads)
	}
}

// tells has the coordinator announce its ledger's head.
func tells(w *world) { w.tells = true }
