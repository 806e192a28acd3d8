package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	roles "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/setting"
)

// TaskConfig is a question to the clients of a network, as an operator writes it: see Fields.
type TaskConfig struct {
	Asked
	Trust          dp.Trust
	NoiseBy        vecsum.NoiseBy
	Epsilon, Delta float64
	K              int64 // clients that are drawn for the round; 0: all
	NMin           int64
	Receipts       bool // as in train.Config
	Tokens         bool
}

// Fields is the table of a task's settings. Those that training tasks have, too, have the same names.
func (c *TaskConfig) Fields() setting.Table {
	const part = "Privacy"
	return append(append(setting.Table{{Name: "measure", Part: "Question", Into: &c.Measure, Help: "what is asked, such as histogram: see riffle measure"}}, c.Asked.Fields()...), setting.Table{
		{Name: "trust", Part: part, Into: &c.Trust, Default: dp.TrustNames(dp.SumsOnly)[0], Values: dp.DescribeTrusts(overNetworks), Check: others, Help: "what protects rows: %s"},
		{Name: "noise-by", Part: part, Into: &c.NoiseBy, Values: []string{string(vecsum.ByClients), string(vecsum.ByAggregators)}, Help: "who adds the noise of a sum: %s"},
		{Name: "epsilon", Part: part, Into: &c.Epsilon, Default: "1", Range: "(0, inf)", Help: "what the answer may cost a client"},
		{Name: "delta", Part: part, Into: &c.Delta, Default: "1e-5", Range: "(0, 1)", Help: "delta of that cost"},
		{Name: "k", Part: part, Into: &c.K, Range: "[1, inf)", Help: "clients that are drawn for the round (default: all are asked)"},
		{Name: "n-min", Part: part, Into: &c.NMin, Range: "[1, inf)", Help: "fewest reports that are answered (default: what surely comes)"},
		{Name: "receipts", Part: part, Into: &c.Receipts, Help: "publish which receipts arrived"},
		{Name: "tokens", Part: part, Into: &c.Tokens, Help: "each message needs a token of the registrar"},
	}...)
}

// overNetworks are the traits of the modes with which tasks ask questions.
const overNetworks = dp.Accountable | dp.Answering

// checkTrust refuses modes of trust that networks do not have.
func checkTrust(t dp.Trust) error {
	switch {
	case !t.Is(dp.Known):
		return inputError("trust %q: tasks ask questions with %s", t, dp.AnyTrust(overNetworks))
	case !t.Is(dp.Accountable):
		return inputError("trust %s: over a network nobody sees the rows, so reports must promise something themselves; choose %s", t, dp.AnyTrust(overNetworks))
	}
	return nil
}

// Asks says whether the settings of a task are those of a question: they say what to measure.
func Asks(text []byte) bool {
	var keys map[string]yaml.Node
	if yaml.NewDecoder(bytes.NewReader(text)).Decode(&keys) != nil {
		return false
	}
	_, ok := keys["measure"]
	return ok
}

// ParseTask reads a task's settings.
func ParseTask(text []byte) (c TaskConfig, err error) {
	c.Fields().Reset()
	if err := c.Fields().Parse(text, nil); err != nil {
		return c, inputError("%v", err)
	}
	return c, nil
}

// Enrolled describes the clients of a network.
type Enrolled struct {
	Clients    int64 // n
	MinReports int64 // the fewest that a task may ask for
}

// usualLoss is the share of reports that is expected to be lost over a network.
const usualLoss = .1

// Plan plans the question for clients that are enrolled. It refuses what a network cannot do.
func (c TaskConfig) Plan(ctx context.Context, e Enrolled) (*Plan, error) {
	if err := checkTrust(c.Trust); err != nil {
		return nil, err
	}
	q, err := c.Question()
	if err != nil {
		return nil, err
	}
	out := Config{Question: q, Trust: c.Trust, NoiseBy: c.NoiseBy, Epsilon: c.Epsilon, Delta: c.Delta, Clients: e.Clients, Sample: c.K, MinReports: c.NMin}
	if c.K > e.Clients {
		return nil, inputError("k = %d, enrolled are n = %d", c.K, e.Clients)
	}
	asked, _, err := out.asked()
	if err != nil {
		return nil, err
	}
	switch {
	case c.NMin == 0:
		out.MinReports = min(asked, max(e.MinReports, account.Surely(asked, 1-usualLoss)))
	case c.NMin < e.MinReports:
		return nil, inputError("n-min = %d is below the enrolment's %d", c.NMin, e.MinReports)
	}
	return New(ctx, out)
}

// stored is what an opened plan needs and the signed task does not say. No client needs it.
type stored struct {
	Trust   dp.Trust `json:"trust"`
	Epsilon float64  `json:"epsilon"`
	Clients int64    `json:"clients"`
	Sample  int64    `json:"sample,omitempty"`
}

