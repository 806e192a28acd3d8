package account

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// Random settings: an answer without NaN or panic wherever the closed form or a
// pair exists, lower bounds below upper ones, δ and ε in agreement.
func TestRandomGaussianQueries(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and one goroutine: nothing for the race detector")
	}
	count := longtest.Pick(6, 48)
	r := rand.New(rand.NewPCG(11, 21))
	log := func(lo, hi float64) float64 { return math.Exp(math.Log(lo) + r.Float64()*math.Log(hi/lo)) }
	answered := 0
	for i := range count {
		q := Query{Trust: []dp.Trust{dp.Distributed, dp.Distributed, dp.Shuffle, dp.Local}[r.IntN(4)], Class: dp.Gaussian,
			Sigma: log(.05, 300), Population: int64(log(1, 1e9)), Rounds: int64(log(1, 1e6)), Delta: log(1e-30, .1)}
		switch r.IntN(4) {
		case 0:
			q.Participation = dp.All
		case 1:
			q.Participation, q.Reports = dp.Sampled, max(1, int64(float64(q.Population)*log(1e-6, 1)))
		case 2:
			q.Participation, q.Gamma = dp.CheckIn, log(1e-6, 1)
		case 3:
			q.Participation, q.Reports = dp.Once, max(1, q.Population/q.Rounds)
			q.Rounds = min(q.Rounds, q.Population/q.Reports)
		}
		if r.IntN(3) == 0 {
			q.Dropout = r.Float64() * .9
		}
		a, err := Answer(context.Background(), q, "all")
		if err != nil {
			t.Errorf("%d %+v: %v", i, q, err)
			continue
		}
		for _, b := range a.Bounds {
			if b.Applies && (math.IsNaN(b.Eps) || b.Eps < 0 || b.Delta != q.Delta) {
				t.Errorf("%+v: %+v", q, b)
			}
			if b.Applies && b.Kind == dp.Upper && a.Lower != nil && b.Eps < a.Lower.Eps {
				t.Errorf("%d %+v: %s = %v below the lower bound %v", i, q, b.Method, b.Eps, a.Lower.Eps)
			}
		}
		if a.Upper == nil {
			continue
		}
		answered++
		if eps := a.Upper.Eps; i%3 == 0 && eps < 300 {
			back := q
			back.AskDelta, back.Eps, back.Delta = true, eps, 0
			d, err := Answer(context.Background(), back, "best")
			if err != nil || d.Upper == nil || !(d.Upper.Delta >= 0) || d.Upper.Delta > 3*q.Delta {
				t.Errorf("%d %+v: delta back %+v, %v", i, q, d.Upper, err)
			}
		}
	}
	if answered < count*3/4 {
		t.Errorf("%d of %d answered", answered, count)
	}
}
