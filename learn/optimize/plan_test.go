package optimize

import (
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// sigmaG is 1/μ of (1, 1e-6)-DP by the analytic Gaussian mechanism.
const sigmaG = 4.2249

func logisticProblem(n int64) Problem {
	return Problem{
		Dim: 50, Clients: n, Lipschitz: 1, Radius: 8, Smoothness: .25,
		Noise: GaussianNoise{Lipschitz: 1, Mu: 1 / sigmaG},
	}
}

// Every minimum that is written in closed form is one.
func TestClosedForms(t *testing.T) {
	scan := func(name string, at float64, f func(float64) float64) {
		t.Helper()
		low := f(at)
		for k := -300; k <= 300; k++ {
			if v := f(at * math.Pow(1.02, float64(k))); v < low*(1-1e-12) {
				t.Errorf("%s: %v at %v times the minimum, %v there", name, v, math.Pow(1.02, float64(k)), low)
			}
		}
	}
	for _, rounds := range []int64{1, 2, 7, 1000} {
		for _, v := range []float64{1e-4, 1, 300} {
			scan("curvature", acsaCurvature(rounds, 3, .7, v), func(c float64) float64 { return acsaBound(rounds, 3, c, .7, v) })
			scan("step", 3/math.Sqrt(v*float64(rounds)), func(s float64) float64 { return averagedBound(rounds, 3, s, v) })
		}
		scan("smoothing", acsaSmoothing(rounds, 3, 2), func(b float64) float64 {
			return acsaBound(rounds, 3, 2*b, b, 0) + smoothingBound(2, b)
		})
	}
	for _, bad := range []float64{acsaBound(3, 1, 1.9, 1, 0), acsaBound(3, 1, 2, 1, 1), averagedSmoothBound(3, 1, 1, 1, 1, 1), reuseBound(3, 3, 2.1, 1, 1)} {
		if !math.IsInf(bad, 1) {
			t.Errorf("bound %v outside its conditions", bad)
		}
	}
}

// The design document's numbers: B = 2√d·σ_G for P_SGD, so 167, 1673 and 16737
// rounds.
func TestPSGDPlan(t *testing.T) {
	for n, want := range map[int64]int64{1e4: 167, 1e5: 1673, 1e6: 16737} {
		p := logisticProblem(n)
		plan, err := NewPlan("psgd", p, Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		s := plan.Stages[0]
		if math.Abs(float64(s.Rounds-want)) > .03*float64(want) {
			t.Errorf("n = %g: %d rounds of %d, want about %d", float64(n), s.Rounds, s.Batch, want)
		}
		moment := 1 + 50*math.Pow(2*sigmaG/float64(s.Batch), 2)
		if step := 8 / math.Sqrt(moment*float64(s.Rounds)); math.Abs(s.Step/step-1) > 1e-9 {
			t.Errorf("n = %g: step %v, want %v", float64(n), s.Step, step)
		}
	}
}

// A plan's parameters are as good as any batch size's, and its bound is what
// the formulas say for them.
func TestPlansAreMinima(t *testing.T) {
	for _, n := range []int64{300, 1e4, 1e6} {
		for _, noise := range []Noise{GaussianNoise{Lipschitz: 1, Mu: 1 / sigmaG, Overhead: .05}, ReportNoise{}, ReportNoise{MSE: 900, Dim: 50}} {
			p := logisticProblem(n)
			p.Noise, p.StrongConvexity = noise, .05
			for _, method := range []string{"psgd", "agd", "agd-smooth", "pan-private"} {
				plan, err := NewPlan(method, p, Overrides{})
				if err != nil {
					t.Fatal(method, err)
				}
				for batch := int64(1); batch <= n; batch += batch/7 + 1 {
					other, err := NewPlan(method, p, Overrides{Batch: batch})
					if err != nil {
						t.Fatal(err)
					}
					if other.Stages[0].Batch < batch || smallest(other.Batches) != other.Stages[0].Batch ||
						other.Batches.Rounds != other.Stages[0].Rounds || other.Batches.Clients != n {
						t.Fatalf("%s: batch %d gives %+v", method, batch, other.Stages)
					}
					if other.Bound < plan.Bound*(1-1e-3) {
						t.Errorf("%s, n = %d, %T: batch %d has bound %v, the plan's %d %v", method, n, noise, batch, other.Bound, plan.Stages[0].Batch, plan.Bound)
					}
				}
			}
		}
	}
}

// A stream's mean has two draws of the noise: the plan is agd's at √2 times it.
func TestPanPrivatePlan(t *testing.T) {
	for _, smooth := range []float64{0, .25} {
		p := logisticProblem(1e5)
		p.Smoothness = smooth
		method := "agd"
		if smooth == 0 {
			method = "agd-smooth"
		}
		stream := must(NewPlan("pan-private", p, Overrides{}))
		p.Noise = GaussianNoise{Lipschitz: 1, Mu: 1 / sigmaG / math.Sqrt2}
		batch := must(NewPlan(method, p, Overrides{}))
		if a, b := stream.Bound, batch.Bound; math.Abs(a/b-1) > 1e-9 {
			t.Errorf("beta = %v: bound %v, of %s with twice the variance %v", smooth, a, method, b)
		}
	}
}

// By the bounds: acceleration beats P_SGD, everybody in every round beats one
// pass, less noise is better, and more clients are.
func TestPlansAreOrdered(t *testing.T) {
	bound := func(method string, n int64, mu float64) float64 {
		p := logisticProblem(n)
		p.Noise, p.MaxRounds = GaussianNoise{Lipschitz: 1, Mu: mu}, 20000
		if method == "agd-smooth" {
			p.Smoothness = 0
		}
		return must(NewPlan(method, p, Overrides{})).Bound
	}
	for _, n := range []int64{1e5, 1e6} {
		psgd, agd, smooth, gd := bound("psgd", n, .24), bound("agd", n, .24), bound("agd-smooth", n, .24), bound("gd", n, .24)
		t.Logf("n = %g: psgd %.4g, agd %.4g, agd-smooth %.4g, gd %.4g", float64(n), psgd, agd, smooth, gd)
		// gd takes a tenth more for fewer rounds.
		if !(gd < 1.1*agd && agd < smooth && smooth < psgd) {
			t.Errorf("n = %g: bounds gd %v, agd %v, agd-smooth %v, psgd %v are not in order", float64(n), gd, agd, smooth, psgd)
		}
	}
	for _, m := range Methods() {
		if m.Name == "agd-phases" {
			continue
		}
		if a, b, c := bound(m.Name, 1e5, .24), bound(m.Name, 4e5, .24), bound(m.Name, 1e5, .5); !(b < a && c < a) {
			t.Errorf("%s: bounds %v, with more clients %v, with less noise %v", m.Name, a, b, c)
		}
	}
}

func TestPhasesPlan(t *testing.T) {
	p := logisticProblem(1e6)
	p.StrongConvexity = .05
	p.Smoothness = .3
	plan := must(NewPlan("agd-phases", p, Overrides{}))
	one := must(NewPlan("agd-phases", p, Overrides{Phases: 1}))
	agd := must(NewPlan("agd", p, Overrides{}))
	if one.Bound != agd.Bound {
		t.Errorf("one phase has bound %v, agd %v", one.Bound, agd.Bound)
	}
	if len(plan.Stages) < 2 || plan.Bound > one.Bound {
		t.Errorf("%d phases, bound %v against %v of one", len(plan.Stages), plan.Bound, one.Bound)
	}
	d := math.Min(8, 2/.05)
	for i, s := range plan.Stages {
		if math.Abs(s.Distance-d) > 1e-9 {
			t.Errorf("phase %d starts at %v, want %v", i, s.Distance, d)
		}
		d = math.Min(16, math.Sqrt(2*s.Bound/.05))
	}
	// At the ends of stages clients and places go on.
	for round := int64(1); round < plan.Batches.Rounds; round++ {
		if a, b := roundOf(plan, round), roundOf(plan, round+1); a.To != b.From {
			t.Fatalf("rounds %d and %d: %+v, %+v", round, round+1, a, b)
		}
	}
	p.Smoothness = 0
	plan = must(NewPlan("agd-phases", p, Overrides{Phases: 3}))
	if len(plan.Stages) != 3 || !(plan.Stages[0].Smoothing > 0) || plan.Stages[0].Smoothing == plan.Stages[2].Smoothing {
		t.Errorf("phases without smoothness: %+v", plan.Stages)
	}
}

func TestGDPlan(t *testing.T) {
	p := logisticProblem(1e5)
	for _, smooth := range []float64{0, .25} {
		for _, lambda := range []float64{0, .05} {
			p.Smoothness, p.StrongConvexity = smooth, lambda
			p.MaxRounds = 0
			free := must(NewPlan("gd", p, Overrides{Phases: 1}))
			p.MaxRounds = 100
			plan := must(NewPlan("gd", p, Overrides{Phases: 1}))
			s := plan.Stages[0]
			if s.Rounds > 100 || plan.Bound < free.Bound || plan.Batches.Uses != s.Rounds {
				t.Errorf("%d rounds, bound %v; without limit %d and %v", s.Rounds, plan.Bound, free.Stages[0].Rounds, free.Bound)
			}
			if want := 2 * sigmaG * math.Sqrt(float64(s.Rounds)) / 1e5; math.Abs(s.Sigma/want-1) > 1e-9 {
				t.Errorf("sigma %v, want %v", s.Sigma, want)
			}
			beta := smooth
			if smooth == 0 {
				beta = s.Smoothing + lambda
			}
			if s.Step*beta > 2*(1+1e-9) || math.IsInf(plan.Bound, 1) {
				t.Errorf("step %v for beta %v", s.Step, beta)
			}
			// Nearly the best step, by its own bound; also where most of the
			// bound is the reuse of few clients.
			few := p
			few.Clients, few.MaxRounds, few.Noise = 40, 0, ReportNoise{}
			tight := must(NewPlan("gd", few, Overrides{Rounds: 400, Phases: 1}))
			for k := -20; k <= 20; k++ {
				o := Overrides{Rounds: 400, Phases: 1, Step: tight.Stages[0].Step * math.Pow(1.1, float64(k))}
				if other := must(NewPlan("gd", few, o)); other.Bound < .98*tight.Bound {
					t.Errorf("beta = %v, lambda = %v, 40 clients: step %v has bound %v, the plan's %v %v", smooth, lambda, o.Step, other.Bound, tight.Stages[0].Step, tight.Bound)
				}
			}
			for k := -20; k <= 20; k++ {
				o := Overrides{Rounds: s.Rounds, Phases: 1, Step: s.Step * math.Pow(1.1, float64(k))}
				if other := must(NewPlan("gd", p, o)); other.Bound < .8*plan.Bound {
					t.Errorf("beta = %v, lambda = %v: step %v has bound %v, the plan's %v %v", smooth, lambda, o.Step, other.Bound, s.Step, plan.Bound)
				}
			}
		}
	}
}

// Groups of clients, where the loss is strongly convex: disjoint, of the same
// rounds, each nearer to the optimum, and no worse than all at once.
func TestGDGroups(t *testing.T) {
	p := logisticProblem(1e6)
	p.StrongConvexity, p.MaxRounds = .1, 2000
	whole, plan := must(NewPlan("gd", p, Overrides{Phases: 1})), must(NewPlan("gd", p, Overrides{}))
	k := int64(len(plan.Stages))
	if k < 2 || !(plan.Bound < whole.Bound) {
		t.Fatalf("%d groups with bound %v, one has %v", k, plan.Bound, whole.Bound)
	}
	rounds := plan.Stages[0].Rounds
	if plan.Batches.Rounds != k*rounds || plan.Batches.Uses != rounds || plan.Batches.Rounds > p.MaxRounds {
		t.Errorf("%d rounds, %d uses, %d groups of %d", plan.Batches.Rounds, plan.Batches.Uses, k, rounds)
	}
	for round := int64(1); round <= plan.Batches.Rounds; round++ {
		r := roundOf(plan, round)
		group := (round - 1) / rounds
		if size := p.Clients / k; r.From != group*size || r.To != r.From+size {
			t.Fatalf("round %d of group %d: %+v", round, group, r)
		}
		if want := 2 * sigmaG * math.Sqrt(float64(rounds)) / float64(p.Clients/k); math.Abs(r.Sigma/want-1) > 1e-9 {
			t.Fatalf("sigma %v, want %v", r.Sigma, want)
		}
		if group > 0 && !(r.Distance < plan.Stages[group-1].Distance) {
			t.Fatalf("group %d: distance %v", group, r.Distance)
		}
	}
	if got := must(NewPlan("gd", p, Overrides{Phases: 3, Rounds: 300})); len(got.Stages) != 3 || got.Stages[1].Rounds != 100 {
		t.Errorf("three groups of 100 rounds: %+v", got.Stages)
	}
	p.StrongConvexity = 0
	if _, err := NewPlan("gd", p, Overrides{Phases: 2}); err == nil {
		t.Error("groups without strong convexity")
	}
	p.StrongConvexity = .1
	if _, err := NewPlan("gd", p, Overrides{Given: true, Rounds: 10, Batch: 100, Phases: 2}); err == nil {
		t.Error("groups in rounds of all")
	}
	// The optimiser goes from one group's mean iterate to the next, and a state
	// of any step restores.
	plan = must(NewPlan("gd", Problem{Dim: 2, Clients: 40, Lipschitz: 1, Radius: 2, Smoothness: 1, StrongConvexity: .5, Noise: ReportNoise{}},
		Overrides{Phases: 2, Rounds: 8}))
	mean := func(theta []float64) []float64 { return []float64{theta[0] - 1, theta[1] + .5} }
	o, err := plan.NewOptimizer()
	if err != nil {
		t.Fatal(err)
	}
	theta, sum := []float64{0, 0}, []float64{0, 0}
	for step := range 8 {
		if step == 4 {
			theta, sum = []float64{sum[0] / 4, sum[1] / 4}, []float64{0, 0}
		}
		for j, g := range mean(theta) {
			sum[j] += theta[j]
			theta[j] -= plan.Stages[step/4].Step * g
		}
		if err := o.Step(mean(o.Point())); err != nil {
			t.Fatal(err)
		}
		other, err := plan.NewOptimizer()
		if err != nil {
			t.Fatal(err)
		}
		if err := other.Restore(o.State()); err != nil {
			t.Fatal(err)
		}
		for j, v := range other.Point() {
			if v != o.Point()[j] {
				t.Fatalf("step %d: restored at %v, not %v", step, other.Point(), o.Point())
			}
		}
	}
	got := make([]float64, 2)
	o.Model(got)
	for j := range got {
		if math.Abs(got[j]-sum[j]/4) > 1e-12 {
			t.Errorf("model %v, by hand %v", got, []float64{sum[0] / 4, sum[1] / 4})
		}
	}
	if err := o.Step([]float64{0, 0}); err != ErrFinished {
		t.Errorf("after the last step: %v", err)
	}
}

// A plan runs: with its own noise, on a problem that it describes, it stays
// below its bound; and the optimiser ends where the batches do.
func TestPlansKeepTheirBounds(t *testing.T) {
	m := make([]float64, 5)
	m[0], m[3] = .6, -.7
	h := []float64{.5, .3, .5, .1, .4}
	target := quad{h: h, m: m}
	// ‖∇f‖ ≤ ½·(‖θ‖ + ‖m‖) < 1 on the ball of radius 1.
	for _, method := range Methods() {
		for _, n := range []int64{50, 2000, 40000} {
			p := Problem{
				Dim: 5, Clients: n, Lipschitz: 1, Radius: 1, Smoothness: .5, StrongConvexity: .1,
				Noise: GaussianNoise{Lipschitz: 1, Mu: .5}, MaxRounds: 3000,
			}
			sum := 0.0
			const runs = 10
			var plan *Plan
			for run := range uint64(runs) {
				planned, err := NewPlan(method.Name, p, Overrides{})
				if err != nil {
					t.Fatal(method.Name, err)
				}
				plan = planned
				o := must(plan.NewOptimizer())
				src := rng.Replay(12, run, uint64(n))
				mean := make([]float64, 5)
				for round := int64(1); round <= plan.Batches.Rounds; round++ {
					r := roundOf(plan, round)
					// Sampling noise of a batch: at most L²/B over all coordinates.
					sd := math.Hypot(r.Sigma, 1/math.Sqrt(5*float64(r.To-r.From)))
					if method.Participation == dp.All {
						sd = r.Sigma
					}
					if err := noisy(target.oracle, src, sd)(o.Point(), mean); err != nil {
						t.Fatal(err)
					}
					if err := o.Step(mean); err != nil {
						t.Fatal(err)
					}
				}
				if o.Step(mean) != ErrFinished {
					t.Errorf("%s goes on after its last batch", method.Name)
				}
				sum += target.value(model(o))
			}
			if sum/runs > plan.Bound {
				t.Errorf("%s, n = %d: mean gap %v above the bound %v", method.Name, n, sum/runs, plan.Bound)
			}
		}
	}
}

func TestPlanRefusals(t *testing.T) {
	good := logisticProblem(1000)
	good.StrongConvexity = .01
	change := func(f func(*Problem)) Problem {
		p := good
		f(&p)
		return p
	}
	for _, p := range []Problem{
		{}, change(func(p *Problem) { p.Dim = 0 }), change(func(p *Problem) { p.Clients = 0 }),
		change(func(p *Problem) { p.Clients = 1<<32 + 1 }), change(func(p *Problem) { p.Noise = nil }),
		change(func(p *Problem) { p.Lipschitz = 0 }), change(func(p *Problem) { p.Lipschitz = math.NaN() }),
		change(func(p *Problem) { p.Radius = -1 }), change(func(p *Problem) { p.Smoothness = math.Inf(1) }),
		change(func(p *Problem) { p.StrongConvexity = 1 }), change(func(p *Problem) { p.Radius, p.StrongConvexity = 0, 0 }),
		change(func(p *Problem) { p.MaxRounds = -1 }), change(func(p *Problem) { p.Start = []float64{1} }),
		change(func(p *Problem) { p.Distance = math.NaN() }),
		change(func(p *Problem) { p.Noise = GaussianNoise{Lipschitz: 1} }),
		change(func(p *Problem) { p.Noise = GaussianNoise{Lipschitz: 1, Mu: math.NaN()} }),
	} {
		for _, m := range Methods() {
			if plan, err := NewPlan(m.Name, p, Overrides{}); err == nil {
				t.Errorf("%s accepted %+v: %+v", m.Name, p, plan.Stages)
			}
		}
	}
	for _, c := range []struct {
		method string
		p      Problem
		o      Overrides
	}{
		{"sgd", good, Overrides{}}, {"agd", change(func(p *Problem) { p.Smoothness = 0 }), Overrides{}},
		{"agd-phases", change(func(p *Problem) { p.StrongConvexity = 0 }), Overrides{}},
		{"psgd", good, Overrides{Curvature: 1}}, {"psgd", good, Overrides{Batch: -1}}, {"psgd", good, Overrides{Batch: 1001}},
		{"psgd", good, Overrides{Step: math.NaN()}}, {"agd", good, Overrides{Smoothing: 1}}, {"gd", good, Overrides{Batch: 10}},
		{"agd", good, Overrides{Rounds: 10}}, {"agd-phases", good, Overrides{Phases: 1001}}, {"agd", good, Overrides{Curvature: .4}},
		{"gd", change(func(p *Problem) { p.MaxRounds = 5 }), Overrides{Rounds: 6}},
		{"psgd", change(func(p *Problem) { p.MaxRounds = 5 }), Overrides{Batch: 2}},
	} {
		if plan, err := NewPlan(c.method, c.p, c.o); err == nil {
			t.Errorf("%s accepted %+v: %+v", c.method, c.o, plan.Stages)
		}
	}
	if _, err := FindMethod("x"); err == nil || !strings.Contains(err.Error(), `"pan-private"`) {
		t.Errorf("unknown method: %v", err)
	}
}

func TestMaxRounds(t *testing.T) {
	for _, limit := range []int64{1, 2, 7, 100, 1e9} {
		p := logisticProblem(1e5)
		p.MaxRounds, p.StrongConvexity = limit, .05
		for _, m := range Methods() {
			plan, err := NewPlan(m.Name, p, Overrides{})
			if err != nil {
				if limit <= 2 && m.Name == "agd-phases" {
					continue
				}
				t.Fatal(m.Name, err)
			}
			if plan.Batches.Rounds > limit {
				t.Errorf("%s: %d rounds, at most %d", m.Name, plan.Batches.Rounds, limit)
			}
		}
	}
}

// smallest is the number of clients in the smallest batch.
func smallest(b schedule.Batches) int64 {
	least := b.Clients
	for round := range b.Rounds {
		from, to := b.Places(round + 1)
		least = min(least, to-from)
	}
	return least
}

// round is a round of a plan with its stage.
type round struct {
	Stage
	From, To int64
}

func roundOf(p *Plan, t int64) round {
	from, to := p.Batches.Places(t)
	return round{p.Stages[p.Stage(t)], from, to}
}
