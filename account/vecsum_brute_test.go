package account

import (
	"context"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/vecsum"
)

// cohorts calls yield with every set of clients that a round can have, as bits,
// and its probability. With dp.Once the first k clients are the batch.
func cohorts(q Query, yield func(set uint, prob float64)) {
	n, report := uint(q.Population), 1-q.Dropout
	switch q.Participation {
	case dp.CheckIn:
		report *= q.Rate
	case dp.Once:
		n = uint(q.Reports)
	}
	coins := func(asked uint, prob float64) {
		for set := asked; ; set = (set - 1) & asked {
			k := float64(bits.OnesCount(set))
			yield(set, prob*math.Pow(report, k)*math.Pow(1-report, float64(bits.OnesCount(asked))-k))
			if set == 0 {
				return
			}
		}
	}
	if q.Participation != dp.Sampled {
		coins(1<<n-1, 1)
		return
	}
	var asked []uint
	for set := uint(0); set < 1<<n; set++ {
		if bits.OnesCount(set) == int(q.Reports) {
			asked = append(asked, set)
		}
	}
	for _, set := range asked {
		coins(set, 1/float64(len(asked)))
	}
}

// sumView is the law of what a round shows of clients with the given counts: k,
// and the sum where k is n-min or more, with the noise of the ⌊γk⌋ relied on.
func sumView(q SumQuery, counts []int64) map[[2]int64]float64 {
	view := map[[2]int64]float64{}
	cohorts(q.Query, func(set uint, prob float64) {
		k := int64(bits.OnesCount(set))
		if k < q.Sum.MinUsers {
			view[[2]int64{k, -1}] += prob
			return
		}
		var sum int64
		for i, c := range counts {
			sum += c * int64(set>>i&1)
		}
		m := q.Sum.Noise.Bits * int64(q.Sum.Honest*float64(k))
		fair := prob * math.Exp2(-float64(m))
		for e := int64(0); e <= m; e++ {
			view[[2]int64{k, sum + e}] += fair
			fair *= float64(m-e) / float64(e+1)
		}
	})
	return view
}

// exactSum is the largest δ at eps of one or two rounds, both orders, in which
// client 0 holds an end of the range and all others the same one.
func exactSum(q SumQuery, eps float64) (worst float64) {
	ends := func(first, rest int64) map[[2]int64]float64 {
		counts := make([]int64, q.Query.Population)
		for i := range counts {
			counts[i] = rest
		}
		counts[0] = first
		return sumView(q, counts)
	}
	e := math.Exp(eps)
	for _, rest := range []int64{0, q.Sum.Grid} {
		a, b := ends(0, rest), ends(q.Sum.Grid, rest)
		for range 2 {
			var delta float64
			for o, p := range a {
				if q.times() == 1 {
					delta += math.Max(0, p-e*b[o])
					continue
				}
				for o2, p2 := range a {
					delta += math.Max(0, p*p2-e*b[o]*b[o2])
				}
			}
			worst = math.Max(worst, delta)
			a, b = b, a
		}
	}
	return worst
}

// No bound is below the exact δ of a small round, or two, whoever takes part and
// by whatever chance, with drop-outs, void rounds and clients without noise.
func TestSumAboveExactCohorts(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 0))
	closest := map[dp.Participation]float64{}
	for range 100 {
		grid := 1 + r.Int64N(8)
		q := SumQuery{
			Query: Query{Population: 1 + r.Int64N(5), Rounds: 1 + r.Int64N(2), AskDelta: true, Dropout: .5 * r.Float64() * float64(r.IntN(2)),
				Participation: []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once}[r.IntN(4)]},
			Sum: vecsum.Params{Dim: 1, Grid: grid, Norm: grid*grid + 1, Honest: []float64{1, .7, .5, .34}[r.IntN(4)],
				Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: 60 + r.Int64N(200)}},
		}
		most := q.Query.Population
		switch q.Query.Participation {
		case dp.CheckIn:
			q.Query.Rate = .2 + .8*r.Float64()
		case dp.Sampled, dp.Once:
			most = 1 + r.Int64N(most)
			q.Query.Reports = most
			q.Query.Rounds = min(q.Query.Rounds, q.Query.Population/most)
		}
		if q.Sum.MinUsers = 1 + r.Int64N(most); q.Sum.Honest*float64(q.Sum.MinUsers) < 1 {
			continue
		}
		for _, eps := range []float64{0, .4, 2} {
			q.Query.Eps = eps
			exact := exactSum(q, eps)
			if alone := q; q.Query.Participation == dp.CheckIn || q.Query.Participation == dp.All {
				// Those who are not relied on stay away.
				alone.Query.Population = int64(q.Sum.Honest * float64(q.Query.Population))
				alone.Sum.Honest = 1
				if alone.Query.Population >= q.Sum.MinUsers {
					exact = math.Max(exact, exactSum(alone, eps))
				}
			}
			reply, err := AnswerSum(context.Background(), q, "all")
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range reply.Bounds {
				if l.Applies && l.Delta < exact*(1-1e-9)-1e-14 {
					t.Errorf("%s: %+v has delta %v, exact %v", l.Method, q, l.Delta, exact)
				}
				if l.Applies && exact > 1e-9 {
					closest[q.Query.Participation] = math.Max(closest[q.Query.Participation], exact/l.Delta)
				}
			}
		}
	}
	for _, part := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once} {
		if closest[part] < .7 {
			t.Errorf("%s: the nearest exact value is %v of its bound: these rounds do not test it", part, closest[part])
		}
	}
}
