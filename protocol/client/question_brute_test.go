package client_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// answers is a way to answer a question by one symbol of a few: its randomizer, and the
// distributions that clients may draw their symbol from.
type answers struct {
	name   string
	config randomizer.Config
	inputs [][]float64
}

// fewAnswers are counts, histograms of two bins with a symbol for those outside, histograms of three bins
// with codes, and numbers spread over two of six symbols: at their places, between two, and outside.
func fewAnswers(eps0 float64) []answers {
	unit := func(k int) (out [][]float64) {
		for j := range k {
			x := make([]float64, k)
			x[j] = 1
			out = append(out, x)
		}
		return out
	}
	return []answers{
		{"count", randomizer.Config{Radius: 1, Dim: 2, Eps0: eps0}, unit(2)},
		{"histogram", randomizer.Config{Radius: 1, Dim: 3, Eps0: eps0}, unit(3)},
		{"codes", randomizer.Config{Radius: 1, Dim: 4, Bits: 2, Eps0: eps0}, [][]float64{{.5, 0, .5, 0}, {.5, .5, 0, 0}, {.5, 0, 0, .5}, {0, .5, .5, 0}, {.25, .25, .25, .25}}},
		{"spread", randomizer.Config{Radius: 1, Dim: 6, Bits: 2, Eps0: eps0}, [][]float64{{.5, .5, 0, 0, 0, 0}, {0, 0, .5, .5, 0, 0}, {.25, .5, .25, 0, 0, 0}, {0, 0, 0, 0, .5, .5}}},
	}
}

// lawsOf returns the law of one report for each input. What one report stands for tells its
// probabilities.
func lawsOf(m randomizer.Mechanism, inputs [][]float64) (laws [][]float64) {
	one, sum := make([]float64, m.Facts().Dim), make([]int64, m.Facts().Dim)
	sum[0] = 1
	m.Estimate(one, sum, 1)
	gap := 1 / (one[0] - one[1])
	lie := -one[1] * gap
	for _, x := range inputs {
		law := make([]float64, len(x))
		for v, weight := range x {
			law[v] = lie + gap*weight
		}
		laws = append(laws, law)
	}
	return laws
}

// mixed adds to out, with a chance, the law of the numbers of reports of each symbol, of clients whose
// reports have these laws.
func mixed(out map[string]float64, chance float64, laws ...[]float64) {
	now := map[string]float64{}
	now[string(make([]byte, len(laws[0])))] = chance
	for _, law := range laws {
		next := map[string]float64{}
		for seen, p := range now {
			for v, q := range law {
				b := []byte(seen)
				b[v]++
				next[string(b)] += p * q
			}
		}
		now = next
	}
	for seen, p := range now {
		out[seen] += p
	}
}

// view is what a round shows of a client's two inputs.
type view struct{ p, q map[string]float64 }

// subsets calls visit with every subset of so many of n places.
func subsets(n, size int, visit func([]int)) {
	var walk func(from int, have []int)
	walk = func(from int, have []int) {
		if len(have) == size {
			visit(have)
			return
		}
		for i := from; i < n; i++ {
			walk(i+1, append(have, i))
		}
	}
	walk(0, nil)
}

// views returns what a round of honest reports may show: a client's and those of the others who are
// willing, of whom so many come, all equally likely.
func views(laws [][]float64, willing, come int) (out []view) {
	var walk func(others [][]float64, from int)
	walk = func(others [][]float64, from int) {
		if len(others) < willing-1 {
			for i := from; i < len(laws); i++ {
				walk(append(others, laws[i]), i)
			}
			return
		}
		all := 0.
		subsets(willing, come, func([]int) { all++ })
		for a := range laws {
			for b := range a {
				v := view{map[string]float64{}, map[string]float64{}}
				subsets(willing, come, func(in []int) {
					var p, q [][]float64
					for _, i := range in {
						if i == 0 {
							p, q = append(p, laws[a]), append(q, laws[b])
						} else {
							p, q = append(p, others[i-1]), append(q, others[i-1])
						}
					}
					mixed(v.p, 1/all, p...)
					mixed(v.q, 1/all, q...)
				})
				out = append(out, v)
			}
		}
	}
	walk(nil, 0)
	return out
}

// exactDelta is the largest δ(ε) of the views, in both orders.
func exactDelta(all []view, eps float64) (delta float64) {
	e := math.Exp(eps)
	for _, v := range all {
		var there, back float64
		for seen, p := range v.p {
			there += math.Max(0, p-e*v.q[seen])
			back += math.Max(0, v.q[seen]-e*p)
		}
		delta = math.Max(delta, math.Max(there, back))
	}
	return delta
}

// questionCharge is what a coordinator charges.
func questionCharge(t *testing.T, m randomizer.Randomizer, c coordinator.Config) dp.Round {
	t.Helper()
	o, err := optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: m.Facts().Dim, Schedule: func(int64) float64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	book, err := ledger.New(ledger.Config{Accountant: new(account.Accountant), Delta: 1e-5, MaxEps: 50})
	if err != nil {
		t.Fatal(err)
	}
	c.Optimizer, c.Mechanism, c.Report, c.Ledger, c.Trust, c.Clip = o, m, m.Event(), book, dp.Shuffle, 1
	pure, err := coordinator.New(c)
	if err != nil {
		t.Fatal(err)
	}
	e, ok, err := pure.Planned()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return e.Event
}

