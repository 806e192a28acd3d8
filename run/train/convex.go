package train

import (
	"context"
	"errors"
	"math"
	"strconv"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

// cldpSGD names the optimiser that works with any model and schedule. All others are for convex
// losses, and package optimize plans their parameters from public numbers.
const cldpSGD = "cldp-sgd"

// optimizers lists the values of Config.Optimizer.
func optimizers() []string {
	names := []string{cldpSGD, adam}
	for _, m := range optimize.Methods() {
		names = append(names, m.Name)
	}
	return names
}

// adam names cldpSGD with Adam's steps: β₁ is the momentum.
const adam = "adam"

// adamSecond is Adam's β₂, as in federated learning (Reddi et al., ICLR 2021); adamRate its rate
// unless one is given, for signs of a few dozen to a few hundred rounds.
const adamSecond, adamRate = .99, "0.01"

func (c LearningConfig) planned() bool {
	return c.Optimizer != "" && c.Optimizer != cldpSGD && c.Optimizer != adam
}

const (
	// defaultRadius is the radius of a convex problem's ball.
	defaultRadius = 8
	// mostPasses bounds the chosen number of rounds, in passes over all clients; mostRounds
	// bounds it in any case.
	mostPasses, mostRounds = 100, 20000
)

// fillPlanned chooses the settings that follow from the optimiser alone.
func (c *Config) fillPlanned() {
	c.Momentum.Given = true // 0 unless another was asked for, which is refused
	if c.Average == Default().Average {
		c.Average = 0
	}
	if c.Radius == 0 {
		c.Radius = defaultRadius
	}
	if method, err := optimize.FindMethod(c.Optimizer); err == nil && c.Participation == "" {
		c.Participation = method.Participation
	}
	if c.Trust.Is(dp.LocallyPrivate) && c.Eps0 == 0 && c.Epsilon == 0 {
		c.Eps0 = defaultEps0
	}
}

// checkPlanned refuses settings that a convex optimiser does not have, and says why.
func (c Config) checkPlanned() error {
	_, stepErr := c.overrides()
	switch {
	case c.network():
		return inputError("optimizer %s needs a loss that is convex in the parameters, and model %s has hidden layers: use ink-linear, softmax or linear", c.Optimizer, c.Model)
	case c.Optimizer == "pan-private" && c.Trust.Is(dp.Protecting):
		return inputError("optimizer pan-private adds an aggregator's own noise, twice a round, because its memory holds sums of exact gradients; with trust %s it holds nothing but protected reports, and what it would protect is protected: use agd", c.Trust)
	case c.Momentum.Value != 0 || c.Average != 0:
		return inputError("momentum = %v and average = %v go with optimizer %s: %s has its own way to combine steps", c.Momentum.Value, c.Average, cldpSGD, c.Optimizer)
	case c.Optimizer == "gd" && c.Participation != dp.All:
		return inputError("optimizer gd takes the gradient of all clients in every round, so participation must be all, not %s; psgd takes a part of them", c.Participation)
	case c.Optimizer == "agd-phases" && c.Lambda == 0:
		return inputError("optimizer agd-phases needs a strongly convex loss: lambda = 0 must be above 0, with model linear and a loss other than cross-entropy")
	}
	return stepErr
}

// overrides returns the parameters of a plan that the caller fixes: lr is the step of
// descent, or the first step of acceleration, whose steps grow with t.
func (c LearningConfig) overrides() (o optimize.Overrides, err error) {
	if c.LR == "" {
		return o, nil
	}
	rate, err := strconv.ParseFloat(c.LR, 64)
	if err != nil {
		return o, inputError("lr %s goes with optimizer %s: the bound of %s is for one number, by which its steps are fixed", c.LR, cldpSGD, c.Optimizer)
	}
	switch c.Optimizer {
	case "psgd", "gd":
		o.Step = rate
	case "agd-phases":
		return o, inputError("lr %s: every phase of optimizer agd-phases has a step of its own, from the distance that the phase before leaves", c.LR)
	default:
		o.Curvature = 1 / rate
	}
	return o, nil
}

// problem describes the loss by public numbers, without the noise. If the clip is open it
// chooses it: the length of the longest possible gradient.
func (c *Config) problem(d *Data, m *model.Model) (optimize.Problem, error) {
	if !m.Convex {
		return optimize.Problem{}, inputError("optimizer %s needs a loss that is convex in the parameters, which model %s has not", c.Optimizer, c.Model)
	}
	start := make([]float64, m.Params)
	for j, v := range m.Init(uint64(c.Seed)) {
		start[j] = float64(v)
	}
	p := optimize.Problem{
		Dim: m.Params, Clients: c.Population, Radius: c.Radius, StrongConvexity: c.Lambda, Start: start,
		Lipschitz: math.Inf(1), MaxRounds: mostRounds,
	}
	if d.norm > 0 {
		lipschitz, smoothness := m.Geometry(d.norm)
		p.Lipschitz = lipschitz + c.Lambda*c.Radius
		if smoothness > 0 {
			p.Smoothness = smoothness + c.Lambda
		}
	}
	// A ball of radius C in ℓ1 lies within that of ℓ2; in ℓ∞ it reaches √d·C.
	narrow, wide := 1.0, math.Sqrt(float64(p.Dim))
	switch norm := c.norm(); {
	case norm == 1:
		narrow, wide = wide, 1
	case norm == 2:
		wide = 1
	}
	if c.Clip == 0 {
		if math.IsInf(p.Lipschitz, 1) {
			return p, inputError("optimizer %s: data %s: clip is needed, or a public range for every column: nothing else bounds a gradient without looking at the data", c.Optimizer, c.Data)
		}
		c.Clip = p.Lipschitz * narrow
	}
	p.Lipschitz = math.Min(p.Lipschitz, wide*c.Clip)
	scores := m.Loss == (model.Loss{})
	switch {
	case c.Optimizer == "agd-smooth" && scores && p.Smoothness > 0:
		return p, inputError("optimizer agd-smooth: the cross-entropy loss is smooth as it is (beta = %.4g), and no closed form of its envelope is known: use agd", p.Smoothness)
	case p.Smoothness == 0 && scores && c.Optimizer != "psgd":
		return p, inputError("optimizer %s: data %s: without a public range for every column no smoothness of the cross-entropy loss is known, and no closed form of its envelope: give range, or use psgd", c.Optimizer, c.Data)
	case c.Optimizer == "agd" && p.Smoothness == 0 && c.Loss == model.Logistic:
		return p, inputError("optimizer agd: data %s: the smoothness of the loss follows from a public range for every column; agd-smooth does without", c.Data)
	case c.Optimizer == "agd" && p.Smoothness == 0:
		return p, inputError("optimizer agd needs a smooth loss, and %s is not: agd-smooth takes its envelope", c.Loss)
	}
	return p, nil
}

// excessBound returns the value of Setup.ExcessBound.
func (c Config) excessBound(t *Setup) *dp.Number {
	if t.Plan == nil {
		return nil
	}
	clip := c.Clip
	c.Clip = 0
	if _, err := c.problem(t.Data, t.Model); err != nil || clip < c.Clip*(1-1e-9) {
		return nil
	}
	bound := dp.Number(t.Plan.Bound)
	return &bound
}

// arriving returns the number of reports that certainly arrive from asked clients.
func (c PrivacyConfig) arriving(asked int64) int64 {
	return min(asked, account.Surely(asked, c.chance()))
}

// resolveRounds chooses who reports when, to minimise the bound on the loss: the size of
// batches of one pass, or the number of rounds.
func (c *Config) resolveRounds(ctx context.Context, d *Data, m *model.Model) error {
	p, err := c.problem(d, m)
	if err != nil {
		return err
	}
	o, err := c.overrides()
	if err != nil {
		return err
	}
	var noise *planNoise
	p.Noise, noise = c.newPlanNoise(ctx, p.Dim)
	if noise.failed != nil {
		return noise.failed
	}
	if c.Participation == dp.Once {
		err = c.resolveBatch(p, o)
	} else if c.Rounds == 0 {
		err = c.resolveRepeats(ctx, p, o)
	}
	return errors.Join(err, noise.failed)
}

// resolveBatch chooses k and rounds of one pass.
func (c *Config) resolveBatch(p optimize.Problem, o optimize.Overrides) (err error) {
	switch {
	case c.K == 0 && c.Rounds > c.Population:
		return inputError("rounds = %d of one pass must be at most n = %d", c.Rounds, c.Population)
	case c.K == 0 && c.Rounds > 0:
		c.K = c.Population / c.Rounds
	case c.K == 0:
		if c.K, err = optimize.ChooseBatch(c.Optimizer, p, o, c.arriving); err != nil {
			return inputError("%v", err)
		}
	case c.K > c.Population:
		return inputError("k = %d must be at most n = %d", c.K, c.Population)
	}
	blocks, err := c.blocks()
	if err != nil {
		return err
	}
	if c.Rounds == 0 {
		c.Rounds = blocks.PerEpoch
	}
	if c.Rounds > blocks.PerEpoch {
		return inputError("rounds = %d: optimizer %s makes one pass, %d rounds of k = %d clients: a second one's gradients would not be of clients it has not seen; participation sampled, check-in or all draws anew", c.Rounds, c.Optimizer, blocks.PerEpoch, c.K)
	}
	return nil
}

// resolveRepeats chooses the number of rounds if clients report several times.
func (c *Config) resolveRepeats(ctx context.Context, p optimize.Problem, o optimize.Overrides) (err error) {
	asked := c.Population
	if c.Participation == dp.Sampled {
		asked = min(c.K, asked)
	}
	batch := c.arriving(asked)
	p.MaxRounds = min(mostRounds, max(mostPasses, mostPasses*c.Population/batch))
	if c.Epsilon != 0 && (c.Eps0 != 0 || c.Sigma != 0) {
		q := *c
		q.Rounds = 1
		_, _, rounds, err := q.solve(ctx, "rounds", p.Dim)
		if err != nil {
			return inputError("epsilon = %v cannot be planned for: %v", c.Epsilon, err)
		}
		p.MaxRounds = min(p.MaxRounds, rounds)
	}
	if c.Rounds, err = optimize.ChooseRounds(c.Optimizer, p, o, batch); err != nil {
		return inputError("%v", err)
	}
	return nil
}

// newPlan returns the optimiser's plan for a resolved configuration.
func (c Config) newPlan(d *Data, m *model.Model, mechanism randomizer.Mechanism) (*optimize.Plan, error) {
	p, err := c.problem(d, m)
	if err != nil {
		return nil, err
	}
	o, err := c.overrides()
	if err != nil {
		return nil, err
	}
	p.Noise = optimize.ReportNoise{MSE: c.clientMSE(mechanism), Dim: mechanism.Facts().Dim}
	asked, err := c.asked()
	if err != nil {
		return nil, err
	}
	o.Given, o.Rounds, o.Batch = true, c.Rounds, max(c.NMin, c.arriving(asked))
	plan, err := optimize.NewPlan(c.Optimizer, p, o)
	if err != nil {
		return nil, inputError("%v", err)
	}
	return plan, nil
}

// stageModels returns the models whose gradients clients send, by stage of the plan.
func stageModels(p *optimize.Plan, m *model.Model) ([]*model.Model, error) {
	var out []*model.Model
	for _, s := range p.Stages {
		smoothed, err := m.Smoothed(s.Smoothing)
		if err != nil {
			return nil, err
		}
		out = append(out, smoothed)
	}
	return out, nil
}

// planNoise is the noise on which a choice of rounds is based. The noise of the run itself is
// solved for afterwards.
type planNoise struct {
	ctx    context.Context
	dim    int
	failed error
}

func (c PrivacyConfig) newPlanNoise(ctx context.Context, dim int) (optimize.Noise, *planNoise) {
	n := &planNoise{ctx: ctx, dim: dim}
	once := c.Participation == dp.Once
	switch {
	case !c.Trust.Is(dp.Protecting):
		return optimize.ReportNoise{}, n
	case c.Sigma != 0:
		return optimize.ReportNoise{MSE: c.sumMSE(dim), Dim: dim}, n
	case c.Eps0 != 0:
		return optimize.ReportNoise{MSE: n.ask(c), Dim: dim}, n
	case c.Trust.Is(dp.SumsOnly) && (once || c.Participation == dp.All && c.Dropout == 0):
		mu, err := gdp.Calibrate(dp.Guarantee{Eps: c.Epsilon, Delta: c.accountedDelta()})
		if err != nil || mu == 0 {
			n.failed = inputError("epsilon = %v at delta = %v leaves no noise", c.Epsilon, c.Delta)
		}
		return optimize.GaussianNoise{Lipschitz: c.Clip, Mu: float64(mu)}, n
	case once && !c.Trust.Is(dp.Alone):
		// Members of a block hide one another.
		c.Participation, c.Dropout = dp.All, 0
		return optimize.NewCostlyNoise(dim, func(clients, _ int64) float64 {
			c.Population, c.Rounds = clients, 1
			return n.ask(c)
		}), n
	}
	// Who takes part is given, so the cost depends only on how often they report.
	if once {
		c.Participation = dp.All
	}
	found := map[int64]float64{}
	return optimize.NewCostlyNoise(dim, func(_, uses int64) float64 {
		if _, known := found[uses]; !known {
			c.Rounds = uses
			found[uses] = n.ask(c)
		}
		return found[uses]
	}), n
}

// sumMSE returns roughly the mean squared error of a report of a vector sum.
func (c PrivacyConfig) sumMSE(dim int) float64 {
	return float64(dim) * c.Sigma * c.Sigma * c.Clip * c.Clip
}

// ask returns the mean squared error of one client's report, +Inf if none is within the budget.
func (n *planNoise) ask(c PrivacyConfig) float64 {
	if c.Eps0 == 0 {
		knob := "eps0"
		if c.Trust.Is(dp.SumsOnly) {
			knob = "sigma"
		}
		sigma, eps0, _, err := c.solve(n.ctx, knob, n.dim)
		if err != nil {
			if !errors.Is(err, dp.ErrNoBound) {
				n.failed = err
			}
			return math.Inf(1)
		}
		if c.Trust.Is(dp.SumsOnly) {
			c.Sigma = sigma
			return c.sumMSE(n.dim)
		}
		c.Eps0 = eps0
	}
	shape, err := c.shape(n.dim)
	var m randomizer.Randomizer
	if err == nil {
		m, err = randomizer.New(c.kind().Name, shape)
	}
	if err != nil {
		n.failed = inputError("%v", err)
		return math.Inf(1)
	}
	return c.clientMSE(m)
}
