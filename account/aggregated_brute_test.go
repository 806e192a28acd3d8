package account

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// smallSum is a round of vecsum.md, section 9, so small that all that is seen can be listed: vectors
// of one integer within ±bound, sums modulo q (0: of all integers), noise of parameter v.
type smallSum struct {
	bound, q int
	v        float64
}

// law adds to out, at outcome·shows + shown, the chances of a noisy sum of vectors with sum x.
func (s smallSum) law(out []outcome, order int, x, shows, shown int, p float64) {
	reach := s.reach()
	total := 0.
	for k := -reach; k <= reach; k++ {
		total += math.Exp(-float64(k*k) / (2 * s.v))
	}
	for k := -reach; k <= reach; k++ {
		at := x + k + s.width()/2
		if s.q > 0 {
			at = ((x+k)%s.q + s.q) % s.q
		}
		c := p * math.Exp(-float64(k*k)/(2*s.v)) / total
		if o := &out[at*shows+shown]; order == 0 {
			o.p += c
		} else {
			o.q += c
		}
	}
}

func (s smallSum) reach() int { return int(9*math.Sqrt(s.v)) + 2 }

func (s smallSum) width() int {
	if s.q > 0 {
		return s.q
	}
	return 2*(s.reach()+5*s.bound) + 2
}

// crowd is how the clients of a round are drawn: the honest, the first of whom is the client, and
// colluders, of whom is seen whether they are there.
type crowd struct {
	honest, colluders int
	k                 int     // of all, drawn at random; 0: by coins
	gamma             float64 // of the coins; 1: all come
}

// pair lists what is seen of one round, at a client's vector x or y, when the other honest clients
// hold others. Sums of colluders, and the second aggregator's noise, are known and left out.
func (s smallSum) pair(c crowd, x, y, others int) []outcome {
	n := c.honest + c.colluders
	shows := (c.honest + 1) * (1 << c.colluders)
	out := make([]outcome, s.width()*shows)
	for set := range 1 << n {
		size, p := 0, 1.
		for i := range n {
			size += set >> i & 1
		}
		if c.k > 0 {
			if size != c.k {
				continue
			}
			p = math.Exp(-lchoose(float64(n), float64(c.k)))
		} else {
			p = math.Pow(c.gamma, float64(size)) * math.Pow(1-c.gamma, float64(n-size))
		}
		sum, came := 0, 0
		for i := 1; i < c.honest; i++ {
			sum += others * (set >> i & 1)
		}
		for i := range c.honest {
			came += set >> i & 1
		}
		shown := came<<c.colluders | set>>c.honest
		for order, v := range []int{x, y} {
			s.law(out, order, sum+v*(set&1), shows, shown, p)
		}
	}
	return slices.DeleteFunc(out, func(o outcome) bool { return o.p == 0 && o.q == 0 })
}

// worst returns the largest δ at eps of one round or two. Of two, the second is chosen for each
// outcome of the first: what the client holds, what others hold, and, as the last pair has it,
// that the client is left out.
func worst(rounds [][]outcome, times int, eps float64) (most float64) {
	e := math.Exp(eps)
	one := func(a, b float64, r []outcome) (d float64) {
		for _, o := range r {
			d += math.Max(0, a*o.p-e*b*o.q)
		}
		return d
	}
	for range 2 { // both orders
		for _, first := range rounds {
			d := 0.
			if times == 1 {
				d = one(1, 1, first)
			} else {
				for _, o := range first {
					best := math.Max(0, o.p-e*o.q) // left out
					for _, second := range rounds {
						best = math.Max(best, one(o.p, o.q, second))
					}
					d += best
				}
			}
			most = math.Max(most, d)
		}
		for i, r := range rounds {
			turned := make([]outcome, len(r))
			for j, o := range r {
				turned[j] = outcome{o.q, o.p}
			}
			rounds[i] = turned
		}
	}
	return most
}

