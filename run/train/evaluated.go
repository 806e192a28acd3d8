package train

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// privately is a value of Evaluate: clients measure the model on rows that they hold out. What they
// measure goes with their gradient, in one report: a round costs what it costs without. The price is
// the share of the report's length that it takes from the gradient.
const privately = "private"

// Defaults with evaluate private.
const (
	usualHoldout = .2
	usualShare   = .3
)

// checkEvaluate refuses settings that do not go with private evaluation.
func (c Config) checkEvaluate() error {
	switch {
	case c.Evaluate == "" && (c.Holdout != 0 || c.EvaluateShare != 0 || c.LossLimit != 0):
		return inputError("holdout, evaluate-share and loss-limit go with evaluate %s", privately)
	case c.Evaluate == "":
		return nil
	case !c.Trust.Is(dp.SumsOnly):
		return inputError("evaluate %s needs trust %s: the noise of a single report is much larger than what it measures, and its law depends on the gradient", c.Evaluate, dp.AnyTrust(dp.SumsOnly))
	case c.Model == external:
		return inputError("evaluate %s needs a model of this program: a program that computes gradients measures nothing for clients", c.Evaluate)
	case c.planned():
		return inputError("evaluate %s goes with optimizer %s or adam: %s counts on every round's step", c.Evaluate, cldpSGD, c.Optimizer)
	case c.Rounds == 1:
		return inputError("evaluate %s needs 2 rounds: the last one measures the model and takes no step", c.Evaluate)
	case c.regression() && c.LossLimit == 0:
		return inputError("evaluate %s needs loss-limit, the largest loss of a row that counts: it is public, and never read off the data", c.Evaluate)
	}
	return nil
}

// resolveEvaluate chooses what is open about private evaluation.
func (c *Config) resolveEvaluate(m *model.Model) {
	if c.Evaluate == "" {
		return
	}
	if c.Holdout == 0 {
		c.Holdout = usualHoldout
	}
	if c.EvaluateShare == 0 {
		c.EvaluateShare = usualShare
	}
	if c.LossLimit == 0 {
		if c.LossLimit = 2 * math.Log(float64(max(2, m.Classes))); m.Loss.Name == "hinge" {
			c.LossLimit = 2
		}
	}
}

// evaluation describes what clients measure; nil: nothing.
func (c Config) evaluation(m *model.Model) *statistic.Evaluation {
	if c.Evaluate == "" {
		return nil
	}
	return &statistic.Evaluation{Limit: c.LossLimit, Length: c.EvaluateShare * c.Clip, Accuracy: m.Classes > 0}
}

// width is the length of a report: the model's gradient, and what clients measure.
func (c Config) width(m *model.Model) int {
	if e := c.evaluation(m); e != nil {
		return m.Params + e.Dim()
	}
	return m.Params
}

// holdouts says which rows of clients are held out: a share of them by a digest of the row, of the client
// that has it, and of the number of equal rows before it among the client's own. So a client's rows
// decide nothing about another client's report, and the order of its rows nothing but for equal ones.
type holdouts struct {
	population *dataset.Population
	rows       [][sha256.Size]byte // digests, by row of the table
	blank      []bool              // rows that do not fit, which are never held out; nil: all fit
	limit      float64             // of 53 bits of a digest
}

// heldOut returns which rows clients hold out of a table that was dealt out to them.
func (c Config) heldOut(t *dataset.Table, p *dataset.Population) *holdouts {
	h := &holdouts{population: p, rows: make([][sha256.Size]byte, t.Len()), blank: t.Blank, limit: c.Holdout * (1 << 53)}
	answer := answers(t)
	var raw []byte
	for i := range h.rows {
		if t.Blank != nil && t.Blank[i] {
			continue
		}
		raw = binary.LittleEndian.AppendUint64(append(raw[:0], "riffle held-out rows\x00"...), uint64(c.Seed))
		raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(answer(i)))
		for _, x := range t.Row(i) {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
		}
		h.rows[i] = sha256.Sum256(raw)
	}
	return h
}

