package client

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// NoQuestions in Policy.Measure stands for no question at all.
const NoQuestions = "nothing"

// Question returns the kind of question that a task asks, such as histogram; "" if it asks none, and
// trains a model. A question is described by canonical JSON, which begins with its kind; a source of
// rows takes no other description for a question.
func Question(task wire.Task) string {
	rest, ok := bytes.CutPrefix(task.Config, []byte(`{"measure":"`))
	kind, _, closed := bytes.Cut(rest, []byte(`"`))
	if !ok || !closed || !kindName(string(kind)) {
		return ""
	}
	return string(kind)
}

// kindName says whether a text can be the name of a kind of question.
func kindName(s string) bool {
	return len(s) >= 1 && len(s) <= 40 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz-") == ""
}

// checkMeasure checks the list of questions that are answered.
func (p Policy) checkMeasure() error {
	for _, kind := range p.Measure {
		if !kindName(kind) || kind == NoQuestions && len(p.Measure) > 1 {
			return fmt.Errorf("client: policy: measure: %.40q must be a kind of question, or %s alone", kind, NoQuestions)
		}
	}
	return nil
}

// answers says whether the policy allows a question of that kind; "" is no question.
func (p Policy) answers(kind string) bool {
	return kind == "" || len(p.Measure) == 0 || slices.Contains(p.Measure, kind) && kind != NoQuestions
}

// NewEncoder returns how rows answer a task's question. It refuses a task that asks none, or whose
// reports are not made for its question. That depends on the task only, which is public.
func NewEncoder(task wire.Task) (*statistic.Encoder, error) {
	if Question(task) == "" {
		return nil, errors.New("client: the task asks no question that rows answer")
	}
	q, err := statistic.Parse(task.Config)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if task.Trust.Is(dp.LocallyPrivate) {
		m, err := mechanism.New(task.Mechanism)
		if err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
		s, err := statistic.NewMessages(q, m)
		if err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
		return s.Encoder(), nil
	}
	e, err := statistic.NewEncoder(q)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if d, ones := int64(q.Dim()), int64(q.Ones()); task.Mechanism.Dim != d || task.Mechanism.Sum.Users > 0 && task.Mechanism.Sum.Ones != ones {
		return nil, fmt.Errorf("client: reports of %d values, %d of them ones, the question has %d and %d", task.Mechanism.Dim, task.Mechanism.Sum.Ones, d, ones)
	}
	return e, nil
}
