package measure

import (
	"cmp"
	"context"
	"fmt"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Config is a question and what protects the answer. All of it is public.
type Config struct {
	Question statistic.Question // Required.
	Trust    dp.Trust           // Required.
	NoiseBy  vecsum.NoiseBy     // of sums; "" means clients
	// Epsilon is what the answer may cost one client, at Delta. Required.
	Epsilon, Delta float64
	Clients        int64 // n. Required.
	// MinReports is the fewest reports that are answered; the cost holds for any number from there
	// on. 0 means all that are asked.
	MinReports int64
	// Sample is the number of clients that are drawn at random; 0 means all.
	Sample int64
}

// Plan is a question with the mechanism that answers it within its budget.
type Plan struct {
	Config // with its defaults
	// Mechanism makes the clients' reports.
	Mechanism randomizer.Randomizer
	// messages answers where reports are single messages; nil: sums do.
	messages  *statistic.Messages
	described wire.Mechanism // of single messages
	// Cost is what the answer costs one client at Delta, at most Epsilon.
	Cost dp.Bound
	// Limit is the budget of the question alone, for a ledger.
	Limit ledger.Config
}

// Guarantee is what an answer costs one client, and under which trust, as commands write it. Its keys
// are a contract with scripts.
type Guarantee struct {
	Trust     dp.Trust       `json:"trust"`
	NoiseBy   vecsum.NoiseBy `json:"noise_by,omitempty"`
	Epsilon   dp.Number      `json:"epsilon"` // at Delta
	Delta     float64        `json:"delta"`
	Adjacency dp.Adjacency   `json:"adjacency"`
	Bound     string         `json:"bound"` // names the bound that gives Epsilon
}

// Guarantee returns the guarantee of an answer that cost epsilon at the plan's δ, by this bound.
func (p *Plan) Guarantee(epsilon dp.Number, bound string) Guarantee {
	return Guarantee{Trust: p.Trust, NoiseBy: p.NoiseBy, Epsilon: epsilon, Delta: p.Delta, Adjacency: dp.ReplaceOne, Bound: bound}
}

// planned is the share of δ at which noise is planned. A ledger of several questions compares its
// budget with what the first one costs at this share of its δ: see fileTails and
// protocol/ledger/adaptive.md, section 3. So a question of the whole budget fits.
const planned = .98

// New plans a question.
func New(ctx context.Context, c Config) (*Plan, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	least, most, err := c.asked()
	if err != nil {
		return nil, err
	}
	if c.MinReports = cmp.Or(c.MinReports, least); c.MinReports < 1 || c.MinReports > least {
		return nil, inputError("n-min = %d must lie between 1 and the %d clients that are asked", c.MinReports, least)
	}
	p := &Plan{Config: c}
	switch {
	case c.Trust.Is(dp.LocallyPrivate):
		err = p.single(ctx)
	case byCurator(c.Trust):
		err = p.curator(ctx, most)
	default:
		err = p.sum(ctx, most)
	}
	if err != nil {
		return nil, err
	}
	if _, err := p.newLearner(); err != nil {
		return nil, err
	}
	p.Limit = ledger.Config{Accountant: new(account.Accountant), Delta: c.Delta, Tail: questionTail, MaxEps: c.Epsilon}
	p.Cost, err = p.cost(ctx)
	return p, err
}

// cost bounds the cost of the smallest round.
func (p *Plan) cost(ctx context.Context) (dp.Bound, error) {
	query := p.query().Of(p.Mechanism.Event())
	query.Delta = dp.Counted(p.Delta, p.Limit.Tail)
	answer, err := account.Answer(ctx, query, "best")
	if err != nil {
		return dp.Bound{}, err
	}
	if answer.Upper == nil || !(answer.Upper.Eps <= p.Epsilon) {
		return dp.Bound{}, fmt.Errorf("measure: epsilon = %v at delta = %v: %w", p.Epsilon, p.Delta, dp.ErrNoBound)
	}
	out := *answer.Upper
	out.Delta = p.Delta
	return out, nil
}

// unplanned says why a budget cannot be planned for, and what helps: most often noise is above what reports
// can hold or samplers can draw.
func (c Config) unplanned(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err() // interrupted
	}
	helps := "a larger epsilon or delta needs less noise"
	switch {
	case c.Trust.Is(dp.LocallyPrivate) && c.Epsilon > 1:
		helps = "a smaller epsilon fits"
	case c.Trust.Is(dp.Alone):
		helps = "a larger epsilon needs less noise"
	case c.Trust.Is(dp.Shuffled):
		helps = "a larger epsilon or delta, or more clients, need less noise"
	}
	return inputError("epsilon = %v at delta = %v cannot be planned for: %v; %s", c.Epsilon, c.Delta, err, helps)
}

