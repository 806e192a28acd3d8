package account_test

import (
	"context"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

// Randomized response on inputs that are spread over w symbols: for all extreme inputs, uniform on w
// symbols, the shuffled laws listed output by output are within what is charged; and they are beyond
// what reports of twice the spread, K/2w symbols, would be charged.
func TestSpreadReportsBrute(t *testing.T) {
	const symbols, w = 4, 2
	var inputs [][]float64
	for a := range symbols {
		for b := range a {
			x := make([]float64, symbols)
			x[a], x[b] = .5, .5
			inputs = append(inputs, x)
		}
	}
	for _, eps0 := range longtest.Pick([]float64{1.5}, []float64{.5, 1.5, 3}) {
		m, err := randomizer.New(randomizer.KRR, randomizer.Config{Dim: symbols, Eps0: eps0, Bits: w})
		if err != nil {
			t.Fatal(err)
		}
		// The estimate of one report tells its probabilities: (1 − q)/(p − q) where it is, −q/(p − q)
		// elsewhere.
		one, sum := make([]float64, symbols), make([]int64, symbols)
		sum[0] = 1
		m.Estimate(one, sum, 1)
		gap := 1 / (one[0] - one[1])
		lie := -one[1] * gap
		law := make(table, len(inputs))
		for i, x := range inputs {
			for _, weight := range x {
				law[i] = append(law[i], lie+gap*weight)
			}
		}
		var tight bool
		for n := 1; n <= 4; n++ {
			var laws []tinyLaws
			var walk func(others []int, from int)
			walk = func(others []int, from int) {
				if len(others) < n-1 {
					for i := from; i < len(inputs); i++ {
						walk(append(others, i), i)
					}
					return
				}
				for second := 1; second < len(inputs); second++ { // the first one stands for all
					laws = append(laws, tinyRound(law, 0, second, others, func(k int) float64 { return indicator(k == n) }))
				}
			}
			walk(nil, 0)
			for _, eps := range []float64{0, .1, .4, 1} {
				query := account.Query{Participation: dp.All, Population: int64(n), Rounds: 1, AskDelta: true, Eps: eps}
				ask := func(r dp.Report) float64 {
					query.Class, query.Eps0, query.TV = r.Class, r.Eps0, r.TV
					answer, err := account.Answer(context.Background(), query, "best")
					if err != nil {
						t.Fatal(err)
					}
					return answer.Upper.Delta
				}
				claim := ask(m.Event())
				less := m.Event()
				less.TV *= .7
				broken := ask(less)
				var worst float64
				for _, l := range laws {
					worst = math.Max(worst, l.delta(eps))
				}
				if worst > claim*(1+1e-9)+1e-15 {
					t.Errorf("eps0 = %v, n = %d, eps = %v: truth %v above the claim %v", eps0, n, eps, worst, claim)
				}
				tight = tight || worst > broken*(1+1e-9)
			}
		}
		if !tight {
			t.Errorf("eps0 = %v: less total variation is not refuted", eps0)
		}
	}
}
