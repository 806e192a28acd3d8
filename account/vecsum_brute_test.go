package account

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// cohort is one way in which a round may turn out, its number of reports shown:
// the chance that this client is in it, and how many clients' noise is there.
type cohort struct {
	prob, included float64
	noise          int64
}

// world is what the clients who are not relied on do, and how many there are: all
// ways in which a round is opened. What is missing to 1 is void.
type world struct {
	name    string
	cohorts []cohort
}

// relied is how many of n clients are honest for sure.
func (q Query) relied(n int64) int64 { return int64(q.Sum.Honest * float64(n)) }

// worlds lists the worst behaviours that a query's assumptions allow, of its n
// clients or fewer of whom more than are relied on may be honest. Others come, and
// add nothing, only where a round would be void without them and they may: they never
// make the honest fewer than their share. Whoever opens more rounds shows more.
func worlds(q Query) (out []world) {
	n, report, least := q.Population, 1-q.Dropout, q.relied(q.Sum.MinUsers)
	// opens says that h honest reports and at most a of others make a round.
	opens := func(h, a int64) bool {
		need := max(0, q.Sum.MinUsers-h)
		return h > 0 && need <= a && q.relied(h+need) <= h
	}
	add := func(name string, law func(yield func(prob, included float64, h int64))) {
		w := world{name: name}
		law(func(prob, included float64, h int64) {
			if prob > 1e-40 {
				w.cohorts = append(w.cohorts, cohort{prob, included, h})
			}
		})
		if len(w.cohorts) > 0 {
			out = append(out, w)
		}
	}
	// coins yields how many of h honest clients come, a others standing by.
	coins := func(h, a int64, rate, prob, from float64, yield func(float64, float64, int64)) {
		for k := int64(1); k <= h; k++ {
			if p := prob * math.Exp(tail.LogPMF(h, k, rate, 1-rate)); opens(k, a) {
				yield(p, float64(k)/from, k)
			}
		}
	}
	// everybody comes, and of k reports ⌊γk⌋ add noise.
	everybody := func(k int64, prob, from float64, yield func(float64, float64, int64)) {
		if k >= q.Sum.MinUsers {
			yield(prob, float64(k)/from, q.relied(k))
		}
	}
	first := q.relied(n)
	honests := []int64{first, (first + n) / 2, n}
	switch q.Participation {
	case dp.All, dp.CheckIn:
		if q.Participation == dp.CheckIn {
			report *= q.Gamma
		}
		for _, h := range honests {
			add(fmt.Sprintf("%d honest", h), func(yield func(float64, float64, int64)) { coins(h, n-h, report, 1, float64(h), yield) })
		}
		add("all come", func(yield func(float64, float64, int64)) {
			for k := int64(1); k <= n; k++ {
				everybody(k, math.Exp(tail.LogPMF(n, k, report, 1-report)), float64(n), yield)
			}
		})
	case dp.Sampled:
		k := q.Reports
		draw := func(honest, j int64) float64 { // j of the k asked are honest
			return math.Exp(tail.LogPMF(honest, j, .5, .5) + tail.LogPMF(n-honest, k-j, .5, .5) - tail.LogPMF(n, k, .5, .5))
		}
		for _, h := range honests {
			add(fmt.Sprintf("%d honest", h), func(yield func(float64, float64, int64)) {
				for j := int64(1); j <= min(k, h); j++ {
					coins(j, k-j, report, draw(h, j), float64(h), yield)
				}
			})
		}
		add("all come", func(yield func(float64, float64, int64)) {
			for j := int64(1); j <= k; j++ {
				everybody(j, math.Exp(tail.LogPMF(k, j, report, 1-report)), float64(n), yield)
			}
		})
	case dp.Once: // a client's batch is fixed, and so is who of it is honest
		k := q.Reports
		for _, h := range []int64{least, least + 1, q.relied(k), (k + least) / 2, k} {
			if h >= 1 && h <= k && k-h <= n-first {
				add(fmt.Sprintf("%d of a batch honest", h), func(yield func(float64, float64, int64)) { coins(h, k-h, report, 1, float64(h), yield) })
			}
		}
	}
	if q.Dropout == 0 && q.Participation != dp.CheckIn && q.Sum.Honest == 1 {
		// No rate of drop-outs is given, so none is relied on.
		from := float64(q.Population)
		if q.Participation != dp.Sampled {
			from = float64(q.Sum.MinUsers)
		}
		add("n-min come", func(yield func(float64, float64, int64)) {
			everybody(q.Sum.MinUsers, 1, from, yield)
		})
	}
	return out
}

// outcome of a round: its probability at either dataset.
type outcome struct{ p, q float64 }

