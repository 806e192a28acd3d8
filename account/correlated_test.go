package account

import (
	"context"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
)

// A question about correlated noise has the answer of one Gaussian sum of the strategy's sensitivity, from
// its weights alone: the squares of the rows of a client that comes as often and as early as it may.
func TestCorrelatedSumIsItsRows(t *testing.T) {
	for _, kind := range toeplitz.Kinds {
		for _, every := range []int64{2, 5, 40} {
			q := aggregatedQuery()
			q.Rounds, q.Every, q.Strategy, q.Sigma, q.Delta = 30, every, kind, 25, 1e-6
			s, err := toeplitz.New(kind, q.Rounds, every)
			if err != nil {
				t.Fatal(err)
			}
			var square float64
			for row := range q.Rounds {
				m := 0.
				for from := int64(0); from <= row; from += every {
					if row-from < int64(len(s.Weights)) {
						m += float64(s.Weights[row-from]) / float64(s.Weights[0])
					}
				}
				square += m * m
			}
			want := gdp.Mu(2 / q.Sigma * math.Sqrt(square)).Epsilon(q.Delta)
			if eps := epsOf(t, q); !(eps >= want*(1-1e-11) && eps <= want*(1+1e-4)) {
				t.Errorf("%s, one of %d: epsilon = %v, want %v", kind, every, eps, want)
			}
			r, err := Answer(context.Background(), q, "best")
			if err != nil {
				t.Fatal(err)
			}
			if d := r.Document().Design; d == nil || len(d.Weights) != len(s.Weights) || !(d.Gain > .5) || d.Released < math.Sqrt2*q.Sigma*(1-1e-6) || d.Released > math.Sqrt2*q.Sigma*1.01 {
				t.Errorf("%s, one of %d: design %+v", kind, every, d)
			}
			planned, reply, err := Plan(context.Background(), 1, q, "sigma")
			if err != nil || !(reply.Upper.Eps <= 1 && reply.Upper.Eps > .999) || planned.Every != every {
				t.Errorf("%s, one of %d: planned %+v, %v", kind, every, reply.Upper, err)
			}
		}
	}
	// What is asked of correlated noise is not what independent noise costs.
	q := aggregatedQuery()
	q.Rounds, q.Sigma, q.Every = 30, 25, 5
	few := epsOf(t, q)
	if q.Every = 0; !(epsOf(t, q) > 1.5*few) || q.Participation != dp.All {
		t.Errorf("epsilon = %v in all rounds, %v in one of 5", epsOf(t, q), few)
	}
}
