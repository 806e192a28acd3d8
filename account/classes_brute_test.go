package account_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// classWorlds visits composed rounds of one class of randomizers in which what the
// other clients hold changes from round to round.
func classWorlds(seed uint64, repeats int, visit func(name string, q account.Query, event dp.Event, truth tinyLaws)) {
	r := rand.New(rand.NewPCG(seed, 3))
	for rep := range repeats {
		for _, eps0 := range longtest.Pick([]float64{1.5}, []float64{.4, 1.5, 3}) {
			for _, kind := range []string{"rr2", "krr2", "krr3", "krr4", "tv", "half", "cap", "rising"} {
				T, n := 1+r.IntN(3), 1+r.IntN(3)
				E := math.Exp(eps0)
				report := dp.Report{Class: dp.KRR, Eps0: eps0}
				var m table
				switch kind {
				case "rr2":
					report.Class, m = dp.BinaryRR, tinyMechanism(r, 2, eps0)
				case "krr2", "krr3", "krr4":
					report.Symbols = int(kind[3] - '0')
					m = tinyMechanism(r, report.Symbols, eps0)
				case "tv":
					report.Class, report.TV, m = dp.Generic, 1/(E+3), tinyMechanism(r, 4, eps0)
				case "cap": // 5-RR on four of its inputs, whose common part is that of all five
					report.Class, report.TV, m = dp.Cap, 1/(E+4), tinyMechanism(r, 5, eps0)[:4]
				case "rising":
					report, m = tinyRising(eps0)
				case "half": // half of the time nothing is said
					report.Class, report.TV = dp.Generic, .5/(E+1)
					m = tinyMechanism(r, 2, eps0)
					for x := range m {
						m[x] = append([]float64{.5}, .5*m[x][0], .5*m[x][1])
					}
				}
				q := account.Query{Class: report.Class, Symbols: report.Symbols, TV: report.TV, Steps: report.Steps, Eps0: report.Eps0, Population: int64(n), Rounds: int64(T)}
				rd := dp.Round{Report: report, Trust: dp.Shuffle, Population: int64(n)}
				k, gamma := 1+r.IntN(n), .4
				var weight func(int) float64
				switch r.IntN(3) {
				case 0:
					q.Participation = dp.All
					weight = func(m int) float64 { return indicator(m == n) }
				case 1:
					q.Participation, q.Reports = dp.Sampled, int64(k)
					weight = func(m int) float64 { return indicator(m == k) }
				case 2:
					q.Participation, q.Gamma = dp.CheckIn, gamma
					weight = func(m int) float64 { return binomial(n, m, gamma) }
				}
				rd.Participation, rd.Reports, rd.Gamma = q.Participation, q.Reports, q.Gamma
				var truth tinyLaws
				for round := range T {
					others := make([]int, n-1)
					for i := range others {
						others[i] = r.IntN(len(m))
						if rep%2 == 0 {
							others[i] = round % len(m)
						}
					}
					l := tinyRound(m, 0, 1, others, weight)
					if round == 0 {
						truth = l
					} else {
						truth = truth.then(l)
					}
				}
				visit(fmt.Sprintf("%s %s n=%d k=%d eps0=%v T=%d #%d", kind, q.Participation, n, q.Reports, eps0, T, rep),
					q, dp.Repeat{Event: rd, Times: int64(T)}, truth)
			}
		}
	}
}

// tinyRising is Theorem 1's mechanism of rising.md with two steps: the first two
// inputs are opposite, the third reports from the common part or something useless.
func tinyRising(eps0 float64) (dp.Report, table) {
	const q1, q2 = .31, .115
	steps := dp.NewSteps(math.Expm1(eps0)/2, []float64{q1, q2}, 1e-9)
	share := []float64{1 - 2*q1, q1 - q2, q1 - q2, q2, q2, 0}
	common := 1 / (1 + steps.Height*(q1+q2))
	m := make(table, 3)
	for v, level := range [][2]float64{{0, 0}, {1, 0}, {0, 1}, {2, 0}, {0, 2}, {0, 0}} {
		for x := range 2 {
			m[x] = append(m[x], common*share[v]*(1+steps.Height*level[x]))
		}
		m[2] = append(m[2], common*share[v])
	}
	m[2][5] = 1 - common
	return dp.Report{Class: dp.Rising, Eps0: amplify.Steps{Height: steps.Height, Tails: steps.Each(), Eta: steps.Eta}.Eps0(), Steps: steps}, m
}

