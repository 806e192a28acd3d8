package account_test

import (
	"context"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
)

// Lower bounds name a mechanism. Its exact composition must leak at least as
// much as they say: δ above what they claim at ε, ε above what they claim at δ.
func TestLowerBoundsAgainstTheirMechanism(t *testing.T) {
	checks, caught := 0, 0
	for _, eps0 := range []float64{0.4, 1.5, 3} {
		for n := 1; n <= 3; n++ {
			for _, kind := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn} {
				for T := 1; T <= 3; T++ {
					q := account.Query{Participation: kind, Eps0: eps0, Population: int64(n), Rounds: int64(T)}
					weight := func(m int) float64 { return indicator(m == n) }
					switch kind {
					case dp.Sampled:
						k := 1 + (n+T)%n
						q.Reports = int64(k)
						weight = func(m int) float64 { return indicator(m == k) }
					case dp.CheckIn:
						q.Rate = 0.4
						weight = func(m int) float64 { return binomial(n, m, 0.4) }
					}
					exact := map[string]tinyLaws{
						"lower-rr3": tinyRound(tinyMechanism(nil, 3, eps0), 0, 1, constant(n-1, 2), weight),
						"lower-rr2": tinyRound(tinyMechanism(nil, 2, eps0), 0, 1, constant(n-1, 0), weight),
					}
					for name, one := range exact {
						truth := one
						for range T - 1 {
							truth = truth.then(one)
						}
						for _, delta := range []float64{1e-6, 1e-3, 0.05, 0.3} {
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
							if u, err := account.Answer(context.Background(), q, "blanket-rdp"); err == nil && u.Upper != nil {
								if truth.delta(u.Upper.Eps*(1-1e-9)) < delta*(1-1e-9) {
									caught++
								}
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
