package ledger

import (
	"errors"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
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
			look, _, err := b.Prospect(task, budget(own))
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

// A task is told how many like it find room for their tails beside it, until one finds none.
func TestProspectCountsTails(t *testing.T) {
	kept := budget(100)
	kept.Tail = 16e-3
	b, err := newBook(people, kept)
	if err != nil {
		t.Fatal(err)
	}
	own := budget(1)
	own.Tail = 1e-3
	for id := range byte(17) {
		_, more, err := b.Prospect([32]byte{id}, own)
		if want := 15 - int64(id); more != max(0, want) || want < 0 != errors.Is(err, ErrBudget) {
			t.Errorf("after %d tasks: %d more, %v", id, more, err)
		}
		if err := b.setTask([32]byte{id}, own); err != nil {
			t.Fatal(err)
		}
	}
	lost := &taskBook{last: wire.Entry{Event: dp.Round{Trust: dp.Distributed}}} // a sum whose budget is not known any more
	lost.entries = []Entry{{}}
	b.tasks[[32]byte{98}] = lost
	if _, _, err := b.Prospect([32]byte{97}, own); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("beside a tail that is not known: %v", err)
	}
	if _, more, err := b.Prospect([32]byte{99}, budget(1)); more != 0 || err != nil {
		t.Errorf("without a tail: %d, %v", more, err)
	}
}
