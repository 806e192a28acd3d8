package account

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/ledger"
	"github.com/riffle-dp/riffle/rdp"
)

// checkedIn is round i of a check-in whose numbers of reports vary.
func checkedIn(i int) dp.Round {
	return dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 2}, Trust: dp.Shuffle, Participation: dp.CheckIn,
		Population: 60000, Reports: 10000 + int64(i*7919%601) - 300, Realised: true}
}

// The odometer says what the accountant says, and a bad round leaves no trace.
func TestOdometerIsTheAccountant(t *testing.T) {
	a := New()
	o := a.Odometer()
	if b, err := o.Eps(1e-6); err != nil || b.Eps != 0 {
		t.Errorf("nothing happened: %+v, %v", b, err)
	}
	var seq dp.Sequence
	for i := range 40 {
		seq = append(seq, checkedIn(i))
		if err := o.Add(checkedIn(i)); err != nil {
			t.Fatal(err)
		}
		if err := o.Add(dp.Round{}); err == nil {
			t.Fatal("a round without a report was added")
		}
		if i%13 != 3 {
			continue
		}
		want, err := New().Eps(seq, 1e-6)
		if err != nil {
			t.Fatal(err)
		}
		got, err := o.Eps(1e-6)
		if err != nil || got.Eps != want.Eps || o.Rounds() != int64(len(seq)) {
			t.Errorf("after %d rounds: %v, %v; the accountant says %v", i+1, got, err, want)
		}
	}
}

// A filter stops within its budget and not long before; a refusal is no charge.
func TestFilterKeepsItsBudget(t *testing.T) {
	for _, order := range []float64{0, 130} {
		const delta, budget = 1e-6, .25
		a := New()
		f, err := NewFilter(FilterConfig{Accountant: a, Delta: delta, MaxEps: budget, Order: order})
		if err != nil {
			t.Fatal(err)
		}
		o := a.Odometer()
		refused := 0
		var at int
		for i := 0; refused < 3; i++ {
			_, err := f.Charge(checkedIn(i))
			switch {
			case err == nil && refused == 0:
				at++
				if err := o.Add(checkedIn(i)); err != nil {
					t.Fatal(err)
				}
			case errors.Is(err, ledger.ErrBudget):
				refused++
			default:
				t.Fatalf("order %v, round %d: %v after %d refusals", order, i, err, refused)
			}
		}
		b, err := o.Eps(delta)
		if err != nil {
			t.Fatal(err)
		}
		if f.Spent().Eps > budget || b.Eps > f.Spent().Eps*1.0001 || f.Spent().Eps < .9*budget {
			t.Errorf("order %v: %d rounds, filter %v, odometer %v, budget %v", order, at, f.Spent().Eps, b.Eps, budget)
		}
		t.Logf("order %v: %d rounds, spent %.4f of %v; the odometer says %.4f", order, at, f.Spent().Eps, budget, b.Eps)
		if order > 0 {
			// By hand.
			var sum float64
			for i := range at {
				p, err := shapeOf(checkedIn(i)).pair(blanket)
				if err != nil {
					t.Fatal(err)
				}
				sum += rdp.Divergence(p, order)
			}
			if eps := rdp.Epsilon(order, sum, delta); math.Abs(eps-f.Spent().Eps) > 1e-3*eps {
				t.Errorf("by hand %v, the filter says %v", eps, f.Spent().Eps)
			}
		}
	}
	for _, c := range []FilterConfig{
		{Delta: 1e-6, MaxEps: 1}, {Accountant: New(), MaxEps: 1}, {Accountant: New(), Delta: 1e-6}, {Accountant: New(), Delta: 1e-6, MaxEps: math.NaN()},
		{Accountant: New(), Delta: 1e-6, MaxEps: 1, Order: 1}, {Accountant: New(), Delta: 1e-6, MaxEps: 1, Order: math.Inf(1)},
	} {
		if _, err := NewFilter(c); err == nil {
			t.Errorf("%+v accepted", c)
		}
	}
}

func BenchmarkOdometer(b *testing.B) {
	const rounds = 10000
	fill := func(o *Odometer) {
		for i := range rounds {
			if err := o.Add(checkedIn(i)); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("add 10000", func(b *testing.B) {
		for b.Loop() {
			fill(New().Odometer())
		}
	})
	b.Run("first question at 10000", func(b *testing.B) {
		for b.Loop() {
			o := New().Odometer()
			fill(o)
			if _, err := o.Eps(1e-5); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("add and ask at 10000", func(b *testing.B) {
		o := New().Odometer()
		fill(o)
		if _, err := o.Eps(1e-5); err != nil {
			b.Fatal(err)
		}
		for i := 0; b.Loop(); i++ {
			if err := o.Add(checkedIn(i)); err != nil {
				b.Fatal(err)
			}
			if _, err := o.Eps(1e-5); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("adaptive filter", func(b *testing.B) {
		f, err := NewFilter(FilterConfig{Accountant: New(), Delta: 1e-5, MaxEps: 1e9, Order: 20})
		if err != nil {
			b.Fatal(err)
		}
		for i := 0; b.Loop(); i++ {
			if _, err := f.Charge(checkedIn(i)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Losses too far to be counted and Rényi divergences have budgets of their own:
// an adaptive choice between them may not spend δ twice.
func TestAdaptiveFilterKeepsDroppedMassApart(t *testing.T) {
	f, err := NewFilter(FilterConfig{Accountant: New(), Delta: 7.40807e-7, MaxEps: 2.8904, Order: 10})
	if err != nil {
		t.Fatal(err)
	}
	first := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 13.7102}, Trust: dp.Shuffle, Participation: dp.Sampled, Population: 100000, Reports: 1}
	if _, err := f.Charge(first); err != nil {
		t.Fatal(err)
	}
	far := dp.Round{Report: dp.Report{Class: dp.Gaussian, Sigma: .01}, Trust: dp.Distributed, Participation: dp.Sampled, Population: 1353846, Reports: 1}
	if _, err := f.Charge(far); !errors.Is(err, ledger.ErrBudget) {
		t.Errorf("a round whose pair leaves out nearly all of delta: %v", err)
	}
}
