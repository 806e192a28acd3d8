package solve

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

// reports protects gradients one by one, with a PrivUnit report of each client
// in every round that it is in. With trust shuffle a round's reports hide each
// other, and who is in which batch is public; with trust local nothing hides a report.
type reports struct {
	ctx    context.Context
	config Config
	dim    int
	stages
	failed error
}

// query asks for the cost of rounds of this many clients to a client who is in all of them.
func (m *reports) query(eps0 float64, clients, uses int64) account.Query {
	return account.Query{
		Trust: m.config.Trust, Participation: dp.All, Class: dp.Generic,
		Eps0: eps0, Population: clients, Rounds: uses, Delta: m.config.Delta,
	}
}

// unit returns the mechanism with the least noise within the budget.
func (m *reports) unit(clients, uses int64) (randomizer.Randomizer, error) {
	c := m.config
	eps0 := c.Epsilon // for one report that nothing hides, with δ = 0
	if c.Trust.Is(dp.Shuffled) || uses > 1 {
		solved, _, err := account.Plan(m.ctx, c.Epsilon, m.query(0, clients, uses), "eps0")
		if err != nil {
			return nil, fmt.Errorf("solve: epsilon = %v at delta = %v in rounds of %d clients: %w", c.Epsilon, c.Delta, clients, err)
		}
		eps0 = solved.Eps0
	}
	// What the mechanism claims, numeric slack included, must be at most eps0.
	for try := eps0; try > 0; {
		unit, err := randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: m.dim, Eps0: try, Radius: c.Clip})
		if err != nil {
			return nil, err
		}
		claim := unit.Event().Eps0
		if claim <= eps0 {
			return unit, nil
		}
		try -= 1.01*(claim-eps0) + 1e-12
	}
	return nil, fmt.Errorf("solve: epsilon = %v: no privunit in %d dimensions claims so little as %v", c.Epsilon, m.dim, eps0)
}

func (m *reports) noise() optimize.Noise {
	return optimize.NewCostlyNoise(m.dim, func(clients, uses int64) float64 {
		unit, err := m.unit(clients, uses)
		if err != nil {
			if !errors.Is(err, dp.ErrNoBound) && m.failed == nil {
				m.failed = err
			}
			return math.Inf(1)
		}
		return unit.Facts().MSE
	})
}

// prepare: a client's rounds compose, and of disjoint rounds the most expensive one counts.
func (m *reports) prepare(p *optimize.Plan) (eps, delta float64, err error) {
	if m.failed != nil {
		return 0, 0, m.failed
	}
	uses := p.Batches.Uses
	for _, s := range p.Stages {
		unit, err := m.unit(s.Batch, uses)
		if err != nil {
			return 0, 0, err
		}
		m.stages = append(m.stages, unit)
		claim := unit.Event().Eps0
		if m.config.Trust.Is(dp.Alone) && uses == 1 {
			eps = math.Max(eps, claim)
			continue
		}
		delta = m.config.Delta
		answer, err := account.Answer(m.ctx, m.query(claim, s.Batch, uses), "best")
		if err != nil {
			return 0, 0, err
		}
		if answer.Upper == nil {
			return 0, 0, fmt.Errorf("solve: %d rounds of %d clients: %w", uses, s.Batch, dp.ErrNoBound)
		}
		eps = math.Max(eps, answer.Upper.Eps)
	}
	return eps, delta, nil
}
