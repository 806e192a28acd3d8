package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/safetensors"
	"github.com/riffle-dp/riffle/learn/external/externaltest"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/run/simulate"
)

// A heap of a few megabytes is collected a hundred times a second. Five times as large it costs a tenth less.
var _ = debug.SetGCPercent(400)

func TestMain(m *testing.M) {
	externaltest.Main()
	os.Exit(m.Run())
}

// bowl is a short run of a program whose loss is the squared length of five parameters.
func bowl(mode string, change func(*Config)) Config {
	c := Default()
	c.Gradients, c.Trust, c.Rounds, c.EvalEvery, c.CheckpointEvery = externaltest.Program(mode), dp.None, 12, 3, 2
	if change != nil {
		change(&c)
	}
	return c
}

func preparedRun(t *testing.T, c Config) *Run {
	t.Helper()
	r, err := Prepare(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func trained(t *testing.T, c Config) (*Run, *Summary) {
	t.Helper()
	r := preparedRun(t, c)
	if err := r.Create(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	s, err := r.Train(t.Context(), Observer{})
	if err != nil {
		t.Fatal(err)
	}
	return r, s
}

func TestExternalRun(t *testing.T) {
	r, s := trained(t, bowl("learn", func(c *Config) { c.LR = "0.1"; c.Clip = 10 }))
	if r.Config.Model != "external" || r.Config.Population != externaltest.Clients || r.Model.Params != externaltest.Dim || r.Model.Name != "bowl" {
		t.Errorf("%s, %d clients, %d parameters, %s", r.Config.Model, r.Config.Population, r.Model.Params, r.Model.Name)
	}
	if !(*s.TestLoss < .7) || *s.TestAccuracy != .5 || s.BaselineLoss != nil || s.BaselineAccuracy != nil || !math.IsNaN(float64(s.Numbers["auc"])) || len(s.Numbers) != 1 || s.Evaluation.Examples != 100 {
		t.Errorf("loss %v, %+v", *s.TestLoss, s)
	}
	if len(s.Warnings) != 0 {
		t.Errorf("warnings %q", s.Warnings)
	}
	raw, err := os.ReadFile(filepath.Join(r.Dir, ModelFile))
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Unmarshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	slope, ok := f.Find("slope")
	if v, err := safetensors.Values[float32](slope); !ok || err != nil || fmt.Sprint(slope.Shape) != "[2 2]" || !(math.Abs(float64(v[0])) < .7) {
		t.Errorf("slope %v %v, %v", slope.Shape, v, err)
	}
	if offset, ok := f.Find("offset"); !ok || len(offset.Shape) != 0 || len(f.Tensors) != 2 {
		t.Errorf("tensors %+v", f.Tensors)
	}
	lines, err := os.ReadFile(filepath.Join(r.Dir, MetricsFile))
	if err != nil || strings.Count(string(lines), "\n") != 4 || !strings.Contains(string(lines), `"metrics":{"auc":null}`) {
		t.Errorf("metrics %s, %v", lines, err)
	}
	text, err := os.ReadFile(filepath.Join(r.Dir, ConfigFile))
	if err != nil || !strings.Contains(string(text), "model: external") || !strings.Contains(string(text), "gradients: ") || strings.Contains(string(text), "data: mnist") {
		t.Errorf("configuration %s, %v", text, err)
	}
}

// TestExternalModelRead lets programs evaluate the model that a program computed.
func TestExternalModelRead(t *testing.T) {
	r, s := trained(t, bowl("learn", func(c *Config) { c.LR = "0.1"; c.Clip = 10 }))
	stored, err := ReadModel(r.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if stored.Name != "external" || len(stored.Theta) != externaltest.Dim || fmt.Sprint(stored.Theta) != fmt.Sprint(r.Theta()) {
		t.Errorf("%s, %v, the run has %v", stored.Name, stored.Theta, r.Theta())
	}
	e, err := stored.TestBy(t.Context(), externaltest.Program("learn"), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e.Loss != *s.TestLoss || e.Accuracy != .5 || e.Examples != 100 || len(e.Numbers) != 1 || !math.IsNaN(e.Numbers["auc"]) || e.Confusion != nil || !e.Baseline.unknown() {
		t.Errorf("%+v, the run ended with %v", e, *s.TestLoss)
	}
	for mode, want := range map[string]string{
		"fast=7":     "the program's model has 7 parameters, this one 5",
		"parameters": "another program, or other options of it, computed this model",
		"dies-open":  "No module named 'torch'",
		"no-loss":    "another program",
	} {
		if _, err := stored.TestBy(t.Context(), externaltest.Program(mode), 0, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", mode, err, want)
		}
	}
	if _, err := stored.Test("mnist", false, 1); err == nil || !strings.Contains(err.Error(), "only a program evaluates it") {
		t.Errorf("without a program: %v", err)
	}
	if _, err := stored.Predict("x.csv", 1); err == nil || !strings.Contains(err.Error(), "cannot predict") {
		t.Errorf("predicts: %v", err)
	}

	// The file's order of tensors does not matter.
	raw, err := os.ReadFile(filepath.Join(r.Dir, ModelFile))
	if err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Unmarshal(raw)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		f.Tensors[0].Data[4*i+3] ^= byte(i) // four different values
	}
	f.Tensors[0], f.Tensors[1] = f.Tensors[1], f.Tensors[0]
	turned := filepath.Join(t.TempDir(), "turned.safetensors")
	if raw, err = safetensors.Marshal(f); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(turned, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if stored, err = ReadModel(turned); err != nil {
		t.Fatal(err)
	}
	theta, err := stored.inOrder(r.Model)
	if slope, err := safetensors.Values[float32](f.Tensors[1]); err != nil || len(theta) != 5 || fmt.Sprint(theta[:4]) != fmt.Sprint(slope) {
		t.Errorf("%v, want first %v, %v", theta, slope, err)
	}
	if err != nil {
		t.Error(err)
	}
}

// TestExternalIsExact compares a run with the sums of the program's own formula.
func TestExternalIsExact(t *testing.T) {
	r, _ := trained(t, bowl("learn", func(c *Config) {
		c.Rounds, c.LR, c.Clip, c.Average = 1, "0.25", 100, 0
	}))
	theta := []float32{1, -1, 1, -1, 1}
	for j, got := range r.Theta() {
		mean := 0.0
		for id := range int64(externaltest.Clients) {
			mean += float64(externaltest.Learnable(theta, id, j)) / externaltest.Clients
		}
		if want := float64(theta[j]) - .25*mean; math.Abs(float64(got)-want) > 1e-4 {
			t.Errorf("parameter %d is %v, want %v", j, got, want)
		}
	}
}

func TestExternalDelta(t *testing.T) {
	r, s := trained(t, bowl("learn-delta", func(c *Config) { c.Average = 0; c.Clip = 10 }))
	if r.Config.LR != "1" || r.Config.Momentum.Value != 0 {
		t.Errorf("lr %s, momentum %v", r.Config.LR, r.Config.Momentum)
	}
	// Each round shrinks the distance to .8³.
	if *s.TestLoss > 1e-3 {
		t.Errorf("loss %v", *s.TestLoss)
	}
	r, s = trained(t, bowl("learn-delta", func(c *Config) { c.Momentum.Given, c.Momentum.Value = true, .5; c.Average = 0; c.Clip = 10 }))
	if r.Config.LR != "0.5" || *s.TestLoss > .1 {
		t.Errorf("lr %s, loss %v", r.Config.LR, *s.TestLoss)
	}
}

// TestExternalAdam takes Adam's steps on the mean of gradients, and of changes (FedAdam).
func TestExternalAdam(t *testing.T) {
	for _, mode := range []string{"learn", "learn-delta"} {
		r, s := trained(t, bowl(mode, func(c *Config) { c.Optimizer, c.Rounds, c.LR, c.Average, c.Clip = "adam", 20, "0.1", 0, 10 }))
		if r.Config.Momentum.Value != usualMomentum || *s.TestLoss > .5 || s.Optimizer != "adam" {
			t.Errorf("%s: momentum %v, loss %v", mode, r.Config.Momentum, *s.TestLoss)
		}
	}
	r := preparedRun(t, bowl("learn-delta", func(c *Config) { c.Optimizer = "adam" }))
	if r.Config.LR != adamRate {
		t.Errorf("lr %s", r.Config.LR)
	}
}

// TestExternalEverywhere runs a program in every trust mode, with all participations, randomizers
// and ways to send.
func TestExternalEverywhere(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"shuffle":            func(c *Config) { c.Trust = dp.Shuffle },
		"seeds":              func(c *Config) { c.Trust, c.Encoding = dp.Shuffle, "seed" },
		"stepunit":           func(c *Config) { c.Trust, c.Randomizer = dp.Shuffle, "stepunit" },
		"messages":           func(c *Config) { c.Trust, c.Messages, c.Eps0 = dp.Shuffle, 3, 1 },
		"rinf":               func(c *Config) { c.Trust, c.Randomizer = dp.Shuffle, "rinf" },
		"rinf by coordinate": func(c *Config) { c.Trust, c.Randomizer, c.ClipMode = dp.Shuffle, "rinf", client.ClipCoordinate },
		"r1":                 func(c *Config) { c.Trust, c.Randomizer = dp.Shuffle, "r1" },
		"local":              func(c *Config) { c.Trust = dp.Local },
		"distributed":        func(c *Config) { c.Trust = dp.Distributed },
		"vector-sum":         func(c *Config) { c.Trust = dp.VectorSum },
		"shares":             func(c *Config) { c.Trust, c.Transport = dp.VectorSum, shares },
		"sampled":            func(c *Config) { c.Trust, c.Participation, c.K = dp.Shuffle, dp.Sampled, 300 },
		"check-in":           func(c *Config) { c.Trust, c.Participation, c.Gamma = dp.Shuffle, dp.CheckIn, .3 },
		"once":               func(c *Config) { c.Trust, c.Participation, c.K = dp.Shuffle, dp.Once, 200 },
		"dropout":            func(c *Config) { c.Trust, c.Dropout = dp.Shuffle, .2 },
		"void":               func(c *Config) { c.Trust, c.NMin, c.Dropout = dp.Shuffle, externaltest.Clients, .01 },
		"budget":             func(c *Config) { c.Trust, c.Epsilon, c.Eps0, c.Rounds = dp.Shuffle, 1, 1, 0 },
		"fewer clients":      func(c *Config) { c.Trust, c.Population = dp.Shuffle, 321 },
	} {
		if slices.Contains([]string{"stepunit", "messages", "rinf", "r1", "distributed", "check-in"}, name) && !longtest.On {
			continue // runs of tables have them
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s := trained(t, bowl("learn", func(c *Config) {
				c.Rounds = 3
				change(c)
				if c.Epsilon != 0 {
					c.EvalEvery = 1e6
				}
			}))
			if s.Rounds != r.Config.Rounds || name != "void" && s.ClientGradients == 0 {
				t.Errorf("%d rounds, %d gradients", s.Rounds, s.ClientGradients)
			}
			if eps := float64(s.Epsilon); !(eps >= 0) || r.Config.Trust.Is(dp.Protecting) && math.IsInf(eps, 1) {
				t.Errorf("epsilon %v", eps)
			}
			if n := r.Config.Population; name == "fewer clients" && (n != 321 || s.ClientGradients != 3*321) {
				t.Errorf("%d clients, %d gradients", n, s.ClientGradients)
			}
		})
	}
}

// TestExternalResume stops a run in the middle of a round, and continues it.
func TestExternalResume(t *testing.T) {
	config := bowl("learn", func(c *Config) { c.Trust, c.Eps0 = dp.Shuffle, 2 })
	whole, _ := trained(t, config)
	r := preparedRun(t, config)
	dir := t.TempDir()
	if err := r.Create(dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	rounds := 0
	_, err := r.Train(ctx, Observer{
		Round: func(simulate.Result) { rounds++ },
		Reports: func(int64) {
			if rounds == 5 {
				cancel()
			}
		},
	})
	if !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	if _, err := r.Summary(); err != nil { // the page of an interrupted run
		t.Error(err)
	}
	r.Close()
	if _, err := Resume(t.Context(), dir, func(c *Config) { c.Workers = 1 }); err == nil || !strings.Contains(err.Error(), "that only a file names") {
		t.Errorf("a program that only the directory names: %v", err)
	}
	again, err := Resume(t.Context(), dir, func(c *Config) { c.Workers = 1; c.AnswerSeconds = 30; c.Gradients = config.Gradients })
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if again.Resumed != 5 {
		t.Errorf("resumed after round %d", again.Resumed)
	}
	if _, err := again.Train(t.Context(), Observer{}); err != nil {
		t.Fatal(err)
	}
	a, err := os.ReadFile(filepath.Join(whole.Dir, ModelFile))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, ModelFile))
	if err != nil || !bytes.Equal(a, b) {
		t.Errorf("another model, %v", err)
	}
	if len(again.Metrics) != len(whole.Metrics) {
		t.Errorf("%d lines of metrics, want %d", len(again.Metrics), len(whole.Metrics))
	}
}

// TestExternalFails keeps what was finished when the program fails.
func TestExternalFails(t *testing.T) {
	for mode, want := range map[string]string{"dies": "MemoryError", "prints-later": "step 2, loss 0.31", "wrong-dim": "want one tensor gradients"} {
		r := preparedRun(t, bowl(mode, func(c *Config) { c.Rounds = 2 }))
		if err := r.Create(t.TempDir()); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Train(t.Context(), Observer{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", mode, err)
		}
		if _, err := os.Stat(filepath.Join(r.Dir, CheckpointFile)); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if r.Round != 0 || len(r.Charged) > 0 {
			t.Errorf("%s: round %d, %d charges", mode, r.Round, len(r.Charged))
		}
	}
	for mode, want := range map[string]string{"dies-open": "ModuleNotFoundError", "no-loss": "lack loss", "other-clients": "asked for are 7"} {
		if _, err := Prepare(t.Context(), bowl(mode, func(c *Config) { c.Population = 7 })); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", mode, err)
		}
	}
	r := preparedRun(t, bowl("nan", func(c *Config) { c.Rounds = 1 }))
	if err := r.Create(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Train(t.Context(), Observer{}); err != nil || r.Odd() != 200 {
		t.Errorf("%d odd values, %v", r.Odd(), err)
	}
}

func TestExternalRefuses(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"go with model external":         func(c *Config) { c.Model = "cnn" },
		"it has the data":                func(c *Config) { c.Data = "table.csv" },
		"data, label":                    func(c *Config) { c.Label = "y" },
		"what describes columns":         func(c *Config) { c.Missing = "age=40" },
		"examples-per-client":            func(c *Config) { c.PerClient = 2 },
		"it decides":                     func(c *Config) { c.Validation = 2 },
		"needs a convex loss":            func(c *Config) { c.Optimizer = "agd" },
		"steps of adam":                  func(c *Config) { c.Gradients, c.Optimizer, c.LR, c.Radius = "", "adam", "theorem3", 1 },
		"lr theorem3":                    func(c *Config) { c.LR, c.Radius = "theorem3", 1 },
		"a simulation has no liars":      func(c *Config) { c.Guard = "loss:1" },
		"go with gradients, the program": func(c *Config) { c.Gradients, c.Model = "", "external" },
		"answer-seconds go with":         func(c *Config) { c.Gradients, c.AnswerSeconds = "", 5 },
		"it cannot be started":           func(c *Config) { c.Gradients = "/nowhere/at/all" },
	} {
		if _, err := Prepare(t.Context(), bowl("learn", change)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	c := bowl("learn", func(c *Config) { c.Trust = dp.Shuffle })
	if err := c.networked(); err == nil || !strings.Contains(err.Error(), "simulated only") {
		t.Errorf("over a network: %v", err)
	}
}

// However long rows are, and also after values that are not finite became 0, a client moves the
// mean by no more than the clip.
func TestExternalRowsAreClipped(t *testing.T) {
	for _, mode := range []string{"longest", "longest-delta"} {
		r, _ := trained(t, bowl(mode, func(c *Config) {
			c.Rounds, c.LR, c.Clip, c.Average, c.Momentum = 1, "1", .25, 0, given(0)
		}))
		square := 0.0
		for j, x := range r.Theta() {
			d := float64(x) - float64(r.Model.Init(uint64(r.Config.Seed))[j])
			square += d * d
		}
		if moved := math.Sqrt(square); !(moved > .2 && moved <= .25*(1+1e-6)) {
			t.Errorf("%s: the model moved by %v, clip .25", mode, moved)
		}
		if r.Odd() == 0 {
			t.Error("no value was infinite")
		}
	}
}
