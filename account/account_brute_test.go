package account_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// A heap of a few megabytes is collected a hundred times a second. Five times as large it costs a tenth less.
var _ = debug.SetGCPercent(400)

// world is a tiny protocol: rounds that are all alike for the accountant, but
// whose mechanisms, neighbours' values and other clients differ.
type world struct {
	name  string
	query account.Query
	event dp.Event
	truth tinyLaws
}

// worlds visits composed tiny worlds: n ≤ 3 (n = 4 for one round), T ≤ 3, all
// clients, k of n, check-in and check-in with drop-outs.
func worlds(seed uint64, repeats int, visit func(world)) {
	r := rand.New(rand.NewPCG(seed, 1))
	for rep := range repeats {
		for _, eps0 := range []float64{0.4, 1.5, 3} {
			for T := 1; T <= 3; T++ {
				n := 1 + r.IntN(3)
				if T == 1 {
					n = 1 + r.IntN(4)
				}
				kind := r.IntN(4)
				k := 1 + r.IntN(n)
				gamma := []float64{0.2, 0.5, 0.9}[r.IntN(3)]
				weight := func(m int) float64 { return binomial(n, m, gamma) }
				q := account.Query{Eps0: eps0, Population: int64(n), Rounds: int64(T)}
				rd := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: eps0}, Trust: dp.Shuffle, Population: int64(n)}
				switch kind {
				case 0:
					q.Participation = dp.All
					weight = func(m int) float64 { return indicator(m == n) }
				case 1:
					q.Participation, q.Reports = dp.Sampled, int64(k)
					weight = func(m int) float64 { return indicator(m == k) }
				case 2:
					q.Participation, q.Gamma = dp.CheckIn, gamma
				case 3: // k asked, each lost with probability 1 − gamma; planning only
					q.Participation, q.Reports, q.Dropout = dp.Sampled, int64(k), 1-gamma
					weight = func(m int) float64 { return binomial(k, m, 1-q.Dropout) }
				}
				rd.Participation, rd.Reports, rd.Gamma = q.Participation, q.Reports, q.Gamma
				var truth tinyLaws
				for round := range T {
					x := r.IntN(3)
					others := make([]int, n-1)
					for i := range others {
						others[i] = r.IntN(3)
						if rep%2 == 0 { // all others alike, changing by round
							others[i] = x
						}
					}
					m := tinyMechanism(r, []int{0, 2, 2, 3}[r.IntN(4)], eps0)
					l := tinyRound(m, 0, 1, others, weight)
					if round == 0 {
						truth = l
					} else {
						truth = truth.then(l)
					}
				}
				w := world{fmt.Sprintf("%s n=%d k=%d gamma=%v dropout=%v eps0=%v T=%d #%d", q.Participation, n, q.Reports, q.Gamma, q.Dropout, eps0, T, rep), q, nil, truth}
				if kind != 3 {
					w.event = dp.Repeat{Event: rd, Times: int64(T)}
				}
				visit(w)
			}
		}
	}
}

// hyper is the chance that m of the clients who are there are among k drawn of n.
func hyper(n, there, k, m int) float64 {
	if m > there || m > k || k-m > n-there {
		return 0
	}
	choose := func(n, k int) float64 { return binomial(n, k, .5) * math.Exp2(float64(n)) }
	return choose(there, m) * choose(n-there, k-m) / choose(n, k)
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func binomial(n, k int, p float64) float64 {
	if k > n {
		return 0
	}
	v := math.Pow(p, float64(k)) * math.Pow(1-p, float64(n-k))
	for i := 1; i <= k; i++ {
		v = v * float64(n-k+i) / float64(i)
	}
	return v
}

// Every proved upper bound of every method holds for the exact composition:
// as ε at δ, as δ at ε, and from the Accountant's events.
func TestComposedBoundsAgainstExactWorlds(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and one goroutine: nothing for the race detector")
	}
	repeats := longtest.Pick(1, 6)
	acc := new(account.Accountant)
	checks, tight := 0, 0.0
	worlds(17, repeats, func(w world) {
		for _, delta := range longtest.Pick([]float64{.05}, []float64{1e-9, 1e-3, .05}) {
			q := w.query
			q.Delta = delta
			r, err := account.Answer(context.Background(), q, "all")
			if err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
			for _, b := range r.Bounds {
				if !b.Applies || b.Kind != dp.Upper || b.Status != dp.Proved {
					continue
				}
				checks++
				if d := w.truth.delta(b.Eps); !(d <= delta+1e-12) {
					t.Errorf("%s %s: eps = %v at delta = %v, true delta there %v", w.name, b.Method, b.Eps, delta, d)
				}
			}
			if w.event != nil {
				b, err := acc.Eps(w.event, delta)
				if err != nil {
					t.Fatalf("%s: %v", w.name, err)
				}
				if d := w.truth.delta(b.Eps); !(d <= delta+1e-12) {
					t.Errorf("%s accountant %s: eps = %v at delta = %v, true delta there %v", w.name, b.Method, b.Eps, delta, d)
				}
				if delta == 0.05 && b.Eps > 0 {
					tight = math.Max(tight, w.truth.delta(b.Eps*(1-1e-3))/delta)
				}
			}
		}
		for _, f := range longtest.Pick([]float64{.15}, []float64{0, .15, .5, .95}) {
			q := w.query
			q.AskDelta, q.Eps = true, f*q.Eps0*float64(q.Rounds)
			r, err := account.Answer(context.Background(), q, "all")
			if err != nil {
				t.Fatalf("%s: %v", w.name, err)
			}
			for _, b := range r.Bounds {
				if !b.Applies || b.Kind != dp.Upper || b.Status != dp.Proved {
					continue
				}
				checks++
				if d := w.truth.delta(q.Eps); !(d <= b.Delta+1e-12) {
					t.Errorf("%s %s: delta = %v at eps = %v, truth %v", w.name, b.Method, b.Delta, q.Eps, d)
				}
			}
		}
	})
	t.Logf("%d comparisons; nearest miss reaches %.4f of delta just below the bound", checks, tight)
	if tight < 0.9 {
		t.Errorf("no exact world comes near a bound (%v): the comparison is weak", tight)
	}
}

