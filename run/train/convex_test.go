package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/run/simulate"
)

// people is a CSV file of n rows with a class and a real column.
func people(t *testing.T, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "people.csv")
	var text strings.Builder
	text.WriteString("age,hours,income\n")
	src := rng.Replay(3)
	for range n {
		a, b := src.Uint64()%100, src.Uint64()%100
		class := "low"
		if a+2*b > 150 {
			class = "high"
		}
		fmt.Fprintf(&text, "%d,%d,%s\n", a, b, class)
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// convex is a task for the named optimiser: agd on the logistic loss, the rest on
// the hinge.
func convex(data, optimizer, trust string) Config {
	c := Default()
	c.Data, c.Label, c.Range, c.Optimizer, c.Trust, c.Workers = data, "income", "*=0..100", optimizer, dp.Trust(trust), 2
	c.Loss = "hinge"
	if optimizer == "agd" {
		c.Loss = "logistic"
	}
	if optimizer == "agd-phases" { // at 100 rounds two phases are best
		c.Lambda, c.Radius = 1, 2
	}
	if trust != "none" {
		c.Epsilon = 3
	}
	return c
}

func prepared(t *testing.T, c Config) *Run {
	t.Helper()
	r, err := Prepare(context.Background(), c)
	if err != nil {
		t.Fatalf("%s, %s: %v", c.Optimizer, c.Trust, err)
	}
	if err := r.Create(filepath.Join(t.TempDir(), "run")); err != nil {
		t.Fatal(err)
	}
	return r
}

// streamBlocks is simulate's stream of an epoch's order.
const streamBlocks = 5

// Without noise a run is package optimize's own optimiser on true gradients,
// for one pass and for all clients in every round.
func TestRunIsTheOptimizer(t *testing.T) {
	data := people(t, 400)
	for _, method := range optimize.Methods() {
		for _, participation := range []dp.Participation{dp.Once, dp.All} {
			if method.Name == "gd" && participation == "once" {
				continue
			}
			c := convex(data, method.Name, "none")
			c.Participation, c.Rounds = participation, 13
			if method.Name == "agd-phases" {
				c.Rounds = 100
			}
			t0 := c.Rounds
			r := prepared(t, c)
			if _, err := r.Train(context.Background(), Observer{}); err != nil {
				t.Fatal(err)
			}
			// By hand: rows of two features in 0..1 and an intercept.
			loss, err := model.ParseLoss(c.Loss)
			if err != nil {
				t.Fatal(err)
			}
			n := r.Config.Population
			p := optimize.Problem{Dim: 3, Clients: n, Radius: r.Config.Radius, StrongConvexity: c.Lambda, Lipschitz: math.Sqrt(3) + r.Config.Radius*c.Lambda,
				Noise: optimize.ReportNoise{MSE: r.Mechanism.Facts().MSE, Dim: 3}}
			if c.Loss == "logistic" {
				p.Smoothness = .75 * (1 + 1e-6) * (1 + 1e-6)
			}
			blocks, err := schedule.NewBlocks(n, n/t0)
			if err != nil {
				t.Fatal(err)
			}
			order := blocks.Draw(rng.Replay(1, streamBlocks, 1), nil)
			given := optimize.Overrides{Given: true, Rounds: t0, Batch: blocks.Smallest}
			if participation == "all" {
				given.Batch = n
			}
			plan, err := optimize.NewPlan(method.Name, p, given)
			if err != nil {
				t.Fatal(err)
			}
			if method.Name == "agd-phases" && participation == "all" && len(plan.Stages) < 2 {
				t.Error("agd-phases has one phase only")
			}
			o, err := plan.NewOptimizer()
			if err != nil {
				t.Fatal(err)
			}
			for step := int64(1); step <= t0; step++ {
				m, err := model.NewLinear(model.LinearConfig{Inputs: 2, Loss: loss, Ridge: c.Lambda, Smoothing: plan.Stages[plan.Stage(step)].Smoothing})
				if err != nil {
					t.Fatal(err)
				}
				asked := order
				if participation != "all" {
					from, to := blocks.Range(step - 1)
					asked = order[from:to]
				}
				theta, grad, mean := make([]float32, 3), make([]float32, 3), make([]float64, 3)
				for j, v := range o.Point() {
					theta[j] = float32(v)
				}
				table := r.Data.Train
				for _, id := range asked {
					row := r.clients.population.Example(int64(id), 0)
					m.Grad(theta, table.Row(row), float64(2*table.Y[row]-1), grad, nil)
					for j, g := range grad {
						mean[j] += float64(g) / float64(len(asked))
					}
				}
				if err := o.Step(mean); err != nil {
					t.Fatal(err)
				}
			}
			want, got := make([]float64, 3), make([]float64, 3)
			o.Model(want)
			r.learner.Model(got)
			for j := range want {
				if !(math.Abs(got[j]-want[j]) <= 1e-5*(1+math.Abs(want[j]))) {
					t.Errorf("%s, %s: model %v, package optimize has %v", method.Name, participation, got, want)
					break
				}
			}
			if isZero(got) {
				t.Errorf("%s, %s: the model did not move", method.Name, participation)
			}
		}
	}
}

func isZero(x []float64) bool {
	return !slices.ContainsFunc(x, func(v float64) bool { return v != 0 })
}

// What the ledger charges is what a question to the accountant answers, for every
// optimiser under every trust, and within the budget.
func TestChargedIsWhatEpsSays(t *testing.T) {
	data := people(t, longtest.Pick(150, 300))
	for _, method := range optimize.Methods() {
		for _, trust := range []string{"local", "shuffle", "vector-sum", "distributed"} {
			if method.Name == "pan-private" || trust == "local" && method.Name != "agd" && method.Name != "gd" {
				continue
			}
			// Those with disjoint blocks are charged alike: the short test has one under each trust.
			one := map[string]string{"shuffle": "psgd", "vector-sum": "agd-smooth", "distributed": "agd-phases"}[trust]
			if !longtest.On && method.Participation == dp.Once && method.Name != one {
				continue
			}
			c := convex(data, method.Name, trust)
			switch method.Name {
			case "gd":
				c.Rounds = 5
			case "agd": // chooses
			default:
				c.K = 60
			}
			r := prepared(t, c)
			s, err := r.Train(context.Background(), Observer{})
			if err != nil {
				t.Fatal(err)
			}
			c = r.Config
			q := account.Query{Trust: dp.Trust(trust), Participation: dp.All, Population: c.Population, Rounds: c.Rounds, Delta: 1e-5}
			// What a report claims is a rounding more than what was asked for.
			if m, ok := r.Mechanism.(randomizer.Randomizer); ok && m.Event().Class.LDP() {
				e := m.Event()
				if q.Class, q.Eps0, q.TV = e.Class, e.Eps0, e.TV; q.Eps0 > c.Eps0*(1+1e-6) {
					t.Errorf("claims %v, not %v", q.Eps0, c.Eps0)
				}
			}
			if trust == "vector-sum" || trust == "distributed" {
				q.Trust, q.Class, q.Sigma = dp.Distributed, dp.Gaussian, r.Mechanism.(*mechanism.VectorSum).Event().Sigma
				q.Delta = 1e-5 * (1 - vecsum.TailShare)
			}
			if method.Participation == dp.Once {
				// A client is in one block, with n-min others' reports at least.
				q.Population, q.Rounds = c.Population/c.Rounds, 1
				if c.NMin != c.Population/c.Rounds {
					t.Errorf("%s: n-min %d of %d in %d rounds", method.Name, c.NMin, c.Population, c.Rounds)
				}
			}
			answer, err := account.Answer(context.Background(), q, "best")
			if err != nil || answer.Upper == nil {
				t.Fatal(err)
			}
			if got, want := float64(s.Epsilon), answer.Upper.Eps; math.Abs(got/want-1) > 1e-9 || got > 3 || got < 2.5 {
				t.Errorf("%s, %s: charged %v, the accountant says %v of a budget of 3", method.Name, trust, got, want)
			}
			if s.Optimizer != method.Name || s.Rounds != c.Rounds {
				t.Errorf("%s: summary %+v", method.Name, s)
			}
			if method.Participation == dp.Once && s.ClientGradients > c.Population {
				t.Errorf("%s: %d reports of %d clients", method.Name, s.ClientGradients, c.Population)
			}
			if s.ExcessBound == nil || !(float64(*s.ExcessBound) > 0) {
				t.Errorf("%s: no bound on the loss", method.Name)
			}
		}
	}
}

// A run that was stopped ends with the model of one that was not, whatever the
// optimiser and wherever its phases change.
func TestResumedRunIsTheSame(t *testing.T) {
	data := people(t, 500)
	for _, method := range optimize.Methods() {
		trust := "none"
		if method.Name == "agd" {
			trust = "shuffle"
		}
		c := convex(data, method.Name, trust)
		if c.Epsilon = 0; trust == "shuffle" {
			c.Eps0 = 2
		}
		c.Rounds, c.CheckpointEvery = 12, 50
		if method.Name == "agd-phases" {
			c.Rounds, c.Participation = 100, "all"
		}
		whole := prepared(t, c)
		if _, err := whole.Train(context.Background(), Observer{}); err != nil {
			t.Fatal(err)
		}
		if method.Name == "agd-phases" && len(whole.Plan.Stages) < 2 {
			t.Errorf("agd-phases has %d", len(whole.Plan.Stages))
		}
		parted := prepared(t, c)
		dir := parted.Dir
		for _, stop := range []int64{c.Rounds / 6, c.Rounds/2 - 1, c.Rounds/2 + 1} {
			ctx, cancel := context.WithCancel(context.Background())
			_, err := parted.Train(ctx, Observer{Round: func(result simulate.Result) {
				if result.Round == stop {
					cancel()
				}
			}})
			cancel()
			if !errors.Is(err, ErrInterrupted) {
				t.Fatalf("%s: %v", method.Name, err)
			}
			if parted, err = Resume(context.Background(), dir, nil); err != nil {
				t.Fatal(err)
			}
			if parted.Resumed != stop {
				t.Errorf("%s: resumed after %d, want %d", method.Name, parted.Resumed, stop)
			}
		}
		if _, err := parted.Train(context.Background(), Observer{}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(parted.Theta(), whole.Theta()) {
			t.Errorf("%s: %v after stops, %v without", method.Name, parted.Theta(), whole.Theta())
		}
	}
}

func TestConvexOptimizersRefuse(t *testing.T) {
	data := people(t, 100)
	for want, change := range map[string]func(*Config){
		"model cnn has hidden layers":             func(c *Config) { c.Data, c.Label, c.Range, c.Loss, c.Model = "mnist", "", "", "", "cnn" },
		"use agd":                                 func(c *Config) { c.Optimizer = "pan-private" },
		"hinge is not: agd-smooth":                func(c *Config) { c.Optimizer = "agd" },
		"participation must be all":               func(c *Config) { c.Optimizer, c.Participation, c.K = "gd", "once", 10 },
		"lambda = 0 must be above 0":              func(c *Config) { c.Optimizer = "agd-phases" },
		"momentum = 0.5":                          func(c *Config) { c.Momentum = given(.5) },
		"average = 0.25":                          func(c *Config) { c.Average = .25 },
		"lr 0.3,0.1@5":                            func(c *Config) { c.LR = "0.3,0.1@5" },
		"lr theorem3":                             func(c *Config) { c.LR = "theorem3" },
		"lr 2: every phase":                       func(c *Config) { c.Optimizer, c.Lambda, c.LR = "agd-phases", .1, "2" },
		"rounds = 10: optimizer psgd makes one":   func(c *Config) { c.K, c.Rounds = 20, 10 },
		"rounds = 900 of one pass":                func(c *Config) { c.Rounds = 900 },
		"k = 900 must be at most":                 func(c *Config) { c.K = 900 },
		"clip is needed":                          func(c *Config) { c.Range = "" },
		"a public range for every column; agd-sm": func(c *Config) { c.Range, c.Clip, c.Optimizer, c.Loss = "age=0..100", 1, "agd", "logistic" },
		"no smoothness of the cross-entropy":      func(c *Config) { c.Range, c.Clip, c.Optimizer, c.Loss = "", 1, "gd", "cross-entropy" },
		"is smooth as it is (beta = 1.5)":         func(c *Config) { c.Optimizer, c.Loss = "agd-smooth", "cross-entropy" },
	} {
		c := convex(data, "psgd", "shuffle")
		change(&c)
		if _, err := Prepare(context.Background(), c); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// What is given is kept, and what follows from it is not chosen otherwise.
func TestOverridesAreKept(t *testing.T) {
	data := people(t, longtest.Pick(500, 1000))
	for n, change := range []func(*Config){
		func(c *Config) { c.K = 50 }, func(c *Config) { c.Rounds = 7 }, func(c *Config) { c.K, c.Rounds = 50, 7 },
		func(c *Config) { c.Radius, c.LR = 3, "0.25" }, func(c *Config) { c.Clip = .5 },
		func(c *Config) { c.Participation, c.Gamma, c.Rounds = "check-in", .1, 4 },
		func(c *Config) { c.Participation, c.K = "sampled", 100 },
		func(c *Config) { c.Dropout = .3 },
	} {
		for _, trust := range []string{"shuffle", "distributed"} {
			for i, optimizer := range []string{"psgd", "agd-smooth"} {
				if !longtest.On && ((i == 0) != (trust == "shuffle") || n%2 != i) {
					continue
				}
				c := convex(data, optimizer, trust)
				if c.Epsilon, c.Eps0 = 0, 2; trust == "distributed" {
					c.Eps0, c.Sigma = 0, .5
				}
				change(&c)
				want := c
				r, err := Prepare(context.Background(), c)
				if err != nil {
					t.Fatal(err)
				}
				c = r.Config
				if want.K != 0 && c.K != want.K || want.Rounds != 0 && c.Rounds != want.Rounds || want.Clip != 0 && c.Clip != want.Clip {
					t.Errorf("%s: asked for %+v, got %+v", optimizer, want, c)
				}
				s := r.Plan.Stages[0]
				if want.LR != "" && (optimizer == "psgd" && s.Step != .25 || optimizer == "agd-smooth" && s.Curvature != 4 || r.Plan.Problem.Radius != 3) {
					t.Errorf("%s: %+v", optimizer, s)
				}
				if s.Rounds != c.Rounds || s.Batch > c.Population {
					t.Errorf("%s: planned for %+v in %+v", optimizer, s, c)
				}
				if known := r.ExcessBound != nil; known != (want.Clip == 0) {
					t.Errorf("%s, clip %v: bound on the loss known: %v", optimizer, c.Clip, known)
				}
			}
		}
	}
}
