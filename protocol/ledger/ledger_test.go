package ledger

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// flat charges a fixed ε for every round, and fails for events it is told to.
type flat struct {
	perRound float64
	nan      bool
}

func (f flat) Eps(ev dp.Event, delta float64) (dp.Bound, error) {
	var rounds int64
	for _, e := range ev.(dp.Sequence) {
		rounds += e.(dp.Repeat).Times
	}
	eps := f.perRound * float64(rounds)
	if f.nan {
		eps = math.NaN()
	}
	return dp.Bound{Guarantee: dp.Guarantee{Eps: eps, Delta: delta}}, nil
}

func round(k int64) dp.Round {
	return dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 1}, Trust: dp.Shuffle,
		Participation: dp.Sampled, Population: 100, Reports: k, Least: k}
}

func newLedger(t *testing.T, c Config) *Ledger {
	t.Helper()
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestChargeRefusesAboveBudgetAndRecordsNothing(t *testing.T) {
	l := newLedger(t, Config{Accountant: flat{perRound: 1}, Delta: 1e-5, MaxEps: 3})
	for r := int64(1); r <= 3; r++ {
		if err := l.Charge(t.Context(), Charge{Round: r, Event: round(10 + r%2)}); err != nil {
			t.Fatalf("round %d: %v", r, err)
		}
	}
	for range 2 { // a refusal changes nothing, so it repeats
		if err := l.Charge(t.Context(), Charge{Round: 4, Event: round(10)}); !errors.Is(err, ErrBudget) {
			t.Fatalf("fourth round of three: %v", err)
		}
	}
	if got := len(l.Entries()); got != 3 {
		t.Errorf("%d entries, want 3", got)
	}
	if b, err := l.Spent(); err != nil || b.Eps != 3 {
		t.Errorf("spent %v, %v", b.Eps, err)
	}
}

// What was charged nothing has a bound with a name, a task's and a population's: otherwise it is printed as "(, proved)".
func TestNothingChargedIsNamed(t *testing.T) {
	c := Config{Accountant: flat{perRound: 1}, Delta: 1e-5, MaxEps: 3}
	book, err := newBook([16]byte{1}, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, spent := range []func() (dp.Bound, error){newLedger(t, c).Spent, book.Spent, Unprotected.Spent} {
		if b, err := spent(); err != nil || b.Method == "" || b.Status != dp.Proved || b.Adjacency != dp.ReplaceOne {
			t.Errorf("%+v, %v", b, err)
		}
	}
}

func TestChargeTwiceCountsOnce(t *testing.T) {
	l := newLedger(t, Config{Accountant: flat{perRound: 1}, Delta: 1e-5, MaxEps: math.Inf(1)})
	for range 3 {
		if err := l.Charge(t.Context(), Charge{Round: 1, Event: round(10)}); err != nil {
			t.Fatal(err)
		}
	}
	if b, _ := l.Spent(); b.Eps != 1 {
		t.Errorf("the same round charged %v times", b.Eps)
	}
	if err := l.Charge(t.Context(), Charge{Round: 1, Event: round(11)}); err == nil {
		t.Error("round 1 charged again with another event")
	}
	if err := l.Charge(t.Context(), Charge{Round: 2, Event: round(10)}); err != nil {
		t.Error(err)
	}
	if err := l.Charge(t.Context(), Charge{Round: 1, Event: round(10)}); err == nil {
		t.Error("charged a round before the last")
	}
}

// What the accountant is asked about is every charged round, in order, however
// equal neighbours are folded; a refused charge leaves nothing behind.
func TestHistoryIsEveryRound(t *testing.T) {
	var want []dp.Round
	l := newLedger(t, Config{Accountant: flat{perRound: 1}, Delta: 1e-5, MaxEps: 9})
	for r, k := range []int64{10, 10, 10, 11, 10, 10, 12, 12, 12, 11, 12} {
		err := l.Charge(t.Context(), Charge{Round: int64(r) + 1, Event: round(k)})
		if refused := errors.Is(err, ErrBudget); refused != (r >= 9) || err != nil && !refused {
			t.Fatalf("round %d: %v", r+1, err)
		}
		if err == nil {
			want = append(want, round(k))
		}
		restored := newLedger(t, Config{Accountant: flat{perRound: 1}, Delta: 1e-5, MaxEps: 9})
		if err := restored.Restore(l.Entries()); err != nil {
			t.Fatal(err)
		}
		for name, m := range map[string]*Ledger{"charged": l, "restored": restored} {
			var got []dp.Round
			for _, e := range m.history {
				repeat := e.(dp.Repeat)
				for range repeat.Times {
					got = append(got, repeat.Event.(dp.Round))
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s after round %d: history %v, want %v", name, r+1, got, want)
			}
		}
	}
	if b, err := l.Spent(); err != nil || b.Eps != 9 {
		t.Errorf("spent %v, %v", b.Eps, err)
	}
}

func TestNaNFromTheAccountantRefuses(t *testing.T) {
	l := newLedger(t, Config{Accountant: flat{nan: true}, Delta: 1e-5, MaxEps: 1e9})
	if err := l.Charge(t.Context(), Charge{Round: 1, Event: round(10)}); !errors.Is(err, ErrBudget) {
		t.Errorf("NaN epsilon was accepted: %v", err)
	}
}

func TestBadEventsAndConfigsAreRefused(t *testing.T) {
	for _, c := range []Config{
		{Delta: 1e-5, MaxEps: 1},
		{Accountant: flat{}, Delta: 0, MaxEps: 1},
		{Accountant: flat{}, Delta: 1, MaxEps: 1},
		{Accountant: flat{}, Delta: math.NaN(), MaxEps: 1},
		{Accountant: flat{}, Delta: 1e-5},
		{Accountant: flat{}, Delta: 1e-5, MaxEps: math.NaN()},
		{Accountant: flat{}, Delta: 1e-5, MaxEps: -1},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("accepted %+v", c)
		}
	}
	l := newLedger(t, Config{Accountant: flat{}, Delta: 1e-5, MaxEps: 1})
	bad := round(10)
	bad.Report.Eps0 = math.NaN()
	if err := l.Charge(t.Context(), Charge{Round: 1, Event: bad}); err == nil {
		t.Error("charged an event with eps0 = NaN")
	}
	if err := l.Charge(t.Context(), Charge{Round: 1, Event: round(101)}); err == nil {
		t.Error("charged k above n")
	}
}

func TestRestoreIsTheSameLedger(t *testing.T) {
	config := Config{Accountant: flat{perRound: 1}, Delta: 1e-5, MaxEps: 10}
	l := newLedger(t, config)
	for r := int64(1); r <= 7; r++ {
		if err := l.Charge(t.Context(), Charge{Round: r * 2, Event: round(10 + r/3)}); err != nil {
			t.Fatal(err)
		}
	}
	m := newLedger(t, config)
	if err := m.Restore(l.Entries()); err != nil {
		t.Fatal(err)
	}
	a, _ := l.Spent()
	b, _ := m.Spent()
	if a != b || len(l.history) != len(m.history) {
		t.Errorf("restored ledger spent %v in %d events, want %v in %d", b.Eps, len(m.history), a.Eps, len(l.history))
	}
	if err := m.Restore(l.Entries()); err == nil {
		t.Error("restored into a ledger that is not empty")
	}
	if err := newLedger(t, config).Restore([]Entry{{Round: 2, Event: round(1)}, {Round: 2, Event: round(1)}}); err == nil {
		t.Error("restored a round twice")
	}
	// What is spent stays spent, also above a budget that was lowered since.
	low := newLedger(t, Config{Accountant: flat{perRound: 1}, Delta: 1e-5, MaxEps: 1})
	if err := low.Restore(l.Entries()); err != nil {
		t.Error(err)
	}
}

func TestUnprotectedIsInfinite(t *testing.T) {
	u := Unprotected
	if b, err := u.Spent(); err != nil || !math.IsInf(b.Eps, 1) {
		t.Errorf("spent %v, %v", b.Eps, err)
	}
	if u.Restore([]Entry{{Round: 1, Event: round(1)}}) == nil {
		t.Error("took charges into a run without privacy")
	}
}