// Unlike rounds in one sequence: what the ledger composes.
func TestMixedSequencesAgainstExactWorlds(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and one goroutine: nothing for the race detector")
	}
	r := rand.New(rand.NewPCG(23, 1))
	acc := new(account.Accountant)
	tight := 0.0
	for rep := range longtest.Pick(3, 30) {
		eps0s := []float64{0.4, 1.5, 3}
		var seq dp.Sequence
		var truth tinyLaws
		n := 1 + r.IntN(3)
		for round := range 3 {
			e0 := eps0s[r.IntN(3)]
			rd := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: e0}, Trust: dp.Shuffle, Population: int64(n)}
			k, there := 1+r.IntN(n), n
			var weight func(int) float64
			switch r.IntN(3) {
			case 0:
				rd.Participation = dp.All
				weight = func(m int) float64 { return indicator(m == n) }
			case 1: // k of n are drawn, of whom so many are there; a round of fewer than least is void
				least := 1 + r.IntN(k)
				there = 1 + r.IntN(n)
				rd.Participation, rd.Reports, rd.Least = dp.Sampled, int64(k), int64(least)
				weight = func(m int) (w float64) {
					if m > 0 {
						return indicator(m >= least) * hyper(n, there, k, m)
					}
					for void := range least {
						w += hyper(n, there, k, void)
					}
					return w
				}
			case 2:
				rd.Participation, rd.Gamma = dp.CheckIn, 0.6
				weight = func(m int) float64 { return binomial(n, m, 0.6) }
			}
			others := make([]int, there-1)
			for i := range others {
				others[i] = r.IntN(3)
			}
			l := tinyRound(tinyMechanism(r, []int{0, 2, 2, 3}[r.IntN(4)], e0), 0, 1, others, weight)
			if round == 0 {
				truth = l
			} else {
				truth = truth.then(l)
			}
			seq = append(seq, rd)
		}
		for _, delta := range []float64{1e-8, 1e-3, 0.1} {
			b, err := acc.Eps(seq, delta)
			if err != nil {
				t.Fatalf("%d %+v: %v", rep, seq, err)
			}
			if d := truth.delta(b.Eps); !(d <= delta+1e-12) {
				t.Errorf("%d %+v: eps = %v at delta = %v, true delta there %v", rep, seq, b.Eps, delta, d)
			}
			if b.Eps > 0 {
				tight = math.Max(tight, truth.delta(b.Eps*0.98)/delta)
			}
		}
	}
	if tight < 1 {
		t.Errorf("2 %% less eps would never be wrong (%v): the comparison is weak", tight)
	}
}

// The same comparison refutes accountants with known mistakes.
func TestWorldsCatchBrokenAccountants(t *testing.T) {
	longtest.Only(t, "six broken accountants")
	if testing.Short() {
		t.Skip("long, and one goroutine: nothing for the race detector")
	}
	ask := func(q account.Query, delta float64) float64 {
		q.Delta = delta
		r, err := account.Answer(context.Background(), q, "best")
		if err != nil {
			t.Fatal(err)
		}
		return r.Upper.Eps
	}
	mutants := map[string]func(q account.Query, delta float64) float64{
		"one round forgotten": func(q account.Query, delta float64) float64 {
			q.Rounds = max(1, q.Rounds-1)
			return ask(q, delta)
		},
		"check-in charged as one of n included with gamma, n shuffled": func(q account.Query, delta float64) float64 {
			if q.Participation == dp.CheckIn {
				q.Participation, q.Reports, q.Gamma = dp.Sampled, max(1, int64(q.Gamma*float64(q.Population))), 0
			}
			return ask(q, delta)
		},
		"delta spent twice": func(q account.Query, delta float64) float64 { return ask(q, 2*delta) },
		"eps 3 % short":     func(q account.Query, delta float64) float64 { return 0.97 * ask(q, delta) },
		"twice the population": func(q account.Query, delta float64) float64 {
			if q.Participation == dp.Sampled {
				q.Population *= 2
			}
			return ask(q, delta)
		},
		"one more client in the shuffle": func(q account.Query, delta float64) float64 {
			if q.Participation == dp.All {
				q.Population++
			}
			return ask(q, delta)
		},
	}
	for name, mutant := range mutants {
		worst := 0.0
		worlds(17, 3, func(w world) {
			for _, delta := range []float64{1e-3, 0.05} {
				worst = math.Max(worst, w.truth.delta(mutant(w.query, delta))-delta)
			}
		})
		t.Logf("%s: true delta exceeds the claim by %.4g", name, worst)
		if worst < 1e-5 {
			t.Errorf("%s is not caught (excess %v)", name, worst)
		}
	}
}
