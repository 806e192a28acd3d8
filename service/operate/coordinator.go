package operate

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/page/report"
	roles "github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/measure"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/opener"
	"github.com/riffle-dp/riffle/service/store"
)

// sumTasks is the number of tasks of vector sums for whose tails a population keeps a share of δ, if each has the population's δ.
const sumTasks = 16

// populationLimit is the budget of all tasks together.
func populationLimit(c config.Coordinator) ledger.Config {
	return ledger.Config{Accountant: new(account.Accountant), Delta: c.Budget.Delta, Tail: sumTasks * vecsum.TailShare, MaxEps: c.Budget.Epsilon}
}

// coordinatorProcess is a coordinator with its store, ledger and tasks.
type coordinatorProcess struct {
	config     config.Coordinator
	population wire.ID
	own        coordinator.Config
	service    *coordinator.Service
	store      *store.Store
	journal    *ledger.Journal
	registrar  *http.Client // nil: there is none to make the keys of tokens
	version    string

	creating sync.Mutex      // held while a task is created, loaded or removed
	known    map[string]bool // keys of the tasks that were loaded; guarded by creating
	unusable map[string]bool // keys of the tasks that cannot be run here; guarded by creating

	mu        sync.Mutex
	tasks     map[[32]byte]*train.Setup
	questions map[[32]byte]*measure.Plan // of tasks that ask a question
	// readMeasured is what clients measured of tasks that ended before this process began; guarded by mu.
	readMeasured map[[32]byte]*train.Measured
}

