package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/setting"
)

// Setup is a learning task that is ready to run: its resolved configuration, and the data,
// model and mechanism that follow from it. Over a network the clients draw their own noise: the
// configuration's seed decides the start and the split of the data only.
type Setup struct {
	Config Config // resolved: every setting has a value
	// Wire describes the task to clients; zero in a simulation.
	Wire wire.Task
	// Data are the coordinator's data over a network, of which it uses the test set.
	Data  *Data
	Model *model.Model
	// Mechanism makes the clients' reports.
	Mechanism randomizer.Mechanism
	// Plan is a convex optimiser's plan; nil with cldp-sgd.
	Plan *optimize.Plan
	// ExcessBound is the plan's bound on the expected excess loss over the best model of the
	// ball: for the population if each client reports once or in every round of gd, otherwise
	// for the clients' own mean loss. It is nil unless no gradient is ever clipped and the
	// features keep to their public norm.
	ExcessBound *dp.Number
	// Baseline is the best constant's result on the evaluation set.
	Baseline Baseline
	// Regression says that the task predicts numbers, not classes.
	Regression bool

	// The following fields follow from Config alone.
	Limit            ledger.Config // the task's own ε and δ; no limit if it has no ε
	Guard            *Guard        // nil: none
	ExpectedReports  float64       // γn, the mean number of reports a round
	ReportsPerClient int64         // the most reports that one client sends in all rounds
	// Assumes says what the transport assumes in addition to the trust mode; "" if nothing.
	Assumes string

	parts   parts
	weights []float64 // see Config.weights
}

// Enrolled describes the enrolled clients, from the enrolment that the shuffler's operator
// signed.
type Enrolled struct {
	Population wire.ID
	Clients    int64 // n
	MinReports int64 // the smallest n-min that a task may have
	// Initial are the parameters that Config.Initial names; nil if it names none.
	Initial []byte
}

// usualLoss is the share of a round's reports that is expected to be lost over a network, if
// the configuration does not say.
const usualLoss = 0.1

// NewTask resolves a configuration for enrolled clients. It refuses trust none: over a
// network every report carries a promise.
func NewTask(ctx context.Context, name string, c Config, e Enrolled) (*Setup, error) {
	if err := c.networked(); err != nil {
		return nil, err
	}
	if c.Population != 0 && c.Population != e.Clients {
		return nil, inputError("population = %d, enrolled are n = %d", c.Population, e.Clients)
	}
	c.Population = e.Clients
	if err := c.counted(e.Clients); err != nil {
		return nil, err
	}
	if err := c.begins(e.Initial); err != nil {
		return nil, err
	}
	if c.Trust.Is(dp.SumsOnly) && c.Proofs == "" && c.NoiseBy != vecsum.ByAggregators && c.Every == 0 {
		c.Transport = shares
	}
	var err error
	if c.NMin, err = c.networkMin(e.MinReports); err != nil {
		return nil, err
	}
	if c.Encoding == "" && c.Trust.Is(dp.LocallyPrivate) && (c.Randomizer == "" || c.kind().Seeds) && c.Eps0 <= randomizer.MaxSeedEps0 {
		c.Encoding = randomizer.Seed
	}
	t, err := newTask(ctx, c)
	if err != nil {
		return nil, err
	}
	return t, t.describe(name, e.Population)
}

// counted makes n the number of clients that every round's cost counts on, if the roster of the
// enrolled clients may change: what is planned then holds whoever joins or leaves.
func (c *Config) counted(enrolled int64) error {
	switch {
	case c.MinClients == 0 && c.MaxClients == 0:
		if c.Participation == dp.Sampled {
			c.MinClients = enrolled // k of n is charged for the n that stands in the task
		}
		return nil
	case c.MinClients == 0:
		return inputError("max-clients = %d goes with min-clients", c.MaxClients)
	case c.MinClients > enrolled:
		return inputError("min-clients = %d, enrolled are n = %d", c.MinClients, enrolled)
	case c.MaxClients != 0 && !c.Trust.Is(dp.SumsOnly):
		return inputError("max-clients = %d goes with trust %s: single reports have no such limit", c.MaxClients, dp.AnyTrust(dp.SumsOnly))
	case c.MaxClients != 0 && c.MaxClients < enrolled:
		return inputError("max-clients = %d, enrolled are n = %d already", c.MaxClients, enrolled)
	case c.Trust.Is(dp.SumsOnly) && c.Participation == dp.Once:
		return inputError("min-clients = %d: a vector sum with participation once needs a roster that stays", c.MinClients)
	case c.Trust.Is(dp.SumsOnly) && c.MaxClients == 0:
		c.MaxClients = 2 * enrolled
	}
	c.Population = c.MinClients
	return nil
}

