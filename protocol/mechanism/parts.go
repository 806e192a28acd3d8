package mechanism

import (
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// Shares returns the code that splits and joins the reports of a round of a vector sum, for
// the coordinator and one aggregator. The first half of the announcement's digest names the
// round.
func (m *VectorSum) Shares(announcement [32]byte) (*vecsum.Shares, error) {
	return vecsum.NewShares(vecsum.Config{Params: m.Params, Round: vecsum.RoundID(announcement[:16])})
}

// Contents encodes a report into the parts that are sealed: one for the coordinator and, for
// a vector sum, one for the aggregator; otherwise share is empty. The sizes are those of
// ContentSizes, whatever the report. src hides the counts of a sum from each of the two.
func Contents(src rng.Source, m randomizer.Mechanism, announcement [32]byte, r *randomizer.Report) (part, share []byte, err error) {
	if a, ok := m.(*AggregatedSum); ok {
		return a.contents(src, announcement, r)
	}
	v, ok := m.(*VectorSum)
	if !ok {
		part, err = randomizer.AppendReport(nil, randomizer.ForRound(m, announcement), r)
		return part, nil, err
	}
	s, err := v.Shares(announcement)
	if err != nil {
		return nil, nil, err
	}
	counts := make([]int64, len(r.Value))
	for j, c := range r.Value {
		counts[j] = int64(c)
	}
	messages, err := s.Messages(src, counts)
	if err != nil {
		return nil, nil, err
	}
	if len(messages) != 2 {
		return nil, nil, fmt.Errorf("mechanism: %d messages, want one for the coordinator and one for the aggregator", len(messages))
	}
	return messages[0], messages[1], nil
}

// ContentSizes returns the sizes of the results of Contents.
func ContentSizes(m randomizer.Mechanism) (part, share int64, err error) {
	if a, ok := m.(*AggregatedSum); ok {
		p, err := a.Proved([32]byte{})
		if err != nil {
			return 0, 0, err
		}
		aggregator, coordinator := p.Sizes()
		return int64(coordinator), int64(aggregator), nil
	}
	v, ok := m.(*VectorSum)
	if !ok {
		return int64(randomizer.ForRound(m, [32]byte{}).Facts().Bytes), 0, nil
	}
	if v.Params.Split {
		return 0, 0, errors.New("mechanism: a vector sum with split signs has no reports over a network")
	}
	s, err := v.Shares([32]byte{})
	if err != nil {
		return 0, 0, err
	}
	return s.MessageSize(0), s.MessageSize(1), nil
}