// of overwrites out, of a client's number of rows, with which of them are held out.
func (h *holdouts) of(client int64, out []bool) {
	copies := make(map[[sha256.Size]byte]uint64, len(out))
	for i := range out {
		row := h.population.Example(client, i)
		if out[i] = false; h.blank != nil && h.blank[row] {
			continue
		}
		digest := h.rows[row]
		raw := binary.LittleEndian.AppendUint64(digest[:], uint64(client))
		sum := sha256.Sum256(binary.LittleEndian.AppendUint64(raw, copies[digest]))
		copies[digest]++
		out[i] = float64(binary.LittleEndian.Uint64(sum[:])>>11) < h.limit
	}
}

// clipTo scales a vector to a length of at most c.
func clipTo(x []float32, c float64) {
	var square float64
	for _, v := range x {
		square += float64(float64(v) * float64(v))
	}
	if length := math.Sqrt(square); length > c {
		for j, v := range x {
			x[j] = float32(float64(v) * (c / length))
		}
	}
}

// evaluated is an optimiser whose reports also measure the model that they were computed for. In the
// last round it takes no step, so that the model that is released last has been measured.
//
// A guard goes back to the best model where one is worse: see judge. All of it is a function of what
// rounds release, so it costs no privacy.
type evaluated struct {
	inner  *optimize.Optimizer
	params int
	what   statistic.Evaluation
	rounds int64
	guard  *Guard
	bound  func(reports int64) float64 // of an honest mean's length
	law    func(reports int64) (statistic.Law, error)
	// clients is n, about whom the answers are.
	clients int64

	taken    int64 // rounds
	averaged bool  // whether the coming round measures the model to release, in place of the iterate
	// sums are those of the last round's measurement, of so many reports; nil before the first.
	sums    []float64
	reports int64
	// best is the guard's best measure, a lower limit; at is the state of its model, nil before it.
	best float64
	at   *optimize.State
	held bool // whether the last round's step was held back
}

// newEvaluated wraps an optimiser of a configuration.
func (c Config) newEvaluated(inner *optimize.Optimizer, p parts) (*evaluated, error) {
	e := &evaluated{inner: inner, params: p.model.Params, what: *c.evaluation(p.model), rounds: c.Rounds, bound: p.mechanism.MeanBound, clients: max(c.Population, c.MaxClients)}
	if c.Rounds < 2 {
		return nil, inputError("rounds = %d: evaluate %s needs 2, of which the last one measures the model and takes no step", c.Rounds, c.Evaluate)
	}
	if g, err := parseGuard(c.Guard); err == nil {
		e.guard = &g
	}
	e.law = lawOf(p.mechanism)
	return e, e.what.Check()
}

// lawOf returns the law of the errors of the sums of a round.
func lawOf(m randomizer.Mechanism) func(reports int64) (statistic.Law, error) {
	return func(reports int64) (statistic.Law, error) {
		switch m := m.(type) {
		case *mechanism.VectorSum:
			return statistic.OfClients(m.Params, reports)
		case *mechanism.AggregatedSum:
			return statistic.OfAggregators(m.Aggregated, reports)
		}
		return nil, fmt.Errorf("train: %T has no law", m)
	}
}

func (e *evaluated) Point() []float64 {
	if !e.averaged {
		return e.inner.Point()
	}
	point := make([]float64, e.params)
	e.inner.Model(point)
	return point
}

func (e *evaluated) Model(dst []float64) {
	if e.taken >= e.rounds {
		copy(dst, e.Point())
		return
	}
	e.inner.Model(dst)
}

// Step is for learners that do not count.
func (e *evaluated) Step([]float64) error {
	return fmt.Errorf("train: an evaluation needs the number of reports")
}

