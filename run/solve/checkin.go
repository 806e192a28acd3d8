package solve

import (
	"context"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// checkIn sums rounded gradients of clients who take part by coins of their own, which nobody
// sees. Each coin has chance 1/T, so over T rounds a client is expected in one. A round of
// fewer clients than the plan counts on is void, about once in a billion.
type checkIn struct {
	vectorSum
	ctx    context.Context
	rounds int64
	least  int64 // clients of a round that is not void
	made   design
}

// design is the noise of all rounds.
type design interface {
	// mechanism returns the mechanism of a round and its mean squared error by report, in rounds
	// of m.least clients.
	mechanism(m *checkIn) (r randomizer.Mechanism, mse float64, err error)
	// worth returns the sigma of the question about the cost, and what tails add to delta.
	worth(m *checkIn) (sigma, tail float64, err error)
}

// query returns the question about the cost of T such rounds if each client's noise, or that of
// each aggregator, has the given sigma.
func (m *checkIn) query(sigma float64, rounds int64) account.Query {
	class := dp.Gaussian
	if m.aggregated() {
		class = dp.GaussianSum
	}
	return account.Query{
		Trust: m.config.Trust.Recorded(), Participation: dp.CheckIn, Class: class, Sigma: sigma,
		Population: m.clients(), Gamma: 1 / float64(rounds), Rounds: rounds, Delta: dp.Counted(m.config.Delta, vecsum.TailShare),
	}
}

// aggregated says whether the aggregators add the noise.
func (m *checkIn) aggregated() bool { return m.config.NoiseBy == vecsum.ByAggregators }

func (m *checkIn) clients() int64 { return m.config.N }

// surely returns the number of clients that a round has at least, except in one round in a
// billion.
func (m *checkIn) surely(rounds int64) int64 {
	return min(m.clients(), account.Surely(m.clients(), 1/float64(rounds)))
}

func (m *checkIn) sigma(rounds int64) (float64, error) {
	solved, _, err := account.Plan(m.ctx, m.config.Epsilon, m.query(0, rounds), "sigma")
	if err != nil {
		return 0, fmt.Errorf("solve: epsilon = %v at delta = %v in %d rounds: %w", m.config.Epsilon, m.config.Delta, rounds, err)
	}
	return solved.Sigma, nil
}

// noise returns the noise for choosing the number of rounds.
func (m *checkIn) noise() optimize.Noise {
	return optimize.NewCostlyNoise(m.dim, func(clients, _ int64) float64 {
		sigma, err := m.sigma(max(1, m.clients()/clients))
		if err != nil {
			return math.Inf(1)
		}
		mse := float64(m.dim) * sigma * sigma * m.config.Clip * m.config.Clip * (1 + overhead)
		if m.aggregated() { // a report's share of the noise of two aggregators
			mse *= 2 / float64(clients)
		}
		return mse
	})
}

// plan chooses the rounds, makes the noise for them and plans for it. The clients of a mean
// are drawn anew in every round, so that it estimates the mean gradient of all n without
// bias.
func (m *checkIn) plan(method string, p optimize.Problem) (*optimize.Plan, error) {
	n := p.Clients
	batch, err := optimize.ChooseBatch(method, p, optimize.Overrides{}, func(asked int64) int64 { return m.surely(n / asked) })
	if err != nil {
		return nil, err
	}
	m.rounds = n / batch
	sigma, err := m.sigma(m.rounds)
	if err != nil {
		return nil, err
	}
	m.least = m.surely(m.rounds)
	if m.aggregated() {
		m.made, err = newAggregatedDesign(m, sigma)
	} else {
		m.made, err = newClientsDesign(m, sigma)
	}
	if err != nil {
		return nil, fmt.Errorf("solve: epsilon = %v at delta = %v in %d rounds: %w", m.config.Epsilon, m.config.Delta, m.rounds, err)
	}
	r, mse, err := m.made.mechanism(m)
	if err != nil {
		return nil, err
	}
	p.Noise = optimize.ReportNoise{MSE: mse, Dim: m.dim}
	plan, err := optimize.NewPlan(method, p, optimize.Overrides{Given: true, Rounds: m.rounds, Batch: m.least})
	if err != nil {
		return nil, err
	}
	for range plan.Stages {
		m.stages = append(m.stages, r)
	}
	return plan, nil
}

// clientsDesign is noise of the clients. sigma is the σ of each one's.
type clientsDesign struct {
	params vecsum.Params
	sigma  float64
}

func newClientsDesign(m *checkIn, sigma float64) (design, error) {
	p, err := vecsum.Tight(vecsum.Target{
		Sigma: sigma, Delta: m.config.Delta, Users: m.clients(), MinUsers: m.least, Dim: m.dim, Radius: m.config.Clip,
		Rounds: m.rounds, Overhead: overhead, Kind: vecsum.Skellam,
	})
	return clientsDesign{p, sigma}, err
}

func (d clientsDesign) mechanism(m *checkIn) (randomizer.Mechanism, float64, error) {
	r, err := rounding(d.params, d.sigma)
	return r, float64(m.dim) * d.params.Variance(1), err
}

func (d clientsDesign) worth(m *checkIn) (sigma, tail float64, err error) {
	return d.params.Sigma(m.ctx, m.config.Delta, m.rounds)
}

// aggregatedDesign is noise of the aggregators, the same however many clients come. What is
// released has the noise of both.
type aggregatedDesign struct{ vecsum.Aggregated }

func newAggregatedDesign(m *checkIn, sigma float64) (design, error) {
	p, err := vecsum.NewAggregated(m.clients(), m.dim, m.config.Clip, sigma)
	return aggregatedDesign{p}, err
}

func (d aggregatedDesign) mechanism(m *checkIn) (randomizer.Mechanism, float64, error) {
	sigma, _, err := d.worth(m)
	if err != nil {
		return nil, 0, err
	}
	r, err := mechanism.NewAggregatedSum(d.Aggregated, sigma, m.least)
	if err != nil {
		return nil, 0, err
	}
	return r, r.Facts().MSE, nil
}

func (d aggregatedDesign) worth(m *checkIn) (sigma, tail float64, err error) {
	return d.Sigma(m.rounds)
}

// prepare bounds the cost of the run from the noise that clients will draw. It fails if the
// noise's tails exceed the share of δ that is kept for them.
func (m *checkIn) prepare(*optimize.Plan) (eps, delta float64, err error) {
	sigma, tail, err := m.made.worth(m)
	if err != nil {
		return 0, 0, err
	}
	if !(tail <= vecsum.TailShare*m.config.Delta) {
		return 0, 0, fmt.Errorf("solve: tails of %v: %w", tail, dp.ErrNoBound)
	}
	answer, err := account.Answer(m.ctx, m.query(math.Min(sigma, dp.MaxSigma), m.rounds), "best")
	if err != nil {
		return 0, 0, err
	}
	if answer.Upper == nil {
		return 0, 0, fmt.Errorf("solve: %d rounds by coins: %w", m.rounds, dp.ErrNoBound)
	}
	return answer.Upper.Eps, m.config.Delta, nil
}

// present returns the places of the clients whose coins let them take part, in order; none if
// the round is void.
func (m *checkIn) present(src rng.Source) []int64 {
	rate := 1 / float64(m.rounds)
	var places []int64
	// The gaps between heads are geometric.
	for place := int64(0); ; place++ {
		if rate < 1 {
			u := (float64(src.Uint64()>>11) + .5) * 0x1p-53
			gap := math.Log(u) / math.Log1p(-rate)
			if !(gap < float64(m.clients()-place)) {
				break
			}
			place += int64(gap)
		}
		if place >= m.clients() {
			break
		}
		places = append(places, place)
	}
	if int64(len(places)) < m.least {
		return nil
	}
	return places
}