// publicOf returns a key's public half.
func publicOf(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

func serveCoordinator(ctx context.Context, path string, o Options) error {
	c, err := config.Load[config.Coordinator](path)
	if err != nil {
		return err
	}
	c.Evaluate = cmp.Or(o.Evaluate, c.Evaluate)
	r := &coordinatorProcess{config: c, population: c.ID, version: o.Version, known: map[string]bool{}, unusable: map[string]bool{}, tasks: map[[32]byte]*train.Setup{}}
	r.own = coordinator.Config{Holder: c.Holder, Workers: c.Workers, Log: o.Log, Hold: o.Hold, PauseAfter: c.PauseAfter, PauseAfterVoid: c.PauseAfterVoid, AnnounceLedger: c.AnnounceLedger}
	if r.own.Key, err = config.LoadSigning(c.SigningKey); err != nil {
		return config.Errorf("%w", err)
	}
	if r.own.Keyring, err = config.LoadKeyring(c.SealingKeys); err != nil {
		return config.Errorf("%w", err)
	}
	s, err := openServer(ctx, c.Process, RoleCoordinator, o, func(ctx context.Context) (*store.Store, error) { return openCoordinatorStore(ctx, c) })
	if err != nil {
		return err
	}
	if err := r.prepare(ctx, s); err != nil {
		return errors.Join(err, s.store.Close())
	}
	s.ready = r.ready
	peers := coordinatorPeers(r.own.Shuffler, r.own.Aggregator, r.population)
	if r.registrar != nil {
		peers = append(peers, registrarPeer(r.registrar, *c.Registrar, r.population))
	}
	s.peers = newPeers(o.Log, peers...)
	s.metrics = append(s.metrics, func() []endpoint.Metric { return coordinatorMetrics(r.service.List()) }, r.populationMetrics)
	return s.run(ctx, operatorAPI{coordinator: r}, func(ctx context.Context) error {
		if c.Store.URL == "" {
			return r.service.Run(ctx) // nobody else writes to the store
		}
		return together(ctx, r.service.Run, func(ctx context.Context) error { return r.follow(ctx, o.Log) })
	})
}

// prepare opens the journal, and loads the tasks in the store.
func (r *coordinatorProcess) prepare(ctx context.Context, s *server) (err error) {
	c := r.config
	r.store = s.store
	if r.journal, err = coordinator.OpenJournal(ctx, s.store, c.Mark, r.population, populationLimit(c)); err != nil {
		return err
	}
	r.journal.Lookup = r.lookup
	r.own.Store, r.own.Journal, r.own.Promises = s.store, r.journal, promisesOf(c)
	if _, err := promisesOf(c).Load(); err != nil {
		return err
	}
	if r.own.Shuffler, err = s.source(c.Shuffler, c.Registrar); err != nil {
		return err
	}
	if c.Aggregator != nil {
		r.own.Aggregator = &coordinator.Aggregator{URL: c.Aggregator.URL, Key: c.Aggregator.Signer}
		if r.own.Aggregator.Client, err = s.peerClient(*c.Aggregator); err != nil {
			return err
		}
	}
	if c.Registrar != nil && c.Registrar.URL != "" {
		if r.registrar, err = s.peerClient(*c.Registrar); err != nil {
			return err
		}
	}
	if c.WorkerSealing != nil {
		queue, err := s.store.Queue(ctx, opener.Queue, store.QueueConfig{})
		if err != nil {
			return err
		}
		r.own.Opening = &coordinator.Opening{Queue: queue, Keys: c.WorkerSealing}
	}
	if r.service, err = coordinator.New(r.own); err != nil {
		return err
	}
	if err := r.compareLedger(ctx); err != nil {
		return err
	}
	bad, err := r.loadNew(ctx, r.service.Add)
	if err != nil {
		return err
	}
	if bad != nil {
		s.options.Log.Error("tasks in the store cannot be run; the others are", "error", bad)
	}
	if err := r.serveDashboard(s); err != nil {
		return err
	}
	return s.listenTo(c.Origins, c.Listen, c.Rate, 64<<10, nil, r.service.Handler())
}

func (r *coordinatorProcess) runnable(t *train.Setup, made created) (coordinator.Job, error) {
	pure, err := t.Coordinator()
	if err != nil {
		return coordinator.Job{}, err
	}
	r.share(t)
	base := t.Baseline
	out := coordinator.Job{
		Signed: made.Signed, TokenKeys: made.tokens, Report: pure.Report, Budget: t.Limit, Sample: pure.Sample, Gamma: pure.Gamma,
		Colluders: r.config.Colluders, Round: made.Round, Close: func() { r.ended(t) },
		Optimizer: func() (roles.Learner, error) {
			c, err := t.Coordinator()
			return c.Optimizer, err
		},
		Evaluate: func(params []float32) any {
			e, err := t.Evaluate(params)
			if err != nil {
				return nil
			}
			out := evaluation{Loss: dp.Number(e.Loss)}
			if r.config.Dashboard != config.NoAddress {
				if x, err := report.Examine(Examine(t, e, params)); err == nil {
					out.examined = x
				}
			}
			if a := e.Accuracy; !math.IsNaN(a) {
				out.Accuracy = &a
			}
			if out.BaselineLoss = &base.Loss; base.Class >= 0 {
				out.BaselineAccuracy = &base.Accuracy
			}
			return out
		},
	}
	if t.Config.Dim != 0 { // only a program can evaluate it
		if out.Evaluate = nil; r.config.Evaluate != "" {
			out.Beside = newEvaluator(r.config, t.Wire, t.Config.Parameters, cmp.Or(r.own.Log, slog.New(slog.DiscardHandler)))
		}
	}
	if t.Config.Evaluate != "" {
		out.Measured = func(s optimize.State) any {
			if m, err := t.MeasuredIn(s); err == nil && m != nil {
				return m
			}
			return nil
		}
	}
	if g := t.Guard; g != nil {
		out.Guard = &coordinator.Guard{Metric: g.Metric, Fall: g.Fall, Pause: g.Pause, Private: t.Config.Evaluate != "", Measure: func(v any) float64 { return guarded(g.Metric, v) }}
	}
	if t.Wire.Participation == dp.Once {
		out.BlockSize = t.Config.K
	}
	return out, nil
}

// record has a task keep the reports that it opens, if the configuration says so.
func (r *coordinatorProcess) record(w wire.Task, m randomizer.Mechanism, out *coordinator.Job) error {
	if r.config.Record == "" {
		return nil
	}
	rec, err := newRecorder(r.config.Record, w, m)
	if err != nil {
		return err
	}
	out.Record, out.RecordSum, out.Discard = rec.report, rec.sum, rec.discard
	return nil
}

// remember keeps a task for the page and the operator API.
func (r *coordinatorProcess) remember(t *train.Setup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tasks[wire.Digest(t.Wire)] = t
}

// evaluation is a model's result in a task's status.
type evaluation struct {
	Accuracy *float64  `json:"accuracy,omitempty"` // nil for a regression
	Loss     dp.Number `json:"loss"`
	examined *report.Examined

	// The best constant's result on the same examples.
	BaselineAccuracy *float64 `json:"baseline_accuracy,omitempty"`
	BaselineLoss     *float64 `json:"baseline_loss,omitempty"`

	// Numbers are a program's others. If it failed, failure says why: to the operator only.
	Numbers map[string]dp.Number `json:"metrics,omitempty"`
	Failed  bool                 `json:"failed,omitempty"`
	failure string
	beside  bool // whether a program made the evaluation beside the rounds
}

// guarded reads a guard's metric off an evaluation, larger being better; NaN if it has
// none.
func guarded(metric string, v any) float64 {
	e, ok := v.(evaluation)
	switch {
	case !ok || metric == "accuracy" && e.Accuracy == nil:
		return math.NaN()
	case metric == "accuracy":
		return *e.Accuracy
	}
	return -float64(e.Loss)
}

// shortestRound is the shortest time that clients may have to report.
const shortestRound = time.Second

// create signs, stores and starts a task. It refuses one that could not be run, or whose
// first round could not be paid for.
func (r *coordinatorProcess) create(ctx context.Context, name, config string, initial []byte, round time.Duration) (id [32]byte, plan taskPlan, err error) {
	r.creating.Lock()
	defer r.creating.Unlock()
	if round == 0 {
		round = r.config.RoundLength
	}
	if round < shortestRound || round > 366*24*time.Hour {
		return id, plan, fmt.Errorf("bad input: a round of %v must take between %v and a year%w", round, shortestRound, train.ErrInput)
	}
	if !taskName(name) {
		return id, plan, fmt.Errorf("bad input: name %q must be 1 to 64 of a-z, 0-9 and -%w", name, train.ErrInput)
	}
	e, err := r.own.Shuffler.Enrolment(ctx, r.population, time.Now())
	if err != nil {
		return id, plan, fmt.Errorf("operate: the shuffler does not say how many clients there are: %w", err)
	}
	var n *newTask
	if measure.Asks([]byte(config)) {
		n, err = r.newQuestion(ctx, name, config, round, e)
	} else {
		n, err = r.newTraining(ctx, name, config, initial, round, e)
	}
	if err != nil {
		return id, plan, err
	}
	id = wire.Digest(n.wire)
	if err := coordinator.CheckJob(r.own, n.job); err != nil {
		return id, plan, fmt.Errorf("bad input: %w%w", err, train.ErrInput)
	}
	if r.known[createdKey(id)] {
		return id, plan, alreadyThere(id)
	}
	if err := r.ableAggregator(ctx, &n.wire); err != nil {
		return id, plan, err
	}
	if plan, err = r.plan(ctx, n.setup, n.wire, n.job.Budget); err != nil {
		return id, plan, err
	}
	if err := r.storeTask(ctx, id, n.job.Budget, n.made); err != nil {
		return id, plan, err
	}
	if err := r.record(n.wire, n.mechanism, &n.job); err != nil {
		return id, plan, err
	}
	n.remember()
	if err := r.service.Add(n.job); err != nil {
		return id, plan, err
	}
	r.known[createdKey(id)] = true
	return id, plan, nil
}

// newTask is a task that is being created.
type newTask struct {
	wire      wire.Task
	made      created
	job       coordinator.Job
	setup     setup
	mechanism randomizer.Mechanism
	remember  func()
}

// newTraining makes a task that trains a model.
func (r *coordinatorProcess) newTraining(ctx context.Context, name, config string, initial []byte, round time.Duration, e wire.Enrolment) (*newTask, error) {
	c := train.Default()
	if err := c.Parse([]byte(config)); err != nil {
		return nil, err
	}
	if len(initial) == 0 {
		initial = nil
	}
	t, err := train.NewTask(ctx, name, c, train.Enrolled{Population: r.population, Clients: e.Clients, MinReports: e.MinReports, Initial: initial})
	if err != nil {
		return nil, err
	}
	var tokens []byte
	if t.Config.Tokens {
		if tokens, err = r.askTokenKeys(ctx, &t.Wire); err != nil {
			return nil, err
		}
	}
	made := created{tokens: tokens, Signed: wire.Sign(r.own.Key, wire.LabelTask, wire.Encode(t.Wire)), Round: round, initial: initial}
	if r.config.Data != "" && t.Config.Dim == 0 { // check that a restart can load the task from this data
		given := func(context.Context, [32]byte) ([]byte, error) { return initial, nil }
		if _, err := train.OpenTask(ctx, t.Wire, r.config.Data, given); err != nil {
			return nil, err
		}
	}
	out, err := r.runnable(t, made)
	return &newTask{t.Wire, made, out, t, t.Mechanism, func() { r.remember(t) }}, err
}

// ableAggregator refuses a new task that the aggregator cannot sum. If the aggregator does not answer,
// the task's first round waits for it.
func (r *coordinatorProcess) ableAggregator(ctx context.Context, w *wire.Task) error {
	if !w.Trust.Is(dp.SumsOnly) {
		return nil
	}
	var registrar ed25519.PublicKey
	if w.Tokens != (wire.Tokens{}) {
		registrar = r.own.Shuffler.Registrar
	}
	err := coordinator.CheckAggregator(ctx, r.own.Aggregator, w.Mechanism.Sum.Proved(), registrar)
	if errors.Is(err, coordinator.ErrUnable) {
		return fmt.Errorf("bad input: %w%w", err, train.ErrInput)
	}
	return ctx.Err()
}

func taskName(name string) bool {
	return len(name) >= 1 && len(name) <= 64 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// find returns the task with this name, hex digest, or beginning of a digest.
func (r *coordinatorProcess) find(text string) ([32]byte, error) {
	var found [][32]byte
	for _, s := range r.service.List() {
		if len(text) >= 4 && strings.HasPrefix(hex.EncodeToString(s.ID[:]), strings.ToLower(text)) || s.Task.Name == text {
			found = append(found, s.ID)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return [32]byte{}, fmt.Errorf("%w: %q", coordinator.ErrNoTask, text)
	}
	return [32]byte{}, fmt.Errorf("operate: %q names %d tasks", text, len(found))
}

// populationMetrics gives the cost of all tasks together, by the method that counted it.
func (r *coordinatorProcess) populationMetrics() []endpoint.Metric {
	var spent dp.Bound
	var err error
	r.journal.View(func(b *ledger.Book) { spent, err = b.Spent() })
	if err != nil {
		spent.Eps, spent.Method = math.Inf(1), "unknown"
	}
	gauge := func(name, help string, v float64, labels ...string) endpoint.Metric {
		return endpoint.Metric{Name: name, Help: help, Kind: endpoint.Gauge, Samples: []endpoint.Sample{{Labels: labels, Value: v}}}
	}
	return []endpoint.Metric{
		gauge("riffle_population_epsilon", "Bound on what all tasks were charged, at the population's delta.", spent.Eps,
			"method", spent.Method),
		gauge("riffle_population_budget", "The epsilon that it may come to.", r.config.Budget.Epsilon),
	}
}

// receiptsOf returns the numbers of the last round's receipts; zero if it has none.
func receiptsOf(s wire.Status) wire.Receipts {
	if s.Receipts == nil {
		return wire.Receipts{}
	}
	return *s.Receipts
}

func coordinatorMetrics(list []wire.Status) []endpoint.Metric {
	slices.SortFunc(list, func(a, b wire.Status) int { return strings.Compare(a.Task.Name, b.Task.Name) })
	family := func(name, help, kind string, value func(wire.Status) float64) endpoint.Metric {
		m := endpoint.Metric{Name: name, Help: help, Kind: kind}
		for _, s := range list {
			m.Samples = append(m.Samples, endpoint.Sample{Labels: []string{"task", hex.EncodeToString(s.ID[:8])}, Value: value(s)})
		}
		return m
	}
	out := []endpoint.Metric{
		family("riffle_round", "The last round that ended.", endpoint.Gauge, func(s wire.Status) float64 { return float64(s.Round) }),
		family("riffle_rounds_released_total", "Rounds whose step was taken.", endpoint.Counter, func(s wire.Status) float64 { return float64(s.Released) }),
		family("riffle_rounds_void_total", "Rounds with too few reports.", endpoint.Counter, func(s wire.Status) float64 { return float64(s.Void) }),
		family("riffle_rounds_failed_total", "Rounds that were charged but gave no step.", endpoint.Counter, func(s wire.Status) float64 { return float64(s.Failed) }),
		family("riffle_paused", "1 while the task waits for riffle task resume.", endpoint.Gauge, func(s wire.Status) float64 {
			if s.State == coordinator.Paused {
				return 1
			}
			return 0
		}),
		family("riffle_steps_shortened_total", "Steps longer than honest reports give, made shorter.", endpoint.Counter, func(s wire.Status) float64 { return float64(s.Shortened) }),
		family("riffle_receipts_published", "Receipts of the last round that are listed as whole.", endpoint.Gauge, func(s wire.Status) float64 { return float64(receiptsOf(s).Whole) }),
		family("riffle_receipts_half", "Receipts of the last round that the aggregator did not name.", endpoint.Gauge, func(s wire.Status) float64 { return float64(receiptsOf(s).Half) }),
		family("riffle_messages_unopened", "Messages of the last round that could not be opened, in tasks with receipts.", endpoint.Gauge, func(s wire.Status) float64 { return float64(receiptsOf(s).Unopened) }),
		family("riffle_reports_summed_total", "Reports that are in a model.", endpoint.Counter, func(s wire.Status) float64 { return float64(s.Reports) }),
		family("riffle_epsilon", "Bound on what was charged, at the task's delta.", endpoint.Gauge, func(s wire.Status) float64 { return float64(s.Eps) }),
		family("riffle_running", "1 while the task runs.", endpoint.Gauge, func(s wire.Status) float64 {
			if s.State == coordinator.Running {
				return 1
			}
			return 0
		}),
	}
	numbers := endpoint.Metric{Name: "riffle_evaluation", Help: "What the last evaluation of a released model measured, by name.", Kind: endpoint.Gauge}
	broken := endpoint.Metric{Name: "riffle_evaluation_failed", Help: "1 if the program that evaluates failed on the last model it was given.", Kind: endpoint.Gauge}
	rejected := endpoint.Metric{Name: "riffle_reports_rejected_total", Help: "Refused reports, the shuffler's and the coordinator's, by reason.", Kind: endpoint.Counter}
	failed := endpoint.Metric{Name: "riffle_rounds_failed_by_reason_total", Help: "Rounds that were charged but gave no step, by reason.", Kind: endpoint.Counter}
	seconds := endpoint.Metric{Name: "riffle_phase_seconds_total", Help: "Time spent in a phase.", Kind: endpoint.Counter}
	for _, s := range list {
		task := []string{"task", hex.EncodeToString(s.ID[:8])}
		for _, sample := range byReason(s.Rejected) {
			rejected.Samples = append(rejected.Samples, endpoint.Sample{Labels: append(slices.Clip(task), sample.Labels...), Value: sample.Value})
		}
		for _, reason := range coordinator.FailureReasons {
			failed.Samples = append(failed.Samples, endpoint.Sample{Labels: append(slices.Clip(task), "reason", reason), Value: float64(s.FailedBy[reason])})
		}
		if e, ok := s.Evaluation.(evaluation); ok {
			all := e.figures()
			for _, name := range slices.Sorted(maps.Keys(all)) {
				numbers.Samples = append(numbers.Samples, endpoint.Sample{Labels: append(slices.Clip(task), "number", name), Value: all[name]})
			}
			if e.beside {
				broken.Samples = append(broken.Samples, endpoint.Sample{Labels: task, Value: map[bool]float64{true: 1}[e.Failed]})
			}
		}
		for phase, v := range s.Spent {
			seconds.Samples = append(seconds.Samples, endpoint.Sample{Labels: append(slices.Clip(task), "phase", phase), Value: v})
		}
	}
	slices.SortFunc(seconds.Samples, func(a, b endpoint.Sample) int {
		return strings.Compare(fmt.Sprint(a.Labels), fmt.Sprint(b.Labels))
	})
	return append(out, rejected, failed, seconds, numbers, broken)
}

// source returns a shuffler for a peer that reads from it.
func (s *server) source(p config.Party, registrar *config.Party) (out batch.Source, err error) {
	out.URL, out.Key = p.URL, p.Signer
	if registrar != nil {
		out.Registrar = registrar.Signer
	}
	out.Client, err = s.peerClient(p)
	return out, err
}
