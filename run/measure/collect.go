// Package measure answers public questions about people's rows privately. From a question, a trust
// mode and a budget it plans the mechanism. Then it asks the question in this process, or describes
// it to the clients of a network.
//
//	Asked  → statistic.Question       as people write it
//	Config → Plan                     the mechanism within the budget
//	Plan.Run, with a Ledger           simulated rounds, charged before they are opened
//	TaskConfig → Plan → wire.Task     a question over a network
//	wire.Task  → OpenTask → AnswerOf  its answer from what the coordinator stored
package measure

import (
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/learn/statistic"
)

// collector keeps what a question's round releases, in place of an optimiser: the estimated sum of
// the encoded rows, and the number of reports. What it publishes is one number, the number of rounds
// that were released: clients answer without reading it.
//
// Its state is all that an answer is made of, so the same state gives the same answer at any time.
type collector struct {
	point   [1]float64
	reports int64
	sums    []float64 // of the round that was released last; zero before
}

// newCollector returns the collector of a question with so many sums.
func newCollector(dim int) *collector { return &collector{sums: make([]float64, dim)} }

// Names of the vectors of a collector's state.
const (
	stateSums    = "sums"
	stateReports = "reports"
)

func (c *collector) Point() []float64 { return c.point[:] }

func (c *collector) Model(dst []float64) { copy(dst, c.point[:]) }

// Step is for learners that do not count.
func (c *collector) Step([]float64) error {
	return fmt.Errorf("measure: a question needs the number of reports")
}

// StepOf keeps the sums of a round with this mean of so many reports.
func (c *collector) StepOf(mean []float64, reports int64) error {
	if len(mean) != len(c.sums) || reports < 1 {
		return fmt.Errorf("measure: %d sums of %d reports, the question has %d", len(mean), reports, len(c.sums))
	}
	for j, m := range mean {
		if c.sums[j] = m * float64(reports); math.IsNaN(c.sums[j]) || math.IsInf(c.sums[j], 0) {
			return fmt.Errorf("measure: sum %d is not finite", j)
		}
	}
	c.reports = reports
	c.point[0]++
	return nil
}

func (c *collector) State() optimize.State {
	return optimize.State{Steps: int64(c.point[0]), Vectors: map[string][]float64{stateSums: slices.Clone(c.sums), stateReports: {float64(c.reports)}}}
}

// Restore takes what State returned, and nothing else.
func (c *collector) Restore(s optimize.State) error {
	sums, reports := s.Vectors[stateSums], s.Vectors[stateReports]
	if len(s.Vectors) != 2 || len(sums) != len(c.sums) || len(reports) != 1 {
		return fmt.Errorf("measure: a state of %d vectors with %d sums, the question has %d", len(s.Vectors), len(sums), len(c.sums))
	}
	n := reports[0]
	if !(n >= 0 && n <= 1<<52 && n == math.Trunc(n)) || s.Steps < 0 || s.Steps > 1<<24 || (s.Steps == 0) != (n == 0) {
		return fmt.Errorf("measure: a state of %d rounds with %v reports", s.Steps, n)
	}
	c.point[0], c.reports = float64(s.Steps), int64(n)
	copy(c.sums, sums)
	return nil
}

func (c *collector) answer(p *Plan) (statistic.Answer, error) {
	if c.reports == 0 {
		return statistic.Answer{}, fmt.Errorf("measure: no round gave an answer")
	}
	return p.answer(c.sums, c.reports)
}
