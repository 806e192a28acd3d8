// Package solve runs one stochastic convex problem from start to end: clients with a row
// each, a linear model with a convex loss, an optimiser of package optimize, and a way of
// protecting gradients. It reports the population's loss beside the loss of the best
// parameters without privacy.
//
// It is a simulation: every role runs in this process and noise comes from a seed. Losses and
// the optimum are computed from the rows themselves, for the experimenter; epsilon does not
// account for them.
package solve

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/ledger"
)

// Config is a problem and the way to solve it. Errors name fields as the flags of riffle
// solve do.
type Config struct {
	// Data is a CSV file, whose rows are the clients and the population. Label is the column
	// to predict. Columns holds what is declared public of the columns; it gets its Label and
	// whether targets are numbers from the other fields.
	Data, Label string
	Columns     dataset.CSVConfig `json:"-"`

	// Synthetic is the law of the rows if there is no Data: logistic, hinge or absolute. Each
	// of N clients holds one of Rows rows of Dim features, drawn with replacement. Rows 0
	// chooses the largest number for which the optimum is cheap to find.
	Synthetic string
	N         int64
	Dim       int
	Rows      int

	Loss      string   // see model.ParseLoss; "": the loss of the synthetic law, else logistic
	Optimizer string   // see optimize.Methods; "": agd, agd-smooth if the loss is not smooth
	Trust     dp.Trust // "": dp.VectorSum, dp.Central if the optimiser is pan-private
	// NoiseBy says who adds the noise of a sum; "": clients.
	NoiseBy vecsum.NoiseBy

	Epsilon, Delta float64 // the budget of the whole run; unused without privacy
	Lambda         float64 // ridge λ/2·‖θ‖², which the server adds because it is public
	Radius         float64 // of the ball about 0 in which parameters lie
	// Clip is the norm to which clients clip their gradients; 0: the largest that the public
	// bound on a row's norm allows.
	Clip float64
	// MaxRounds bounds the number of rounds; 0: 100 if every client is in each round,
	// otherwise 20000.
	MaxRounds int64
	Seed      uint64
	Workers   int // results do not depend on it; at least 1
}

// Limits of a problem; the optimum takes matrices of maxDim².
const (
	maxClients = 1 << 32
	maxCells   = 1 << 28
	maxDim     = 1 << 12
)

func (c *Config) validate() error {
	switch {
	case c.Trust.Is(dp.Protecting) && !(c.Epsilon > 0 && c.Epsilon <= dp.MaxEps0):
		return fmt.Errorf("solve: epsilon = %v must be above 0 and at most %d", c.Epsilon, dp.MaxEps0)
	case !(c.Lambda >= 0 && c.Lambda <= 1e6):
		return fmt.Errorf("solve: lambda = %v must be at least 0 and at most 1e6", c.Lambda)
	case !(c.Radius > 0 && c.Radius <= 1e6):
		return fmt.Errorf("solve: radius = %v must be above 0 and at most 1e6", c.Radius)
	case c.Clip != 0 && !(c.Clip >= 1e-12 && c.Clip <= 1e12):
		return fmt.Errorf("solve: clip = %v must lie between 1e-12 and 1e12, or be 0 for the default", c.Clip)
	case c.MaxRounds < 0:
		return fmt.Errorf("solve: max-rounds = %d must be at least 1, or 0 for the default", c.MaxRounds)
	case c.Workers < 1 || c.Workers > 4096:
		return fmt.Errorf("solve: workers = %d must lie between 1 and 4096", c.Workers)
	}
	if c.Trust.Is(dp.Protecting) {
		if err := dp.CheckDelta(c.Delta); err != nil {
			return fmt.Errorf("solve: delta = %v must lie strictly between 0 and 1", c.Delta)
		}
	}
	return nil
}

// Setup is a problem that is ready to run: its Config has been checked.
type Setup struct {
	// Config has every default filled in.
	Config Config
	// Plan is the optimiser's plan, a function of public numbers.
	Plan *optimize.Plan
	// Epsilon is the cost of the whole run at Delta, if one client is replaced. It is computed
	// from the noise that the run will draw, and is at most the Config's Epsilon. +Inf without
	// privacy. Delta is 0 if the bound is pure.
	Epsilon, Delta float64
	// Rounds is T, and Batch the least number of clients that a round certainly has.
	Rounds, Batch int64
	// Bound bounds the expected excess loss. It is NaN if the plan's bound is not for the
	// population's loss, because clients report more than once in rounds that are drawn anew.
	Bound  float64
	Params int // number of parameters
	// Model is the model without ridge, which the server adds. Features names its inputs if the
	// rows are a CSV file's, and Classes the classes, if there are some.
	Model             *model.Model
	Features, Classes []string

	people     *population
	protection protection
	coins      *checkIn // nil unless clients check in by them
}