// Stored returns what OpenTask needs beside the task.
func (p *Plan) Stored() []byte {
	b, err := json.Marshal(stored{p.Trust, p.Epsilon, p.Clients, p.Sample})
	if err != nil {
		panic(err) // New has checked the numbers
	}
	return b
}

// OpenTask returns the plan of a signed task. It plans nothing: the mechanism is the task's own, so
// a task stays what it was signed as.
func OpenTask(w wire.Task, beside []byte) (*Plan, error) {
	fail := func(err error) (*Plan, error) { return nil, fmt.Errorf("measure: task %q: %w", w.Name, err) }
	if roles.Question(w) == "" {
		return fail(errors.New("it asks no question"))
	}
	q, err := statistic.Parse(w.Config)
	if err != nil {
		return fail(err)
	}
	var s stored
	d := json.NewDecoder(bytes.NewReader(beside))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return fail(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fail(errors.New("text follows what is stored of it"))
	}
	p := &Plan{Config: Config{Question: q, Trust: s.Trust, NoiseBy: vecsum.NoiseBy(w.Mechanism.Sum.NoiseBy), Epsilon: s.Epsilon, Delta: w.Delta, Clients: s.Clients, Sample: s.Sample, MinReports: w.MinReports}}
	if err := p.check(); err != nil {
		return fail(err)
	}
	if s.Trust.Recorded() != w.Trust || p.participation() != w.Participation || w.Parameters() != q.Parameters() || w.Rounds != q.Rounds() {
		return fail(errors.New("what is stored of it contradicts it"))
	}
	if _, err := roles.NewEncoder(w); err != nil {
		return fail(err)
	}
	if p.Mechanism, err = mechanism.New(w.Mechanism); err != nil {
		return fail(err)
	}
	if w.Trust.Is(dp.LocallyPrivate) {
		p.described = w.Mechanism
		if p.messages, err = statistic.NewMessages(q, p.Mechanism); err != nil {
			return fail(err)
		}
	}
	p.Limit = ledger.Config{Accountant: new(account.Accountant), Delta: w.Delta, Tail: TaskTail(w), MaxEps: p.Epsilon}
	return p, nil
}

// TaskTail returns the share of δ that a task's ledger keeps for the tails of its noise. A question
// keeps less than training does, so that many fit a population's.
func TaskTail(w wire.Task) float64 {
	switch {
	case !w.Trust.Is(dp.SumsOnly):
		return 0
	case roles.Question(w) != "":
		return questionTail
	}
	return vecsum.TailShare
}

// Coordinator returns the configuration with which a coordinator asks the question, with a new
// learner at each call; the caller adds the task and the ledger.
func (p *Plan) Coordinator() (coordinator.Config, error) {
	l, err := p.newLearner()
	if err != nil {
		return coordinator.Config{}, err
	}
	c := p.coordinator(l, p.Mechanism)
	if size := p.BlockSize(); size > 0 {
		c.Blocks, err = schedule.NewBlocks(p.Clients, size)
	}
	return c, err
}

// coordinator returns the configuration of a coordinator whose clients use the mechanism m, without
// blocks of clients.
func (p *Plan) coordinator(l learner, m randomizer.Randomizer) coordinator.Config {
	c := coordinator.Config{Optimizer: l, Mechanism: m, Report: m.Event(), Trust: p.counted(), Participation: p.participation(),
		Population: p.Clients, Sample: p.Sample, MinReports: p.MinReports, Clip: p.clip(), Declinable: !byCurator(p.Trust)}
	if published := p.Question.Parameters(); int64(m.Facts().Dim) != published {
		c.ModelDim = published
	}
	return c
}

// BlockSize returns the least number of clients that a round asks, of a question of several rounds; 0
// for one round.
func (p *Plan) BlockSize() int64 {
	if rounds := p.Question.Rounds(); rounds > 1 {
		return max(1, p.Clients/rounds)
	}
	return 0
}

// Planned bounds what the question costs if as many clients report as it needs.
func (p *Plan) Planned(ctx context.Context) (dp.Bound, error) {
	if p.Cost.Method != "" {
		return p.Cost, nil
	}
	return p.cost(ctx)
}

// AnswerOf returns the answer that a learner's state gives. The same state gives the same answer.
func (p *Plan) AnswerOf(s optimize.State) (statistic.Answer, error) {
	about := *p
	l, err := about.newLearner()
	if err != nil {
		return statistic.Answer{}, err
	}
	if err := l.Restore(s); err != nil {
		return statistic.Answer{}, err
	}
	if s.Steps == 0 {
		return statistic.Answer{}, errors.New("measure: no answer was released yet")
	}
	if c, ok := l.(*collector); ok {
		about.Clients = max(p.Clients, c.reports) // more may have enrolled since
	}
	return l.answer(&about)
}
