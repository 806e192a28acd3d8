package account_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// correlatedQuery draws a question about correlated noise, of aggregators or of clients.
func correlatedQuery(r *rand.Rand) account.Query {
	q := account.Query{Class: account.VectorSumClass, Participation: dp.All, Population: int64(logUniform(r, 2, 1e7)), Rounds: int64(logUniform(r, 1, 300)),
		Every: int64(logUniform(r, 2, 60)), Sigma: logUniform(r, .3, 300), Delta: logUniform(r, 1e-12, .1), NoiseBy: vecsum.ByAggregators,
		Sum: vecsum.Params{Dim: int(logUniform(r, 1, 1e5))}, Strategy: toeplitz.Kinds[r.IntN(len(toeplitz.Kinds))]}
	if r.IntN(4) == 0 {
		q.Dropout = r.Float64() * .9
	}
	if r.IntN(2) == 0 {
		q.NoiseBy = vecsum.ByClients
		if r.IntN(3) > 0 {
			q.Sum.MinUsers = max(1, int64(r.Float64()*float64(q.Population)))
			if r.IntN(2) == 0 {
				q.Sum.Honest = min(1, max(r.Float64(), 1.01/float64(q.Sum.MinUsers)))
			}
		}
	}
	return q
}

// correlatedMany asks random questions about correlated noise: bounds are numbers and move the right way, whoever adds the
// noise, and lie above what a client that comes once loses.
func correlatedMany(t *testing.T, count int) {
	r := rand.New(rand.NewPCG(2026, 28))
	answered, refused := 0, 0
	ask := func(q account.Query) (float64, bool) {
		a, err := account.Answer(context.Background(), q, "best")
		if err != nil {
			if !errors.Is(err, dp.ErrNoBound) {
				t.Errorf("%+v: %v", q, err)
			}
			return 0, false
		}
		if a.Upper == nil {
			return 0, false
		}
		if eps := a.Upper.Eps; !(eps >= 0 && eps <= vecsum.MostEps) {
			t.Errorf("%+v: epsilon %v", q, eps)
		}
		return a.Upper.Eps, true
	}
	for i := range count {
		q := correlatedQuery(r)
		eps, ok := ask(q)
		if !ok {
			refused++
			continue
		}
		answered++
		more := map[string]func(*account.Query){
			"less noise": func(q *account.Query) { q.Sigma /= 1.1 },
			"1/delta":    func(q *account.Query) { q.Delta /= 3 },
			"others' noise, of the same sigma": func(q *account.Query) {
				q.NoiseBy, q.Sum.MinUsers, q.Sum.Honest = vecsum.ByAggregators, 0, 0
			},
		}
		if q.Strategy == toeplitz.Root || q.Strategy == toeplitz.Independent { // others choose other weights
			more["rounds"] = func(q *account.Query) { q.Rounds += 1 + q.Rounds/3 }
		}
		for name, change := range more {
			v := q
			change(&v)
			// Noise is rounded up by less than a step of each client's, and grids differ.
			if got, ok := ask(v); ok && !(got >= eps*(1-.005)) {
				t.Errorf("%d %+v: %s lowers eps from %v to %v", i, q, name, eps, got)
			}
		}
		// A client that comes once moves the first round's release by its own weight.
		single := account.Query{Class: dp.GaussianSum, Trust: dp.Distributed, Participation: dp.All, Population: 100, Rounds: 1, Delta: q.Delta, Sigma: q.Sigma * 1.1}
		if once, ok := ask(single); ok && q.Sigma > 1 && !(eps >= once*(1-.005)) {
			t.Errorf("%d %+v: eps = %v, and one round alone has %v", i, q, eps, once)
		}
		// δ at that ε: the same curve read the other way.
		v := q
		v.AskDelta, v.Delta, v.Eps = true, 0, eps
		a, err := account.Answer(context.Background(), v, "best")
		if err != nil || a.Upper == nil || !(a.Upper.Delta >= 0 && a.Upper.Delta <= q.Delta*1.05) {
			t.Errorf("%d %+v: delta at eps = %v is %+v, %v; asked %v", i, q, eps, a.Upper, err, q.Delta)
		}
	}
	if answered < count/2 {
		t.Errorf("%d questions answered, %d refused", answered, refused)
	}
	t.Logf("%d answered, %d refused", answered, refused)
}

// Five thousand of them under the tag soak.
func TestCorrelatedSettings(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and one goroutine: nothing for the race detector")
	}
	correlatedMany(t, longtest.Pick(50, 200))
}
