package account

import (
	"context"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// Corners of the range of every value: an answer, finite, never above the pure
// bound, and δ and ε agree.
func TestExtremes(t *testing.T) {
	check := func(q Query) {
		T := q.Rounds
		r, err := Answer(context.Background(), q, "best")
		if err != nil || r.Upper == nil {
			t.Errorf("%+v: %+v, %v", q, r.Upper, err)
			return
		}
		s, times := q.shape()
		pure := basic([]part{{s, times}})
		if eps := r.Upper.Eps; !(eps >= 0) || !(eps <= pure) {
			t.Errorf("%+v: eps = %v, pure %v", q, eps, pure)
		}
		q.AskDelta, q.Eps = true, r.Upper.Eps
		delta := q.Delta
		q.Delta = 0
		back, err := Answer(context.Background(), q, "best")
		if err != nil || back.Upper == nil || !(back.Upper.Delta >= 0) || !(back.Upper.Delta <= 2*delta) && T <= 1e6 {
			t.Errorf("%+v: delta back %+v, %v", q, back.Upper, err)
		}
	}
	rounds := []int64{1, 1000}
	if testing.Short() {
		rounds = rounds[1:]
	} else {
		for _, T := range []int64{1e9, 1e12} {
			check(Query{Participation: dp.Sampled, Eps0: 1, Population: 1e12, Reports: 1e6, Rounds: T, Delta: 1e-9})
		}
	}
	check(Query{Participation: dp.All, Eps0: 1, Population: 1000, Rounds: 10, Delta: .9})
	for _, eps0 := range longtest.Pick([]float64{1e-6, 50}, []float64{1e-6, 1, 50}) {
		for _, T := range rounds {
			for _, delta := range longtest.Pick([]float64{1e-12}, []float64{1e-12, .9}) {
				for _, n := range []int64{1, 2, 1e12} {
					check(Query{Participation: dp.All, Eps0: eps0, Population: n, Rounds: T, Delta: delta})
				}
				check(Query{Participation: dp.Sampled, Eps0: eps0, Population: 1e12, Reports: 1, Rounds: T, Delta: delta})
				check(Query{Participation: dp.Sampled, Eps0: eps0, Population: 1000, Reports: 999, Rounds: T, Delta: delta, Dropout: .999999})
				check(Query{Participation: dp.CheckIn, Eps0: eps0, Population: 1000, Gamma: 1e-12, Rounds: T, Delta: delta})
				check(Query{Participation: dp.CheckIn, Eps0: eps0, Population: 1e9, Gamma: 1, Rounds: T, Delta: delta})
				check(Query{Trust: dp.Local, Participation: dp.CheckIn, Eps0: eps0, Population: 10, Gamma: 1e-300, Dropout: .5, Rounds: T, Delta: delta})
			}
		}
	}
	if d := math.Abs(best(t, Query{Participation: dp.All, Eps0: 50, Population: 1e12, Rounds: 1, Delta: 1e-9}) - 50); d > 1 {
		t.Errorf("e^50 reports are needed to hide one: eps is %v off 50", d)
	}
}
