package mechanism

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// clientsGame is a task of vecsum.md, section 12, in one dimension, so small that everything that may happen can
// be gone through. One client has one of two data sets. An adversary knows both, all other clients but the honest
// ones and their noise, and decides upon all that was shown before.
type clientsGame struct {
	toeplitz.Strategy
	every, rounds int
	bound         int     // of a vector: its size
	v             float64 // parameter of one client's noise
	honest        int     // in every round that is shown, the client itself among them if it is there
	others        bool    // or without it
	eps           float64
	void          int // bit t: round t shows nothing, whatever the adversary wants

	// For mutants: the client may take part with one of its data sets only, and its noise comes along; by how much
	// vectors of s rounds before move a row, if not by their weights.
	chooses bool
	drift   []int

	laws []noiseLaw // of the noise of so many clients together
	memo []map[clientsSituation]map[int64]float64
	last map[lastRow]float64
}

// noiseLaw is one of integers from −reach on.
type noiseLaw struct {
	reach int
	p     []float64
}

func (l noiseLaw) at(k int) float64 {
	if k += l.reach; k < 0 || k >= len(l.p) {
		return 0
	}
	return l.p[k]
}

// clientsSituation is what matters of the past but for the odds.
type clientsSituation struct {
	moves [3]int // by how much the client's vectors of the last rounds differ, latest first
	wait  [2]int // with each data set: the rounds before it may take part again
}

// row is what a round may show: by how much it differs between the data sets, and how many clients' noise it has
// with each.
type row struct {
	drift   int
	clients [2]int
}

type lastRow struct {
	row
	odds int64
}

// noises computes the laws of the noise of up to n clients by convolution of what each draws.
func (g *clientsGame) noises(n int) {
	reach := int(9*math.Sqrt(g.v)) + 2
	each := noiseLaw{reach, make([]float64, 2*reach+1)}
	var total float64
	for k := range each.p {
		each.p[k] = math.Exp(-float64((k-reach)*(k-reach)) / (2 * g.v))
		total += each.p[k]
	}
	for k := range each.p {
		each.p[k] /= total
	}
	g.laws = []noiseLaw{{0, []float64{1}}}
	for range n {
		l := g.laws[len(g.laws)-1]
		sum := noiseLaw{l.reach + reach, make([]float64, len(l.p)+2*reach)}
		for i, p := range l.p {
			for j, q := range each.p {
				sum.p[i+j] += p * q
			}
		}
		g.laws = append(g.laws, sum)
	}
}

// exact returns the δ of the best adversary.
func (g *clientsGame) exact() float64 {
	g.noises(g.honest + 2)
	g.memo, g.last = make([]map[clientsSituation]map[int64]float64, g.rounds), map[lastRow]float64{}
	for t := range g.memo {
		g.memo[t] = map[clientsSituation]map[int64]float64{}
	}
	return g.worth(0, 0, clientsSituation{})
}

// leastOdds stands for all that are less, and for what the second data set never shows.
const leastOdds = -600

func key(odds float64) int64 { return int64(math.Round(odds * 1e9)) }

// worth returns what the best adversary gains from round t on, over the probability of what was shown
// with the first data set: the sum of (P − e^ε·Q)⁺ over what is shown. With the second data set it has
// e^odds times that probability.
func (g *clientsGame) worth(t int, odds float64, s clientsSituation) float64 {
	if t == g.rounds {
		return math.Max(0, 1-math.Exp(g.eps+odds))
	}
	if t == g.rounds-1 {
		s.wait[0], s.wait[1] = min(s.wait[0], 1), min(s.wait[1], 1)
	}
	known := g.memo[t][s]
	if known == nil {
		known = map[int64]float64{}
		g.memo[t][s] = known
	}
	if w, ok := known[key(odds)]; ok {
		return w
	}
	most := 0.
	for _, m := range g.moves(s) {
		next := g.forget(t+1, m.situation)
		for _, r := range g.rows(t, m) {
			if r.drift == 0 && r.clients[0] == r.clients[1] {
				most = math.Max(most, g.worth(t+1, odds, next))
			} else {
				most = math.Max(most, g.shown(t, odds, r, next))
			}
		}
	}
	known[key(odds)] = most
	return most
}

// forget leaves out of a situation what no later round depends on, so that equal ones are found.
func (g *clientsGame) forget(t int, s clientsSituation) clientsSituation {
	for i := range s.moves {
		if t == g.rounds || i+1 >= g.weights() {
			s.moves[i] = 0
		}
	}
	return s
}

// weights is the number of rounds whose vectors are in a row.
func (g *clientsGame) weights() int { return max(len(g.Weights), len(g.drift)) }

