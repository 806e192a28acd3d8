package optimize_test

import (
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/model"
	. "github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// experiment is a finite population whose loss and optimum are known.
type experiment struct {
	deal    *dataset.Population // says which client holds which row
	truth   []float64
	linear  *model.Model
	rows    *dataset.Table
	optimum *model.Optimum
}

func newExperiment(t testing.TB, kind dataset.SyntheticKind, n int64, ridge float64) *experiment {
	t.Helper()
	rows, truth, err := dataset.NewSynthetic(dataset.SyntheticConfig{Kind: kind, Dim: 50, Rows: 10000, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	deal, err := dataset.NewPopulation(dataset.PopulationConfig{Clients: n, Examples: rows.Len(), Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	loss, err := model.ParseLoss(string(kind))
	if err != nil {
		t.Fatal(err)
	}
	linear, err := model.NewLinear(model.LinearConfig{Inputs: 50, Loss: loss, Ridge: ridge, NoIntercept: true})
	if err != nil {
		t.Fatal(err)
	}
	e := &experiment{deal: deal, truth: truth, linear: linear, rows: rows}
	if e.optimum, err = linear.Optimum(rows.X, e.rows.Target, model.OptimumConfig{Radius: 8}); err != nil {
		t.Fatal(err)
	}
	return e
}

// excess is the population's loss above its minimum, ridge included.
func (e *experiment) excess(t testing.TB, theta []float64, ridge float64) float64 {
	t.Helper()
	narrow, square := make([]float32, len(theta)), 0.0
	for j, v := range theta {
		narrow[j] = float32(v)
		square += v * v
	}
	out, err := e.linear.Evaluate(narrow, e.rows.X, e.rows.Target, 0)
	if err != nil {
		t.Fatal(err)
	}
	return out.Loss + ridge/2*square - e.optimum.Loss
}

// run drives a plan with the clients' exact gradients, clipped, and normal
// noise of the planned size.
func (e *experiment) run(t testing.TB, plan *Plan, seed uint64) []float64 {
	t.Helper()
	o, err := plan.NewOptimizer()
	if err != nil {
		t.Fatal(err)
	}
	src := rng.Replay(seed, 77)
	theta, grad := make([]float32, 50), make([]float32, 50)
	mean, noise := make([]float64, 50), make([]float64, 50)
	for round := int64(1); round <= plan.Batches.Rounds; round++ {
		stage := plan.Stages[plan.Stage(round)]
		from, to := plan.Batches.Places(round)
		m, err := e.linear.Smoothed(stage.Smoothing)
		if err != nil {
			t.Fatal(err)
		}
		for j, v := range o.Point() {
			theta[j] = float32(v)
		}
		clear(mean)
		for place := from; place < to; place++ {
			row := e.deal.Example(place, 0)
			m.Grad(theta, e.rows.Row(row), e.rows.Target(row), grad, nil)
			square := 0.0
			for _, g := range grad {
				square += float64(g) * float64(g)
			}
			w := math.Min(1, plan.Problem.Lipschitz/math.Sqrt(square)) / float64(to-from)
			for j, g := range grad {
				mean[j] += w * float64(g)
			}
		}
		sample.Gaussian(src, noise)
		for j := range mean {
			mean[j] += stage.Sigma * noise[j]
		}
		if err := o.Step(mean); err != nil {
			t.Fatal(err)
		}
	}
	out := make([]float64, 50)
	o.Model(out)
	return out
}

// problem is the experiment's at ε = 1, δ = 1e-6 in total (σ_G = 4.2249).
func problem(n int64, smoothness float64) Problem {
	return Problem{
		Dim: 50, Clients: n, Lipschitz: 1, Radius: 8, Smoothness: smoothness,
		Noise: GaussianNoise{Lipschitz: 1, Mu: 1 / 4.2249, Overhead: .05}, MaxRounds: 20000,
	}
}

// With default parameters P_AGD beats P_SGD, and both beat the local model.
func TestAccelerationPays(t *testing.T) {
	n := int64(40000)
	local, err := randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: 50, Eps0: 1, Radius: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		kind       dataset.SyntheticKind
		method     string
		smoothness float64
	}{
		{dataset.SyntheticLogistic, "agd", .2501}, {dataset.SyntheticHinge, "agd-smooth", 0}, {dataset.SyntheticAbsolute, "agd-smooth", 0},
	} {
		e := newExperiment(t, c.kind, n, 0)
		got := map[string]float64{"start": e.excess(t, make([]float64, 50), 0)}
		for name, method := range map[string]string{"sgd": "psgd", "agd": c.method, "ldp": "psgd"} {
			p := problem(n, c.smoothness)
			if name == "ldp" {
				p.Noise = ReportNoise{MSE: local.Facts().MSE, Dim: 50}
			}
			plan, err := NewPlan(method, p, Overrides{})
			if err != nil {
				t.Fatal(err)
			}
			got[name] = e.excess(t, e.run(t, plan, 1), 0)
			t.Logf("%s %s: %d rounds of %d, bound %.4f, excess %.4f", c.kind, name, plan.Stages[0].Rounds, plan.Stages[0].Batch, plan.Bound, got[name])
			if !(got[name] >= -1e-6 && got[name] < plan.Bound) {
				t.Errorf("%s %s: excess %v, bound %v", c.kind, name, got[name], plan.Bound)
			}
		}
		if !(got["agd"] < got["sgd"] && got["sgd"] < got["ldp"] && got["sgd"] < got["start"]) {
			t.Errorf("%s: excess %v", c.kind, got)
		}
	}
}

// The optimum of the logistic population lies near the truth that generated
// it: d/(2m) above it on average over samples of m rows.
func TestSyntheticTruth(t *testing.T) {
	e := newExperiment(t, dataset.SyntheticLogistic, 10, 0)
	if at := e.excess(t, e.truth, 0); at < -1e-6 || at > 5*50./10000/2 {
		t.Errorf("the truth is %v above the optimum", at)
	}
	if !slices.ContainsFunc(e.optimum.Theta, func(v float64) bool { return v != 0 }) || e.optimum.Loss-e.optimum.Lower > 1e-6 {
		t.Errorf("optimum %+v", e.optimum)
	}
}

// The other methods run on the same problem, each within its bound.
func TestOtherMethods(t *testing.T) {
	const ridge = .02
	for _, kind := range []dataset.SyntheticKind{dataset.SyntheticLogistic, dataset.SyntheticHinge} {
		e := newExperiment(t, kind, 60000, ridge)
		start := e.excess(t, make([]float64, 50), ridge)
		for method, n := range map[string]int64{"agd-phases": 60000, "gd": 5000} {
			p := problem(n, 0)
			p.Lipschitz, p.StrongConvexity, p.MaxRounds = 1+8*ridge, ridge, 100
			if method == "gd" {
				p.MaxRounds = 50
			}
			p.Noise = GaussianNoise{Lipschitz: p.Lipschitz, Mu: 1}
			if kind == dataset.SyntheticLogistic {
				p.Smoothness = .2501 + ridge
			}
			plan, err := NewPlan(method, p, Overrides{})
			if err != nil {
				t.Fatal(err)
			}
			got := e.excess(t, e.run(t, plan, 2), ridge)
			t.Logf("%s %s: %d stages, %d rounds, bound %.4f, excess %.4f of %.4f", kind, method, len(plan.Stages), plan.Batches.Rounds, plan.Bound, got, start)
			if got < -1e-6 || got > plan.Bound || got > start {
				t.Errorf("%s %s: excess %v, bound %v, at the start %v", kind, method, got, plan.Bound, start)
			}
		}
	}
}
