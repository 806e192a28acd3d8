package train

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/run/simulate"
)

// ErrInterrupted is wrapped if a run was stopped with its state saved.
var ErrInterrupted = errors.New("interrupted")

// Observer watches a run. Any field may be nil. Reports is called from any goroutine, the
// others from the goroutine that called Train.
type Observer struct {
	Reports   func(n int64)   // n more reports were summed
	Evaluated func(m Metrics) // an evaluation was made
	Round     func(r simulate.Result)
	Stopped   func(reason string) // training ends before its last round
}

// Run is the simulation of a task, with its run directory.
type Run struct {
	*Setup
	Dir string
	// Resumed is the last finished round of an earlier process; 0 if none.
	Resumed int64
	Metrics []Metrics
	// Reports is the number of reports summed by earlier processes and this one.
	Reports int64
	// Round is the last round that ended. Steps counts the rounds that gave a step; the others
	// were void. Charged lists the charges, oldest first; do not change it. While Train runs
	// only its Observer may read them.
	Round, Steps int64
	Charged      []ledger.Entry
	// Evaluation is the evaluation behind the last of Metrics; nil before the first of this
	// process.
	Evaluation *model.Evaluation

	clients     clients
	learner     coordinator.Learner
	ledger      coordinator.Ledger
	coordinator *coordinator.Coordinator
	simulation  *simulate.Simulation
	begun       time.Time
	before      checkpoint // the state that earlier processes reached
}