func (g *clientsGame) weight(back int) int {
	if g.drift != nil {
		return g.drift[back]
	}
	return int(g.Weights[back])
}

// clientsMove is what the client does in a round: whether its report is there with each data set.
type clientsMove struct {
	situation clientsSituation
	in        [2]bool
}

// moves lists what the client may do in a round. It takes part, with vectors that differ by no more than twice
// the bound, zeros among them; or not.
func (g *clientsGame) moves(s clientsSituation) (out []clientsMove) {
	step := func(v int, in ...bool) {
		n := s
		copy(n.moves[1:], s.moves[:])
		n.moves[0] = v
		for i := range n.wait {
			if n.wait[i] = max(0, s.wait[i]-1); in[i] {
				n.wait[i] = g.every - 1
			}
		}
		out = append(out, clientsMove{n, [2]bool{in[0], in[1]}})
	}
	step(0, false, false)
	for v := -2 * g.bound; v <= 2*g.bound; v++ {
		if s.wait == [2]int{} && v != 0 { // equal vectors help nobody
			step(v, true, true)
		}
		if g.chooses && max(v, -v) <= g.bound {
			if s.wait[0] == 0 {
				step(v, true, false)
			}
			if s.wait[1] == 0 {
				step(v, false, true)
			}
		}
	}
	return out
}

// rows lists what round t may show: of the rounds whose sums go into it the adversary leaves out which it
// likes, or shows nothing. Of honest clients there are as many as there must be, or one more.
func (g *clientsGame) rows(t int, m clientsMove) []row {
	if g.void>>t&1 == 1 {
		return []row{{}}
	}
	drifts := []int{0}
	for i, v := range m.situation.moves[:min(len(m.situation.moves), g.weights())] {
		if v == 0 {
			continue
		}
		var more []int
		for _, d := range drifts {
			if d += g.weight(i) * v; !slices.Contains(drifts, d) && !slices.Contains(more, d) {
				more = append(more, d)
			}
		}
		if drifts = append(drifts, more...); g.drift != nil {
			drifts = more
		}
	}
	var out []row
	for _, d := range drifts {
		for more := range 2 {
			r := row{d, [2]int{g.honest + more, g.honest + more}}
			for i, in := range m.in {
				switch {
				case g.others && in:
					r.clients[i]++
				case !g.others && !in && m.in[1-i]:
					r.clients[i]-- // it is one of them, and is not there
				}
			}
			if max(r.clients[0], r.clients[1]) <= g.honest+1 {
				out = append(out, r)
			}
		}
	}
	return append(out, row{})
}

// shown returns what the adversary gains if round t shows a row.
func (g *clientsGame) shown(t int, odds float64, r row, next clientsSituation) (w float64) {
	at := lastRow{r, key(odds)}
	if t == g.rounds-1 {
		if w, ok := g.last[at]; ok {
			return w
		}
	}
	first, second := g.laws[r.clients[0]], g.laws[r.clients[1]]
	reach := min(first.reach, int(7.5*math.Sqrt(g.v*float64(r.clients[0])))+1)
	for k := -reach; k <= reach; k++ {
		p, q := first.at(k), second.at(k+r.drift)
		w += p * g.worth(t+1, math.Max(leastOdds, odds+math.Log(q/p)), next)
	}
	if t == g.rounds-1 {
		g.last[at] = w
	}
	return w
}

// promised returns the δ that a ledger of the charges for the rounds that are not void promises if a release's noise
// has sigma steps over the weight of the round's own vectors; +Inf: what the code says of the noise. charge returns
// the σ of one of them.
func (g *clientsGame) promised(sigma float64, charge func(m *AggregatedSum, previous, t int) (sigma float64)) float64 {
	p := vecsum.Aggregated{Users: 100, MinUsers: 10, Honest: float64(g.honest) / 10, Bound: int64(g.bound), Steps: 1, Radius: 1, Dim: 1, Variance: uint64(g.v)}.Weighted(g.Strategy)
	sigma /= float64(g.bound)
	if math.IsInf(sigma, 1) {
		var err error
		if sigma, _, err = p.Sigma(int64(g.rounds)); err != nil {
			panic(err)
		}
	}
	m, err := NewCorrelatedSum(p, g.Strategy, sigma, 1)
	if err != nil {
		panic(err)
	}
	var mus []gdp.Mu
	previous := 0
	for t := 1; t <= g.rounds; t++ {
		if g.void>>(t-1)&1 == 0 {
			mus = append(mus, gdp.Mu(2/charge(m, previous, t)))
			previous = t
		}
	}
	return gdp.Compose(mus...).Delta(g.eps)
}