// Every proved upper bound holds for exact compositions of its class, as an
// answer and from the Accountant, which uses the tightest.
func TestClassesAgainstExactWorlds(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and one goroutine: nothing for the race detector")
	}
	repeats := longtest.Pick(1, 2)
	acc := new(account.Accountant)
	best := map[string]int{}
	tight := map[string]float64{}
	classWorlds(5, repeats, func(name string, q account.Query, event dp.Event, truth tinyLaws) {
		for _, delta := range longtest.Pick([]float64{.02}, []float64{1e-6, .02}) {
			q.Delta, q.AskDelta, q.Eps = delta, false, 0
			r, err := account.Answer(context.Background(), q, "all")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, b := range r.Bounds {
				if !b.Applies || b.Kind != dp.Upper || b.Status != dp.Proved {
					continue
				}
				if d := truth.delta(b.Eps); !(d <= delta+1e-12) {
					t.Errorf("%s %s: eps = %v at delta = %v, true delta there %v", name, b.Method, b.Eps, delta, d)
				}
			}
			if r.Lower != nil && r.Lower.Eps > r.Upper.Eps {
				t.Errorf("%s: lower %s %v above upper %s %v", name, r.Lower.Method, r.Lower.Eps, r.Upper.Method, r.Upper.Eps)
			}
			best[r.Upper.Method]++
			b, err := acc.Eps(event, delta)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if d := truth.delta(b.Eps); !(d <= delta+1e-12) {
				t.Errorf("%s accountant %s: eps = %v at delta = %v, true delta there %v", name, b.Method, b.Eps, delta, d)
			}
			if b.Eps > r.Upper.Eps*(1+1e-3)+1e-9 {
				t.Errorf("%s: the accountant's %s says %v, the best answer %s %v", name, b.Method, b.Eps, r.Upper.Method, r.Upper.Eps)
			}
			if b.Eps > 0 {
				tight[b.Method] = math.Max(tight[b.Method], truth.delta(b.Eps*.99)/delta)
			}
		}
		q.Delta, q.AskDelta, q.Eps = 0, true, .3*q.Eps0
		r, err := account.Answer(context.Background(), q, "all")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, b := range r.Bounds {
			if d := truth.delta(q.Eps); b.Applies && b.Kind == dp.Upper && !(d <= b.Delta+1e-12) {
				t.Errorf("%s %s: delta = %v at eps = %v, truth %v", name, b.Method, b.Delta, q.Eps, d)
			}
		}
	})
	t.Logf("tightest: %v; truth over delta 1 %% below: %v", best, tight)
	for _, id := range []string{"rr2-pld", "krr-pld", "tv-pld", "cap-pld", "rising-pld"} {
		if best[id] == 0 {
			t.Errorf("%s is never the tightest", id)
		}
	}
	if tight["rr2-pld"] < .8 {
		t.Errorf("no exact world comes near rr2-pld (%v): the comparison is weak", tight["rr2-pld"])
	}
}

// A class claimed for other reports is refuted: the suite sees the difference.
func TestWrongClassIsCaught(t *testing.T) {
	claims := map[string]func(q account.Query) account.Query{
		"binary reports as 5-ary": func(q account.Query) account.Query {
			if q.Class == dp.BinaryRR {
				q.Class, q.Symbols = dp.KRR, 5
			}
			return q
		},
		"a third of the total variation": func(q account.Query) account.Query { q.TV /= 3; return q },
		"steps above half of the outputs": func(q account.Query) account.Query {
			for i := range q.Steps.Each() {
				q.Steps.Shares[i] /= 2
			}
			return q
		},
		"binary reports as Laplace": func(q account.Query) account.Query {
			if q.Class == dp.BinaryRR {
				q.Class = dp.LaplaceL1
			}
			return q
		},
	}
	for name, change := range claims {
		worst := 0.
		classWorlds(5, 3, func(_ string, q account.Query, _ dp.Event, truth tinyLaws) {
			q.Delta = .02
			wrong := change(q)
			if wrong == q {
				return
			}
			r, err := account.Answer(context.Background(), wrong, "best")
			if err != nil {
				t.Fatal(err)
			}
			worst = math.Max(worst, truth.delta(r.Upper.Eps)-q.Delta)
		})
		t.Logf("%s: true delta above the claim by %.3g", name, worst)
		if worst < 1e-4 {
			t.Errorf("%s is not caught: %v", name, worst)
		}
	}
}
