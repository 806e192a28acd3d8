package train

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// asked returns the least number of clients that a round asks.
func (c PrivacyConfig) asked() (int64, error) {
	switch c.Participation {
	case dp.Sampled:
		return c.K, nil
	case dp.Once:
		blocks, err := c.blocks()
		if err != nil {
			return 0, err
		}
		return blocks.Smallest, nil
	}
	return c.Population, nil
}

// chance returns the chance that a client who is asked reports.
func (c PrivacyConfig) chance() float64 {
	if c.Participation == dp.CheckIn {
		return (1 - c.Dropout) * c.Gamma
	}
	return 1 - c.Dropout
}

// usually returns the number of reports, at least 1, that come to all but about one of a thousand rounds that ask so
// many clients.
func (c PrivacyConfig) usually(asked int64) int64 {
	mean := c.chance() * float64(asked)
	return max(1, int64(mean-3*math.Sqrt(mean*(1-c.chance()))))
}

// leastReports returns n-min, or its default if it is not fixed yet, as when a plan asks.
func (c PrivacyConfig) leastReports() (int64, error) {
	if c.NMin != 0 {
		return c.NMin, nil
	}
	asked, err := c.asked()
	if err != nil {
		return 0, err
	}
	return c.usually(asked), nil
}

// expectedReports returns γn, the mean number of reports a round.
func (c PrivacyConfig) expectedReports() float64 {
	rate := 1.0
	switch c.Participation {
	case dp.Sampled, dp.Once:
		rate = float64(c.K) / float64(c.Population)
	case dp.CheckIn:
		rate = c.Gamma
	}
	return rate * (1 - c.Dropout) * float64(c.Population)
}

// clientMSE returns the mean squared error of what one client sends in a round: the mean of its
// messages.
func (c PrivacyConfig) clientMSE(m randomizer.Mechanism) float64 {
	return m.Facts().MSE / float64(max(1, c.Messages))
}

// blocks returns the division of an epoch with participation once; otherwise the zero Blocks.
func (c PrivacyConfig) blocks() (schedule.Blocks, error) {
	if c.Participation != dp.Once {
		return schedule.Blocks{}, nil
	}
	b, err := schedule.NewBlocks(c.Population, c.K)
	if err != nil {
		return b, inputError("%v", err)
	}
	return b, nil
}

// query returns the question about the run's cost, the same that its ledger asks. The σ in the question is Sigma times
// worth.
func (c PrivacyConfig) query() (q account.Query, worth float64, err error) {
	q = account.Query{Trust: c.Trust.Recorded(), Class: dp.Generic, Eps0: c.Eps0, Rounds: c.Rounds, Messages: c.Messages, Delta: c.accountedDelta()}
	if c.Trust.Is(dp.SumsOnly) {
		q.Class, q.Eps0 = dp.Gaussian, 0
		if c.NoiseOfSum() {
			q.Class = dp.GaussianSum
		}
	}
	if c.Every != 0 {
		// The rounds cost together as one with less noise; how many come, and by what chance, costs nothing.
		s, err := c.correlation()
		if err != nil {
			return q, 0, err
		}
		worth = s.Together(1-0x1p-30, 0, c.Rounds, c.Every) // rounds are charged one by one, each rounded up, and at least as dp.MaxSigma
		q.Participation, q.Population, q.Rounds, q.Sigma = dp.All, c.Population, 1, c.Sigma*worth
		return q, worth, nil
	}
	blocks, err := c.blocks()
	if err != nil {
		return q, 0, err
	}
	report := dp.Report{Class: q.Class, Eps0: 1}
	if c.Trust.Is(dp.SumsOnly) {
		report.Eps0, report.Sigma = 0, 1
	}
	least, err := c.leastReports()
	if err != nil {
		return q, 0, err
	}
	e, err := coordinator.Config{
		Report: report, Trust: q.Trust, Participation: c.Participation, Population: c.Population, MinClients: c.MinClients,
		Sample: c.K, Gamma: c.Gamma, Blocks: blocks, MinReports: least, Messages: c.Messages, Honest: c.Honest, Tokens: c.Tokens,
	}.Event()
	if err != nil {
		return q, 0, inputError("%v", err)
	}
	q.Participation, q.Population, q.Reports, q.Gamma, q.Least = e.Participation, e.Population, e.Reports, e.Gamma, e.Least
	if c.Participation == dp.Once { // a client reports once in each epoch, among at least n-min reports
		q.Rounds = blocks.Epochs(c.Rounds)
	}
	if c.Trust.Is(dp.SumsOnly) {
		q.Class, worth = e.Report.Class, e.Report.Sigma
		q.Sigma = c.Sigma * worth
	}
	return q, worth, nil
}