// networked refuses settings that only a simulation can have.
func (c Config) networked() error {
	switch {
	case !c.Trust.Is(dp.Protecting):
		return inputError("trust none has no privacy: over a network every report must promise some")
	case c.Gradients != "":
		return inputError("gradients = %s: simulated only; over a network each client has its own program, and the task says model external, dim, parameters and initial", c.Gradients)
	case c.Optimizer == "agd-smooth" || c.Optimizer == "agd-phases":
		return inputError("optimizer %s changes the loss by stages that no task carries to its clients", c.Optimizer)
	case c.Model == pcaMLP:
		return inputError("model pca-mlp needs axes that no task carries to its clients")
	case c.Every != 0 && c.Trust.Is(dp.SumsOnly) && c.NoiseBy != vecsum.ByAggregators && c.Proofs == "":
		return inputError("every = %d needs proofs %s over a network: without a proof of its norm, one client's report could add anything to the sum", c.Every, wire.ProofsPine)
	case c.NoiseOfSum() && c.Proofs == "":
		return inputError("noise-by aggregators needs proofs %s over a network: without a proof of its norm, one client's report could add anything to the sum", wire.ProofsPine)
	case c.Strategy == toeplitz.Buffers:
		return inputError("strategy %s is simulated only: its weights reach over all rounds, so sums without noise would be held as long as the task runs", c.Strategy)
	case c.Every > wire.MaxWeights:
		return inputError("every = %d over a network must be at most %d, for so many rounds sums are held", c.Every, wire.MaxWeights)
	case c.Transport != "" && c.Transport != shares:
		return inputError("transport %s is simulated only: a network has shares", c.Transport)
	}
	return nil
}

// networkMin chooses n-min if the configuration does not. Clients compute their cost for n-min
// reports, so it must not be small.
func (c PrivacyConfig) networkMin(least int64) (int64, error) {
	if c.NMin != 0 {
		if c.NMin < least {
			return 0, inputError("n-min = %d is below the enrolment's %d", c.NMin, least)
		}
		return c.NMin, nil
	}
	if c.Dropout == 0 {
		c.Dropout = usualLoss
	}
	asked, err := c.asked()
	if asked < 1 || err != nil {
		return 0, err // Check reports what is missing
	}
	return max(least, c.usually(asked)), nil
}

func newTask(ctx context.Context, c Config) (*Setup, error) {
	c, data, m, err := c.resolve(ctx)
	if err != nil {
		return nil, err
	}
	p, err := c.parts(data, m)
	if err != nil {
		data.program.close()
		return nil, err
	}
	t := c.task()
	t.Data, t.Model, t.Mechanism, t.Plan, t.parts = data, p.model, p.mechanism, p.plan, p
	t.Regression = data.Classes == nil
	switch {
	case data.program != nil:
		t.Baseline = data.program.baseline()
	case c.described():
		t.Baseline = unmeasured()
	default:
		t.Baseline = newBaseline(m, data.Eval, data.ClassNames, data.EvalName)
	}
	if t.weights, err = c.weights(data.Classes); err != nil {
		data.program.close()
		return nil, err
	}
	t.Baseline.Weighted = t.weights != nil
	t.ExcessBound = c.excessBound(t)
	return t, t.checkGuarded()
}

// task returns a task without data.
func (c Config) task() *Setup {
	t := &Setup{Config: c, Limit: c.limit(), ExpectedReports: c.expectedReports(), ReportsPerClient: c.Rounds}
	if blocks, err := c.blocks(); err == nil && c.Participation == dp.Once {
		t.ReportsPerClient = blocks.Epochs(c.Rounds)
	}
	if c.Every > 0 {
		t.ReportsPerClient = (c.Rounds + c.Every - 1) / c.Every
	}
	if c.Transport == splitAndMix {
		t.Assumes = "one honest shuffler, which withholds rounds below the minimum, stands in place of the aggregators"
	}
	if c.Proofs != "" {
		t.Assumes = "each report carries a proof of its norm, of which one aggregator can tell nothing but that it holds (a usual assumption on TurboSHAKE128)"
	}
	if c.Encoding == randomizer.Seed {
		t.Assumes = "reports are seeds, whose values look random to everybody (the usual assumption on AES-128)"
	}
	if g, err := parseGuard(c.Guard); err == nil {
		t.Guard = &g
	}
	return t
}

