package operate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/learn/statistic"
	roles "github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/measure"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/coordinator"
)

// This file has the tasks that ask a question: run/measure plans them, and makes the answer of what the
// coordinator has stored.

// newQuestion makes a task that asks a question.
func (r *coordinatorProcess) newQuestion(ctx context.Context, name, config string, round time.Duration, e wire.Enrolment) (*newTask, error) {
	c, err := measure.ParseTask([]byte(config))
	if err != nil {
		return nil, inputOf(err)
	}
	p, err := c.Plan(ctx, measure.Enrolled{Clients: e.Clients, MinReports: e.MinReports})
	if err != nil {
		return nil, inputOf(err)
	}
	w, err := p.Task(name, r.population)
	if err != nil {
		return nil, inputOf(err)
	}
	w.Receipts = c.Receipts
	made := created{Round: round, Question: p.Stored()}
	if c.Tokens {
		if made.tokens, err = r.askTokenKeys(ctx, &w); err != nil {
			return nil, err
		}
	}
	made.Signed = wire.Sign(r.own.Key, wire.LabelTask, wire.Encode(w))
	if _, err := measure.OpenTask(w, made.Question); err != nil { // as a restart will
		return nil, err
	}
	return &newTask{w, made, r.asking(p, made), p, p.Mechanism, func() { r.rememberQuestion(w, p) }}, nil
}

// inputOf gives an error of a question's settings the form of a training task's.
func inputOf(err error) error {
	if errors.Is(err, measure.ErrInput) {
		return fmt.Errorf("bad input: %w%w", err, train.ErrInput)
	}
	return err
}

// asking returns the job that asks a question.
func (r *coordinatorProcess) asking(p *measure.Plan, made created) coordinator.Job {
	return coordinator.Job{Signed: made.Signed, TokenKeys: made.tokens, Report: p.Mechanism.Event(), Budget: p.Limit, Sample: p.Sample, BlockSize: p.BlockSize(),
		Colluders: r.config.Colluders, Declinable: true, Round: made.Round,
		Optimizer: func() (roles.Learner, error) {
			c, err := p.Coordinator()
			return c.Optimizer, err
		}}
}

func (r *coordinatorProcess) rememberQuestion(w wire.Task, p *measure.Plan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.questions == nil {
		r.questions = map[[32]byte]*measure.Plan{}
	}
	r.questions[wire.Digest(w)] = p
}

// openQuestion is openTask for a question, which needs no data. shown is its job if it is only shown.
func (r *coordinatorProcess) openQuestion(ctx context.Context, made created, w wire.Task, shown coordinator.Job) (coordinator.Job, error) {
	p, err := measure.OpenTask(w, made.Question)
	if err == nil {
		r.rememberQuestion(w, p)
		if shown.Ended {
			return shown, nil
		}
		made.tokens, err = readTokenKeys(ctx, r.store, w)
	}
	if err != nil && shown.Ended {
		return shown, nil
	}
	var out coordinator.Job
	if err == nil {
		out = r.asking(p, made)
		err = coordinator.CheckJob(r.own, out)
	}
	if err == nil {
		err = r.record(w, p.Mechanism, &out)
	}
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return out, ctx.Err()
	}
	shown.Missing = err
	return shown, nil
}

// Answer is the answer to a task's question, and what it cost. Its keys are a contract with scripts:
// those of riffle measure, and the task's.
type Answer struct {
	statistic.Answer
	measure.Guarantee
	Question string `json:"question"` // its canonical JSON
	Format   int    `json:"format"`
	Task     string `json:"task"`
	Name     string `json:"name"`
	Round    int64  `json:"round"`
	// TooLong says that the sums are longer than those of honest reports, but for a chance of 1e-9:
	// somebody lied.
	TooLong bool `json:"too_long,omitempty"`
}

// answerFormat is the version of an Answer.
const answerFormat = 1

// errNoQuestion is wrapped if a task asks no question.
var errNoQuestion = errors.New("operate: the task asks no question, it trains a model")

// errNoAnswer is wrapped if a question has none. It has no text of its own.
var errNoAnswer = errors.New("")

// noAnswer says that a question has no answer.
func noAnswer(task, state string) error {
	if state == coordinator.Running {
		return fmt.Errorf("task %q has no answer yet, it is running%w", task, errNoAnswer)
	}
	return fmt.Errorf("task %q has no answer, it is %s: riffle task show %s%w", task, state, task, errNoAnswer)
}

// answer returns the answer to a task's question. It is a function of what is stored: whoever asks at
// any time after the release gets the same numbers.
func (r *coordinatorProcess) answer(ctx context.Context, id [32]byte) (*Answer, error) {
	state, s, err := r.service.Learned(ctx, id)
	if s.Task.Name != "" && err != nil && errors.Is(err, coordinator.ErrNoModel) {
		err = noAnswer(s.Task.Name, s.State)
	}
	r.mu.Lock()
	p := r.questions[id]
	r.mu.Unlock()
	if p == nil && s.Task.Name != "" {
		return nil, fmt.Errorf("%w: %q%w", errNoQuestion, s.Task.Name, train.ErrInput)
	}
	switch {
	case err != nil:
		return nil, err
	case s.Phase == "standby":
		return nil, fmt.Errorf("%w %q: ask that one", coordinator.ErrStandby, s.Task.Name)
	case math.IsNaN(float64(s.Eps)):
		return nil, fmt.Errorf("operate: the charges of task %q are not known yet", s.Task.Name)
	}
	return answerOf(p, s, state)
}

// answerOf returns the answer that a learner's state gives.
func answerOf(p *measure.Plan, s wire.Status, state optimize.State) (*Answer, error) {
	a, err := p.AnswerOf(state)
	if err != nil {
		return nil, err
	}
	return &Answer{Answer: a, Guarantee: p.Guarantee(s.Eps, s.Method), Question: string(p.Question.JSON()),
		Format: answerFormat, Task: fmt.Sprintf("%x", s.ID), Name: s.Task.Name, Round: s.Round, TooLong: s.Shortened > 0}, nil
}
