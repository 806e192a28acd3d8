package optimize

import (
	"math"
	"testing"
)

// Where the rounds that NewPlan chose are given, it chooses the same parameters, so
// that the two planners cannot drift apart.
func TestPlanForRoundsIsThePlan(t *testing.T) {
	for _, n := range []int64{300, 1e4} {
		p := logisticProblem(n)
		p.StrongConvexity, p.MaxRounds = .05, 1000
		for _, m := range Methods() {
			plan, err := NewPlan(m.Name, p, Overrides{})
			if err != nil {
				t.Fatal(m.Name, err)
			}
			if len(plan.Stages) > 1 {
				continue // stages of unequal batches are NewPlan's alone
			}
			s := plan.Stages[0]
			fixed, err := NewPlan(m.Name, p, Overrides{Given: true, Rounds: s.Rounds, Batch: s.Batch})
			if err != nil {
				t.Fatal(m.Name, err)
			}
			if fixed.Stages[0] != s {
				t.Errorf("%s, n = %d: %+v, NewPlan has %+v", m.Name, n, fixed.Stages[0], s)
			}
			if _, err := fixed.NewOptimizer(); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	}
}

// The chosen batch is as good as any, and no worse than NewPlan's for a single
// stage.
func TestChosenBatchIsTheBest(t *testing.T) {
	for _, n := range []int64{300, 2e4} {
		p := logisticProblem(n)
		p.StrongConvexity = .05
		for _, method := range []string{"psgd", "agd", "agd-smooth", "agd-phases", "pan-private"} {
			size, err := ChooseBatch(method, p, Overrides{}, nil)
			if err != nil {
				t.Fatal(method, err)
			}
			bound := func(b int64) float64 { return p.boundOf(method, Overrides{}, given{n / b, n / (n / b)}) }
			best := bound(size)
			for b := int64(1); b <= n; b += 1 + b/50 {
				if got := bound(b); got < best*(1-1e-3) {
					t.Errorf("%s, n = %d: batch %d has bound %v, %d has %v", method, n, size, best, b, got)
				}
			}
			if plan, err := NewPlan(method, p, Overrides{}); err != nil || method != "agd-phases" && math.Abs(best/plan.Bound-1) > 1e-3 {
				t.Errorf("%s, n = %d: bound %v, NewPlan has %v, %v", method, n, best, plan.Bound, err)
			}
		}
	}
}

// Whoever loses reports takes larger batches, and plans for what arrives.
func TestLostReportsAreCounted(t *testing.T) {
	p := logisticProblem(1e5)
	whole, err := ChooseBatch("psgd", p, Overrides{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	half, err := ChooseBatch("psgd", p, Overrides{}, func(n int64) int64 { return max(1, n/2) })
	if err != nil {
		t.Fatal(err)
	}
	if r := float64(half) / float64(whole); r < 1.8 || r > 2.2 {
		t.Errorf("batch %d if half is lost, %d if nothing is", half, whole)
	}
	full, err := NewPlan("gd", p, Overrides{Given: true, Rounds: 10, Batch: 1e5})
	if err != nil {
		t.Fatal(err)
	}
	some, err := NewPlan("gd", p, Overrides{Given: true, Rounds: 10, Batch: 5e4})
	if err != nil || !(some.Bound > full.Bound) {
		t.Errorf("gd: bound %v with half of the reports, %v with all (%v)", some.Bound, full.Bound, err)
	}
}

// Rounds cost: no more of them than a tenth of the bound is worth.
func TestChosenRoundsAreFewAndGood(t *testing.T) {
	p := logisticProblem(1e5)
	p.MaxRounds = 400
	for _, method := range []string{"gd", "agd", "psgd"} {
		rounds, err := ChooseRounds(method, p, Overrides{}, 1e5)
		if err != nil {
			t.Fatal(err)
		}
		bound := func(r int64) float64 {
			q := p
			q.Noise = everyRound{p.Noise, r}
			return q.boundOf(method, Overrides{}, given{r, 1e5})
		}
		for r := int64(1); r <= p.MaxRounds; r++ {
			if bound(r)*1.1*(1+1e-9) < bound(rounds) && bound(r) < bound(rounds)/1.12 {
				t.Errorf("%s: %d rounds have bound %v, %d have %v", method, rounds, bound(rounds), r, bound(r))
			}
		}
		if method == "gd" {
			plan, err := NewPlan("gd", p, Overrides{})
			if err != nil || plan.Stages[0].Rounds != rounds {
				t.Errorf("gd: %d rounds, NewPlan has %d, %v", rounds, plan.Stages[0].Rounds, err)
			}
		}
	}
	p.MaxRounds = 0
	if _, err := ChooseRounds("gd", p, Overrides{}, 10); err == nil {
		t.Error("chose from rounds without end")
	}
}

// Stages follow each other in the rounds that there are.
func TestPhasesShareGivenRounds(t *testing.T) {
	p := logisticProblem(1e6)
	p.StrongConvexity = .05
	plan, err := NewPlan("agd-phases", p, Overrides{Given: true, Rounds: 101, Batch: 9000, Phases: 4})
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for i, s := range plan.Stages {
		sum += s.Rounds
		if s.Rounds != 25 && s.Rounds != 26 || i > 0 && !(s.Distance < plan.Stages[i-1].Distance) {
			t.Errorf("stage %d: %+v", i, s)
		}
		if got := plan.Stage(sum); got != i {
			t.Errorf("step %d is in stage %d, want %d", sum, got, i)
		}
	}
	if sum != 101 || plan.Stage(102) != 3 {
		t.Errorf("%d rounds in all", sum)
	}
	for _, bad := range []given{{0, 1}, {1, 0}, {1, 1e6 + 1}, {3, 10}} {
		if _, err := NewPlan("agd-phases", p, Overrides{Given: true, Rounds: bad.count, Batch: bad.batch, Phases: 4}); err == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
	p.MaxRounds = 100
	if _, err := ChooseRounds("gd", p, Overrides{Rounds: 3}, 10); err == nil {
		t.Error("chose rounds that are given")
	}
}
