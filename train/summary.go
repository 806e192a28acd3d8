package train

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/model"
	"github.com/riffle-dp/riffle/safetensors"
)

// Summary is what a finished run came to; summary.json holds it. Either the
// test or the validation figures are present; a regression has no accuracy.
type Summary struct {
	TestAccuracy       *float64 `json:"test_accuracy,omitempty"`
	TestLoss           *float64 `json:"test_loss,omitempty"`
	ValidationAccuracy *float64 `json:"validation_accuracy,omitempty"`
	ValidationLoss     *float64 `json:"validation_loss,omitempty"`
	// The baseline is what the best constant reaches on the same examples.
	BaselineAccuracy *float64 `json:"baseline_accuracy,omitempty"`
	BaselineLoss     *float64 `json:"baseline_loss,omitempty"`
	// LabelUnit times a loss is in the units of the column to predict; absent where
	// that was not scaled.
	LabelUnit float64 `json:"label_unit,omitempty"`
	// Warnings are what to look at before the model is used.
	Warnings         []string `json:"warnings,omitempty"`
	Epsilon          Number   `json:"epsilon"`
	Delta            float64  `json:"delta"`
	Bound            string   `json:"bound"`
	BoundSource      string   `json:"bound_source"`
	EpsilonBest      Number   `json:"epsilon_best"`
	Rounds           int64    `json:"rounds"`
	N                int64    `json:"n"`
	Seconds          float64  `json:"seconds"`
	ClientGradients  int64    `json:"client_gradients"`
	ClientsPerSecond float64  `json:"clients_per_second"`
	Seed             int64    `json:"seed"`
	ModelParameters  int      `json:"model_parameters"`
	Optimizer        string   `json:"optimizer"`
	// ExcessBound is a convex optimiser's bound on its expected excess loss; absent
	// where gradients are clipped or a plan's rounds were not all run.
	ExcessBound *Number `json:"excess_bound,omitempty"`

	Evaluation *model.Evaluation `json:"-"`
	Baseline   model.Baseline    `json:"-"`
}

// Accuracy returns the accuracy on the evaluation set, NaN for a regression.
func (s *Summary) Accuracy() float64 { return s.Evaluation.Accuracy() }

func (r *Run) finish() (*Summary, error) {
	e, err := r.Evaluate()
	if err != nil {
		return nil, err
	}
	spent, err := r.coordinator.Spent()
	if err != nil {
		return nil, err
	}
	s := &Summary{
		Epsilon: Number(spent.Eps), Delta: r.Config.Delta, Bound: spent.Method, BoundSource: spent.Source,
		EpsilonBest: Number(spent.Eps), Rounds: r.coordinator.Round(), N: r.Config.Population,
		Seconds: r.seconds(), ClientGradients: r.reports, Seed: r.Config.Seed, ModelParameters: r.Model.Params(),
		Optimizer: r.Config.Optimizer, Evaluation: e,
	}
	if bound, ok := r.ExcessBound(); ok && r.optimizer.State().Steps == r.Config.Rounds {
		s.ExcessBound = &bound
	}
	s.ClientsPerSecond = float64(s.ClientGradients) / s.Seconds
	var accuracy *float64
	if a := e.Accuracy(); !math.IsNaN(a) {
		accuracy = &a
	}
	if r.Data.EvalName == "test" {
		s.TestAccuracy, s.TestLoss = accuracy, &e.Loss
	} else {
		s.ValidationAccuracy, s.ValidationLoss = accuracy, &e.Loss
	}
	s.Baseline, s.Warnings = r.Baseline(), r.Data.Warnings
	s.BaselineLoss = &s.Baseline.Loss
	if s.Baseline.Class >= 0 {
		s.BaselineAccuracy = &s.Baseline.Accuracy
	}
	if unit := r.Config.labelUnit(); unit != 1 {
		s.LabelUnit = unit
	}
	if text := notBeaten(s.Baseline, e, r.Data.Classes, r.Data.EvalName); text != "" {
		s.Warnings = append(slices.Clip(s.Warnings), text)
	}
	if err := r.writeModel(s); err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, err
	}
	return s, durable.WriteFile(filepath.Join(r.Dir, SummaryFile), append(text, '\n'))
}

// writeModel stores the released parameters with what is needed to use them
// again. It holds nothing that differs between a run and its resumption.
func (r *Run) writeModel(s *Summary) error {
	tensors, err := r.Model.Tensors(r.Parameters())
	if err != nil {
		return err
	}
	meta := map[string]string{
		"riffle.model":   r.Config.Model,
		"riffle.inputs":  strconv.Itoa(r.Model.Inputs()),
		"riffle.classes": strconv.Itoa(r.Data.Train.Classes),
		"riffle.epsilon": strconv.FormatFloat(float64(s.Epsilon), 'g', -1, 64),
		"riffle.delta":   strconv.FormatFloat(s.Delta, 'g', -1, 64),
		"riffle.bound":   s.Bound,
		"riffle.trust":   r.Config.Trust,
	}
	set := func(key, value string) {
		if value != "" {
			meta["riffle."+key] = value
		}
	}
	set("loss", r.Config.Loss)
	set("label", r.Config.Label)
	set("range", r.Config.Range)
	set("scale", r.Config.Scale)
	if r.Data.rows > 0 { // so that the rows that trained it can be told from the others
		set("rows", strconv.Itoa(r.Data.rows))
		set("seed", strconv.FormatInt(r.Config.Seed, 10))
		set("test-fraction", strconv.FormatFloat(r.Config.TestFraction, 'g', -1, 64))
	}
	for key, names := range map[string][]string{"columns": r.Data.columns, "labels": r.Data.Classes} {
		if len(names) == 0 {
			continue
		}
		text, err := json.Marshal(names)
		if err != nil {
			return err
		}
		set(key, string(text))
	}
	if r.Data.PCA != nil {
		tensors = append(tensors, r.Data.PCA.Tensors()...)
		set("public", strconv.Itoa(r.Data.Public))
	}
	raw, err := safetensors.Marshal(safetensors.File{Tensors: tensors, Metadata: meta})
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(r.Dir, ModelFile), raw)
}
