package certificate

import (
	"context"
	"errors"
	"math"
	"math/big"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

var sumQueries = []struct {
	method string
	query  Query
}{
	{TVPLD, Query{Participation: dp.All, Randomizer: dp.Generic, Eps0: 1.5, TV: .1, N: 4}},
	{KRRPLD, Query{Participation: dp.Once, Randomizer: dp.KRR, Symbols: 5, Eps0: 1, N: 9, K: 5, Colluders: 2}},
	{LaplacePLD, Query{Participation: dp.Sampled, Randomizer: dp.LaplaceL1, Eps0: 2, N: 7, K: 3}},
	{CapPLD, Query{Participation: dp.Sampled, Randomizer: dp.Cap, Eps0: 2, TV: .06, N: 7, K: 4, Colluders: 2}},
	{CapPLD, Query{Participation: dp.Sampled, Randomizer: dp.Cap, Eps0: 1, TV: .2, N: 6, K: 5, Colluders: 5}},
	{RisingPLD, Query{Participation: dp.CheckIn, Randomizer: dp.Rising, Eps0: 2.2, Height: 2, Shares: []float64{.3, .1, .04}, Eta: .01, N: 5, Gamma: .4, Colluders: 1, KHidden: true}},
	{RisingPLD, Query{Participation: dp.All, Randomizer: dp.Rising, Eps0: 1.4, Height: 3, Shares: []float64{.7}, N: 3, Dropout: .2}},
	{BlanketPLD, Query{Participation: dp.Sampled, Randomizer: dp.Generic, Eps0: 2, N: 7, K: 4, Colluders: 2}},
	{BlanketPLD, Query{Participation: dp.Sampled, Randomizer: dp.Generic, Eps0: 2, N: 8, K: 6, Colluders: 3, Dropout: .3}},
	{CapPLD, Query{Participation: dp.Sampled, Randomizer: dp.Cap, Eps0: 1, TV: .2, N: 6, K: 4, Colluders: 1, Dropout: .6}},
	{BlanketPLD, Query{Participation: dp.Sampled, Randomizer: dp.Generic, Eps0: 1, N: 6, K: 6, Colluders: 2, Dropout: .3}},
}

// outcome is a ray in float64.
type outcome struct{ mass, p, q float64 }

// bruteRays writes the pairs down as the notes beside package amplify define them.
func bruteRays(method string, q Query) []outcome {
	e := math.Exp(q.Eps0)
	three := func(a, c float64) []outcome {
		w := 1 - a*(e+1)
		return []outcome{{a, e, 1}, {a, 1, e}, {w / c, c, c}}
	}
	switch method {
	case TVPLD:
		return three(q.TV, e)
	case KRRPLD:
		return three(1/(e+float64(q.Symbols)-1), 1)
	case LaplacePLD:
		return three((1-math.Exp(-q.Eps0/2-q.Eps0*q.Eps0*0x1p-20))/(e-1), e)
	case CapPLD:
		return three(q.TV, 1)
	case BlanketPLD:
		return three(1/(e+1), 1)
	}
	// The quantile functions of H*, cut at every place where one of them jumps.
	var sum float64
	for _, s := range q.Shares {
		sum += s
	}
	least, most := 1+q.Height*sum*(1-q.Eta), 1+q.Height*sum*(1+q.Eta)
	rho := 1 / (1 - (most-least)/(1-q.Shares[0]*(1+q.Eta)))
	level := func(above float64) float64 { // of the point with this share above
		x := 1.
		for j, s := range q.Shares {
			if above < s*(1+q.Eta) {
				x = rho * (1 + q.Height*float64(j+1))
			}
		}
		return x
	}
	const cells = 20000
	var out []outcome
	for i := range cells {
		u := (float64(i) + .5) / cells
		out = append(out, outcome{1 / (cells * rho * least), level(1 - u), level(u)})
	}
	merged := map[[2]float64]float64{}
	for _, o := range out {
		merged[[2]float64{o.p, o.q}] += o.mass
	}
	out = nil
	for x, m := range merged {
		out = append(out, outcome{m, x[0], x[1]})
	}
	return out
}

// bruteSum returns E(s + X_1 + … + X_k)₊.
func bruteSum(rays []outcome, g, s float64, k int64) float64 {
	if k == 0 {
		return math.Max(0, s)
	}
	rest, sum := 1., 0.
	for _, r := range rays {
		sum += r.mass * bruteSum(rays, g, s+r.p-g*r.q, k-1)
		rest -= r.mass
	}
	return sum + rest*bruteSum(rays, g, s, k-1)
}

// bruteRound returns a round's divergence, summed over every number of honest reports.
func bruteRound(rays []outcome, q Query, g float64) float64 {
	of := func(n, x int64) float64 {
		c, _ := choose(n, x).Float64()
		return c
	}
	n := q.N - q.Colluders
	chance, asked := 1-q.Dropout, n
	weight := func(k int64) float64 {
		return of(asked, k) * math.Pow(chance, float64(k)) * math.Pow(1-chance, float64(asked-k))
	}
	switch q.Participation {
	case dp.CheckIn:
		chance *= q.Gamma
	case dp.Once:
		asked = q.K - q.Colluders
		n = asked
	case dp.Sampled:
		asked = q.K
		weight = func(k int64) float64 {
			if q.K-k > q.Colluders || k > n {
				return 0
			}
			return of(n, k) * of(q.Colluders, q.K-k) / of(q.N, q.K)
		}
		if q.Dropout > 0 {
			drawn := weight
			weight = func(k int64) (sum float64) {
				for h := k; h <= asked; h++ {
					sum += drawn(h) * of(h, k) * math.Pow(chance, float64(k)) * math.Pow(1-chance, float64(h-k))
				}
				return sum
			}
		}
	}
	var sum float64
	for k := int64(1); k <= asked; k++ {
		gamma := float64(k) / float64(n)
		sum += weight(k) * gamma / float64(k) * bruteSum(rays, 1+(g-1)/gamma, 0, k)
	}
	return sum
}

// Sums are never below the sum over every outcome of every report, and close to it.
func TestSumsAgainstEveryOutcome(t *testing.T) {
	for _, c := range sumQueries {
		c.query.Trust, c.query.Adjacency = dp.Shuffle, dp.ReplaceOne
		d := Document{Query: c.query, Claim: Claim{Method: c.method}, Round: &Round{Infinite: 0x1p-60, Clones: 1, Reports: every(c.query.N)}}
		coarse := d
		coarse.Round = &Round{Infinite: 0x1p-60, Clones: 1, Reports: []int64{2}}
		unaware := d
		if c.query.thinned() {
			d.Round = &Round{Infinite: 0x1p-60, Clones: 1, Reports: every(c.query.N), Drawn: every(c.query.N)}
			coarse.Round.Drawn = []int64{2, 4}
		}
		var g []*big.Float
		for i := range 7 {
			g = append(g, exp(real(c.query.Eps0*float64(i)/6)))
		}
		exact, err := d.curve(begin(context.Background(), nil), g)
		if err != nil {
			t.Fatal(err)
		}
		blocked, err := coarse.curve(begin(context.Background(), nil), g)
		if err != nil {
			t.Fatal(err)
		}
		all := exact
		if c.query.thinned() { // in one block of those drawn
			if all, err = unaware.curve(begin(context.Background(), nil), g); err != nil {
				t.Fatal(err)
			}
		}
		rays := bruteRays(c.method, c.query)
		for i := range g {
			at, _ := g[i].Float64()
			want := bruteRound(rays, c.query, at)
			got, _ := exact[i].Float64()
			// Numbers of reports share ratios, between which chords count.
			room := .002
			if !d.Query.reporters().fixed() {
				room = .3
			}
			if got < want*(1-1e-12)-1e-15 || got > want*(1+room)+1e-4 {
				t.Errorf("%s %+v at g = %v: %v, every outcome %v", c.method, c.query, at, got, want)
			}
			if b, _ := blocked[i].Float64(); b < want*(1-1e-12)-1e-15 {
				t.Errorf("%s %+v at g = %v: in blocks %v, below %v", c.method, c.query, at, b, want)
			}
			if b, _ := all[i].Float64(); b < want*(1-1e-12)-1e-15 {
				t.Errorf("%s %+v at g = %v: in one block %v, below %v", c.method, c.query, at, b, want)
			}
		}
	}
}

// Both laws of a pair have mass 1 on the rays, and no ray has none.
func TestRaysAreLaws(t *testing.T) {
	for _, c := range sumQueries {
		rays, err := Document{Query: c.query, Claim: Claim{Method: c.method}}.rays()
		if err != nil {
			t.Fatal(err)
		}
		if rays == nil {
			continue
		}
		p, q, mass := real(0), real(0), real(0)
		for _, r := range rays {
			p, q, mass = add(p, mul(r.mass, r.p)), add(q, mul(r.mass, r.q)), add(mass, r.mass)
		}
		if !near(real(1), p, -300) || !near(real(1), q, -300) || mass.Cmp(real(1)) > 0 {
			t.Errorf("%s: masses %v and %v, %v in all", c.method, p, q, mass)
		}
	}
}

// A law that does not fit the query is refused.
func TestStepsThatAreNotWhatTheySay(t *testing.T) {
	for _, q := range []Query{
		{Eps0: 1.94, Height: 2, Shares: []float64{.3, .1, .04}, Eta: .1},
		{Eps0: 9, Height: 2, Shares: []float64{.3, .1, .04}, Eta: .9},
	} {
		d := Document{Query: q, Claim: Claim{Method: RisingPLD}}
		if _, err := d.rays(); !errors.Is(err, ErrRejected) {
			t.Errorf("%+v: error %v", q, err)
		}
	}
	// No method proves anything about reports that do not exist, also if it does not use the steps.
	q := Query{Trust: dp.Shuffle, Participation: dp.All, Adjacency: dp.ReplaceOne, Randomizer: dp.Rising, N: 9, Rounds: 1, Height: 2, Shares: []float64{.3, .1, .04}}
	for eps0, fits := range map[float64]bool{1.94: false, 1.95: true} {
		q.Eps0 = eps0
		d := Document{Format: Format, Version: 1, Query: q, Claim: Claim{Method: Basic, Eps: 2, Delta: 1e-5}}
		if _, err := d.Verify(t.Context()); fits != (err == nil) || !fits && !errors.Is(err, ErrRejected) {
			t.Errorf("eps0 = %v: error %v", eps0, err)
		}
	}
}

// The sum of many fair coins is nearly normal, for any number of them.
func TestSumsOfManyReports(t *testing.T) {
	for _, k := range longtest.Pick([]int64{1, 2, 1023, 1e12 + 1}, []int64{1, 2, 1000, 1023, 1e6, 1e12 + 1}) {
		const a, step = .1, .25
		// X is ±step with probability a each: a pair with p − q = ±step at G = 1.
		rays := []ray{{real(a), real(1 + step), real(1)}, {real(a), real(1), real(1 + step)}}
		got, err := divergences(begin(context.Background(), nil), rays, real(1), []int64{k}, two(-40))
		if err != nil {
			t.Fatal(err)
		}
		have, _ := got[0].Float64()
		want := math.Sqrt(2*a*step*step/(2*math.Pi)) / math.Sqrt(float64(k))
		switch {
		case k == 1:
			want = a * step
		case k == 2: // 2·2·a(1−2a)·step + 2a²·2·step for (s)₊, over 2
			want = (2*a*(1-2*a)*step + a*a*2*step) / 2
		}
		slack := .002 + .3/float64(k)
		if k <= 2 {
			slack = .002
		}
		if have < want*(1-slack) || k <= 2 && have < want || have > want*(1+slack) {
			t.Errorf("%d reports: %v, want %v", k, have, want)
		}
	}
	sizes := []int64{3, 4, 9, 64, 200}
	rays := threeParts(exp(real(2)), real(.05), real(1))
	all, err := divergences(begin(context.Background(), nil), rays, real(1.5), sizes, two(-60))
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range sizes {
		one, err := divergences(begin(context.Background(), nil), rays, real(1.5), []int64{k}, two(-60))
		if err != nil {
			t.Fatal(err)
		}
		x, _ := all[i].Float64()
		y, _ := one[0].Float64()
		if math.Abs(x/y-1) > .002 {
			t.Errorf("%d reports: %v among others, %v alone", k, x, y)
		}
	}
}

// Where the largest ratios are near, few reports speak for the client and any one of the others
// outweighs them all: the grid must follow the few.
func TestSumsNearTheLargestRatio(t *testing.T) {
	const k, bigE, a, c = 200, 400., .00245, 1.
	masses := [4]float64{a, a, 1 - a*(bigE+1), 0}
	masses[3] = 1 - masses[0] - masses[1] - masses[2]
	logarithm := func(n int) float64 { x, _ := math.Lgamma(float64(n) + 1); return x }
	for _, share := range []float64{.5, .8, .94, .99} {
		G := share * bigE
		exact := 0.
		for up := range k + 1 {
			for down := range k + 1 - up {
				for middle := range k + 1 - up - down {
					sum := float64(up)*(bigE-G) + float64(down)*(1-G*bigE) + float64(middle)*c*(1-G)
					if sum <= 0 {
						break
					}
					counts := [4]int{up, down, middle, k - up - down - middle}
					log := logarithm(k)
					for i, n := range counts {
						log += float64(n)*math.Log(masses[i]) - logarithm(n)
					}
					exact += math.Exp(log) * sum / k
				}
			}
		}
		got, err := divergences(begin(context.Background(), nil), threeParts(real(bigE), real(a), real(c)), real(G), []int64{k}, real(1e-30))
		if err != nil {
			t.Fatal(err)
		}
		found, _ := got[0].Float64()
		if !(found >= exact*(1-1e-9) && found <= exact*1.01) {
			t.Errorf("at %v of the largest ratio the divergence is bounded by %v, is %v", share, found, exact)
		}
	}
}
