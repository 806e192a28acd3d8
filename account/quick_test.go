package account

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// A quick answer is one bound with a rough pair, and basic composition. It is not below the tightest bound, but
// for what that one is too large, and not far above.
func TestQuickAnswers(t *testing.T) {
	r := rand.New(rand.NewPCG(81, 3))
	log := func(low, high float64) float64 { return low * math.Pow(high/low, r.Float64()) }
	for range longtest.Pick(4, 160) {
		q := Query{Participation: []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once}[r.IntN(4)], Eps0: log(.1, 6), Population: int64(log(50, 1e5)),
			Rounds: int64(log(1, 1e4)), Delta: log(1e-12, 1e-3), Class: []dp.Class{dp.Generic, dp.BinaryRR, dp.KRR, dp.LaplaceL1, dp.Gaussian}[r.IntN(5)]}
		switch q.Class {
		case dp.KRR:
			q.Symbols = 2 + r.IntN(50)
		case dp.Gaussian:
			q.Trust, q.Eps0, q.Sigma = dp.Distributed, 0, log(.5, 50)
		case dp.Generic:
			if r.IntN(2) == 0 {
				q.TV = log(.05, 1) / (math.Exp(q.Eps0) + 1)
			}
		}
		switch q.Participation {
		case dp.Sampled:
			q.Reports = max(1, q.Population/10)
		case dp.CheckIn:
			q.Gamma = log(.01, 1)
		case dp.Once:
			q.Reports, q.Rounds = max(1, q.Population/10), min(q.Rounds, 10)
		}
		if r.IntN(3) == 0 {
			q.Dropout = r.Float64()
		}
		if r.IntN(3) == 0 {
			q.Colluders = q.Population / 20
		}
		quick, err := Answer(context.Background(), q, "quick")
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		best, err := Answer(context.Background(), q, "best")
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case quick.Upper == nil || len(quick.Bounds) > 2:
			t.Errorf("%+v: quick %+v", q, quick)
		case quick.Upper.Eps < best.Upper.Eps*(1-2e-3) || quick.Upper.Status != dp.Proved:
			t.Errorf("%+v: quick %+v, best %+v", q, *quick.Upper, *best.Upper)
		case best.Upper.Eps > .01 && quick.Upper.Eps > 1.4*best.Upper.Eps:
			t.Errorf("%+v: quick %v, best %v", q, quick.Upper.Eps, best.Upper.Eps)
		}
	}
}

// Every valid question has a quick answer if it has a best one: also a client removed, and vector sums.
func TestQuickAnswersOfAllKinds(t *testing.T) {
	sum := Query{Class: VectorSumClass, Participation: dp.All, Population: 1000, Rounds: 3, Delta: 1e-6,
		Sum: vecsum.Params{Dim: 3, Grid: 16, Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: 4096}}}
	removed := Query{Class: dp.Gaussian, Trust: dp.Distributed, Adjacency: dp.AddRemoveOne, Participation: dp.CheckIn, Gamma: .1, Population: 100, Sigma: 3, Rounds: 5, Delta: 1e-6}
	for _, q := range []Query{sum, removed} {
		best, err := Answer(context.Background(), q, "best")
		if err != nil || best.Upper == nil {
			t.Fatalf("%+v: %+v, %v", q, best, err)
		}
		quick, err := Answer(context.Background(), q, "quick")
		if err != nil || quick.Upper == nil || !(quick.Upper.Eps >= best.Upper.Eps) {
			t.Errorf("%+v: quick %+v, %v; best %+v", q, quick.Upper, err, *best.Upper)
		}
	}
}
