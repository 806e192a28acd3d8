package account_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
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
		for _, target := range []float64{.02, .65, 8} {
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