// section12 returns the σ, in steps of the round's own vectors, of the noise of so many clients, of which r2 is given
// up, and what is charged for rounding.
func (g *clientsGame) section12(clients, r2 float64) (sigma, rounding float64) {
	x := math.Exp(-2 * math.Pi * math.Pi * r2)
	rho := 2 * x / (1 - x)
	return math.Ldexp(math.Sqrt(clients*g.v-r2), -g.Bits), (1 + math.Exp(g.eps)) * float64(g.rounds) * rho * (1 + 3*(clients-1))
}

// The theorem of vecsum.md, section 12, from its definitions. The client takes part in one of any `every`
// rounds at most; vectors, rounds, which earlier sums go into what is shown, which rounds are void and whether more than
// the honest clients that are relied on are there is chosen upon all that was shown. The noise is the sum of what
// each client draws. The exact δ is at most what the ledger promises for what it charged, and the charge for
// rounding. Ledgers that count less, and sums that are made otherwise, are broken.
func TestNoiseOfClientsByGoingThroughAllBehaviour(t *testing.T) {
	charged := func(m *AggregatedSum, from, to, every int) float64 {
		r, err := m.Charged(int64(from), int64(to), int64(every))
		if err != nil {
			t.Fatal(err)
		}
		return r.Sigma
	}
	tightest, caught := 0., map[string]float64{}
	catch := func(mutant string, exact, bound float64) { caught[mutant] = math.Max(caught[mutant], exact/bound) }
	flat, falling := toeplitz.Strategy{Bits: 0, Weights: []int64{1, 1}}, toeplitz.Strategy{Bits: 1, Weights: []int64{2, 1}}
	steep := toeplitz.Strategy{Bits: 2, Weights: []int64{4, 3}}
	cases := []clientsGame{
		{Strategy: flat, every: 2, rounds: 3, bound: 1, v: 4, honest: 1},
		{Strategy: falling, every: 2, rounds: 2, bound: 1, v: 8, honest: 2},
		{Strategy: falling, every: 2, rounds: 2, bound: 1, v: 3, honest: 3},
		{Strategy: flat, every: 2, rounds: 2, bound: 2, v: 6, honest: 2},
		{Strategy: steep, every: 2, rounds: 2, bound: 1, v: 30, honest: 1},
		{Strategy: flat, every: 2, rounds: 1, bound: 1, v: 60, honest: 1},
	}
	cases = append(cases, longtest.Pick([]clientsGame(nil), []clientsGame{
		{Strategy: falling, every: 2, rounds: 3, bound: 1, v: 12, honest: 1},
		{Strategy: falling, every: 2, rounds: 3, bound: 1, v: 6, honest: 2},
		{Strategy: falling, every: 3, rounds: 4, bound: 1, v: 4, honest: 2},
		{Strategy: toeplitz.Strategy{Bits: 1, Weights: []int64{2, 1, 1}}, every: 2, rounds: 3, bound: 1, v: 5, honest: 3},
		{Strategy: toeplitz.Strategy{Bits: 2, Weights: []int64{4, 3, 1}}, every: 2, rounds: 3, bound: 1, v: 40, honest: 1},
		{Strategy: flat, every: 2, rounds: 3, bound: 1, v: 1.6, honest: 3},
	})...)
	for _, g := range cases {
		truth := func(m *AggregatedSum, previous, t int) float64 { return charged(m, previous, t, g.every) }
		for _, g.eps = range longtest.Pick([]float64{.5}, []float64{0, .5, 1.5, 3}) {
			// A round that is void at the end changes nothing.
			for g.void = range 1 << (g.rounds - 1) {
				for _, g.others = range []bool{false, true} {
					exact := g.exact()
					for _, r2 := range []float64{.4, .8} {
						if r2 > g.v/2 {
							continue
						}
						sigma, rounding := g.section12(float64(g.honest), r2)
						bound := g.promised(sigma, truth) + rounding
						if exact > bound*(1+1e-9)+1e-12 {
							t.Errorf("%v, one of %d, %d rounds, void %b, norm %d, %d clients of V = %v, others %v, r2 = %v, eps = %v: delta %v above %v",
								g.Strategy, g.every, g.rounds, g.void, g.bound, g.honest, g.v, g.others, r2, g.eps, exact, bound)
						}
						if rounding < .05*exact {
							tightest = math.Max(tightest, exact/bound)
						}
						more, roundingOfMore := g.section12(float64(g.honest+1), r2)
						catch("one honest client more", exact, g.promised(more, truth)+roundingOfMore)
						catch("noise in units of the weight", exact, rounding+g.promised(math.Ldexp(sigma, g.Bits), truth))
						catch("void rounds not charged with the next", exact,
							rounding+g.promised(sigma, func(m *AggregatedSum, _, t int) float64 { return charged(m, t-1, t, g.every) }))
					}
				}
			}
			// Sums that are made otherwise, and clients who come as their data say.
			g.void = 0
			sigma, rounding := g.section12(float64(g.honest), .4)
			bound := g.promised(sigma, truth) + rounding
			wrong := g
			wrong.drift = heldWithNoise(g.Strategy, min(3, g.rounds))
			catch("sums held with their noise", wrong.exact(), bound)
			if wrong.drift = nil; g.rounds <= 2 {
				for _, wrong.others = range []bool{false, true} {
					wrong.chooses = true
					catch(fmt.Sprintf("taking part depends on the data, besides %v", wrong.others), wrong.exact(), bound)
				}
			}
		}
	}
	t.Logf("%.4v of the bound; mutants:", tightest)
	for mutant, most := range caught {
		t.Logf("%s: %.3v", mutant, most)
	}
	if tightest < .9 {
		t.Errorf("the bound is met to %v only: are the adversaries as strong as the assumptions allow?", tightest)
	}
	if len(caught) != 6 {
		t.Errorf("mutants: %v", caught)
	}
	for mutant, most := range caught {
		if most < 1.02 {
			t.Errorf("%s: %v of its bound is not enough: the test is blind", mutant, most)
		}
	}
}

