package ledger

import (
	"errors"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// What fits is what can be charged one by one, alone and beside another task.
func TestProspectIsWhatCanBeCharged(t *testing.T) {
	event := dp.Round{Trust: dp.Shuffle, Participation: dp.All, Population: 1000, Reports: 1000, Report: dp.Report{Class: dp.Generic, Eps0: .25}}
	for _, own := range []float64{0.9, 3, 1e9} {
		for before := range int64(2) {
			b, err := newBook(people, Config{Accountant: watched{&[]question{}}, Delta: 1e-5, MaxEps: 6})
			if err != nil {
				t.Fatal(err)
			}
			first, task := [32]byte{1}, [32]byte{2}
			charge := func(task [32]byte, round int64) error {
				e, _, err := b.next(Charge{Task: task, Round: round, Event: event})
				if err == nil {
					err = b.apply(e)
				}
				return err
			}
			if err := b.setTask(first, budget(5)); err != nil {
				t.Fatal(err)
			}
			for i := range before {
				if err := charge(first, i+1); err != nil {
					t.Fatal(err)
				}
			}
			look, err := b.Prospect(task, budget(own))
			if err != nil {
				t.Fatal(err)
			}
			n, next := look(Entry{Event: event}, 1000)
			if few, err := look(Entry{Event: event}, min(n, 2)); few != min(n, 2) || err != nil {
				t.Errorf("of at most %d: %d, %v", min(n, 2), few, err)
			}
			if err := b.setTask(task, budget(own)); err != nil {
				t.Fatal(err)
			}
			var done int64
			for err = nil; err == nil && done < 1000; {
				if err = charge(task, done+1); err == nil {
					done++
				}
			}
			if done != n || !errors.Is(err, ErrBudget) || !errors.Is(next, ErrBudget) {
				t.Errorf("own budget %v, %d charges before: %d were charged (%v), %d fit (%v)", own, before, done, err, n, next)
			}
		}
	}
}
