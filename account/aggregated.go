package account

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// aggregated says whether the question is about a vector sum whose noise is no part of the vectors: the
// aggregators add it, or it is correlated and clients send it apart.
func (q Query) aggregated() bool {
	return q.isSum() && (q.NoiseBy == vecsum.ByAggregators || q.Every != 0 || q.Strategy != "")
}

// byClients says whether clients add the noise.
func (q Query) byClients() bool { return q.NoiseBy == "" || q.NoiseBy == vecsum.ByClients }

// ofSum returns the question about sums with Gaussian noise of Sigma.
func (q Query) ofSum() Query {
	every := q.Every
	q = q.single(dp.GaussianSum, q.Sigma)
	q.Every, q.Strategy = 0, ""
	if every != 0 {
		q.Rounds = 1 // of which Together has the noise
	}
	if q.Participation == dp.Once {
		// A client is in one batch, and whoever else is in it does not matter.
		q.Participation, q.Population, q.Reports, q.Rounds, q.Colluders = dp.All, q.Reports, 0, 1, 0
	}
	return q
}

// validateAggregated is Validate for a question about a vector sum whose noise is no part of the vectors.
func (q Query) validateAggregated() error {
	only := q.Sum
	only.Dim = 0
	if q.byClients() {
		only.MinUsers, only.Honest = 0, 0
	}
	switch {
	case q.byClients() && only != (vecsum.Params{}):
		return fmt.Errorf("account: every = %d: grid and noise are of noise that is a part of clients' vectors: give sigma, dim, n-min and honest", q.Every)
	case q.byClients() && q.Every == 0:
		return fmt.Errorf("account: strategy %q goes with every, the number of rounds of which a client takes part in one at most", q.Strategy)
	case q.byClients() && q.Colluders != 0:
		return fmt.Errorf("account: colluders = %d: of a vector sum give the fraction honest, which adds noise", q.Colluders)
	case only != (vecsum.Params{}):
		return errors.New("account: grid, noise, n-min and honest are of noise that clients add: with noise-by aggregators give sigma and dim")
	case q.Trust != "" && !q.Trust.Is(dp.SumsOnly):
		return fmt.Errorf("account: trust %s: of a vector sum only the sum is seen, trust %s", q.Trust, dp.AnyTrust(dp.SumsOnly))
	case q.HiddenReports || q.AdaptiveWithinRound:
		return errors.New("account: a vector sum reveals its number of clients, and its clients do not see each other's reports")
	}
	if err := q.refuseLeast(); err != nil {
		return err
	}
	// As it was asked: ofSum may make one round of several, which hides how many there are.
	single := q.single(dp.GaussianSum, q.Sigma)
	single.Every, single.Strategy = 0, ""
	if err := single.Validate(); err != nil {
		return err
	}
	if err := q.validateEvery(); err != nil {
		return err
	}
	_, err := q.design()
	return err
}

// mostRows bounds the rounds for which a strategy is made.
const mostRows = 1 << 16

// validateEvery checks what a question says of correlated noise.
func (q Query) validateEvery() error {
	switch {
	case q.Every == 0 && q.Strategy == "":
		return nil
	case q.Every < 1:
		return fmt.Errorf("account: every = %d must be at least 2", q.Every)
	case q.Every == 1:
		return errors.New("account: every = 1 must be at least 2: where clients take part in all rounds correlated noise is worth 1.061 times as much at most, so independent noise is added")
	case q.Rounds > mostRows:
		return fmt.Errorf("account: rounds = %d of correlated noise must be at most %d", q.Rounds, mostRows)
	case q.Participation != dp.All:
		return fmt.Errorf("account: every = %d goes with participation %s, not %s: no chance is credited to clients who count their rounds themselves", q.Every, dp.All, q.Participation)
	case q.Strategy != "" && !slices.Contains(toeplitz.Kinds, q.Strategy):
		return fmt.Errorf("account: strategy %q must be one of %v", q.Strategy, toeplitz.Kinds)
	}
	return nil
}

