package measure

import (
	"fmt"

	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/learn/statistic"
)

// learner is what the rounds of a question become, in place of a model.
type learner interface {
	Point() []float64
	Step(mean []float64) error
	StepOf(mean []float64, reports int64) error
	Model(dst []float64)
	State() optimize.State
	Restore(optimize.State) error
	// answer returns what was released so far; p is the question's.
	answer(p *Plan) (statistic.Answer, error)
}

// newLearner returns the learner before the first round.
func (p *Plan) newLearner() (learner, error) {
	if p.Question.Rounds() == 1 {
		return newCollector(p.Mechanism.Facts().Dim), nil
	}
	s, err := statistic.NewSearch(p.Question, p.Clients, p.MinReports, p.law)
	if err != nil {
		return nil, inputError("%v", err)
	}
	return &searcher{search: s}, nil
}

// blocks says who is asked in which round of a question of several rounds: as many disjoint blocks of
// clients as there are rounds.
func (c Config) blocks() (b schedule.Blocks, err error) {
	rounds := c.Question.Rounds()
	if c.Sample != 0 {
		return b, inputError("sample = %d: %s asks every client once, in one of its %d rounds", c.Sample, c.Question.Measure, rounds)
	}
	if c.Clients < rounds {
		return b, inputError("%d clients are fewer than the %d rounds of %s", c.Clients, rounds, c.Question.Measure)
	}
	return schedule.Blocks{Clients: c.Clients, PerEpoch: rounds, Smallest: c.Clients / rounds}, nil
}

// asked returns the numbers of clients that the smallest and the largest round ask.
func (c Config) asked() (least, most int64, err error) {
	switch {
	case c.Question.Rounds() > 1:
		b, err := c.blocks()
		if err != nil {
			return 0, 0, err
		}
		from, to := b.Range(0) // the first block is one of the largest
		return b.Smallest, to - from, nil
	case c.Sample != 0:
		return c.Sample, c.Sample, nil
	}
	return c.Clients, c.Clients, nil
}

// searcher is a search for heavy hitters as the learner of a task. What it publishes says what the
// coming round asks.
type searcher struct {
	search *statistic.Search
	steps  int64
}

func (s *searcher) Point() []float64 {
	var point []float64
	for _, v := range s.search.Point() {
		point = append(point, float64(v))
	}
	return point
}

func (s *searcher) Model(dst []float64) { copy(dst, s.Point()) }

// Step is for learners that do not count.
func (s *searcher) Step([]float64) error {
	return fmt.Errorf("measure: a question needs the number of reports")
}

func (s *searcher) StepOf(mean []float64, reports int64) error {
	sums := make([]float64, len(mean))
	for j, m := range mean {
		sums[j] = m * float64(reports)
	}
	if err := s.search.Take(sums, reports); err != nil {
		return err
	}
	s.steps++
	return nil
}

func (s *searcher) State() optimize.State {
	return optimize.State{Steps: s.steps, Vectors: s.search.Vectors()}
}

// Restore takes what State returned, and nothing else.
func (s *searcher) Restore(state optimize.State) error {
	if state.Steps < 0 || state.Steps > 1<<24 {
		return fmt.Errorf("measure: a state of %d rounds", state.Steps)
	}
	if err := s.search.Restore(state.Vectors); err != nil {
		return err
	}
	s.steps = state.Steps
	return nil
}

func (s *searcher) answer(*Plan) (statistic.Answer, error) { return s.search.Answer() }
