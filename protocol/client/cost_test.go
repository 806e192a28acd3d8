package client

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
)

// What a history has cost is what Afford holds against the policy: one task's own cost, of several the
// most that each may cost.
func TestCostIsWhatThePolicyCounts(t *testing.T) {
	c := &Counter{Accountant: new(account.Accountant)}
	round := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 1}, Trust: dp.Shuffle, Participation: dp.All, Population: 1000, Reports: 1000}
	p := Policy{MaxEps0: 1, MaxEps: 4, MaxTaskEps: 2, Delta: 1e-5, MaxTasks: 2, MinReports: 1000}
	h := &History{}
	if got, err := p.Cost(h, c); err != nil || got != (Cost{}) {
		t.Errorf("nothing costs %+v, %v", got, err)
	}
	h.Decide([32]byte{1}, 3, [32]byte{}).Charge(round, 3, 0)
	bound, err := c.Accountant.Eps(dp.Sequence{dp.Repeat{Event: round, Times: 3}}, p.Delta/2*(1-0x1p-50))
	if err != nil {
		t.Fatal(err)
	}
	got, err := p.Cost(h, c)
	if err != nil || got.Eps != bound.Eps || got.LocalEps < 3 || got.LocalEps > 3.001 || got.Messages != 3 || got.Tasks != 1 {
		t.Errorf("three reports cost %+v, %v, want ε %v", got, err, bound.Eps)
	}
	h.Decide([32]byte{2}, 1, [32]byte{}).Charge(round, 1, 0)
	if got, err := p.Cost(h, c); err != nil || got.Eps < 4 || got.Eps > 4.001 || got.Messages != 4 || got.Tasks != 2 {
		t.Errorf("two tasks cost %+v, %v", got, err)
	}
	h.Decide([32]byte{3}, 1, [32]byte{}).Charge(round, 1, 1) // its tail uses up δ
	if got, err := p.Cost(h, c); err != nil || !math.IsInf(got.Eps, 1) {
		t.Errorf("a task without δ costs %+v, %v", got, err)
	}
	if a, b := upSum(1, 0x1p-60), upSum(0, 1); a <= 1 || b != 1 {
		t.Errorf("sums %v, %v", a, b)
	}
}
