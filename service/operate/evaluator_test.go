package operate

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/learn/external/externaltest"
	"github.com/riffle-dp/riffle/page/dashboard"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
)

func evaluatorOf(t *testing.T, mode string, log *bytes.Buffer) *evaluator {
	t.Helper()
	e := newEvaluator(config.Coordinator{Evaluate: externaltest.Program(mode), Answer: 3 * time.Second}, wire.Task{Name: "own"}, "",
		slog.New(slog.NewTextHandler(log, nil)))
	e.config.Timeout = max(e.config.Timeout, map[bool]time.Duration{true: time.Minute}[mode != "evaluation-hangs"])
	t.Cleanup(e.Close)
	return e
}

var fiveParameters = []float32{1, 0, 0, 0, 2}

func TestProgramEvaluates(t *testing.T) {
	var log bytes.Buffer
	for _, mode := range []string{"baseline", "evaluates-once"} {
		e := evaluatorOf(t, mode, &log)
		for range 3 { // a program that has ended since is opened again
			got := e.Evaluate(t.Context(), fiveParameters).(evaluation)
			if got.Failed || got.Loss != 5 || got.Accuracy == nil || *got.Accuracy != .5 || !math.IsNaN(float64(got.Numbers["auc"])) || got.Numbers["examples"] != 100 || len(got.Numbers) != 2 {
				t.Fatalf("%s: %+v, %s", mode, got, log.String())
			}
			if (got.BaselineAccuracy != nil) != (mode == "baseline") || got.BaselineLoss != nil { // infinite
				t.Errorf("%s: %+v", mode, got)
			}
			if text, err := json.Marshal(got); err != nil || !bytes.HasPrefix(text, []byte(`{"accuracy":0.5,"loss":5,`)) || !bytes.Contains(text, []byte(`"metrics":{"auc":null,"examples":100}`)) {
				t.Errorf("%s, %v", text, err)
			}
		}
	}
	if log.Len() != 0 {
		t.Error(log.String())
	}
}

// Whatever a program does, there is an evaluation that says what was wrong: to the operator, and
// to others only that it failed. It is logged once.
func TestProgramFailsToEvaluate(t *testing.T) {
	for mode, want := range map[string]string{
		"evaluation-dies": "FileNotFoundError: test.npz", "evaluation-hangs": "asked for evaluate: it gave no answer within 3s", "percent": "must be a share", "no-loss": "lack loss", "odd-name": `"AUC" names a number`,
		"dies-open": "No module named 'torch'", "says": "no such file: data.npz", "fast=6": "the program's model has 6 parameters, the task's 5", "prints": "standard output",
	} {
		t.Run(mode, func(t *testing.T) {
			if mode == "evaluation-hangs" {
				longtest.Only(t, "its timeout, which a program needs to start, passes twice")
			}
			var log bytes.Buffer
			e := evaluatorOf(t, mode, &log)
			for range 2 {
				got := e.Evaluate(t.Context(), fiveParameters).(evaluation)
				if !got.Failed || !strings.Contains(got.failure, want) || !math.IsNaN(float64(got.Loss)) || got.Accuracy != nil {
					t.Fatalf("%+v, want %s", got, want)
				}
				text, err := json.Marshal(got)
				if err != nil || string(text) != `{"loss":null,"failed":true}` {
					t.Errorf("%s, %v", text, err)
				}
			}
			if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
				t.Errorf("logged %d times: %s", n, log.String())
			}
		})
	}
	var log bytes.Buffer
	if got := evaluatorOf(t, "nan-loss", &log).Evaluate(t.Context(), fiveParameters).(evaluation); got.Failed || !math.IsNaN(float64(got.Loss)) {
		t.Errorf("%+v", got)
	}
	e := newEvaluator(config.Coordinator{Evaluate: "unix:" + t.TempDir() + "/none"}, wire.Task{}, "", slog.New(slog.DiscardHandler))
	if got := e.Evaluate(t.Context(), fiveParameters).(evaluation); !strings.Contains(got.failure, "nothing answers there") {
		t.Errorf("%+v", got)
	}
}