// NoisyClients returns the number of honest clients of each round whose noise, sent apart from their vectors, is
// relied on; 0 if noise is added otherwise.
func (t *Setup) NoisyClients() int64 {
	if m, ok := t.Mechanism.(*mechanism.AggregatedSum); ok {
		return m.Guaranteed()
	}
	if !t.Config.NoiseOfSum() || t.Mechanism != nil {
		return 0
	}
	return vecsum.Aggregated{MinUsers: t.Wire.Mechanism.Sum.MinUsers, Honest: t.Wire.Mechanism.Sum.Honest}.Guaranteed()
}

// LocalEps returns the ε₀ that one message promises without any shuffle, and the sum over all
// messages of a client in a round, both with the mechanism's numeric slack and rounded up. They
// are 0 where reports promise nothing by themselves.
func (t *Setup) LocalEps() (one, all float64) {
	m, _ := t.Mechanism.(randomizer.Randomizer)
	if t.Mechanism == nil { // the task's data were not read
		m, _ = mechanism.New(t.Wire.Mechanism)
	}
	if m == nil || !t.Config.Trust.Is(dp.LocallyPrivate) {
		return 0, 0
	}
	one, all = m.Event().Eps0, m.Event().Eps0
	if n := t.Config.Messages; n > 1 {
		all = dp.TimesUp(one, n)
	}
	return one, all
}

// describe fills in the description of the task that clients need.
func (t *Setup) describe(name string, population wire.ID) error {
	c := t.Config
	config, err := t.document()
	if err != nil {
		return err
	}
	var w wire.Mechanism
	switch m := t.Mechanism.(type) {
	case *mechanism.VectorSum:
		w = m.Describe()
	case *mechanism.AggregatedSum:
		w = m.Describe()
	default:
		shape, err := c.shape(t.Model.Params)
		if err != nil {
			return err
		}
		if w, err = mechanism.Describe(c.kind().Name, shape, string(c.ClipMode)); err != nil {
			return err
		}
	}
	var published int64
	if c.Evaluate != "" {
		published = int64(t.Model.Params)
	}
	t.Wire = wire.Task{ModelDim: published, Population: population, Name: name, Trust: c.Trust.Recorded(), Participation: c.Participation,
		MinReports: c.NMin, MinClients: c.MinClients, Messages: c.Messages, Receipts: c.Receipts, Every: c.Every, Rounds: c.Rounds, Delta: c.Delta, Mechanism: w, Config: config}
	again, err := wire.Decode[wire.Task](wire.Encode(t.Wire))
	if err != nil {
		return inputError("the task cannot be written down: %v", err)
	}
	if wire.Digest(again) != wire.Digest(t.Wire) {
		return fmt.Errorf("train: the task has two encodings")
	}
	return t.checkMechanism()
}

// checkMechanism makes sure that clients build the same mechanism as the coordinator.
func (t *Setup) checkMechanism() error {
	m, err := mechanism.New(t.Wire.Mechanism)
	if err != nil {
		return inputError("the mechanism cannot be described: %v", err)
	}
	if m.Event() != t.parts.promise || m.Facts().Name != t.Mechanism.Facts().Name || m.Facts().Dim != t.Config.width(t.Model) {
		return inputError("the task's mechanism promises %+v, the configuration's %+v", m.Event(), t.parts.promise)
	}
	return nil
}

