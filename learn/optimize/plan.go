package optimize

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/schedule"
)

// Method is a published procedure for stochastic convex optimisation whose
// parameters NewPlan chooses.
type Method struct {
	Name string
	// Participation is Once, every client in one batch, or All, every client in
	// every round.
	Participation dp.Participation
	Source        string
	// Note says how the method differs from the others.
	Note string

	plan   func(Problem, Overrides) (*Plan, error)
	stages func(Problem, Overrides, given) ([]Stage, error)
	uses   Overrides // the parameters that may be overridden, as non-zero fields
}

// Methods returns the procedures that NewPlan knows. Source: Cheu, Joseph, Mao,
// Peng, "Shuffle private stochastic convex optimization" (ICLR 2022).
func Methods() []Method {
	const some = 1
	return []Method{
		{
			Name: "psgd", Participation: dp.Once, Source: "Algorithm 3, Theorem 4.1", plan: planPSGD, stages: one(averagedStage),
			uses: Overrides{Batch: some, Step: some},
			Note: "one pass, mean of the iterates; as in the theorem, the loss need not be smooth and no use is made of it if it is",
		},
		{
			Name: "agd", Participation: dp.Once, Source: "Algorithm 4, Theorem 4.3", plan: planAGD, stages: one(smoothStage),
			uses: Overrides{Batch: some, Curvature: some},
			Note: "one pass, accelerated; needs a smooth loss",
		},
		{
			Name: "agd-smooth", Participation: dp.Once, Source: "Theorem 4.7", plan: planSmoothed, stages: one(envelopeStage),
			uses: Overrides{Batch: some, Curvature: some, Smoothing: some},
			Note: "agd on the Moreau envelopes of the losses",
		},
		{
			Name: "agd-phases", Participation: dp.Once, Source: "Theorem 4.8", plan: planPhases, stages: phaseStages,
			uses: Overrides{Batch: some, Smoothing: some, Phases: some},
			Note: "agd, on envelopes if the loss is not smooth, from each phase's model in the next; needs strong convexity",
		},
		{
			Name: "gd", Participation: dp.All, Source: "Algorithm 5, Theorem 4.9", plan: planGD, stages: one(fullStage),
			uses: Overrides{Rounds: some, Step: some, Smoothing: some, Phases: some},
			Note: "every client in every round, mean of the iterates; if the loss is strongly convex, group after group of clients, each all in its rounds, if that is better; set MaxRounds to what is affordable",
		},
		{
			Name: "pan-private", Participation: dp.Once, Source: "Algorithm 6, Theorem C.3", plan: planPanPrivate, stages: one(panStage),
			uses: Overrides{Batch: some, Curvature: some, Smoothing: some},
			Note: "agd, on envelopes if the loss is not smooth, over a stream; a batch's mean has two draws of the noise",
		},
	}
}

// FindMethod returns the procedure of that name.
func FindMethod(name string) (Method, error) {
	known := Methods()
	names := make([]string, len(known))
	for i, m := range known {
		if m.Name == name {
			return m, nil
		}
		names[i] = m.Name
	}
	return Method{}, fmt.Errorf("optimize: method %q is none of %q", name, names)
}

// Overrides replace parameters that a plan would choose; 0 lets the plan choose. Setting one
// that the method does not have is an error.
type Overrides struct {
	Batch     int64   // B, the least number of clients in a batch
	Rounds    int64   // T of gd, over all groups
	Step      float64 // η of psgd and gd
	Curvature float64 // c of agd, see acsa
	Smoothing float64 // β of the envelopes
	Phases    int     // number of phases of agd-phases, or of groups of gd
	// Given says that the caller chooses who reports in each round. Rounds and Batch, the least
	// number of reports that a mean is over, are then required for every method, and the plan's
	// Batches are empty.
	Given bool
}

// check returns an error if a value is out of range, or is set although the method does not
// use it.
func (o Overrides) check(method string, uses Overrides) error {
	for _, v := range []struct {
		name     string
		set, has float64
	}{
		{"batch", float64(o.Batch), float64(uses.Batch)}, {"rounds", float64(o.Rounds), float64(uses.Rounds)},
		{"step", o.Step, uses.Step}, {"curvature", o.Curvature, uses.Curvature},
		{"smoothing", o.Smoothing, uses.Smoothing}, {"phases", float64(o.Phases), float64(uses.Phases)},
	} {
		if !(v.set >= 0) || math.IsInf(v.set, 1) {
			return fmt.Errorf("optimize: %s = %v must be above 0 and finite, or 0 for the default", v.name, v.set)
		}
		if v.set > 0 && v.has == 0 {
			return fmt.Errorf("optimize: method %s has no %s", method, v.name)
		}
	}
	return nil
}