// StepOf takes the mean of a round's reports. If it returns an error nothing has changed.
func (e *evaluated) StepOf(mean []float64, reports int64) error {
	if len(mean) != e.params+e.what.Dim() || reports < 1 {
		return fmt.Errorf("train: a mean of %d values of %d reports, want %d values", len(mean), reports, e.params+e.what.Dim())
	}
	next := *e
	next.sums, next.reports, next.held = make([]float64, e.what.Dim()), reports, false
	for j := range next.sums {
		next.sums[j] = mean[e.params+j] * float64(reports)
	}
	worse, err := next.judge()
	if err != nil {
		return err
	}
	last := e.taken+1 >= e.rounds
	next.taken++
	switch {
	case worse:
		if err := e.inner.Restore(optimize.State{Steps: next.at.Steps, Vectors: copied(next.at.Vectors)}); err != nil {
			return err
		}
		next.held, next.averaged = true, false
	case !last:
		if err := e.inner.Step(e.short(mean, reports)); err != nil {
			return err
		}
		next.averaged = e.taken+2 >= e.rounds
	}
	*e = next
	return nil
}

// short returns the mean gradient, shortened as coordinators do where the whole mean is longer than
// honest reports make it.
func (e *evaluated) short(mean []float64, reports int64) []float64 {
	var square float64
	for _, v := range mean {
		square += float64(v * v)
	}
	g := slices.Clone(mean[:e.params])
	if length, most := math.Sqrt(square), e.bound(reports); length > most {
		for j := range g {
			g[j] *= most / length
		}
	}
	return g
}

// judge compares the model that was measured with the best one. Measures have noise, so each is taken
// as an interval; those of all rounds hold together with 95 %. The best measure is the largest lower
// end, and a model is worse if its upper end is below that by more than the guard allows. So the guard
// does not go back from a model that is as good as any before, but for 5 % of all tasks.
func (e *evaluated) judge() (worse bool, err error) {
	if e.guard == nil {
		return false, nil
	}
	v, err := e.answer(1 - .05/float64(e.rounds))
	if err != nil {
		return false, err
	}
	low, high := -v.Loss.High95, -v.Loss.Low95
	if e.guard.Metric == "accuracy" {
		low, high = v.Accuracy.Low95, v.Accuracy.High95
	}
	if e.at != nil && high < e.best-e.guard.Fall {
		return true, nil
	}
	if e.at == nil || low > e.best {
		state := e.inner.State()
		e.best, e.at = low, &state
	}
	return false, nil
}

// answer returns what the last round measured.
func (e *evaluated) answer(chance float64) (statistic.Evaluated, error) {
	if e.sums == nil {
		return statistic.Evaluated{}, fmt.Errorf("train: nothing was measured yet")
	}
	law, err := e.law(e.reports)
	if err != nil {
		return statistic.Evaluated{}, err
	}
	return e.what.Answer(statistic.Release{Sums: e.sums, Reports: e.reports, Clients: max(e.clients, e.reports), Law: law}, chance)
}

// Held says why the last round's step was held back; "" if it was not.
func (e *evaluated) Held() string {
	if !e.held {
		return ""
	}
	return fmt.Sprintf("the clients' own %s has become worse by more than %.4g and than the noise explains: the best measured model comes back", e.guard.Metric, e.guard.Fall)
}

// Measured is what clients measured of a model on rows that they hold out.
type Measured struct {
	statistic.Evaluated
	LossLimit float64 `json:"loss_limit"` // losses above it count as it
	Holdout   float64 `json:"holdout"`    // the share of rows that are held out
	// Held says that the guard took the step before back: the best measured model has come back.
	Held bool `json:"held,omitempty"`
}