// OpenTask makes a task again from its signed description. data is the coordinator's data set
// in place of the path in the description; "": that path. initial returns the parameters with a
// digest; nil: there are none.
func OpenTask(ctx context.Context, w wire.Task, data string, initial func(ctx context.Context, digest [32]byte) ([]byte, error)) (*Setup, error) {
	d, err := readDocument(w.Config)
	if err != nil {
		return nil, err
	}
	if data != "" && !d.config.described() {
		d.config.Data = data
	}
	var raw []byte
	if digest, ok := d.config.initialDigest(); ok && initial != nil {
		if raw, err = initial(ctx, digest); err != nil {
			return nil, err
		}
	}
	if err := d.config.begins(raw); err != nil {
		return nil, err
	}
	t, err := newTask(ctx, d.config)
	if err != nil {
		return nil, err
	}
	made := *t
	if err := made.describe(w.Name, w.Population); err != nil {
		return nil, err
	}
	if made.Config.Tokens {
		made.Wire.Tokens = w.Tokens // the registrar's, made when the task was created
	}
	if wire.Digest(made.Wire) != wire.Digest(w) || made.Config.Tokens != (w.Tokens != wire.Tokens{}) {
		return nil, inputError("the task that was signed cannot be made again from these data")
	}
	return &made, nil
}

// ReadTask returns a signed task without its data: what follows from the data is nil or zero,
// and the task cannot be run or evaluated.
func ReadTask(w wire.Task) (*Setup, error) {
	d, err := readDocument(w.Config)
	if err != nil {
		return nil, err
	}
	if d.config.described() {
		if err := d.config.checkDescribed(w); err != nil {
			return nil, err
		}
	}
	t := d.config.task()
	t.Wire, t.Regression = w, d.classes == nil
	return t, nil
}

// Coordinator returns the configuration with which a coordinator of the task starts, with a
// new optimizer at each call; the caller adds the ledger.
func (t *Setup) Coordinator() (coordinator.Config, error) {
	c, err := t.Config.coordinator(t.parts)
	c.Task = wire.Digest(t.Wire)
	return c, err
}

// Evaluate runs parameters on the evaluation set.
func (t *Setup) Evaluate(theta []float32) (*model.Evaluation, error) {
	if t.Config.described() {
		return nil, errors.New("train: only a program can evaluate this task's model")
	}
	if t.Data.program != nil {
		return t.Data.program.evaluate(theta)
	}
	e, err := t.Model.Evaluate(theta, t.Data.Eval.X, answers(t.Data.Eval), int(t.Config.Workers))
	if err == nil && (t.Config.isCSV() || t.weights != nil) {
		e.Numbers = e.Metrics(t.Data.ClassNames, t.Config.labelUnit())
	}
	if err == nil {
		e.Numbers = addWeighted(e.Numbers, e.Confusion, t.weights)
	}
	return e, err
}

// document is a task's Config: YAML of the resolved configuration, and the numbers that
// determine the shape of the model, which a client's own data may not show.
type document struct {
	config  Config
	inputs  int
	classes []string // nil: a regression
	columns []string // of a CSV file
}

// documentYAML is the YAML form of a document.
type documentYAML struct {
	Config  setting.Table `yaml:"config"`
	Inputs  int           `yaml:"inputs"`
	Classes []string      `yaml:"classes,omitempty"`
	Columns []string      `yaml:"columns,omitempty"`
}

// document returns the task's Config. It leaves out settings of this process and machine.
func (t *Setup) document() ([]byte, error) {
	c := t.Config
	if !c.described() {
		c.Data = filepath.Base(c.Data)
	}
	c.Workers, c.CheckpointEvery = 0, Default().CheckpointEvery
	return yaml.Marshal(documentYAML{Config: c.Fields(), Inputs: t.Data.Train.Dim, Classes: t.Data.Classes, Columns: t.Data.columns})
}

// readDocument is strict: it accepts only what document writes.
func readDocument(raw []byte) (d document, err error) {
	fail := func(err error) (document, error) { return document{}, inputError("task: %v", err) }
	d.config = Default()
	in := documentYAML{Config: d.config.Fields()}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(&in); err != nil {
		return fail(err)
	}
	if d.config.described() {
		d.config.fillExternal()
	}
	d.inputs, d.classes, d.columns = in.Inputs, in.Classes, in.Columns
	if (d.inputs < 1) != d.config.described() || d.inputs < 0 || len(d.classes) > 1<<16 || slices.Contains(d.classes, "") {
		return fail(fmt.Errorf("%d inputs, %d classes", d.inputs, len(d.classes)))
	}
	if err := d.config.networked(); err != nil {
		return document{}, err
	}
	return d, d.config.Check()
}
