package account

import (
	"fmt"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// Every participation, crossed with trust, kind of noise, who adds it, messages and correlation: rounds that n clients cannot
// have are refused, and what is answered for some rounds is what the rounds cost, composed here.
func TestRoundsThatDoNotFitAreRefused(t *testing.T) {
	const n, k = 3000, 300
	type noise struct {
		name string
		set  func(*Query)
	}
	noises := []noise{
		{"generic", func(q *Query) { q.Eps0 = 1 }},
		{"krr", func(q *Query) { q.Class, q.Eps0, q.Symbols = dp.KRR, 1, 4 }},
		{"gaussian reports", func(q *Query) { q.Class, q.Sigma, q.Trust = dp.Gaussian, 2, dp.Distributed }},
		{"gaussian sum", func(q *Query) { q.Class, q.Sigma, q.Trust = dp.GaussianSum, 10, dp.Distributed }},
		{"local", func(q *Query) { q.Eps0, q.Trust = 1, dp.Local }},
		{"sum by clients", func(q *Query) {
			q.Class, q.Sum = VectorSumClass, vecsum.Params{Dim: 3, Grid: 50, Noise: vecsum.Noise{Kind: vecsum.Skellam, Variance: 1e6}}
		}},
		{"sum by aggregators", func(q *Query) {
			q.Class, q.NoiseBy, q.Sigma, q.Sum = VectorSumClass, vecsum.ByAggregators, 7.46, vecsum.Params{Dim: 3}
		}},
	}
	for _, noise := range noises {
		for _, who := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once} {
			for _, messages := range []int64{0, 3} {
				for _, every := range []int64{0, 5} {
					for _, least := range []int64{0, k - 20} {
						if whole := noise.name == "generic" || noise.name == "sum by aggregators"; !longtest.On && (!whole || messages > 0 && who != dp.Once || least > 0 && who != dp.Once) {
							continue
						}
						q := Query{Participation: who, Population: n, Delta: 1e-6, Messages: messages, Every: every, Least: least}
						noise.set(&q)
						switch who {
						case dp.Sampled, dp.Once:
							q.Reports = k
						case dp.CheckIn:
							q.Gamma = float64(k) / n
						}
						at := func(rounds int64) (float64, error) {
							q.Rounds = rounds
							r, err := Answer(t.Context(), q, "best")
							if err != nil {
								return 0, err
							}
							if r.Upper == nil {
								return 0, fmt.Errorf("no bound: %w", dp.ErrNoBound)
							}
							return r.Upper.Eps, nil
						}
						name := fmt.Sprintf("%s, %s, %d messages, every %d, n-min %d", noise.name, who, messages, every, least)
						one, err := at(1)
						if err != nil {
							continue // such rounds there are not
						}
						if who == dp.Once {
							fits, err := at(n / k)
							if err != nil || fits > one*(1+1e-6) {
								t.Errorf("%s: an epoch costs %v (%v), one round %v", name, fits, err, one)
							}
							for _, rounds := range []int64{n/k + 1, 400} {
								if eps, err := at(rounds); err == nil || !strings.Contains(err.Error(), "disjoint") {
									t.Errorf("%s: %d rounds cost %v, %v", name, rounds, eps, err)
								}
							}
							continue
						}
						more, err := at(8)
						if err != nil || !(more >= one*1.05) {
							t.Errorf("%s: 8 rounds cost %v (%v), one %v", name, more, err, one)
						}
						if !longtest.On || noise.name == "sum by clients" || every != 0 {
							continue
						}
						single := q
						if messages > 0 {
							single, _, _ = q.alone(0)
						}
						if q.isSum() {
							single, _, err = q.sumOfAggregators()
							if err != nil {
								t.Fatal(err)
							}
						}
						if single.Dropout != 0 || single.Participation == dp.CheckIn && messages > 0 {
							continue
						}
						event := single.event()
						b, err := new(Accountant).Eps(dp.Repeat{Event: event, Times: single.Rounds}, q.Delta)
						if err != nil || b.Eps > more*1.01 || b.Eps < more*.99 {
							t.Errorf("%s: 8 rounds cost %v, %d times %+v cost %v, %v", name, more, single.Rounds, event, b.Eps, err)
						}
					}
				}
			}
		}
	}
}