// Stage is a run of rounds with the same parameters.
type Stage struct {
	Rounds   int64   // T
	Batch    int64   // clients in the smallest batch
	Distance float64 // D at the stage's start
	Sigma    float64 // standard deviation of the noise in each coordinate of a mean, over all its draws
	// Smoothing is β of the envelopes whose gradients clients send
	// (model.LinearConfig.Smoothing); 0 for the losses themselves.
	Smoothing float64
	Step      float64 // η; 0 in an accelerated stage
	Curvature float64 // c; 0 in a stage of averaged descent
	// Bound on the expected excess population loss after the stage; +Inf if
	// overrides broke its conditions.
	Bound float64
}

// Plan is everything about a run that is fixed beforehand. It depends on public numbers only.
type Plan struct {
	Method  string
	Problem Problem
	Batches schedule.Batches
	Stages  []Stage
	// Bound is that of the last stage: an upper bound on the expected excess population loss,
	// proved in convex.md, if the Problem is as described.
	//
	// If the caller chose the clients (Overrides.Given), what it bounds depends on who reports.
	// If no client reports twice, and always for gd, it is the excess loss of the population.
	// If every round draws its clients anew, without looking at the past, a mean is an unbiased
	// estimate of all n clients' mean gradient, and the Bound is for the mean loss of these n.
	Bound float64
}

// newPlan returns the plan of the stages, at least one.
func newPlan(b schedule.Batches, stages []Stage) *Plan {
	return &Plan{Batches: b, Stages: stages, Bound: stages[len(stages)-1].Bound}
}

// Stage returns the index of step t's stage; the last one's after the last step.
func (p *Plan) Stage(t int64) int {
	stage := 0
	for stage+1 < len(p.Stages) && t > p.Stages[stage].Rounds {
		t -= p.Stages[stage].Rounds
		stage++
	}
	return stage
}

// NewOptimizer returns the plan's optimiser at its start. Round t's mean gradient is taken at
// Point with the Smoothing of Stage(t), over the clients at Batches.Places(t). The sizes of a
// stage's batches differ by at most one client; its Sigma is the noise for the smallest batch.
func (p *Plan) NewOptimizer() (*Optimizer, error) {
	if p.Stages[0].Step > 0 {
		phases := make([]averagedConfig, len(p.Stages))
		for i, s := range p.Stages {
			phases[i] = averagedConfig{Dim: p.Problem.Dim, Rounds: s.Rounds, Step: s.Step, Radius: p.Problem.Radius}
		}
		phases[0].Start = p.Problem.Start
		return newAveraged(phases...)
	}
	phases := make([]acsaConfig, len(p.Stages))
	for i, s := range p.Stages {
		phases[i] = acsaConfig{Dim: p.Problem.Dim, Rounds: s.Rounds, Curvature: s.Curvature, Radius: p.Problem.Radius}
	}
	phases[0].Start = p.Problem.Start
	return newACSA(phases...)
}

// Deviation returns the standard deviation of one draw of noise in each coordinate of a mean
// over that many clients.
func (p *Plan) Deviation(clients int64) float64 {
	return p.Problem.Noise.deviation(clients, p.Batches.Uses)
}

// NewPlan chooses the parameters of the named method by minimising its bound. It does not look
// at data and costs no privacy. It calls the noise some hundreds of times, which takes most of
// its time.
func NewPlan(method string, p Problem, o Overrides) (*Plan, error) {
	if o.Given {
		r := given{o.Rounds, o.Batch}
		o.Given, o.Rounds, o.Batch = false, 0, 0
		plan, err := planFor(method, p.exact(), r, o)
		if err != nil {
			return nil, err
		}
		plan.Problem.Noise = p.Noise
		return plan, nil
	}
	m, err := FindMethod(method)
	if err != nil {
		return nil, err
	}
	if err := p.validate(); err != nil {
		return nil, err
	}
	if err := o.check(method, m.uses); err != nil {
		return nil, err
	}
	p.Start = clone(p.Start)
	plan, err := m.plan(p, o)
	if err != nil {
		return nil, fmt.Errorf("optimize: %s: %w", method, err)
	}
	plan.Method, plan.Problem = method, p
	return plan, nil
}
