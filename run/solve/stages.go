package solve

import (
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// stages are the mechanisms that clients report with, by stage of the plan. Reports
// are integers, so that their sum does not depend on the order.
type stages []randomizer.Mechanism

func (m stages) open(_ rng.Source, b batch) (sum, error) {
	r := m[b.stage]
	return &tally{r, r.NewReport(), make([]int64, r.Facts().Dim)}, nil
}

// tally sums reports.
type tally struct {
	mechanism randomizer.Mechanism
	report    *randomizer.Report
	sum       []int64
}

func (s *tally) add(src rng.Source, x []float32) error {
	s.mechanism.Randomize(src, x, s.report)
	s.mechanism.Add(s.sum, s.report)
	return nil
}

func (s *tally) merge(other sum) error {
	for j, v := range other.(*tally).sum {
		s.sum[j] += v
	}
	return nil
}

func (m stages) release(src rng.Source, b batch, s sum, mean []float64) error {
	counts := s.(*tally).sum
	if v, ok := m[b.stage].(interface {
		AddNoise(src rng.Source, sum []int64, n int64) error
	}); ok {
		if err := v.AddNoise(src, counts, b.clients); err != nil {
			return err
		}
	}
	m[b.stage].Estimate(mean, counts, b.clients)
	return nil
}
