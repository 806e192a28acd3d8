package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
)

var shuffled = dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 2}, Trust: dp.Shuffle,
	Participation: dp.All, Population: 60000}

// One task's budget: a round is charged before any of its reports is opened.
func ExampleLedger() {
	config := ledger.Config{Accountant: new(account.Accountant), Delta: 1e-5, MaxEps: 0.1}
	l, err := ledger.New(config)
	if err != nil {
		fmt.Println(err)
		return
	}
	for round := int64(1); err == nil; round++ {
		err = l.Charge(context.Background(), ledger.Charge{Round: round, Event: shuffled})
	}
	spent, _ := l.Spent()
	fmt.Printf("%d rounds, epsilon %.3f, then refused: %t\n", len(l.Entries()), spent.Eps, errors.Is(err, ledger.ErrBudget))

	// What is stored are events; a restart counts them again.
	again, _ := ledger.New(config)
	fmt.Println(again.Restore(l.Entries()))
	// Output:
	// 6 rounds, epsilon 0.096, then refused: true
	// <nil>
}

// kept is a log and its mark in memory.
type kept struct {
	entries [][]byte
	mark    ledger.Mark
}

func (k *kept) Append(_ context.Context, after int64, data []byte) error {
	if int64(len(k.entries)) != after {
		return ledger.ErrConflict
	}
	k.entries = append(k.entries, data)
	return nil
}

func (k *kept) Read(context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, e := range k.entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (k *kept) Load() (ledger.Mark, error) { return k.mark, nil }

func (k *kept) Save(m ledger.Mark) error {
	k.mark = m
	return nil
}

// Two tasks of one population. Each entry names the one before by its digest. From the
// second task on all rounds are counted as if each had been chosen upon what was
// released before, which costs more.
func ExampleJournal() {
	budget := ledger.Config{Accountant: new(account.Accountant), Delta: 1e-5, MaxEps: 1}
	ctx, storage := context.Background(), &kept{}
	journal, err := ledger.OpenJournal(ctx, storage, storage, wire.ID{7}, budget)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, task := range []byte{1, 2} {
		id := [32]byte{task}
		l, err := journal.Task(id, budget)
		if err != nil {
			fmt.Println(err)
			return
		}
		if err := l.Charge(ctx, ledger.Charge{Task: id, Round: 1, Batch: [32]byte{9}, Event: shuffled}); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("task %d: epsilon %.3f of the population\n", task, storage.mark.Eps)
	}
	// Output:
	// task 1: epsilon 0.036 of the population
	// task 2: epsilon 0.090 of the population
}