// strategy returns how the noise is correlated.
func (q Query) strategy() (toeplitz.Strategy, error) {
	return toeplitz.New(q.Strategy, q.Rounds, q.Every)
}

// design returns the round: the law of the noise does not depend on the radius, and hardly on
// how many clients there are.
func (q Query) design() (vecsum.Aggregated, error) {
	if q.Every != 0 {
		s, err := q.strategy()
		if err != nil {
			return vecsum.Aggregated{}, err
		}
		if q.byClients() {
			q = q.withClients()
			return vecsum.NewCorrelatedByClients(q.Population, q.Sum.MinUsers, q.Sum.Honest, q.Sum.Dim, 1, q.Sigma, s)
		}
		return vecsum.NewCorrelated(min(q.Population, 1<<32), q.Sum.Dim, 1, q.Sigma, s)
	}
	return vecsum.NewAggregated(min(q.Population, 1<<32), q.Sum.Dim, 1, q.Sigma)
}

// withClients fills in what a question about correlated noise of clients says of them. In a round comes one
// client of Every.
func (q Query) withClients() Query {
	if q.Every != 0 && q.byClients() {
		q.NoiseBy = vecsum.ByClients
		if q.Sum.MinUsers == 0 {
			q.Sum.MinUsers = min(Surely(q.Population, (1-q.Dropout)/float64(q.Every)), q.Population)
		}
		if q.Sum.Honest == 0 {
			q.Sum.Honest = 1
		}
	}
	return q
}

// sumOfAggregators returns a question about sums with Gaussian noise. Its answer, with tail added to
// δ, holds for the query.
func (q Query) sumOfAggregators() (g Query, tail float64, err error) {
	p, err := q.design()
	if err != nil {
		return g, 0, err
	}
	g = q.ofSum()
	worth, tail, err := p.Sigma(q.times())
	if err == nil && q.Every != 0 {
		var s toeplitz.Strategy
		if s, err = q.strategy(); err == nil {
			worth = s.Together(worth, 0, q.Rounds, q.Every)
		}
	}
	g.Sigma = min(worth, dp.MaxSigma)
	return g, tail, err
}

// mostEps refuses an ε for which what rounding adds to δ is not known to be small.
func mostEps(eps float64) error {
	return refuse("epsilon = %.4g: noise that is no part of clients' vectors is counted up to %d", eps, vecsum.MostEps)
}

// planAggregated returns the least sigma for which the tightest bound is at most target.
func planAggregated(ctx context.Context, target float64, q Query, solve string) (Query, Reply, error) {
	if solve != "sigma" {
		return q, Reply{}, fmt.Errorf("account: cannot solve for %q of a sum whose noise is no part of clients' vectors: want sigma", solve)
	}
	q.Sigma = dp.MaxSigma / 1e6
	if err := q.Validate(); err != nil {
		return q, Reply{}, err
	}
	g := q.ofSum()
	g.Delta = dp.Counted(g.Delta, vecsum.TailShare)
	g, _, err := Plan(ctx, target*(1-1e-6), g, "sigma")
	if err != nil {
		return q, Reply{}, err
	}
	q.Sigma = g.Sigma
	if q.Every != 0 {
		s, err := q.strategy()
		if err != nil {
			return q, Reply{}, err
		}
		q.Sigma = q.Sigma / s.Together(1, 0, q.Rounds, q.Every) * (1 + 0x1p-40)
	}
	r, err := Answer(ctx, q, "best")
	if err != nil {
		return q, Reply{}, err
	}
	if r.Upper == nil || !(r.Upper.Eps <= target) {
		return q, Reply{}, fmt.Errorf("account: noise of sigma = %v does not meet epsilon = %v: %w", q.Sigma, target, dp.ErrNoBound)
	}
	return q, r, nil
}
