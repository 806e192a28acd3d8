package ledger

import (
	"bytes"
	"context"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Statement is the sum of a population's book, or of one of its tasks by itself.
type Statement struct {
	Population wire.ID
	Task       [32]byte // zero for the whole book
	Entries    int64
	Last       int64       // the last charged round of the task; 0 for the whole book
	Digest     [32]byte    // digest of the last entry of the book; zero for a task
	Spent      dp.Bound    // over all tasks together, or of the task alone
	Tasks      []Statement // in the order of their ids; nil for a task
}

// Show adds up a book. It computes the cost of all tasks with the budget population, and each
// task's own cost with its Config in tasks, or with population if it has none. Tasks come in
// the order of their ids. Show reports costs above a budget and does not refuse them. If there
// are several tasks, the population's budget chooses how they are counted.
func Show(b *Book, population Config, tasks map[[32]byte]Config) (Statement, error) {
	s := Statement{Population: b.population}
	s.Entries, s.Digest = b.tip()
	if err := population.check(); err != nil {
		return Statement{}, err
	}
	var err error
	with := Book{tasks: map[[32]byte]*taskBook{}, total: &total{counter: counter{config: population, history: b.total.history}, several: b.total.several}}
	for task, a := range b.tasks {
		with.tasks[task] = &taskBook{Ledger: a.Ledger}
	}
	if s.Spent, err = with.Spent(); err != nil {
		return Statement{}, err
	}
	for task, a := range b.tasks {
		c, ok := tasks[task]
		if !ok {
			c = population
		}
		t := Statement{Population: b.population, Task: task, Entries: int64(len(a.entries)), Last: a.last.Round}
		if err := c.check(); err != nil {
			return Statement{}, err
		}
		own := Ledger{counter: counter{config: c, history: a.history}}
		if t.Spent, err = own.Spent(); err != nil {
			return Statement{}, err
		}
		s.Tasks = append(s.Tasks, t)
	}
	slices.SortFunc(s.Tasks, func(x, y Statement) int { return bytes.Compare(x.Task[:], y.Task[:]) })
	return s, nil
}

// Verify checks the chain of a log and compares it with its mark. It needs no budget and
// computes no cost; the returned book can be shown, not charged.
func Verify(ctx context.Context, log Log, m Mark, p wire.ID) (*Book, error) {
	b := &Book{population: p, total: &total{counter: counter{config: Config{MaxEps: math.Inf(1)}}}, tasks: map[[32]byte]*taskBook{}}
	return b, b.read(ctx, log, m)
}