// What the code says of noise that it takes, of 50 or more a client, and charges for rounds covers the exact δ.
func TestSigmaOfClientsNoiseByGoingThroughAllBehaviour(t *testing.T) {
	tightest := 0.
	flat, falling := toeplitz.Strategy{Bits: 0, Weights: []int64{1, 1}}, toeplitz.Strategy{Bits: 1, Weights: []int64{2, 1}}
	for _, g := range append([]clientsGame{
		{Strategy: flat, every: 2, rounds: 2, bound: 2, v: 50, honest: 1},
		{Strategy: falling, every: 2, rounds: 2, bound: 2, v: 50, honest: 3},
		{Strategy: flat, every: 2, rounds: 1, bound: 10, v: 400, honest: 2},
		{Strategy: falling, every: 2, rounds: 1, bound: 8, v: 300, honest: 3},
	}, longtest.Pick([]clientsGame(nil), []clientsGame{
		{Strategy: flat, every: 2, rounds: 2, bound: 4, v: 50, honest: 2},
		{Strategy: falling, every: 2, rounds: 2, bound: 3, v: 200, honest: 2},
		{Strategy: falling, every: 2, rounds: 3, bound: 2, v: 50, honest: 2},
		{Strategy: falling, every: 2, rounds: 1, bound: 20, v: 1600, honest: 3},
	})...) {
		for _, g.eps = range longtest.Pick([]float64{1}, []float64{.5, 3}) {
			for g.void = range 1 << (g.rounds - 1) {
				for _, g.others = range []bool{false, true} {
					exact, bound := g.exact(), g.promised(math.Inf(1), func(m *AggregatedSum, previous, t int) float64 {
						r, err := m.Charged(int64(previous), int64(t), int64(g.every))
						if err != nil {
							panic(err)
						}
						return r.Sigma
					})
					if exact > bound*(1+1e-9) {
						t.Errorf("%+v, one of %d, %d rounds, void %b, norm %d, %d clients of V = %v, others %v, eps = %v: delta %v above %v",
							g.Strategy, g.every, g.rounds, g.void, g.bound, g.honest, g.v, g.others, g.eps, exact, bound)
					}
					tightest = math.Max(tightest, exact/bound)
				}
			}
		}
	}
	t.Logf("%.4v of the bound", tightest)
	if tightest < .9 {
		t.Errorf("%v of the bound", tightest)
	}
}

// heldWithNoise returns by how much the vectors of s rounds before move a row from which the noise of the rows before
// was taken, if aggregators held each round's sum with its noise. With weights w rows are w_0·X_t + N_t +
// Σ_{s≥1} w_s·(X_{t−s} + N_{t−s}), so it is W/M for the power series W of w and M of 1, w_1, w_2, ….
func heldWithNoise(s toeplitz.Strategy, rows int) []int {
	w := func(k int) int {
		if k < len(s.Weights) {
			return int(s.Weights[k])
		}
		return 0
	}
	out := make([]int, rows)
	for k := range out {
		out[k] = w(k)
		for j := 1; j <= k; j++ {
			out[k] -= w(j) * out[k-j]
		}
	}
	return out
}
