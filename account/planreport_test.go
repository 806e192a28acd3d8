package account_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

func anyReport(eps0 float64) (dp.Report, error) {
	return dp.Report{Class: dp.Generic, Eps0: eps0}, nil
}

// twoBits promises the total variation of two bits, which depends on eps0.
func twoBits(eps0 float64) (dp.Report, error) {
	return dp.Report{Class: dp.Generic, Eps0: eps0 * (1 + 1e-9), TV: math.Tanh(eps0/4) / math.Expm1(eps0)}, nil
}

func TestPlanReport(t *testing.T) {
	for _, q := range []account.Query{
		{Participation: dp.All, Population: 60000, Rounds: 160, Delta: 1e-5},
		{Participation: dp.All, Population: 60000, Rounds: 1280, Delta: 1e-5},
		{Participation: dp.Sampled, Population: 1e6, Reports: 3000, Rounds: 50, Delta: 1e-8},
		{Trust: dp.Local, Participation: dp.All, Population: 10, Rounds: 3, Delta: 1e-5},
	} {
		for _, target := range longtest.Pick([]float64{.65}, []float64{.02, .65, 8}) {
			if !longtest.On && q.Rounds == 1280 {
				continue
			}
			for name, report := range map[string]func(float64) (dp.Report, error){"any": anyReport, "two bits": twoBits} {
				if name != "any" && (q.Rounds != 1280 || target > .1) {
					continue // the pair of a known total variation is slow
				}
				calls := 0
				eps0, solved, r, err := account.PlanReport(t.Context(), target, q, func(eps0 float64) (dp.Report, error) {
					calls++
					return report(eps0)
				})
				if errors.Is(err, dp.ErrNoBound) && target < .1 {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				promised, _ := report(eps0)
				if solved.Eps0 != promised.Eps0 || solved.TV != promised.TV || r.Query.Eps0 != promised.Eps0 || r.Upper.Eps > target {
					t.Errorf("%+v, target %v, %s: eps0 = %v, query %+v, answer %v", q, target, name, eps0, solved, r.Upper.Eps)
				}
				more, _ := report(eps0 * 1.0004)
				above, err := account.Answer(t.Context(), q.Of(more), "best")
				if err != nil || above.Upper.Eps <= target*.9999 {
					t.Errorf("%+v, target %v, %s: eps0 = %v, but a little more costs %v, %v", q, target, name, eps0, above.Upper.Eps, err)
				}
				if calls > 16 {
					t.Errorf("%+v, target %v, %s: %d calls", q, target, name, calls)
				}
				t.Logf("target %v, %s: eps0 = %v, epsilon %v, %d calls", target, name, eps0, r.Upper.Eps, calls)
			}
		}
	}
}

// The eps0 of StepUnit for a budget, a number of rounds and of messages, and the noise that is
// left: within .2 % of what many reports need in the limit.
func TestPlanStepUnit(t *testing.T) {
	for _, c := range []struct {
		target           float64
		steps            int
		rounds, messages int64
	}{{.65, 3, 160, 1}, {.5, 3, 160, 8}, {.5, 3, 160, 1}, {.5, 1, 160, 1}, {.5, 6, 300, 1}, {1, 3, 160, 8}}[:longtest.Pick(1, 6)] {
		report := func(eps0 float64) (dp.Report, error) {
			m, err := randomizer.New(randomizer.StepUnit, randomizer.Config{Dim: 1930, Radius: 1, Eps0: eps0, Steps: c.steps, Encoding: randomizer.Seed})
			if err != nil {
				return dp.Report{}, err
			}
			return m.Event(), nil
		}
		const n = 60000
		q := account.Query{Participation: dp.All, Population: n, Rounds: c.rounds * c.messages, Delta: 1e-5}
		begun := time.Now()
		eps0, _, r, err := account.PlanReport(t.Context(), c.target, q, report)
		if err != nil {
			t.Fatal(err)
		}
		limit := func(eps0 float64) (noise, eps float64) {
			noise, cost := amplify.StepLimit(math.Expm1(eps0)/float64(c.steps), amplify.BestEdges(c.steps, eps0))
			mu := math.Sqrt(float64(q.Rounds) * cost / n)
			return noise, gdp.Mu(mu).Epsilon(1e-5)
		}
		noise, eps := limit(eps0)
		if r.Upper.Eps > c.target || math.Abs(eps/c.target-1) > .002 {
			t.Errorf("%+v: proved epsilon %v, %v in the limit", c, r.Upper.Eps, eps)
		}
		t.Logf("%+v: eps0 = %v, edges %v, proved epsilon %.5f, in the limit %.5f; noise %.4f, a message's share %.4f; %v", c, eps0, amplify.BestEdges(c.steps, eps0), r.Upper.Eps, eps, noise, noise/float64(c.messages), time.Since(begun))
	}
}

func TestPlanReportRefuses(t *testing.T) {
	q := account.Query{Participation: dp.All, Population: 1000, Rounds: 10, Delta: 1e-6}
	limit := errors.New("too large")
	upTo := func(most float64) func(float64) (dp.Report, error) {
		return func(eps0 float64) (dp.Report, error) {
			if eps0 > most {
				return dp.Report{}, limit
			}
			return anyReport(eps0)
		}
	}
	if eps0, _, _, err := account.PlanReport(t.Context(), 1e3, q, upTo(2.5)); err != nil || eps0 > 2.5 || eps0 < 2.4999 {
		t.Errorf("eps0 = %v, %v; want nearly 2.5, the most that is possible", eps0, err)
	}
	if _, _, _, err := account.PlanReport(t.Context(), 1, q, upTo(0)); !errors.Is(err, limit) {
		t.Errorf("error %v, want the randomizer's", err)
	}
	if eps0, _, _, err := account.PlanReport(t.Context(), 1e6, q, anyReport); err != nil || eps0 != dp.MaxEps0 {
		t.Errorf("eps0 = %v, %v; want the largest", eps0, err)
	}
	if _, _, _, err := account.PlanReport(t.Context(), 1e-9, q, anyReport); !errors.Is(err, dp.ErrNoBound) || !strings.Contains(err.Error(), "even eps0 = 0.001 does not") {
		t.Errorf("error %v for a target that nothing meets", err)
	}
	asked := q
	asked.AskDelta, asked.Delta, asked.Eps = true, 0, 1
	for name, bad := range map[string]struct {
		target float64
		q      account.Query
	}{"no target": {0, q}, "infinite": {math.Inf(1), q}, "NaN": {math.NaN(), q}, "delta asked": {1, asked}, "no rounds": {1, account.Query{Participation: dp.All, Population: 5, Delta: .1}}} {
		if _, _, _, err := account.PlanReport(t.Context(), bad.target, bad.q, anyReport); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := account.PlanReport(ctx, 1, q, anyReport); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v after the context ended", err)
	}
}
