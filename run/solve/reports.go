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
func (m *reports) query(r dp.Report, clients, uses int64) account.Query {
	return account.Query{Trust: m.config.Trust, Participation: dp.All, Population: clients, Rounds: uses, Delta: m.config.Delta}.Of(r)
}

// unit returns the mechanism with the least noise within the budget, whose reports are counted by
// their own law.
func (m *reports) unit(clients, uses int64) (randomizer.Randomizer, error) {
	c := m.config
	of := func(eps0 float64) (randomizer.Randomizer, error) {
		return randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: m.dim, Eps0: eps0, Radius: c.Clip})
	}
	if c.Trust.Is(dp.Shuffled) || uses > 1 {
		eps0, _, _, err := account.PlanReport(m.ctx, c.Epsilon, m.query(dp.Report{}, clients, uses), func(eps0 float64) (dp.Report, error) {
			unit, err := of(eps0)
			if err != nil {
				return dp.Report{}, err
			}
			return unit.Event(), nil
		})
		if err != nil {
			return nil, fmt.Errorf("solve: epsilon = %v at delta = %v in rounds of %d clients: %w", c.Epsilon, c.Delta, clients, err)
		}
		return of(eps0)
	}
	// One report that nothing hides has δ = 0: what it claims, numeric slack included, must be at
	// most the budget.
	for try := c.Epsilon; try > 0; {
		unit, err := of(try)
		if err != nil {
			return nil, err
		}
		claim := unit.Event().Eps0
		if claim <= c.Epsilon {
			return unit, nil
		}
		try -= 1.01*(claim-c.Epsilon) + 1e-12
	}
	return nil, fmt.Errorf("solve: epsilon = %v: no privunit in %d dimensions claims so little", c.Epsilon, m.dim)
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
		if m.config.Trust.Is(dp.Alone) && uses == 1 {
			eps = math.Max(eps, unit.Event().Eps0)
			continue
		}
		delta = m.config.Delta
		answer, err := account.Answer(m.ctx, m.query(unit.Event(), s.Batch, uses), "best")
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