// A program whose tensors are in another order than the task's would evaluate nonsense.
func TestProgramOfAnotherModelDoesNotEvaluate(t *testing.T) {
	for parameters, want := range map[string]string{"slope=2x2 offset=": "", "": "", "offset= slope=2x2": "other tensors than the task's, from number 1 on", "slope=4 offset=": "from number 1 on", "slope=2x2 bias=": "from number 2 on"} {
		var log bytes.Buffer
		e := evaluatorOf(t, "learn", &log)
		e.parameters = parameters
		if got := e.Evaluate(t.Context(), fiveParameters).(evaluation); got.Failed != (want != "") || !strings.Contains(got.failure, want) {
			t.Errorf("%q: %+v", parameters, got)
		}
	}
}

// A stop does not wait for a program that hangs.
func TestHangingEvaluationEndsWithItsProcess(t *testing.T) {
	for _, mode := range []string{"evaluation-hangs", "deaf"} {
		var log bytes.Buffer
		e := evaluatorOf(t, mode, &log)
		e.config.Timeout = time.Hour
		// Enough for the program to be asked, on most machines. Whenever the end comes, nothing waits for it.
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		e.Evaluate(ctx, fiveParameters)
		e.Close()
		cancel()
	}
}

func TestPageShowsProgramsNumbers(t *testing.T) {
	c := train.Default()
	c.Model, c.Dim, c.Rounds = "external", 5, 3
	made, err := train.NewTask(t.Context(), "own", c, train.Enrolled{Population: wire.ID{1}, Clients: 40, MinReports: 10})
	if err != nil {
		t.Fatal(err)
	}
	id := [32]byte{1}
	see := func(program string, e any) dashboard.View {
		v := &pageWriter{process: &coordinatorProcess{tasks: map[[32]byte]*train.Setup{id: made}}, plans: map[[32]byte]chan costs{id: make(chan costs, 1)}}
		v.process.config.Evaluate = program
		v.plans[id] <- costs{planned: 1}
		return v.task(t.Context(), "a", wire.Status{ID: id, State: coordinator.Running, Evaluation: e}, &shownTask{accuracy: math.NaN(), loss: math.NaN()})
	}
	numbers := map[string]float64{"loss": .5, "accuracy": .75, "baseline_accuracy": .8, "examples": 12000, "auc": .9}
	got := see("x", byProgram(numbers))
	if float64(got.Accuracy) != .75 || float64(got.Loss) != .5 || got.Evaluated != "the program's 12,000 examples" || got.Baseline != "80.00 %" || got.Numbers || got.Blind != "" ||
		!strings.HasPrefix(got.Warning, "accuracy 75.00 % is no better than the baseline: 80.00 %") || got.Facts[len(got.Facts)-1] != (dashboard.Fact{Name: "Evaluation: auc", Value: "0.9"}) {
		t.Errorf("%+v", got)
	}
	if got := see("x", byProgram(map[string]float64{"loss": 2, "baseline_loss": 3})); !got.Numbers || got.Warning != "" || got.Baseline != "3" {
		t.Errorf("%+v", got)
	}
	hostile := evaluation{Loss: dp.Number(math.NaN()), Failed: true, beside: true, failure: `program "x" <script>alert(1)</script>` + strings.Repeat("y", 1000) + "; its last lines:\n  | secret path"}
	if got := see("x", hostile); !strings.Contains(got.Blind, "failed; riffle task show says why") || strings.Contains(got.Blind, "alert") || strings.Contains(got.Blind, "secret") || !math.IsNaN(float64(got.Accuracy)) {
		t.Errorf("%q", got.Blind)
	}
	if got := see("", nil); !strings.Contains(got.Blind, "evaluate in its configuration") {
		t.Errorf("%q", got.Blind)
	}
	if got := see("x", nil); got.Blind != "" {
		t.Errorf("%q", got.Blind)
	}
}

func TestEvaluationMetrics(t *testing.T) {
	text := map[string]float64{}
	for _, m := range coordinatorMetrics([]wire.Status{
		{ID: [32]byte{1}, Evaluation: byProgram(map[string]float64{"loss": .5, "auc": .9})},
		{ID: [32]byte{2}, Evaluation: evaluation{Loss: dp.Number(math.NaN()), beside: true, Failed: true}},
	}) {
		for _, s := range m.Samples {
			text[m.Name+" "+strings.Join(s.Labels, " ")] = s.Value
		}
	}
	for key, want := range map[string]float64{
		"riffle_evaluation task 0100000000000000 number auc": .9, "riffle_evaluation task 0100000000000000 number loss": .5,
		"riffle_evaluation_failed task 0100000000000000": 0, "riffle_evaluation_failed task 0200000000000000": 1,
	} {
		if got, ok := text[key]; !ok || got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
}
