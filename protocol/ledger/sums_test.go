package ledger

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
)

// Sums with noise of the aggregators are charged only where neither the task's budget nor the
// population's goes beyond the ε up to which their tails are known; and once they are charged,
// nothing else is charged to a larger budget.
func TestSumsOfAggregatorsHaveALargestBudget(t *testing.T) {
	sum := dp.Round{Report: dp.Report{Class: dp.GaussianSum, Sigma: 40}, Trust: dp.Distributed, Participation: dp.All, Population: 9, Reports: 9}
	limit := func(eps float64) Config {
		return Config{Accountant: new(account.Accountant), Delta: 1e-5, Tail: .25, MaxEps: eps}
	}
	at := func(task byte, round int64, ev dp.Round) Charge {
		c := charge(task, round, 1)
		c.Event = ev
		return c
	}
	for _, c := range []struct {
		population, task float64
		want             string
	}{
		{50, 50, ""}, {3, 2, ""}, {51, 50, "population"}, {50, 51, "task"}, {50, math.Inf(1), "task"}, {math.Inf(1), 2, "population"},
	} {
		s := &storage{}
		j, err := OpenJournal(t.Context(), s, s, people, limit(c.population))
		if err != nil {
			t.Fatal(err)
		}
		for task, eps := range map[byte]float64{1: c.task, 2: 1} {
			own := limit(eps)
			own.Tail = 1e-3
			if _, err := j.Task([32]byte{task}, own); err != nil {
				t.Fatal(err)
			}
		}
		err = j.Charge(t.Context(), at(1, 1, sum))
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrBudget) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "up to epsilon = 50")) {
			t.Errorf("%+v: %v", c, err)
		}
		if c.want != "" {
			continue
		}
		// A second task is counted as planned upon the first.
		other := dp.Round{Report: dp.Report{Class: dp.Gaussian, Sigma: 40}, Trust: dp.Distributed, Participation: dp.All, Population: 9, Reports: 9}
		if err := j.Charge(t.Context(), at(2, 1, other)); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		again, err := OpenJournal(t.Context(), s, s, people, limit(100))
		if err != nil {
			t.Fatal(err)
		}
		own := limit(1)
		own.Tail = 1e-3
		for _, task := range []byte{1, 2} {
			if _, err := again.Task([32]byte{task}, own); err != nil {
				t.Fatal(err)
			}
		}
		if err := again.Charge(t.Context(), at(2, 2, other)); !errors.Is(err, ErrBudget) || !strings.Contains(err.Error(), "the budget is 100") {
			t.Errorf("%+v: a larger budget afterwards: %v", c, err)
		}
	}
}