// The theorem of vecsum.md, section 9, from its definitions: whatever one client and the other honest
// ones hold, whoever is left out upon what was seen, over two adaptive rounds, with reduction modulo
// q or without, δ is at most what the accountant says of sums with that much Gaussian noise, and the
// charge for rounding.
func TestSumOfAggregatorsByEnumeration(t *testing.T) {
	longtest.Only(t, "lists all outcomes of two adaptive rounds")
	tightest := map[string]float64{}
	for name, c := range map[string]struct {
		crowd
		ask func(*Query)
	}{
		"all": {crowd{1, 0, 1, 0}, func(*Query) {}},
		"one of two": {crowd{2, 0, 1, 0}, func(q *Query) {
			q.Participation, q.Population, q.Reports = dp.Sampled, 2, 1
		}},
		"two of three": {crowd{3, 0, 2, 0}, func(q *Query) {
			q.Participation, q.Population, q.Reports = dp.Sampled, 3, 2
		}},
		"one of four, one tells": {crowd{3, 1, 1, 0}, func(q *Query) {
			q.Participation, q.Population, q.Reports, q.Colluders = dp.Sampled, 4, 1, 1
		}},
		"two of four, two tell": {crowd{2, 2, 2, 0}, func(q *Query) {
			q.Participation, q.Population, q.Reports, q.Colluders = dp.Sampled, 4, 2, 2
		}},
		"coins": {crowd{3, 0, 0, .2}, func(q *Query) {
			q.Participation, q.Population, q.Gamma = dp.CheckIn, 3, .2
		}},
		"coins, one tells": {crowd{2, 1, 0, .3}, func(q *Query) {
			q.Participation, q.Population, q.Gamma, q.Colluders = dp.CheckIn, 3, .3, 1
		}},
	} {
		for _, s := range []smallSum{{1, 0, 1}, {1, 0, 4}, {2, 0, 4}, {1, 7, 2}, {2, 0, 12}, {2, 19, 12}, {1, 2, 1}} {
			for _, r2 := range []float64{.4, .8} {
				var rounds [][]outcome
				for _, v := range [][2]int{{s.bound, -s.bound}, {s.bound, 0}, {0, -s.bound}} {
					for _, others := range []int{-s.bound, 0, s.bound} {
						rounds = append(rounds, s.pair(c.crowd, v[0], v[1], others))
						if c.honest == 1 {
							break
						}
					}
				}
				// A rounding at random is a mixture of the pairs.
				mixed := s.pair(c.crowd, s.bound, -s.bound, s.bound)
				for i, o := range s.pair(c.crowd, s.bound, -s.bound, s.bound) {
					mixed[i] = outcome{.7*o.p + .3*o.q, o.q}
				}
				rounds = append(rounds, mixed)
				for times := 1; times <= 2; times++ {
					for _, eps := range []float64{0, .2, 1, 3} {
						q := Query{Trust: dp.Distributed, Class: dp.GaussianSum, Participation: dp.All, Population: 1, Rounds: int64(times), AskDelta: true, Eps: eps,
							Sigma: math.Sqrt(s.v-r2) / float64(s.bound)}
						c.ask(&q)
						r, err := Answer(context.Background(), q, "best")
						if err != nil || r.Upper == nil {
							t.Fatalf("%s: %v", name, err)
						}
						x := math.Exp(-2 * math.Pi * math.Pi * r2)
						charge := (1 + math.Exp(eps)) * float64(times) * 2 * x / (1 - x)
						exact := worst(rounds, times, eps)
						if exact > (r.Upper.Delta+charge)*(1+1e-9)+1e-15 {
							t.Errorf("%s, %+v, r2 = %v, %d rounds, eps = %v: delta %v above %v + %v", name, s, r2, times, eps, exact, r.Upper.Delta, charge)
						}
						if charge < .05*exact {
							key := fmt.Sprint(times)
							tightest[key] = math.Max(tightest[key], exact/(r.Upper.Delta+charge))
						}
					}
				}
			}
		}
	}
	t.Logf("%.3v of the bound", tightest)
	for times, part := range tightest {
		if part < .9 {
			t.Errorf("%s rounds: the bound is met to %v only: is the enumeration right?", times, part)
		}
	}
}

// Whoever keeps all but one client away knows who is in the sum. No drop-out may be counted as
// chance: as one of three it would cost less than it does.
func TestDropOutsOfASumAreNoChance(t *testing.T) {
	s := smallSum{1, 0, 4}
	exact := worst([][]outcome{s.pair(crowd{1, 0, 1, 0}, 1, -1, 0)}, 1, .2)
	q := Query{Trust: dp.Distributed, Class: dp.GaussianSum, Participation: dp.Sampled, Population: 3, Reports: 1, Rounds: 1, AskDelta: true, Eps: .2, Sigma: 2}
	r, err := Answer(context.Background(), q, "best")
	if err != nil || !(exact > 1.5*r.Upper.Delta) {
		t.Fatalf("delta %v of a client left alone, %+v as one of three, %v: the test is blind", exact, r.Upper, err)
	}
	for _, p := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn} {
		q := aggregatedQuery()
		switch q.Participation = p; p {
		case dp.Sampled:
			q.Reports = 100
		case dp.CheckIn:
			q.Gamma = .1
		}
		whole := epsOf(t, q)
		if q.Dropout = .5; epsOf(t, q) != whole {
			t.Errorf("%s: epsilon = %v with drop-outs, %v without", p, epsOf(t, q), whole)
		}
		// The class may be asked about directly, too.
		direct := Query{Trust: dp.Distributed, Class: dp.GaussianSum, Participation: p, Population: 1000, Reports: q.Reports, Gamma: q.Gamma, Rounds: 1, Sigma: 2, Delta: 1e-6}
		whole = epsOf(t, direct)
		for _, direct.Dropout = range []float64{.5, .99} {
			if eps := epsOf(t, direct); eps != whole {
				t.Errorf("%s, the class: epsilon = %v with drop-outs %v, %v without", p, eps, direct.Dropout, whole)
			}
		}
	}
}
