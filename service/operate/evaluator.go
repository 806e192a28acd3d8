package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/external"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/page/dashboard"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/config"
)

// loggedAgain is the time after which an error that lasts is logged again.
const loggedAgain = 10 * time.Minute

// evaluator has a program evaluate a task's models; service/coordinator says what its methods do.
type evaluator struct {
	config  external.Config
	log     *slog.Logger
	session *external.Session // nil: none now

	parameters string // that the task names
	said       string // the error that was logged last, at a time
	at         time.Time
}

func newEvaluator(c config.Coordinator, task wire.Task, parameters string, log *slog.Logger) *evaluator {
	return &evaluator{config: external.Config{Program: c.Evaluate, Purpose: external.Evaluate, Task: task.Name, Timeout: cmp.Or(c.Answer, external.DefaultTimeout)}, parameters: parameters, log: log.With("task", task.Name)}
}

func (e *evaluator) Close() {
	if e.session != nil {
		e.session.Close()
		e.session = nil
	}
}

// Evaluate returns an evaluation, also if the program fails.
func (e *evaluator) Evaluate(ctx context.Context, params []float32) any {
	kept := e.session != nil
	numbers, err := e.ask(ctx, params)
	if err != nil && kept && ctx.Err() == nil { // it may have ended since its last answer
		numbers, err = e.ask(ctx, params)
	}
	if err == nil {
		e.said = ""
		return byProgram(numbers)
	}
	text, lines := told(err)
	if ctx.Err() == nil && (text != e.said || time.Since(e.at) >= loggedAgain) {
		e.said, e.at = text, time.Now()
		e.log.Error("the model is not evaluated: the program fails; the rounds go on", "error", text, "lines", lines)
	}
	return evaluation{Loss: dp.Number(math.NaN()), beside: true, Failed: true, failure: shortened(err.Error(), maxFailure)}
}

// ask opens the program if it is not open, and ends it after an error.
func (e *evaluator) ask(ctx context.Context, params []float32) (numbers map[string]float64, err error) {
	if e.session == nil {
		if e.session, err = external.Open(ctx, e.config); err != nil {
			e.session = nil
			return nil, err
		}
		if err = e.session.About.Fits(int64(len(params)), e.parameters); err != nil {
			e.Close()
			return nil, err
		}
	}
	if numbers, err = e.session.Evaluate(ctx, params); err != nil {
		e.Close()
	}
	return numbers, err
}

// maxFailure is the largest length of the error of a program that is shown.
const maxFailure = 2000

func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// byProgram returns the evaluation that a program's numbers are.
func byProgram(numbers map[string]float64) evaluation {
	e := evaluation{Loss: dp.Number(numbers["loss"]), beside: true}
	finite := func(name string) *float64 {
		x, ok := numbers[name]
		if !ok || math.IsNaN(x) || math.IsInf(x, 0) {
			return nil
		}
		return &x
	}
	e.Accuracy, e.BaselineAccuracy, e.BaselineLoss = finite("accuracy"), finite("baseline_accuracy"), finite("baseline_loss")
	for name, x := range numbers {
		switch name {
		case "loss", "accuracy", "baseline_accuracy", "baseline_loss":
			continue
		}
		if e.Numbers == nil {
			e.Numbers = map[string]dp.Number{}
		}
		e.Numbers[name] = dp.Number(x)
	}
	return e
}

// figures returns all numbers of an evaluation by name.
func (e evaluation) figures() map[string]float64 {
	out := map[string]float64{}
	for name, x := range map[string]*float64{"accuracy": e.Accuracy, "baseline_accuracy": e.BaselineAccuracy, "baseline_loss": e.BaselineLoss} {
		if x != nil {
			out[name] = *x
		}
	}
	if !e.Failed {
		out["loss"] = float64(e.Loss)
	}
	for name, x := range e.Numbers {
		out[name] = float64(x)
	}
	return out
}

// program shows on the page what a program says of a model: its figures, and the best constant's.
func (e evaluation) program(t *dashboard.View) {
	if e.Failed {
		// Why is for the operator: others see this page too, and a program may say anything.
		t.Blind = "The program that evaluates the model failed; riffle task show says why."
		return
	}
	t.Evaluated = "the program's examples"
	if n, ok := e.Numbers["examples"]; ok {
		t.Evaluated = "the program's " + dashboard.Grouped(int64(n)) + " examples"
	}
	t.Numbers = e.Accuracy == nil
	b := train.Baseline{Baseline: model.Baseline{Accuracy: math.NaN(), Class: -1, Loss: math.NaN()}, Text: "the best constant, as the program says"}
	if e.BaselineLoss != nil {
		b.Loss, b.Short = *e.BaselineLoss, fmt.Sprintf("%.4g", *e.BaselineLoss)
	}
	if e.BaselineAccuracy != nil && e.Accuracy != nil {
		b.Accuracy, b.Class, b.Short = *e.BaselineAccuracy, 0, fmt.Sprintf("%.2f %%", 100**e.BaselineAccuracy)
	}
	t.Baseline = b.Short
	if b.Text = b.Short + ", " + b.Text; b.Short != "" && e.Accuracy != nil {
		t.Warning = b.NotBeaten(*e.Accuracy, float64(e.Loss))
	} else if b.Short != "" {
		t.Warning = b.NotBeaten(math.NaN(), float64(e.Loss))
	}
	for _, name := range slices.Sorted(maps.Keys(e.Numbers)) {
		if name != "examples" {
			t.Facts = append(slices.Clip(t.Facts), dashboard.Fact{Name: "Evaluation: " + name, Value: fmt.Sprintf("%.6g", float64(e.Numbers[name]))})
		}
	}
}

// evaluator tries the program that evaluates models.
func (n *inspection) evaluator(ctx context.Context, c config.Coordinator) {
	if c.Evaluate == "" {
		return
	}
	s, err := external.Open(ctx, newEvaluator(c, wire.Task{}, "", slog.New(slog.DiscardHandler)).config)
	if err != nil {
		n.add("evaluation's program", config.Errorf("evaluate: %w", err))
		return
	}
	defer s.Close()
	dim := s.About.Dim
	if _, err = s.Evaluate(ctx, make([]float32, dim)); err != nil && !errors.Is(err, ctx.Err()) {
		err = config.Errorf("evaluate: %w", err)
	}
	n.add(fmt.Sprintf("evaluation's program, %d parameters", dim), err)
}