// A question by single messages, in every participation: whoever of the clients stays away, declines,
// or tells what it knows and sends what it likes, the exact loss is covered by what the coordinator
// charges and by what the client counts. Reports that others know take part in nothing: the observer
// takes them off.
func TestChargesOfQuestionsCoverWhatIsSeen(t *testing.T) {
	a := new(account.Accountant)
	near, checked := 0., 0
	counted := map[string]float64{}
	eps := func(ev dp.Round, delta float64) float64 {
		key := fmt.Sprint(ev, delta)
		if _, ok := counted[key]; !ok {
			b, err := a.Eps(ev, delta)
			if err != nil {
				t.Fatal(err)
			}
			counted[key] = b.Eps
		}
		return counted[key]
	}
	for _, eps0 := range longtest.Pick([]float64{1.5}, []float64{.4, 1.5, 4}) {
		for _, way := range fewAnswers(eps0) {
			m, err := randomizer.New(randomizer.KRR, way.config)
			if err != nil {
				t.Fatal(err)
			}
			laws := lawsOf(m, way.inputs)
			described, err := mechanism.Describe(randomizer.KRR, way.config, "norm")
			if err != nil {
				t.Fatal(err)
			}
			most := longtest.Pick(3, 4)
			if way.config.Dim > 3 {
				most = longtest.Pick(2, 3)
			}
			known, exact := map[[2]int][]view{}, map[string]float64{}
			of := func(willing, come int, eps float64) float64 {
				at := [2]int{willing, come}
				if known[at] == nil {
					known[at] = views(laws, willing, come)
				}
				key := fmt.Sprint(at, eps)
				if _, ok := exact[key]; !ok {
					exact[key] = exactDelta(known[at], eps)
				}
				return exact[key]
			}
			covers := func(name string, ev dp.Round, willing, come int) {
				for _, delta := range longtest.Pick([]float64{1e-6, .03}, []float64{1e-6, 1e-3, .03}) {
					e := eps(ev, delta)
					if checked++; !(of(willing, come, e) <= delta*(1+1e-9)) {
						t.Errorf("%s: delta is %v at the charged epsilon = %v, want %v", name, of(willing, come, e), e, delta)
					}
					if e > 0 {
						near = math.Max(near, of(willing, come, e*.99)/delta)
					}
				}
			}
			for n := 1; n <= most; n++ {
				for others := range n {
					honest := n - others
					for least := others + 1; least <= n; least++ { // n-min
						task := wire.Task{Name: "question", Trust: dp.Shuffle, Participation: dp.All, MinReports: int64(least), Rounds: 1, Delta: 1e-5, Mechanism: described}
						terms, err := (client.Policy{MaxEps0: 10, MaxEps: 30, Delta: 1e-5, MinReports: int64(least), Colluders: int64(others)}).Agree(t.Context(), task)
						if err != nil {
							t.Fatal(err)
						}
						for k := least; k <= n; k++ {
							// With tokens the shuffler stuffs the batch and picks who comes: n-min tokens show.
							for come := least - others; come <= min(k, honest); come++ {
								c := coordinator.Config{Population: int64(n), MinReports: int64(least), Colluders: int64(others), Tokens: true, Sample: int64(k), Gamma: .3}
								for _, c.Participation = range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn} {
									name := fmt.Sprintf("%s, n = %d, %d others, n-min = %d, k = %d, %d honest: tokens, %s", way.name, n, others, least, k, come, c.Participation)
									covers(name, questionCharge(t, m, c), come, come)
								}
							}
							for present := range min(others, k) + 1 {
								come := k - present
								if come > honest {
									continue
								}
								name := fmt.Sprintf("%s, eps0 = %v, n = %d, %d others, n-min = %d, k = %d, %d of others", way.name, eps0, n, others, least, k, present)
								c := coordinator.Config{Population: int64(n), MinReports: int64(least), Colluders: int64(others)}
								// The client is there, with any others.
								covers(name+": the client's count", terms.Charge, come, come)
								for willing := come; willing <= honest; willing++ {
									for _, c.Participation = range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn} {
										for _, c.Declinable = range []bool{false, true} {
											if c.Sample, c.Gamma = int64(k), .3; c.Declinable && c.Participation == dp.CheckIn {
												continue
											}
											// Chance among those who are there is credited on average over who comes: TestChargeCoversAbsence.
											if ev := questionCharge(t, m, c); ev.Least == 0 {
												covers(fmt.Sprintf("%s: %s, declinable %v, %d willing", name, c.Participation, c.Declinable, willing), ev, willing, come)
											}
										}
									}
								}
								c.Declinable, c.Sample = false, 0
								c.Participation, c.Gamma = dp.Once, 0
								if c.Blocks, err = schedule.NewBlocks(int64(n), int64(least)); err != nil {
									t.Fatal(err)
								}
								if from, to := c.Blocks.Range(0); int64(k) <= to-from {
									for willing := come; willing <= min(honest, int(to-from)); willing++ {
										covers(fmt.Sprintf("%s: once, %d willing", name, willing), questionCharge(t, m, c), willing, come)
									}
								}
							}
						}
					}
				}
			}
		}
	}
	t.Logf("%d comparisons, %.3v of delta at .99 of epsilon", checked, near)
	if near < 1 {
		t.Errorf("1 %% less would never be wrong (%v): the comparison is weak", near)
	}
}
