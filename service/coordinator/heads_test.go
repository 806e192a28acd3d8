package coordinator

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// The coordinator's machine is restored from a copy, store and mark: the services refuse it, and
// nothing is opened that is not charged. Without announced heads nobody would notice.
func TestRestoredMachine(t *testing.T) {
	for _, tells := range []bool{true, false} {
		bubble(t, fmt.Sprint(tells), func(t *testing.T) {
			s := newSystem(t, dp.Shuffle, dp.All, func(w *world) { w.task.Rounds = 6; w.tells = tells })
			released := func(co *Service, n int64) {
				until(t, func() bool { return co.List()[0].Released >= n })
			}
			s.serve(func(co *Service) { s.run(co.Handler(), 0, 2); released(co, 2) })
			copied, mark := s.disk.Copy(), s.disk.mark
			s.serve(func(co *Service) { s.run(co.Handler(), 2, 4); released(co, 4) })
			s.disk.Disk, s.disk.mark = copied, mark
			clear(s.disk.releases)
			before := len(s.rounds)
			if !tells {
				s.serve(func(co *Service) {
					s.run(co.Handler(), 5, 6) // the shuffler has had rounds 3 to 5
					until(t, func() bool { return co.List()[0].Round >= 6 })
				})
				if n := len(s.disk.Log); len(s.rounds) <= n {
					t.Errorf("%d rounds were opened, %d charged: the attack of this test does not work any more", len(s.rounds), n)
				}
				return
			}
			err := s.served(func(co *Service) {
				if err := co.CompareLedger(t.Context(), s.task.Population); !errors.Is(err, ErrFatal) { // before any task is loaded
					t.Errorf("at the start: %v", err)
				}
				until(t, func() bool { return co.List()[0].Phase == "failed" })
			})
			if !errors.Is(err, ErrFatal) || !strings.Contains(err.Error(), "the ledger has 2 entries, the shuffler was told of 4") {
				t.Errorf("it ended with %v", err)
			}
			if n := len(s.disk.Log); len(s.rounds) != before || n != 2 {
				t.Errorf("%d rounds were opened after the restore, %d are charged", len(s.rounds)-before, n)
			}
		})
	}
}

// The shuffler was told of a head that this ledger never had, further or not: the coordinator
// says which, and announces nothing. A shuffler that lies stops it, and no more.
func TestForeignHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
			if err = <-p.done; !errors.Is(err, ErrFatal) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, want %s", err, c.text)
			}
			if len(w.sh.Opened) != opened || len(w.disk.Log) != 2 {
				t.Errorf("%d rounds were opened, %d charged", len(w.sh.Opened)-opened, len(w.disk.Log))
			}
		}
	})
}

// Void rounds leave the head as it is.
func TestHeadOfVoidRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// tells has the coordinator announce its ledger's head.
func tells(w *world) { w.tells = true }