func (c Config) check() error {
	if err := c.Question.Validate(); err != nil {
		return inputError("%v", err)
	}
	// The condition is negated so that it refuses a NaN.
	if !(c.Epsilon > 0 && c.Epsilon <= dp.MaxEps0) {
		return inputError("epsilon = %v must be above 0 and at most %d", c.Epsilon, dp.MaxEps0)
	}
	if err := dp.CheckDelta(c.Delta); err != nil {
		return inputError("%v", err)
	}
	if c.Clients < 1 || c.Clients > 1<<32 {
		return inputError("%d clients must lie between 1 and 2^32", c.Clients)
	}
	if c.Sample < 0 || c.Sample > c.Clients {
		return inputError("sample = %d must lie between 1 and the %d clients", c.Sample, c.Clients)
	}
	switch c.NoiseBy {
	case "", vecsum.ByClients, vecsum.ByAggregators:
	default:
		return inputError("noise-by %q must be %s or %s", c.NoiseBy, vecsum.ByClients, vecsum.ByAggregators)
	}
	if c.Sample != 0 && c.Question.Measure == statistic.LinearRegression {
		return inputError("sample = %d: a %s tells of those who report, so it asks all clients", c.Sample, c.Question.Measure)
	}
	sums := dp.TrustNames(dp.SumsOnly)[0] // the one without coins
	switch {
	case !c.Trust.Is(dp.Protecting):
		return inputError("trust %s protects nobody: whoever asks sees the answer, so it needs noise", c.Trust)
	case !c.Trust.Is(dp.Known):
		return inputError("trust %q: questions are asked with %s", c.Trust, dp.AnyTrust(dp.Answering))
	case c.NoiseBy != "" && !c.Trust.Is(dp.SumsOnly):
		return inputError("noise-by %s is of sums, trust %s; with trust %s nobody but %s adds noise", c.NoiseBy, sums, c.Trust, whoElse(c.Trust))
	case c.Trust.Is(dp.LocallyPrivate) && c.Question.Rounds() > 1:
		return inputError("no mechanism answers %s with trust %s, by single messages: use trust %s", c.Question.Measure, c.Trust, sums)
	case !c.Trust.Is(dp.Answering):
		return inputError("trust %s has clients check in by their own coins, and a question asks once: use trust %s", c.Trust, sums)
	}
	return nil
}

// participation says who is asked.
func (c Config) participation() dp.Participation {
	switch {
	case c.Question.Rounds() > 1:
		return dp.Once
	case c.Sample != 0:
		return dp.Sampled
	}
	return dp.All
}

// query asks for the cost of the smallest round: more reports bring more noise. Where a question has
// several rounds, each client is in one of them, so they cost as much as one. Only a curator, who has all rows, has
// the answers of just those who were drawn.
func (p *Plan) query() account.Query {
	q := account.Query{Trust: p.counted(), Participation: dp.All, Population: p.MinReports, Rounds: 1, Delta: p.Delta * planned}
	if byCurator(p.Trust) && p.Sample != 0 {
		q.Participation, q.Population, q.Reports, q.Least = dp.Sampled, p.Clients, p.Sample, p.MinReports
	}
	return q
}

