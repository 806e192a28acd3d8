package client

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

var someCharge = dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 2, TV: .01}, Trust: dp.Shuffle, Participation: dp.All, Population: 100, Reports: 100}

// oracle is an accountant that says what it is told to.
type oracle struct {
	eps   func(ev dp.Event, delta float64) float64
	calls int
}

func (a *oracle) Eps(ev dp.Event, delta float64) (dp.Bound, error) {
	a.calls++
	return dp.Bound{Kind: dp.Upper, Guarantee: dp.Guarantee{Eps: a.eps(ev, delta), Delta: delta, Adjacency: dp.ReplaceOne}}, nil
}

// Each task is counted with its share of δ and up to a limit of its own.
func TestTasksShareDelta(t *testing.T) {
	charge := someCharge
	times := func(ev dp.Event, delta float64) float64 {
		var n int64
		for _, e := range ev.(dp.Sequence) {
			n += e.(dp.Repeat).Times
		}
		if delta > 1e-6/3 {
			t.Errorf("asked at delta = %v", delta)
		}
		return float64(n)
	}
	a := &oracle{eps: times}
	c := &Counter{Accountant: a}
	p := Policy{MaxEps0: 3, MaxEps: 9, MaxTaskEps: 3, Delta: 1e-6, MaxTasks: 3, MinReports: 1}.withDefaults()
	h := &History{}
	var causes []string
	for i := range 12 {
		terms := &Terms{ID: [32]byte{byte(i % 4)}, Charge: charge, Policy: p}
		if r := terms.Afford(h, c); r != nil {
			causes = append(causes, r.Detail[:min(20, len(r.Detail))])
			continue
		}
		h.Decide(terms.ID, int64(i+1), [32]byte{}).Charge(charge, 1, 0)
	}
	// Three reports each, however they interleave; the fourth task is one too many.
	var n []int64
	for _, s := range h.Tasks {
		n = append(n, s.Charges[0].Times)
	}
	if len(n) != 3 || n[0] != 3 || n[1] != 3 || n[2] != 3 {
		t.Errorf("tasks of %v reports, refused for %q", n, causes)
	}
	(&Terms{ID: [32]byte{0}, Charge: charge, Policy: p}).Afford(h, c)
	before := a.calls
	(&Terms{ID: [32]byte{0}, Charge: charge, Policy: p}).Afford(h, c)
	if a.calls != before {
		t.Error("a question was asked twice")
	}
	// Tails of a sum are taken off, and what leaves nothing is without a bound.
	s := &spentOn{Tail: 1e-6}
	s.Charge(charge, 1, 0)
	if eps, err := c.eps(s, 1e-6); err != nil || !math.IsInf(eps, 1) {
		t.Errorf("epsilon %v, %v without a delta", eps, err)
	}
	a.eps = func(dp.Event, float64) float64 { return math.NaN() }
	if r := (&Terms{ID: [32]byte{0}, Charge: dp.Round{Report: charge.Report, Population: 5}, Policy: p}).Afford(h, c); r == nil {
		t.Error("an epsilon that is no number was taken")
	}
}

// Who lowers the number of tasks has spent δ on those that were begun all the same.
func TestFewerTasksLeaveNoMoreDelta(t *testing.T) {
	charge := someCharge
	var least float64
	a := &oracle{eps: func(_ dp.Event, delta float64) float64 { least = min(least, delta); return 1 }}
	h := &History{}
	for task := range byte(5) {
		h.Decide([32]byte{task}, 1, [32]byte{}).Charge(charge, 1, 0)
	}
	p := Policy{MaxEps0: 3, MaxEps: 100, Delta: 1e-6, MaxTasks: 2, MinReports: 1}.withDefaults()
	least = 1
	(&Terms{ID: [32]byte{0}, Charge: charge, Policy: p}).Afford(h, &Counter{Accountant: a})
	if !(least <= 1e-6/5) {
		t.Errorf("five tasks were counted at delta = %v each, all have 1e-6", least)
	}
}

// A coordinator may end a task wherever that suits it and go on in another: what a
// task has left to spend is not another's.
func TestTasksDoNotLeaveTheirBudgetToOthers(t *testing.T) {
	charge := someCharge
	times := func(ev dp.Event, _ float64) float64 {
		var n int64
		for _, e := range ev.(dp.Sequence) {
			n += e.(dp.Repeat).Times
		}
		return float64(n)
	}
	for _, limit := range []float64{0, 4, 6, 9} {
		p := Policy{MaxEps0: 3, MaxEps: 10, MaxTaskEps: limit, Delta: 1e-6, MaxTasks: 4, MinReports: 1}.withDefaults()
		c, h := &Counter{Accountant: &oracle{eps: times}}, &History{}
		for task := range byte(4) {
			for round := int64(1); round <= 1+int64(task)*20; round++ { // the first has one report only
				terms := &Terms{ID: [32]byte{task}, Charge: charge, Policy: p}
				if terms.Afford(h, c) == nil {
					h.Decide(terms.ID, round, [32]byte{}).Charge(charge, 1, 0)
				}
			}
		}
		if n := float64(len(h.Tasks)) * p.MaxTaskEps; n > p.MaxEps {
			t.Errorf("%d tasks of %v each were begun, all may cost %v", len(h.Tasks), p.MaxTaskEps, p.MaxEps)
		}
		for _, s := range h.Tasks {
			if eps, _ := c.eps(s, 1); eps > p.MaxTaskEps {
				t.Errorf("a task cost %v, limit %v", eps, p.MaxTaskEps)
			}
		}
	}
}