// outcomes of a world's round in which the client holds an end of the range, or all
// others' end; void rounds are one outcome, in which nothing is learnt.
func (w world) outcomes(s vecsum.Params) (out []outcome) {
	void := 1.
	laws := map[int64][]float64{} // of so many bits
	for _, c := range w.cohorts {
		void -= c.prob
		bits := c.noise * s.Noise.Bits
		// Noise beyond 12 deviations has 1e-33 of the mass: left out is less δ.
		reach := int64(6*math.Sqrt(float64(bits))) + 2
		from, to := max(0, bits/2-reach), min(bits+s.Grid, bits/2+reach+s.Grid)
		law := laws[bits]
		if law == nil {
			for x := from - s.Grid; x <= to; x++ {
				law = append(law, math.Exp(tail.LogPMF(bits, x, .5, .5)))
			}
			laws[bits] = law
		}
		for i := range law[s.Grid:] {
			q, shifted := law[int64(i)+s.Grid], law[i]
			out = append(out, outcome{c.prob * ((1-c.included)*q + c.included*shifted), c.prob * q})
		}
	}
	return append(out, outcome{math.Max(0, void), math.Max(0, void)})
}

// exactDelta is δ at eps of one round or two, the larger of both orders.
func exactDelta(round []outcome, times int64, eps float64) (worst float64) {
	for range 2 {
		e, delta := math.Exp(math.Min(eps, 600)), 0.
		if times == 1 {
			for _, o := range round {
				delta += math.Max(0, o.p-e*o.q)
			}
		} else {
			// Of the second round count the outcomes of the larger ratio.
			sorted := append([]outcome(nil), round...)
			sort.Slice(sorted, func(i, j int) bool { return sorted[i].p*sorted[j].q > sorted[j].p*sorted[i].q })
			sums := make([]outcome, len(sorted)+1)
			for i, o := range sorted {
				sums[i+1] = outcome{sums[i].p + o.p, sums[i].q + o.q}
			}
			for _, o := range round {
				i := sort.Search(len(sorted), func(i int) bool { return o.p*sorted[i].p <= e*o.q*sorted[i].q })
				delta += math.Max(0, o.p*sums[i].p-e*o.q*sums[i].q)
			}
		}
		worst = math.Max(worst, delta)
		turned := make([]outcome, len(round))
		for i, o := range round {
			turned[i] = outcome{o.q, o.p}
		}
		round = turned
	}
	return worst
}

// holdSum says where a bound on ε at the query's δ is below what some world shows,
// and returns the largest exact ε over the tightest bound, to a tenth.
func holdSum(t *testing.T, q Query) (closest float64) {
	t.Helper()
	reply, err := Answer(context.Background(), q, "all")
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	if reply.Upper == nil {
		return 0
	}
	q = q.withSumDefaults()
	delta := q.Delta
	for _, w := range worlds(q) {
		round := w.outcomes(q.Sum)
		for _, l := range reply.Bounds {
			if !l.Applies {
				continue
			}
			if d := exactDelta(round, q.times(), l.Eps); !(d <= delta*(1+1e-9)) {
				t.Errorf("%s: %s says %v at %v, of which delta is %v: %+v", w.name, l.Method, l.Eps, delta, d, q)
			}
		}
		for closest < .9 && exactDelta(round, q.times(), (closest+.1)*reply.Upper.Eps) > delta {
			closest += .1
		}
	}
	return closest
}

// randomSum draws rounds that worlds can be listed of: two if they are small.
func randomSum(r *rand.Rand) (Query, bool) {
	parts := []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once}
	grid := 1 + r.Int64N(20)
	q := Query{Class: VectorSumClass, Participation: parts[r.IntN(4)], Population: 1 + int64(math.Exp(r.Float64()*4.5)), Rounds: 1,
		Delta: math.Pow(10, -1-12*r.Float64()), Sum: vecsum.Params{Dim: 1, Grid: grid, Norm: grid*grid + 1, Honest: []float64{1, 1, .95, .7, .5, .34, .1, .05 + .95*r.Float64()}[r.IntN(8)],
			Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: 30 + int64(float64(grid*grid)*math.Exp(4*r.Float64()))}},
	}
	if q.Population <= 6 {
		q.Rounds = 1 + r.Int64N(2)
	}
	if r.IntN(2) == 0 {
		q.Dropout = math.Exp(-14 * r.Float64() * r.Float64())
		q.Dropout = min(.9, q.Dropout)
	}
	most := q.Population
	switch q.Participation {
	case dp.CheckIn:
		q.Gamma = math.Pow(r.Float64(), 2) + 1e-3
		q.Gamma = min(1, q.Gamma)
	case dp.Sampled, dp.Once:
		most = 1 + int64(float64(most-1)*math.Pow(r.Float64(), 2))
		q.Reports = most
		q.Rounds = min(q.Rounds, q.Population/most)
	}
	q.Sum.MinUsers = 1 + int64(float64(most-1)*r.Float64())
	if r.IntN(3) == 0 {
		q.Sum.MinUsers = 1 + int64(float64(most-1)*math.Pow(r.Float64(), 4))
	}
	return q, q.Sum.Honest*float64(q.Sum.MinUsers) >= 1 && q.Validate() == nil
}