// NoiseOfSum says whether a vector sum's noise is no part of clients' vectors: the aggregators add it, or it
// is correlated and clients send it apart. Sigma is then that of the sum.
func (c PrivacyConfig) NoiseOfSum() bool {
	return c.NoiseBy == vecsum.ByAggregators || c.apart()
}

// apart says whether clients send their noise apart from their vectors.
func (c PrivacyConfig) apart() bool {
	return c.NoiseBy == vecsum.ByClients && c.Every != 0
}

// Query returns the question about the cost of this many rounds of a resolved configuration.
// An accountant answers it by any bound it knows.
func (c PrivacyConfig) Query(rounds int64) (account.Query, error) {
	c.Rounds = rounds
	q, _, err := c.query()
	return q, err
}

// cost answers the run's question, changed by counted.
func (c PrivacyConfig) cost(ctx context.Context, counted func(account.Query) account.Query) (dp.Bound, error) {
	if !c.Trust.Is(dp.Protecting) {
		return ledger.Unprotected.Spent()
	}
	q, _, err := c.query()
	if err != nil {
		return dp.Bound{}, err
	}
	answer, err := account.Answer(ctx, counted(q), "best")
	if err != nil {
		return dp.Bound{}, err
	}
	if answer.Upper == nil {
		return dp.Bound{}, fmt.Errorf("train: %w for this protocol", dp.ErrNoBound)
	}
	b := *answer.Upper
	b.Delta = c.Delta
	return b, nil
}

// solve returns the sigma, eps0 or rounds (for once: epochs), whichever knob names, for which
// the run is within the budget. dim is the number of the model's parameters.
func (c PrivacyConfig) solve(ctx context.Context, knob string, dim int) (sigma, eps0 float64, rounds int64, err error) {
	if c.Trust.Is(dp.LocallyPrivate) {
		eps0, rounds, err = c.solveReports(ctx, knob, dim)
		return 0, eps0, rounds, err
	}
	q, worth, err := c.query()
	if err != nil {
		return 0, 0, 0, err
	}
	q, _, err = account.Plan(ctx, c.Epsilon, q, knob)
	return q.Sigma / worth * (1 + 0x1p-50), q.Eps0, q.Rounds, err
}

// solveReports is solve for single reports, by all that their randomizer promises.
func (c PrivacyConfig) solveReports(ctx context.Context, knob string, dim int) (eps0 float64, rounds int64, err error) {
	if c.Clip == 0 {
		c.Clip = 1 // promises do not depend on it
	}
	promise := func(eps0 float64) (dp.Report, error) {
		c.Eps0 = eps0
		_, r, err := c.newMechanism(dim)
		return r, err
	}
	q, _, err := c.query()
	if err != nil {
		return 0, 0, err
	}
	if knob == "eps0" {
		eps0, _, _, err = account.PlanReport(ctx, c.Epsilon, q, promise)
		return eps0, c.Rounds, err
	}
	r, err := promise(c.Eps0)
	if err != nil {
		return 0, 0, err
	}
	q, _, err = account.Plan(ctx, c.Epsilon, q.Of(r), knob)
	return c.Eps0, q.Rounds, err
}