// Result is where a run ended.
type Result struct {
	Theta []float64
	// Loss is the population's mean loss at Theta, ridge included. Optimum is the least in
	// the ball, known to Gap. Excess is the difference.
	Loss, Optimum, Excess, Gap float64
}

// Observer watches a run; nil functions are skipped.
type Observer struct {
	Optimum func(loss float64)
	// Evaluated is called about ten times, with the excess loss of the model
	// that would be released after that round.
	Evaluated func(round, rounds int64, excess float64)
}

// Prepare reads the data, plans the run and computes its cost. An error means that the input
// is wrong; ledger.ErrBudget is wrapped if the plan exceeded the budget.
func Prepare(ctx context.Context, c Config) (*Setup, error) {
	if c.Trust == "" {
		c.Trust = dp.VectorSum
		if c.Optimizer == "pan-private" {
			c.Trust = dp.Central
		}
	}
	if kinds := []string{"logistic", "hinge", "absolute"}; c.Data == "" && !slices.Contains(kinds, c.Synthetic) {
		return nil, fmt.Errorf("solve: synthetic %q must be one of %s", c.Synthetic, strings.Join(kinds, ", "))
	}
	if c.Loss == "" {
		if c.Loss = "logistic"; c.Data == "" {
			c.Loss = c.Synthetic
		}
	}
	loss, err := model.ParseLoss(c.Loss)
	if err != nil {
		return nil, err
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	// What can be refused without data is: reading them may take long.
	var method optimize.Method
	if c.Optimizer != "" {
		if method, err = optimize.FindMethod(c.Optimizer); err != nil {
			return nil, err
		}
	}
	if err := checkProtection(c, method); err != nil {
		return nil, err
	}
	people, err := newPopulation(&c, loss)
	if err != nil {
		return nil, err
	}
	t := &Setup{people: people, Features: people.features, Classes: people.classes}
	c.Columns.Label, c.Columns.Regression = c.Label, !loss.Binary
	if t.Model, err = model.NewLinear(model.LinearConfig{Inputs: people.rows.Dim, Loss: loss, NoIntercept: !people.intercept}); err != nil {
		return nil, err
	}
	t.Params = t.Model.Params
	p := optimize.Problem{
		Dim: t.Params, Clients: people.clients, Radius: c.Radius, StrongConvexity: c.Lambda,
	}
	lipschitz, smoothness := t.Model.Geometry(people.norm)
	if smoothness > 0 && people.norm > 0 {
		p.Smoothness = smoothness + c.Lambda
	}
	if c.Clip == 0 {
		if people.norm == 0 {
			return nil, fmt.Errorf("solve: data %s: clip is needed, or a public range for every column: nothing else bounds a gradient without looking at the data", c.Data)
		}
		c.Clip = lipschitz
	}
	p.Lipschitz = c.Clip + c.Lambda*c.Radius
	if c.Optimizer == "" {
		if c.Optimizer = "agd"; p.Smoothness == 0 {
			c.Optimizer = "agd-smooth"
		}
		if method, err = optimize.FindMethod(c.Optimizer); err != nil {
			return nil, err
		}
	}
	if c.MaxRounds == 0 {
		if c.MaxRounds = 20000; method.Participation == dp.All {
			c.MaxRounds = 100
		}
	}
	p.MaxRounds = c.MaxRounds
	c.N = people.clients
	if t.protection, err = newProtection(ctx, c, method, p.Dim); err != nil {
		return nil, err
	}
	p.Noise = t.protection.noise()
	if m, ok := t.protection.(*checkIn); ok {
		t.coins = m
		t.Plan, err = m.plan(c.Optimizer, p)
	} else {
		t.Plan, err = optimize.NewPlan(c.Optimizer, p, optimize.Overrides{})
	}
	if err != nil {
		return nil, err
	}
	if t.Epsilon, t.Delta, err = t.protection.prepare(t.Plan); err != nil {
		return nil, err
	}
	if c.Trust.Is(dp.Protecting) && !(t.Epsilon <= c.Epsilon && t.Delta <= c.Delta) {
		return nil, fmt.Errorf("solve: the run would cost epsilon = %v at delta = %v: %w", t.Epsilon, t.Delta, ledger.ErrBudget)
	}
	t.Config, t.Batch = c, t.Plan.Stages[0].Batch
	for _, s := range t.Plan.Stages {
		t.Rounds, t.Batch = t.Rounds+s.Rounds, min(t.Batch, s.Batch)
	}
	if t.Bound = t.Plan.Bound; t.coins != nil {
		t.Bound = math.NaN()
	}
	return t, nil
}

// Run finds the optimum and then runs the plan.
func (t *Setup) Run(ctx context.Context, watch Observer) (Result, error) {
	var r Result
	best, err := t.optimum(ctx)
	if err != nil {
		return r, err
	}
	r.Optimum, r.Gap = best.Loss, best.Loss-best.Lower
	if watch.Optimum != nil {
		watch.Optimum(r.Optimum)
	}
	o, err := t.Plan.NewOptimizer()
	if err != nil {
		return r, err
	}
	r.Theta = make([]float64, t.Params)
	gradients, err := t.newGradients()
	if err != nil {
		return r, err
	}
	each := max(1, t.Rounds/10)
	var next int64 // the first place that has not reported yet
	step := int64(1)
	for round := int64(1); round <= t.Rounds; round++ {
		who := t.cohort(round, step)
		if t.coins == nil && t.Plan.Batches.Uses == 1 {
			// The cost of one round is the cost of the run only if batches are disjoint.
			if who.from < next {
				return r, fmt.Errorf("solve: round %d would use client %d again: %w", round, who.from, ledger.ErrBudget)
			}
			next = who.from + who.clients
		}
		if who.clients > 0 {
			mean, err := gradients.mean(ctx, round, who, o.Point())
			if err != nil {
				return r, err
			}
			if err := o.Step(mean); err != nil {
				return r, fmt.Errorf("solve: %w", err)
			}
			step++
		}
		if watch.Evaluated != nil && round%each == 0 && round < t.Rounds {
			o.Model(r.Theta)
			loss, err := t.loss(r.Theta)
			if err != nil {
				return r, err
			}
			watch.Evaluated(round, t.Rounds, loss-r.Optimum)
		}
	}
	o.Model(r.Theta)
	if r.Loss, err = t.loss(r.Theta); err != nil {
		return r, err
	}
	r.Excess = r.Loss - r.Optimum
	return r, nil
}

// loss returns the population's mean loss, ridge included.
func (t *Setup) loss(theta []float64) (float64, error) {
	narrow, square := make([]float32, len(theta)), 0.0
	for j, v := range theta {
		narrow[j] = float32(v)
		square += v * v
	}
	e, err := t.Model.Evaluate(narrow, t.people.rows.X, t.people.rows.Target, t.Config.Workers)
	if err != nil {
		return 0, err
	}
	return e.Loss + t.Config.Lambda/2*square, nil
}

// optimum returns the best model of the ball, to 1e-6, or to 1e-6 of the loss at 0 if that is
// above 1.
func (t *Setup) optimum(ctx context.Context) (*model.Optimum, error) {
	zero, err := t.loss(make([]float64, t.Params))
	if err != nil {
		return nil, err
	}
	ridged, err := model.NewLinear(model.LinearConfig{
		Inputs: t.people.rows.Dim, Loss: t.Model.Loss, Ridge: t.Config.Lambda, NoIntercept: !t.people.intercept,
	})
	if err != nil {
		return nil, err
	}
	type answer struct {
		best *model.Optimum
		err  error
	}
	done := make(chan answer, 1)
	// The search cannot be stopped. If ctx ends, it goes on and nobody waits for it.
	go func() {
		best, err := ridged.Optimum(t.people.rows.X, t.people.rows.Target,
			model.OptimumConfig{Radius: t.Config.Radius, Gap: 1e-6 * math.Max(1, zero)})
		done <- answer{best, err}
	}()
	select {
	case a := <-done:
		return a.best, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