// Prepare checks and resolves a configuration, loads its data and builds the
// roles. Nothing is written yet.
func Prepare(ctx context.Context, c Config) (*Run, error) {
	if c.MinClients != 0 || c.MaxClients != 0 {
		return nil, inputError("min-clients and max-clients are for tasks over a network, whose clients join and leave; a simulation has n clients in every round")
	}
	if c.Guard != "" && c.Evaluate == "" {
		return nil, inputError("guard = %s needs evaluate %s: without it only tasks over a network have a guard (riffle task create), for a simulation has no liars", c.Guard, privately)
	}
	if c.Receipts {
		return nil, inputError("receipts are of tasks over a network (riffle task create): in a simulation nobody drops a report")
	}
	if c.Tokens {
		return nil, inputError("tokens are of tasks over a network (riffle task create): in a simulation nobody stuffs a round")
	}
	if c.Proofs != "" {
		if c.apart() {
			return nil, inputError("proofs = %s are of tasks over a network (riffle task create, riffle demo): simulate noise-by %s without them, whose sums are the same", c.Proofs, vecsum.ByClients)
		}
		return nil, inputError("proofs = %s are of tasks over a network (riffle task create, riffle demo): simulate noise-by %s, whose sums are the same", c.Proofs, vecsum.ByAggregators)
	}
	if c.Dim != 0 && c.Gradients == "" {
		return nil, inputError("dim = %d is of tasks over a network (riffle task create): a simulation needs gradients, a program that has all clients' data", c.Dim)
	}
	t, err := newTask(ctx, c)
	if err != nil {
		return nil, err
	}
	r := &Run{Setup: t}
	if err := r.build(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close ends the program that computes gradients, if there is one.
func (r *Run) Close() { r.Data.program.close() }

// resolve chooses all open settings, and loads the data and the model.
func (c Config) resolve(ctx context.Context) (Config, *Data, *model.Model, error) {
	c.fill()
	if err := c.Check(); err != nil {
		return c, nil, nil, err
	}
	if c.Gradients != "" {
		return c.resolveExternal(ctx)
	}
	if c.Model == external {
		return c.resolveDescribed(ctx)
	}
	data, err := c.load()
	if err != nil {
		return c, nil, nil, err
	}
	c.resolveLoss(data.Train)
	m, err := c.newModel(data.Train)
	if err != nil {
		return c, nil, nil, inputError("%v", err)
	}
	if c.planned() {
		if err := c.resolveClients(data.Train.Len()); err != nil {
			return c, nil, nil, err
		}
		if err := c.resolveRounds(ctx, data, m); err != nil {
			return c, nil, nil, err
		}
	}
	if err := c.resolvePopulation(data.Train.Len()); err != nil {
		return c, nil, nil, err
	}
	if err := c.resolvePrivacy(ctx, c.width(m)); err != nil {
		return c, nil, nil, err
	}
	c.resolveLearning(m)
	return c, data, m, nil
}

// parts are the parts made from a resolved configuration, for a simulation or a network.
type parts struct {
	model     *model.Model
	mechanism randomizer.Mechanism
	promise   dp.Report
	blocks    schedule.Blocks
	plan      *optimize.Plan // plan of a convex optimiser; nil with cldp-sgd
	// stages are the models whose gradients clients send, by stage of the plan.
	stages []*model.Model
}

// parts makes the mechanism for the model, and chooses the learning rate or the plan for it.
func (c *Config) parts(d *Data, m *model.Model) (p parts, err error) {
	p.model, p.stages = m, []*model.Model{m}
	if p.blocks, err = c.blocks(); err != nil {
		return p, err
	}
	if err := c.resolveEdges(m.Params); err != nil {
		return p, inputError("%v", err)
	}
	if p.mechanism, p.promise, err = c.newMechanism(c.width(m)); err != nil {
		return p, inputError("%v", err)
	}
	if c.planned() {
		if p.plan, err = c.newPlan(d, m, p.mechanism); err != nil {
			return p, err
		}
		p.stages, err = stageModels(p.plan, m)
		return p, err
	}
	if c.LR == "" && c.Optimizer == adam {
		c.LR = adamRate
	}
	if c.LR == "" {
		if c.LR = c.defaultRate(p.mechanism); c.plainTable() {
			c.LR = c.tableRates(p.mechanism, m)
		}
	}
	return p, nil
}

// coordinator returns the task of a resolved configuration; the caller adds its name and its
// ledger.
func (c Config) coordinator(p parts) (coordinator.Config, error) {
	var optimizer *optimize.Optimizer
	var err error
	if p.plan != nil {
		optimizer, err = p.plan.NewOptimizer()
	} else {
		optimizer, err = c.newCLDPSGD(p.mechanism, p.model.Params, p.model.Init(uint64(c.Seed)))
	}
	if err != nil {
		return coordinator.Config{}, err
	}
	var learner coordinator.Learner = optimizer
	var published int64
	if c.Evaluate != "" {
		published = int64(p.model.Params)
		if learner, err = c.newEvaluated(optimizer, p); err != nil {
			return coordinator.Config{}, err
		}
	}
	return coordinator.Config{
		Optimizer: learner, ModelDim: published, Mechanism: p.mechanism, Report: p.promise, Trust: c.Trust.Recorded(),
		Participation: c.Participation, Population: c.Population, Sample: c.K, Gamma: c.Gamma,
		Blocks: p.blocks, MinReports: c.NMin, Every: c.Every, Messages: c.Messages, Clip: c.Clip, Honest: c.Honest, Tokens: c.Tokens,
	}, err
}

func (r *Run) build() error {
	var err error
	c, p := r.Config, r.parts
	workers := simulate.Config{Each: r.Data.program.each(), Clients: c.Population}
	if r.Data.program == nil {
		if r.clients, err = c.newClients(r.Data.Train, p.stages); err != nil {
			return inputError("%v", err)
		}
		r.clients.weights = r.weights
		workers = simulate.Config{Worker: r.clients.worker, CoordinateWorker: r.clients.coordinateWorker, Clients: r.clients.population.Clients}
		if r.clients.evaluation != nil {
			workers.CoordinateWorker = nil
		}
	}
	task, err := c.coordinator(p)
	if err != nil {
		return err
	}
	r.learner = task.Optimizer
	task.Task, task.Ledger = c.Fields().Digest(), ledger.Unprotected
	if c.Trust.Is(dp.Protecting) {
		if task.Ledger, err = ledger.New(r.Limit); err != nil {
			return err
		}
	}
	r.ledger = task.Ledger
	if r.coordinator, err = coordinator.New(task); err != nil {
		return inputError("%v", err)
	}
	// A simulated client of a vector sum only rounds its vector; the noise is drawn for all
	// clients at once.
	reports := r.Mechanism
	var carriers carrying
	if m, ok := r.Mechanism.(*mechanism.VectorSum); ok {
		if carriers, err = c.carriers(c.Fields().Digest(), m); err != nil {
			return inputError("transport %s: %v", c.Transport, err)
		}
		if carriers == nil {
			reports = mechanism.Rounding{VectorSum: m}
		}
	}
	reporter, err := client.New(client.Config{
		Mechanism: reports, ClipMode: c.ClipMode, Clip: c.Clip, Norm: c.norm(),
	})
	if err != nil {
		return inputError("%v", err)
	}
	r.simulation, err = simulate.New(simulate.Config{
		Seed: uint64(c.Seed), Clients: workers.Clients, Worker: workers.Worker, Each: workers.Each, CoordinateWorker: workers.CoordinateWorker, Client: reporter, Blocks: p.blocks, Carry: carriers,
		Coordinator: r.coordinator, Mechanism: r.Mechanism, Every: c.Every, Dropout: c.Dropout, Workers: int(c.Workers),
	})
	return err
}

// Planned returns the proved bound on the cost of all rounds if none is void; ε is +Inf without
// privacy. Where the random choice of participants lowers the cost, a void round costs as much as another.
func (t *Setup) Planned(ctx context.Context) (dp.Bound, error) { return t.Config.cost(ctx, t.promised) }

// PlannedKnowsWho is Planned against somebody who knows who takes part in each round, for a client in every round; false where no
// chance is credited, so that it is the same.
func (t *Setup) PlannedKnowsWho(ctx context.Context) (dp.Bound, bool, error) {
	if !t.Config.Trust.Is(dp.Protecting) {
		return dp.Bound{}, false, nil
	}
	differs := false
	b, err := t.Config.cost(ctx, func(q account.Query) (known account.Query) {
		known, differs = t.promised(q).KnowsWho()
		return known
	})
	return b, differs, err
}

// promised returns q for reports of which all is known that the run's mechanism promises.
func (t *Setup) promised(q account.Query) account.Query {
	if r := t.parts.promise; r.Class.LDP() {
		return q.Of(r)
	}
	return q
}

// Create makes the run directory. Its first checkpoint binds it to the data.
func (r *Run) Create(dir string) error {
	r.Dir = dir
	if err := createDirectory(dir, r.Config); err != nil {
		return err
	}
	r.begun = time.Now()
	return r.checkpoint(false)
}

// Resume opens a run directory at its last checkpoint. adjust may change only local settings
// (workers, checkpoint-every). It must name the program of a run that has one: the directory may
// be a stranger's, and the program that it names is not started.
func Resume(ctx context.Context, dir string, adjust func(*Config)) (*Run, error) {
	own := Default()
	if adjust != nil {
		adjust(&own)
	}
	c := Default()
	c.Gradients = own.Gradients
	if err := c.ReadConfig(filepath.Join(dir, ConfigFile), func(name string) bool { return name == "gradients" && own.Gradients != "" }); err != nil {
		return nil, fmt.Errorf("%w%w", err, ErrInput)
	}
	if adjust != nil {
		adjust(&c)
	}
	r, err := Prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := r.restore(dir); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// restore brings a run to its directory's last checkpoint.
func (r *Run) restore(dir string) error {
	r.Dir = dir
	saved, found, err := loadCheckpoint(filepath.Join(dir, CheckpointFile), r.Config, r.Data.digest)
	if err != nil {
		return err
	}
	if found {
		if err := r.coordinator.Restore(saved.state); err != nil {
			return inputError("checkpoint: %v", err)
		}
		if err := r.simulation.Hold(saved.held); err != nil {
			return inputError("checkpoint: %v", err)
		}
		r.before, r.Reports, r.Resumed = saved, saved.reports, saved.state.Round
		r.look()
	}
	metrics, err := readMetrics(filepath.Join(dir, MetricsFile), r.Resumed)
	if err != nil {
		return inputError("resume %s: %v", dir, err)
	}
	r.Metrics = metrics
	text, err := marshalMetrics(metrics)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, MetricsFile), text)
}

// Train runs the remaining rounds and writes model and summary. If ctx ends it saves the last
// finished round and returns ErrInterrupted.
func (r *Run) Train(ctx context.Context, watch Observer) (*Summary, error) {
	r.begun = time.Now()
	complete := r.before.complete
	for !complete && r.Round < r.Config.Rounds {
		if r.Plan != nil && len(r.Plan.Stages) > 1 {
			*r.clients.stage = r.Plan.Stage(r.Steps + 1)
		}
		result, err := r.simulation.Round(ctx, watch.Reports)
		r.look()
		switch {
		case errors.Is(err, ledger.ErrBudget):
			if r.Round == 0 {
				return nil, err
			}
			if watch.Stopped != nil {
				watch.Stopped(err.Error())
			}
			complete = true
			continue
		case ctx.Err() != nil:
			if err := r.checkpoint(false); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("train: %w after round %d of %d", ErrInterrupted, r.Round, r.Config.Rounds)
		case err != nil:
			return nil, errors.Join(err, r.checkpoint(false))
		}
		r.Reports += result.Reports
		if watch.Round != nil {
			watch.Round(result)
		}
		if result.Round%r.Config.EvalEvery == 0 || result.Round == r.Config.Rounds {
			if err := r.evaluate(watch); err != nil {
				return nil, err
			}
		}
		if result.Round%r.Config.CheckpointEvery == 0 {
			if err := r.checkpoint(false); err != nil {
				return nil, err
			}
		}
	}
	if n := len(r.Metrics); n == 0 || r.Metrics[n-1].Round != r.Round {
		if err := r.evaluate(watch); err != nil {
			return nil, err
		}
	}
	if err := r.checkpoint(true); err != nil {
		return nil, err
	}
	return r.finish()
}

// look fills in how far the run has come.
func (r *Run) look() {
	s := r.coordinator.State()
	r.Round, r.Steps, r.Charged = s.Round, s.Optimizer.Steps, s.Charged
}

func (r *Run) seconds() float64 { return r.before.seconds + time.Since(r.begun).Seconds() }

// Theta returns the parameters to release now, in stored form.
func (r *Run) Theta() []float32 {
	wide := make([]float64, r.Model.Params)
	r.coordinator.Model(wide)
	theta := make([]float32, len(wide))
	for j, v := range wide {
		theta[j] = float32(v)
	}
	return theta
}

func (r *Run) evaluate(watch Observer) error {
	e, err := r.Evaluate(r.Theta())
	if err != nil {
		return err
	}
	spent, err := r.coordinator.Spent()
	if err != nil {
		return err
	}
	m := Metrics{
		Round: r.Round, Epsilon: dp.Number(spent.Eps), Loss: e.Loss, Accuracy: dp.Number(e.Accuracy), Seconds: r.seconds(),
	}
	m.BaselineLoss, m.BaselineAccuracy = r.Baseline.figures()
	m.Numbers = numbers(e)
	if m.Private, err = r.measured(); err != nil {
		return err
	}
	line, err := marshalMetrics([]Metrics{m})
	if err != nil {
		return err
	}
	if err := durable.Append(filepath.Join(r.Dir, MetricsFile), line); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	r.Metrics, r.Evaluation = append(r.Metrics, m), e
	if watch.Evaluated != nil {
		watch.Evaluated(m)
	}
	return nil
}

func (r *Run) checkpoint(complete bool) error {
	c := checkpoint{state: r.coordinator.State(), held: r.simulation.Held(), seconds: r.seconds(), reports: r.Reports, complete: complete}
	if err := saveCheckpoint(filepath.Join(r.Dir, CheckpointFile), c, r.Config, r.Data.digest); err != nil {
		return fmt.Errorf("train: checkpoint: %w", err)
	}
	return nil
}