// resolvePrivacy chooses ε₀ and the number of rounds. With a budget it solves for the open
// one of the two; if both are open, for ε₀ at the default rounds. dim is the number of the model's
// parameters.
func (c *PrivacyConfig) resolvePrivacy(ctx context.Context, dim int) error {
	if c.Trust.Is(dp.SumsOnly) {
		return c.resolveSigma(ctx, dim)
	}
	if c.Trust.Is(dp.Protecting) && c.Epsilon != 0 && (c.Eps0 == 0 || c.Rounds == 0) {
		solve := "rounds"
		if c.Eps0 == 0 {
			solve = "eps0"
			if c.Rounds == 0 {
				c.Rounds = defaultRounds
			}
		}
		_, eps0, rounds, err := c.solve(ctx, solve, dim)
		if err != nil {
			return inputError("epsilon = %v cannot be planned for: %v", c.Epsilon, err)
		}
		c.Eps0 = eps0
		if solve == "rounds" {
			c.setRounds(rounds)
		}
	}
	if c.Eps0 == 0 && c.Trust.Is(dp.Protecting) {
		if c.Eps0 = defaultEps0; c.kind().Steps {
			c.Eps0 = stepEps0
		}
	}
	if c.Rounds == 0 {
		c.Rounds = defaultRounds
	}
	return nil
}

// resolveSigma chooses a vector sum's noise, or the rounds if the noise is given.
func (c *PrivacyConfig) resolveSigma(ctx context.Context, dim int) error {
	solve := ""
	switch {
	case c.Sigma == 0:
		solve = "sigma"
		if c.Rounds == 0 {
			c.Rounds = defaultSumRounds
		}
	case c.Rounds == 0 && c.Epsilon != 0:
		solve = "rounds"
	case c.Rounds == 0:
		c.Rounds = defaultSumRounds
	}
	if solve == "" {
		return nil
	}
	sigma, _, rounds, err := c.solve(ctx, solve, dim)
	if err != nil {
		return inputError("epsilon = %v cannot be planned for: %v", c.Epsilon, err)
	}
	if solve == "rounds" {
		c.setRounds(rounds)
	} else {
		c.Sigma = sigma
	}
	return nil
}

// setRounds sets the number of rounds from a query's number, which for once counts epochs.
func (c *PrivacyConfig) setRounds(rounds int64) {
	c.Rounds = rounds
	if blocks, err := c.blocks(); err == nil && c.Participation == dp.Once {
		c.Rounds = rounds * blocks.PerEpoch
	}
}

// tail returns the share of δ for losses outside the accountant's events: the mass beyond the
// windows of a vector sum's noise, and what its transport reveals.
func (c PrivacyConfig) tail() float64 {
	if c.Trust.Is(dp.SumsOnly) {
		return vecsum.TailShare + c.transportShare()
	}
	return 0
}

// accountedDelta returns the δ that is left for the accountant.
func (c PrivacyConfig) accountedDelta() float64 { return dp.Counted(c.Delta, c.tail()) }

// limit returns the budget of a task: its own ε and δ, or no limit if it has no ε.
func (c PrivacyConfig) limit() ledger.Config {
	limit := ledger.Config{Accountant: new(account.Accountant), Delta: c.Delta, Tail: c.tail(), MaxEps: math.Inf(1)}
	if c.Epsilon != 0 {
		limit.MaxEps = c.Epsilon
	}
	switch {
	case c.Proofs != "":
		limit.MaxEps = min(limit.MaxEps, mechanism.MostEps)
	case c.NoiseOfSum():
		limit.MaxEps = min(limit.MaxEps, vecsum.MostEps)
	}
	return limit
}

// kind returns the row of c.Randomizer in the table of randomizers; the zero row if there is
// none.
func (c PrivacyConfig) kind() randomizer.Kind {
	for _, k := range randomizer.Kinds() {
		if k.Trained == c.Randomizer && k.Trained != "" {
			return k
		}
	}
	return randomizer.Kind{}
}

// norm returns the p of the randomizer's ball; 2 if there is no randomizer.
func (c PrivacyConfig) norm() float64 {
	if !c.Trust.Is(dp.LocallyPrivate) {
		return 2
	}
	return c.kind().Norm
}