// bruteSums holds as many random settings, and wants exact values near the bounds
// for every participation.
func bruteSums(t *testing.T, r *rand.Rand, count int) {
	closest := map[string]float64{}
	for done := 0; done < count; {
		q, ok := randomSum(r)
		if !ok {
			continue
		}
		done++
		key := string(q.Participation)
		if q.Sum.Honest < 1 {
			key += ", not all honest"
		}
		closest[key] = math.Max(closest[key], holdSum(t, q))
	}
	t.Log(closest)
	for _, part := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once} {
		for _, honest := range []string{"", ", not all honest"} {
			if c := closest[string(part)+honest]; c < .55 {
				t.Errorf("%s%s: the nearest exact value is %v of its bound: these rounds do not test it", part, honest, c)
			}
		}
	}
}

// No bound is below the exact ε of a round, or two, whoever takes part and by
// whatever chance, with drop-outs and void rounds, and others who stay away, come
// where it costs most, or add no noise.
func TestSumAboveExactCohorts(t *testing.T) {
	bruteSums(t, rand.New(rand.NewPCG(5, 0)), longtest.Pick(30, 60))
}

// Where honest clients' number was once taken to be up to chance, or a batch's to be
// its share: sampled 6.217 < 8.96, once 6.606 < 9.41.
func TestSumOthersStayAway(t *testing.T) {
	noise := func(variance float64) vecsum.Params {
		return vecsum.Params{Dim: 1, Grid: 200, Norm: 200*200 + 1, Honest: .5, Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: int64(4 * variance)}}
	}
	sampled := Query{Class: VectorSumClass, Participation: dp.Sampled, Population: 100, Reports: 10, Dropout: 1e-6, Rounds: 1, Delta: 1e-12, Sum: noise(10000)}
	sampled.Sum.MinUsers = 2
	once := Query{Class: VectorSumClass, Participation: dp.Once, Population: 2500, Reports: 50, Dropout: .02, Rounds: 1, Delta: 1e-9, Sum: noise(1600)}
	once.Sum.MinUsers = 24
	for _, q := range []Query{sampled, once} {
		holdSum(t, q)
		none := q
		none.Dropout = 0
		if a, b := sumsOf(t, q, "gauss-pld")["gauss-pld"].Eps, sumsOf(t, none, "gauss-pld")["gauss-pld"].Eps; a != b {
			t.Errorf("%s: %v with drop-outs, %v without", q.Participation, a, b)
		}
	}
}

// More honest clients and more clients at least never cost more, and what the others
// can undo gives no credit.
func TestSumOrderOfRandomSettings(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 0))
	eps := func(q Query) float64 {
		reply, err := Answer(context.Background(), q, "best")
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		if reply.Upper == nil {
			return math.Inf(1)
		}
		return reply.Upper.Eps
	}
	for done := 0; done < longtest.Pick(20, 40); {
		q, ok := randomSum(r)
		if !ok {
			continue
		}
		done++
		is := eps(q)
		more := map[string]Query{}
		v := q
		v.Sum.Honest = math.Min(1, q.Sum.Honest*1.3)
		// A whole client more: shares within one are rounded down.
		if v.relied(v.Sum.MinUsers) > q.relied(q.Sum.MinUsers) {
			more["honest"] = v
		}
		v = q
		v.Sum.MinUsers = min(q.withDefaults().Sum.Users, q.Sum.MinUsers+1+q.Sum.MinUsers/5)
		// Of more clients a smaller share may be whole ones.
		if float64(v.relied(v.Sum.MinUsers))/float64(v.Sum.MinUsers) >= float64(q.relied(q.Sum.MinUsers))/float64(q.Sum.MinUsers) {
			more["n-min"] = v
		}
		if q.Sum.Honest < 1 && (q.Participation == dp.Sampled || q.Participation == dp.Once) {
			v = q
			v.Dropout = .5 - q.Dropout/2
			more["dropout"] = v
			v.Dropout = 0
			more["no dropout"] = v
			if a, b := eps(more["dropout"]), eps(v); a != is || b != is {
				t.Errorf("%+v: %v, with other drop-outs %v, without %v", q, is, a, b)
			}
		}
		for name, v := range more {
			// Sigma rounds by 1 %, and less noise is worth it on the way.
			if e := eps(v); !(e <= is*1.01+1e-9) {
				t.Errorf("more %s: %v, was %v: %+v", name, e, is, q)
			}
		}
	}
}