// sum designs a round of a vector sum.
func (p *Plan) sum(ctx context.Context, asked int64) error {
	q, by := p.query(), p.NoiseBy == vecsum.ByAggregators
	if q.Class = dp.Gaussian; by {
		q.Class = dp.GaussianSum
	}
	found, _, err := account.Plan(ctx, p.Epsilon, q, "sigma")
	if err != nil {
		return p.unplanned(ctx, err)
	}
	dim, ones := p.Question.Dim(), p.Question.Ones()
	if by {
		params, err := aggregated(asked, dim, ones, found.Sigma)
		if err != nil {
			return p.unplanned(ctx, err)
		}
		sigma, tail, err := params.Sigma(p.Question.Rounds())
		if err != nil {
			return err
		}
		if !(tail <= questionTail*p.Delta) {
			return p.unplanned(ctx, fmt.Errorf("what rounded noise adds to delta, %v, is above %v of it", tail, questionTail))
		}
		p.Mechanism, err = mechanism.NewAggregatedSum(params, sigma, p.MinReports)
		return err
	}
	_, kind := p.Trust.Defaults()
	windows := p.Delta * questionTail / vecsum.TailShare
	target := vecsum.Target{Sigma: found.Sigma, Delta: windows, Users: asked, MinUsers: p.MinReports, Dim: dim,
		Radius: p.Question.Radius(), Ones: ones, Rounds: p.Question.Rounds(), Kind: vecsum.NoiseKind(kind)}
	params, err := vecsum.Tight(target)
	if err != nil {
		return p.unplanned(ctx, err)
	}
	sigma, _, err := params.Sigma(ctx, windows, p.Question.Rounds())
	if err != nil {
		return err
	}
	if p.Mechanism, err = mechanism.NewVectorSum(params, sigma); err != nil {
		return p.unplanned(ctx, err)
	}
	return nil
}

func aggregated(users int64, dim, ones int, sigma float64) (vecsum.Aggregated, error) {
	if ones != 0 {
		return vecsum.NewAggregatedOnes(users, dim, ones, sigma)
	}
	return vecsum.NewAggregated(users, dim, 1, sigma)
}

// simulated is the mechanism of a simulation: clients add no noise, which is drawn for all of them at
// once.
func (p *Plan) simulated() randomizer.Randomizer {
	switch m := p.Mechanism.(type) {
	case *mechanism.VectorSum:
		return mechanism.Rounding{VectorSum: m}
	case *mechanism.AggregatedSum:
		if byCurator(p.Trust) {
			return curated{m}
		}
	}
	return p.Mechanism
}

// law returns the law of the errors of the sums of so many reports.
func (p *Plan) law(reports int64) (statistic.Law, error) {
	switch m := p.Mechanism.(type) {
	case *mechanism.VectorSum:
		return statistic.OfClients(m.Params, reports)
	case *mechanism.AggregatedSum:
		if byCurator(p.Trust) {
			return statistic.OfCurator(m.Step(), float64(m.Variance), reports, m.Ones > 0)
		}
		return statistic.OfAggregators(m.Aggregated, reports)
	}
	return nil, fmt.Errorf("measure: %T has no law", p.Mechanism)
}

// answer returns the answer that the estimated sums of so many reports give.
func (p *Plan) answer(sums []float64, reports int64) (statistic.Answer, error) {
	if p.messages != nil {
		return p.messages.Answer(sums, reports, p.Clients)
	}
	law, err := p.law(reports)
	if err != nil {
		return statistic.Answer{}, err
	}
	return p.Question.Answer(statistic.Release{Sums: sums, Reports: reports, Clients: p.Clients, Law: law})
}

// Task describes the question to clients.
func (p *Plan) Task(name string, population wire.ID) (wire.Task, error) {
	if byCurator(p.Trust) {
		return wire.Task{}, inputError("trust %s is for an answer in one process: over a network use trust %s", p.Trust, dp.AnyTrust(dp.InEvents))
	}
	return p.task(name, population)
}

// task is Task, and a description of a question that a curator answers.
func (p *Plan) task(name string, population wire.ID) (wire.Task, error) {
	var w wire.Mechanism
	switch m := p.Mechanism.(type) {
	case *mechanism.VectorSum:
		w = m.Describe()
	case *mechanism.AggregatedSum:
		w = m.Describe()
	default:
		w = p.described
	}
	t := wire.Task{Population: population, Name: name, Trust: p.counted(), Participation: p.participation(),
		MinReports: p.MinReports, Rounds: p.Question.Rounds(), Delta: p.Delta, Mechanism: w, Config: p.Question.JSON()}
	if published := p.Question.Parameters(); w.Dim != published {
		t.ModelDim = published
	}
	if _, err := wire.Decode[wire.Task](wire.Encode(t)); err != nil {
		return t, inputError("the task cannot be written down: %v", err)
	}
	return t, nil
}