// newMechanism returns the randomizer and the promise of one report; without privacy the
// promise is zero.
func (c PrivacyConfig) newMechanism(dim int) (randomizer.Mechanism, dp.Report, error) {
	if !c.Trust.Is(dp.Protecting) {
		m, err := randomizer.NewPlain(randomizer.Config{Dim: dim, Radius: c.Clip})
		return m, dp.Report{}, err
	}
	if c.NoiseOfSum() {
		m, err := c.newAggregatedSum(dim)
		if err != nil {
			return nil, dp.Report{}, err
		}
		return m, m.Event(), nil
	}
	if c.Trust.Is(dp.SumsOnly) {
		m, err := c.newVectorSum(dim)
		if err != nil {
			return nil, dp.Report{}, err
		}
		return m, m.Event(), nil
	}
	shape, err := c.shape(dim)
	if err != nil {
		return nil, dp.Report{}, err
	}
	m, err := randomizer.New(c.kind().Name, shape)
	if err != nil {
		return nil, dp.Report{}, err
	}
	return m, m.Event(), nil
}

// shape returns the configuration of the randomizer for gradients of this many coordinates.
func (c PrivacyConfig) shape(dim int) (randomizer.Config, error) {
	edges, err := parseEdges(c.Edges)
	return randomizer.Config{Dim: dim, Radius: c.Clip, Eps0: c.Eps0, Bits: int(c.Bits),
		Encoding: c.Encoding, Steps: int(c.Steps), Edges: edges}, err
}

// resolveEdges chooses the edges of a mechanism that has some.
func (c *PrivacyConfig) resolveEdges(dim int) error {
	if !c.Trust.Is(dp.LocallyPrivate) || !c.kind().Seeds {
		return nil
	}
	shape, err := c.shape(dim)
	if err != nil {
		return err
	}
	edges, err := randomizer.Edges(c.kind().Name, shape)
	c.Edges = formatEdges(edges)
	if c.Steps != 0 {
		c.Steps = int64(len(edges)) // in few dimensions fewer caps fit
	}
	return err
}

// newVectorSum designs a round: the least noise for which sums of at least n-min reports are
// at least as private as those of Gaussian reports with Sigma.
func (c PrivacyConfig) newVectorSum(dim int) (*mechanism.VectorSum, error) {
	most, err := c.asked()
	if err != nil {
		return nil, err
	}
	switch c.Participation {
	case dp.Once:
		most++ // blocks differ by one
	case dp.All, dp.CheckIn:
		most = max(most, c.MaxClients)
	}
	p, err := vecsum.Tight(vecsum.Target{Sigma: c.Sigma, Delta: c.Delta, Users: most, MinUsers: c.NMin, Honest: c.Honest, Dim: dim,
		Radius: c.Clip, Rounds: c.Rounds, Kind: c.Noise})
	if err != nil {
		return nil, err
	}
	sigma, _, err := p.Sigma(context.Background(), c.Delta, max(1, c.Rounds)) // a little more than what is asked
	if err != nil {
		return nil, err
	}
	return mechanism.NewVectorSum(p, sigma)
}

// newAggregatedSum designs a round whose aggregators add noise that is worth Sigma. Events are
// charged a little more than what is asked for, if any.
func (c PrivacyConfig) newAggregatedSum(dim int) (*mechanism.AggregatedSum, error) {
	users := max(c.Population, c.MaxClients)
	if c.Proofs != "" {
		users = max(users, 1<<32) // it costs nothing where clients add no noise, and they may join
	}
	p, err := vecsum.NewAggregated(users, dim, c.Clip, c.Sigma)
	var strategy toeplitz.Strategy
	if c.Every != 0 {
		if strategy, err = c.correlation(); err == nil {
			p, err = vecsum.NewCorrelated(users, dim, c.Clip, c.Sigma, strategy)
		}
		if err == nil && c.apart() {
			p, err = vecsum.NewCorrelatedByClients(max(c.Population, c.MaxClients), c.NMin, cmp.Or(c.Honest, 1), dim, c.Clip, c.Sigma, strategy)
		}
	}
	if err != nil {
		return nil, err
	}
	sigma, tail, err := p.Sigma(max(1, c.Rounds))
	if err != nil {
		return nil, err
	}
	if !(tail <= vecsum.TailShare*c.Delta) {
		return nil, fmt.Errorf("what rounded noise adds to delta, %v, is above %v of it: %w", tail, vecsum.TailShare, dp.ErrNoBound)
	}
	reports := max(1, int64(c.expectedReports()))
	if c.Every != 0 {
		return mechanism.NewCorrelatedSum(p, strategy, sigma, reports)
	}
	return mechanism.NewAggregatedSum(p, sigma, reports)
}
