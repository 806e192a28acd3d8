package account

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// Of as many rounds as Again counts, fewer bring enough with less than its share of δ;
// one less would not do.
func TestAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 7))
	for range 300 {
		q := Query{Participation: dp.CheckIn, Gamma: r.Float64(), Dropout: r.Float64() * .5, Population: 1 + r.Int64N(200), Rounds: 1 + r.Int64N(40),
			Delta: math.Pow(10, -1-9*r.Float64())}
		if r.IntN(3) == 0 {
			q.Participation, q.Gamma = dp.All, 0
		}
		least, last := 1+r.Int64N(q.Population), 2*q.Rounds+10
		got := q.Again(least, last, false)
		rate, void := 1-q.Dropout, 0.
		if q.Participation == dp.CheckIn {
			rate *= q.Gamma
		}
		for k := range least {
			void += math.Exp(tail.LogPMF(q.Population, k, rate, 1-rate))
		}
		// The T-th round that is not void is the j-th: a negative binomial law.
		short := func(rounds int64) float64 {
			missing := 0.
			for charged := range q.Rounds {
				missing += math.Exp(tail.LogPMF(rounds, charged, 1-void, void))
			}
			return missing
		}
		tau := q.Delta - got.Delta
		if got.Rounds < q.Rounds || got.Rounds > last || got.Rounds < last && !(short(got.Rounds) <= tau) {
			t.Errorf("%+v, n-min %d, last %d: %d rounds, tau = %v, %v may be missing", q, least, last, got.Rounds, tau, short(got.Rounds))
		}
		if got.Rounds > q.Rounds && short(got.Rounds-1) < againShare*q.Delta*(1-1e-6) {
			t.Errorf("%+v, n-min %d: %d rounds, one less would do", q, least, got.Rounds)
		}
		if others := q.Again(least, last, true); others.Rounds != last || others.Delta != q.Delta {
			t.Errorf("with others: %+v", others)
		}
	}
	for _, q := range []Query{
		{Participation: dp.Once, Reports: 5, Population: 50, Rounds: 4, Delta: 1e-6, Dropout: .1},
		{Participation: dp.Sampled, Reports: 5, Population: 50, Rounds: 4, Delta: 1e-6},
		{Participation: dp.All, Population: 50, Rounds: 4, Delta: 1e-6},
		{Trust: dp.Local, Participation: dp.CheckIn, Gamma: .5, Population: 50, Rounds: 4, Delta: 1e-6},
	} {
		if got := q.Again(3, 18, true); got != q {
			t.Errorf("%+v counts on no chance, got %+v", q, got)
		}
	}
}

// Charged rounds of which each brought n-min are within what is said of the rounds
// that Again counts, and not within what is said of as many announced rounds.
func TestAgainAboveExact(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	beaten, done := 0, 0
	for done < longtest.Pick(15, 400) {
		q, ok := randomSum(r)
		if !ok || q.Sum.Honest < 1 || q.Participation == dp.Once || q.Participation != dp.CheckIn && q.Dropout == 0 {
			continue
		}
		q.Delta = math.Pow(10, -1-6*r.Float64())
		q = q.withSumDefaults()
		last := 2*q.Rounds + 10
		all := worlds(q)
		if len(all) == 0 {
			continue // all rounds are void
		}
		round := all[0].outcomes(q.Sum) // where everybody is relied on all are the same
		void := round[len(round)-1].p
		if void < 1e-3 || void > .999 {
			continue
		}
		done++
		charged := append([]outcome(nil), round[:len(round)-1]...)
		for i := range charged {
			charged[i].p /= 1 - void
			charged[i].q /= 1 - void
		}
		share := 0. // of runs in which all rounds are charged
		for v := range last - q.Rounds + 1 {
			share += math.Exp(tail.LogPMF(v+q.Rounds-1, v, void, 1-void)) * (1 - void)
		}
		announced := q
		again := q
		again = q.Again(q.Sum.MinUsers, last, false)
		for i, ask := range []Query{announced, again} {
			reply, err := Answer(context.Background(), ask, "best")
			if err != nil {
				t.Fatalf("%+v: %v", ask, err)
			}
			if reply.Upper == nil {
				continue
			}
			over := share*exactDelta(charged, q.times(), reply.Upper.Eps) > q.Delta*(1+1e-9)
			if over && i == 0 {
				beaten++
			} else if over {
				t.Errorf("%+v: %v of %d rounds is below the exact figure", q, reply.Upper.Eps, again.Rounds)
			}
		}
	}
	t.Logf("rounds announced are too few %d times of %d", beaten, done)
	if beaten == 0 {
		t.Error("no setting needs more rounds: this tests nothing")
	}
}

// Where more may be asked than are relied on, chance is worth nothing, and a plan is
// made as if the client were in every round.
func TestPlanSumWithoutChance(t *testing.T) {
	q := Query{Class: VectorSumClass, Participation: dp.Sampled, Population: 100, Reports: 60, Rounds: 5, Delta: 1e-6}
	q.Sum.Dim, q.Sum.Radius, q.Sum.Honest = 3, 1, .5
	p, err := planSum(context.Background(), 3, q, vecsum.Skellam)
	if err != nil {
		t.Fatal(err)
	}
	q.Sum = p
	reply, err := Answer(context.Background(), q, "best")
	if err != nil || reply.Upper == nil || reply.Upper.Eps > 3 || reply.Upper.Eps < 2.9 {
		t.Errorf("planned for 3: %+v, %v", reply.Upper, err)
	}
}