// MeasuredIn reads off an optimiser's state what clients measured in the last released round; nil if
// they measured nothing.
func (t *Setup) MeasuredIn(s optimize.State) (*Measured, error) {
	if t.Config.Evaluate == "" {
		return nil, nil
	}
	c, m := t.Config, t.Mechanism
	if m == nil { // the task's data were not read
		var err error
		if m, err = mechanism.New(t.Wire.Mechanism); err != nil {
			return nil, err
		}
	}
	e := evaluated{what: statistic.Evaluation{Limit: c.LossLimit, Length: c.EvaluateShare * c.Clip, Accuracy: !t.Regression}, law: lawOf(m), clients: max(c.Population, c.MaxClients)}
	own := s.Vectors[vectorEvaluation]
	if len(own) < 4 || own[3] == 0 {
		return nil, nil
	}
	if len(own) < 4+e.what.Dim() || !(own[3] >= 1 && own[3] <= 1<<52) {
		return nil, fmt.Errorf("train: not the state of an optimiser with evaluation")
	}
	e.reports, e.sums = int64(own[3]), own[4:4+e.what.Dim()]
	v, err := e.answer(0)
	return &Measured{v, c.LossLimit, c.Holdout, own[2] == 1}, err
}

// measured is MeasuredIn of a run.
func (r *Run) measured() (*Measured, error) { return r.MeasuredIn(r.coordinator.State().Optimizer) }

func copied(v map[string][]float64) map[string][]float64 {
	out := maps.Clone(v)
	for name := range out {
		out[name] = slices.Clone(out[name])
	}
	return out
}

// Names of an evaluated optimiser's own vectors. The guard's best state has its optimiser's vectors'
// names with a prefix.
const (
	vectorEvaluation = "evaluation" // see State
	bestPrefix       = "best."
)

// State returns the state. The vector evaluation has the inner optimiser's steps, whether the average
// is measured, whether a step was held back, the last round's reports (0: none) and sums, and, if there
// is a best measure, it and its optimiser's steps.
func (e *evaluated) State() optimize.State {
	s := e.inner.State()
	own := []float64{float64(s.Steps), flag(e.averaged), flag(e.held), float64(e.reports)}
	own = append(own, e.sums...)
	if e.at != nil {
		own = append(own, e.best, float64(e.at.Steps))
		for name, v := range e.at.Vectors {
			s.Vectors[bestPrefix+name] = slices.Clone(v)
		}
	}
	s.Vectors[vectorEvaluation] = own
	s.Steps = e.taken
	return s
}

func flag(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// Restore takes back a State of an optimiser with the same configuration. If it returns an error
// nothing has changed.
func (e *evaluated) Restore(s optimize.State) error {
	bad := fmt.Errorf("train: not the state of an optimiser with evaluation")
	own := s.Vectors[vectorEvaluation]
	inner, best := map[string][]float64{}, map[string][]float64{}
	for name, v := range s.Vectors {
		if rest, ok := strings.CutPrefix(name, bestPrefix); ok {
			best[rest] = slices.Clone(v)
		} else if name != vectorEvaluation {
			inner[name] = v
		}
	}
	whole := func(v float64, most int64) bool { return v >= 0 && v <= float64(most) && v == math.Trunc(v) }
	if len(own) < 4 || !whole(own[0], s.Steps) || !whole(own[1], 1) || !whole(own[2], 1) || !whole(own[3], 1<<52) || s.Steps < 0 || s.Steps > 1<<52 {
		return bad
	}
	next := *e
	next.taken, next.averaged, next.held, next.reports = s.Steps, own[1] == 1, own[2] == 1, int64(own[3])
	next.sums, next.at, next.best = nil, nil, 0
	rest := own[4:]
	if next.reports > 0 {
		if len(rest) < e.what.Dim() {
			return bad
		}
		next.sums, rest = slices.Clone(rest[:e.what.Dim()]), rest[e.what.Dim():]
	}
	switch {
	case len(rest) == 0 && len(best) == 0:
	case len(rest) == 2 && len(best) > 0 && e.guard != nil && !math.IsNaN(rest[0]) && whole(rest[1], s.Steps):
		next.best, next.at = rest[0], &optimize.State{Steps: int64(rest[1]), Vectors: best}
	default:
		return bad
	}
	if next.held && next.at == nil || next.reports == 0 && s.Steps > 0 {
		return bad
	}
	if err := e.inner.Restore(optimize.State{Steps: int64(own[0]), Vectors: inner}); err != nil {
		return err
	}
	*e = next
	return nil
}
