package account_test

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// Lower bounds name a mechanism. Its exact composition must leak at least as
// much as they say: δ above what they claim at ε, ε above what they claim at δ.
func TestLowerBoundsAgainstTheirMechanism(t *testing.T) {
	checks, caught := 0, 0
	for _, eps0 := range longtest.Pick([]float64{1.5}, []float64{0.4, 1.5, 3}) {
		for n := 1; n <= 3; n++ {
			for _, kind := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, "colluders"} {
				for T := 1; T <= 3; T++ {
					q := account.Query{Participation: kind, Eps0: eps0, Population: int64(n), Rounds: int64(T)}
					weight := func(m int) float64 { return indicator(m == n) }
					switch kind {
					case dp.Sampled:
						k := 1 + (n+T)%n
						q.Reports = int64(k)
						weight = func(m int) float64 { return indicator(m == k) }
					case dp.CheckIn:
						q.Gamma = 0.4
						weight = func(m int) float64 { return binomial(n, m, 0.4) }
					case "colluders": // two more clients; n are honest
						k := 1 + (n+T)%(n+2)
						q.Participation, q.Population, q.Reports, q.Colluders, q.Dropout = dp.Sampled, int64(n+2), int64(k), 2, .3
						weight = func(m int) (w float64) {
							for h := max(0, k-2); h <= min(k, n); h++ {
								w += ways(n, h) * ways(2, k-h) / ways(n+2, k) * binomial(h, m, .7)
							}
							return w
						}
					}
					exact := map[string]tinyLaws{
						"lower-rr3": tinyRound(tinyMechanism(nil, 3, eps0), 0, 1, constant(n-1, 2), weight),
						"lower-rr2": tinyRound(tinyMechanism(nil, 2, eps0), 0, 1, constant(n-1, 0), weight),
					}
					posing := map[float64]float64{} // an upper bound on ε at each δ, for both mechanisms
					for name, one := range exact {
						truth := one
						for range T - 1 {
							truth = truth.then(one)
						}
						for _, delta := range longtest.Pick([]float64{1e-3, 0.05, 0.3}, []float64{1e-6, 1e-3, 0.05, 0.3}) {
							q.Delta, q.AskDelta, q.Eps = delta, false, 0
							b, ok := listed(t, q, name)
							if !ok || b.Eps == 0 {
								continue
							}
							checks++
							// Any smaller ε must be wrong at δ.
							if d := truth.delta(b.Eps * (1 - 1e-9)); !(d >= delta*(1-1e-9)) {
								t.Errorf("%s %+v: eps >= %v at delta = %v, but the mechanism has delta %v there", name, q, b.Eps, delta, d)
							}
							// An upper bound posing as a lower one is found out.
							u, asked := posing[delta]
							if !asked {
								u = math.NaN()
								if reply, err := account.Answer(context.Background(), q, "blanket-rdp"); err == nil && reply.Upper != nil {
									u = reply.Upper.Eps
								}
								posing[delta] = u
							}
							if truth.delta(u*(1-1e-9)) < delta*(1-1e-9) {
								caught++
							}
						}
						for _, f := range []float64{0, 0.2, 0.7} {
							q.Delta, q.AskDelta, q.Eps = 0, true, f*eps0*float64(T)
							if b, ok := listed(t, q, name); ok {
								checks++
								if d := truth.delta(q.Eps); !(b.Delta <= d+1e-12) {
									t.Errorf("%s %+v: delta >= %v, the mechanism has %v", name, q, b.Delta, d)
								}
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d comparisons; an upper bound in their place fails %d of them", checks, caught)
	if checks < 300 || caught < 100 {
		t.Errorf("only %d comparisons, %d of them sharp", checks, caught)
	}
}

// ways counts the k-subsets of n.
func ways(n, k int) float64 { return binomial(n, k, .5) * math.Exp2(float64(n)) }

func constant(n, v int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = v
	}
	return out
}

func listed(t *testing.T, q account.Query, name string) (dp.Bound, bool) {
	t.Helper()
	r, err := account.Answer(context.Background(), q, name)
	if err != nil {
		t.Fatalf("%s %+v: %v", name, q, err)
	}
	b := r.Bounds[0]
	if b.Kind != dp.Lower {
		t.Fatalf("%s is of kind %s", name, b.Kind)
	}
	return b.Bound, b.Applies
}

// Lower bounds of narrower classes, against the mechanisms themselves: K-RR, and
// of a known total variation, randomized response that has it.
func TestLowerBoundsOfClasses(t *testing.T) {
	checks := 0
	for _, eps0 := range longtest.Pick([]float64{1.5}, []float64{0.4, 1.5, 3}) {
		E := math.Exp(eps0)
		flip := math.Exp(-eps0/2) / 2 // the sign of Laplace noise
		for name, c := range map[string]struct {
			class   dp.Class
			symbols int
			tv      float64
			m       table
			third   int
		}{
			"lower-krr":         {dp.KRR, 4, 0, tinyMechanism(nil, 4, eps0), 2},
			"lower-rr3":         {dp.KRR, 3, 0, tinyMechanism(nil, 3, eps0), 2},
			"lower-rr2":         {dp.BinaryRR, 0, 0, tinyMechanism(nil, 2, eps0), 0},
			"lower-rr2 tv":      {dp.Generic, 0, .6 / (E + 1), tinyMechanism(nil, 2, 2*math.Atanh(.6*(E-1)/(E+1))), 0},
			"lower-rr3 tv":      {dp.Generic, 0, .5 / (E + 1), tinyMechanism(nil, 3, math.Log1p(3*.5*(E-1)/(E+1)/(1-.5*(E-1)/(E+1)))), 2},
			"lower-rr2 laplace": {dp.LaplaceL1, 0, 0, table{{1 - flip, flip}, {flip, 1 - flip}}, 0},
		} {
			for n := 1; n <= 3; n++ {
				for T := 1; T <= 2; T++ {
					one := tinyRound(c.m, 0, 1, constant(n-1, c.third), func(m int) float64 { return indicator(m == n) })
					truth := one
					for range T - 1 {
						truth = truth.then(one)
					}
					for _, delta := range []float64{1e-3, 0.05} {
						q := account.Query{Participation: dp.All, Class: c.class, Symbols: c.symbols, TV: c.tv, Eps0: eps0,
							Population: int64(n), Rounds: int64(T), Delta: delta}
						b, ok := listed(t, q, strings.Fields(name)[0])
						if !ok || b.Eps == 0 {
							continue
						}
						checks++
						if d := truth.delta(b.Eps * (1 - 1e-8)); !(d >= delta*(1-1e-8)) {
							t.Errorf("%s %+v: eps >= %v at delta = %v, but the mechanism has delta %v there", name, q, b.Eps, delta, d)
						}
					}
				}
			}
		}
	}
	if checks < longtest.Pick(50, 100) {
		t.Errorf("only %d comparisons", checks)
	}
	// What a query does not admit gives no lower bound.
	for _, c := range []struct {
		id      string
		class   dp.Class
		symbols int
	}{
		{"lower-rr3", dp.BinaryRR, 0}, {"lower-rr3", dp.KRR, 4}, {"lower-rr2", dp.KRR, 3}, {"lower-krr", dp.Generic, 0}, {"lower-rr3", dp.LaplaceL1, 0},
	} {
		q := account.Query{Participation: dp.All, Class: c.class, Symbols: c.symbols, Eps0: 1, Population: 5, Rounds: 1, Delta: .01}
		if b, ok := listed(t, q, c.id); ok {
			t.Errorf("%s answers for class %s: %v", c.id, c.class, b.Eps)
		}
	}
}
