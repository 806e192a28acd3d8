package dashboard

import (
	"encoding/json"
	"fmt"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/page/report"
)

// History is a task's model quality and cost as the pages showed it, in stored form. A
// process that starts again, or another one that continues the task, shows it from the first
// round. All of it was public when it was measured.
type History struct {
	Measures []Measure
	// Examined is the result of the model after round ExaminedAt on the evaluation examples;
	// nil if it was not stored.
	Examined   *report.Examined
	ExaminedAt int64
}

// savedHistory has a history's columns.
type savedHistory struct {
	Round      []int64          `json:"round"`
	Epsilon    []dp.Number      `json:"epsilon"`
	Accuracy   []dp.Number      `json:"accuracy"`
	Loss       []dp.Number      `json:"loss"`
	Seconds    []dp.Number      `json:"seconds"`
	Examined   *report.Examined `json:"examined,omitempty"`
	ExaminedAt int64            `json:"examined_round,omitempty"`
}

// MarshalJSON writes the history by columns.
func (h History) MarshalJSON() ([]byte, error) {
	s := savedHistory{Examined: h.Examined, ExaminedAt: h.ExaminedAt}
	for _, m := range h.Measures {
		s.Round = append(s.Round, m.Round)
		s.Epsilon, s.Accuracy = append(s.Epsilon, dp.Number(m.Eps)), append(s.Accuracy, dp.Number(m.Accuracy))
		s.Loss, s.Seconds = append(s.Loss, dp.Number(m.Loss)), append(s.Seconds, dp.Number(m.Seconds))
	}
	return json.Marshal(s)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (h *History) UnmarshalJSON(b []byte) error {
	var s savedHistory
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	n := len(s.Round)
	if len(s.Epsilon) != n || len(s.Accuracy) != n || len(s.Loss) != n || len(s.Seconds) != n {
		return fmt.Errorf("%d rounds, %d values of epsilon, %d of accuracy, %d of loss and %d of seconds do not agree",
			n, len(s.Epsilon), len(s.Accuracy), len(s.Loss), len(s.Seconds))
	}
	*h = History{Measures: make([]Measure, n), Examined: s.Examined, ExaminedAt: s.ExaminedAt}
	for i := range h.Measures {
		h.Measures[i] = Measure{Round: s.Round[i], Eps: float64(s.Epsilon[i]), Accuracy: float64(s.Accuracy[i]),
			Loss: float64(s.Loss[i]), Seconds: float64(s.Seconds[i])}
	}
	return nil
}

// Until returns h without what was measured after round last. A process that continues from
// round last measures later rounds again.
func (h History) Until(last int64) History {
	for len(h.Measures) > 0 && h.Measures[len(h.Measures)-1].Round > last {
		h.Measures = h.Measures[:len(h.Measures)-1]
	}
	if h.ExaminedAt > last {
		h.Examined, h.ExaminedAt = nil, 0
	}
	return h
}
