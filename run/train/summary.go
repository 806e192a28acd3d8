package train

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/internal/safetensors"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Summary is the result of a finished run; summary.json holds it. Either the test or the
// validation figures are present; a regression has no accuracy.
type Summary struct {
	TestAccuracy       *float64 `json:"test_accuracy,omitempty"`
	TestLoss           *float64 `json:"test_loss,omitempty"`
	ValidationAccuracy *float64 `json:"validation_accuracy,omitempty"`
	ValidationLoss     *float64 `json:"validation_loss,omitempty"`
	// The baseline is the best constant's result on the same examples.
	BaselineAccuracy *float64 `json:"baseline_accuracy,omitempty"`
	BaselineLoss     *float64 `json:"baseline_loss,omitempty"`
	// Numbers are the other figures that a program measured, or of a table all figures.
	Numbers map[string]dp.Number `json:"metrics,omitempty"`
	// Private is what clients measured of the model at last, with evaluate private.
	Private *Measured `json:"private,omitempty"`
	// LabelUnit is the factor that turns a loss into the units of the column to predict; absent
	// if that was not scaled.
	LabelUnit float64 `json:"label_unit,omitempty"`
	// Coefficients are those of a linear model of a table, in the columns' own units.
	Coefficients []Coefficient `json:"coefficients,omitempty"`
	// Warnings are problems to look at before the model is used.
	Warnings    []string  `json:"warnings,omitempty"`
	Epsilon     dp.Number `json:"epsilon"`
	Delta       float64   `json:"delta"`
	Bound       string    `json:"bound"`
	BoundSource string    `json:"bound_source"`
	EpsilonBest dp.Number `json:"epsilon_best"`
	// EpsilonKnowsWho is the cost of the rounds to somebody who knows who took part in each, for a client in every round; absent where
	// no chance is credited, so that it is Epsilon.
	EpsilonKnowsWho *dp.Number `json:"epsilon_knows_who,omitempty"`
	// Messages is the number of messages of each client in a round, and LocalEpsilon what they
	// promise together without a shuffler; absent for one.
	Messages         int64   `json:"messages,omitempty"`
	LocalEpsilon     float64 `json:"local_epsilon,omitempty"`
	Rounds           int64   `json:"rounds"`
	N                int64   `json:"n"`
	Seconds          float64 `json:"seconds"`
	ClientGradients  int64   `json:"client_gradients"`
	ClientsPerSecond float64 `json:"clients_per_second"`
	Seed             int64   `json:"seed"`
	ModelParameters  int     `json:"model_parameters"`
	Optimizer        string  `json:"optimizer"`
	// ExcessBound is a convex optimiser's bound on its expected excess loss; absent if
	// gradients are clipped or not all of a plan's rounds were run.
	ExcessBound *dp.Number `json:"excess_bound,omitempty"`

	Evaluation *model.Evaluation `json:"-"`
	Baseline   Baseline          `json:"-"`
}

// Summary returns the run's result so far. It writes nothing.
func (r *Run) Summary() (*Summary, error) {
	e, err := r.Evaluate(r.Theta())
	if err != nil {
		return nil, err
	}
	spent, err := r.coordinator.Spent()
	if err != nil {
		return nil, err
	}
	s := &Summary{
		Epsilon: dp.Number(spent.Eps), Delta: r.Config.Delta, Bound: spent.Method, BoundSource: spent.Source,
		EpsilonBest: dp.Number(spent.Eps), Rounds: r.Round, N: r.Config.Population,
		Seconds: r.seconds(), ClientGradients: r.Reports, Seed: r.Config.Seed, ModelParameters: r.Model.Params,
		Optimizer: r.Config.Optimizer, Evaluation: e,
	}
	if r.Round > 0 {
		so := *r.Setup
		so.Config.Rounds = r.Round
		known, differs, err := so.PlannedKnowsWho(context.Background())
		if err != nil {
			return nil, err
		}
		if eps := dp.Number(known.Eps); differs {
			s.EpsilonKnowsWho = &eps
		}
	}
	if m := r.Config.Messages; m > 1 {
		s.Messages = m
		_, s.LocalEpsilon = r.LocalEps()
	}
	if r.Steps == r.Config.Rounds {
		s.ExcessBound = r.ExcessBound
	}
	s.ClientsPerSecond = float64(s.ClientGradients) / s.Seconds
	var accuracy *float64
	if a := e.Accuracy; !math.IsNaN(a) {
		accuracy = &a
	}
	if r.Data.EvalName == "test" {
		s.TestAccuracy, s.TestLoss = accuracy, &e.Loss
	} else {
		s.ValidationAccuracy, s.ValidationLoss = accuracy, &e.Loss
	}
	s.Baseline, s.Warnings = r.Baseline, r.Data.Warnings
	s.BaselineLoss, s.BaselineAccuracy = s.Baseline.figures()
	s.Numbers = numbers(e)
	if s.Private, err = r.measured(); err != nil {
		return nil, err
	}
	if r.Config.isCSV() {
		s.Numbers = besideBaseline(s.Numbers, e, s.Baseline)
	}
	s.Coefficients = r.Config.coefficients(r.Model, r.Theta(), r.Data.columns, r.Data.Classes)
	if unit := r.Config.labelUnit(); unit != 1 {
		s.LabelUnit = unit
	}
	text := s.Baseline.NotBeaten(e.Accuracy, e.Loss)
	if s.Baseline.Weighted {
		text = weightedWarning(s.Numbers["weighted_accuracy"], s.Numbers["baseline_weighted_accuracy"])
	}
	if text != "" {
		s.Warnings = append(slices.Clip(s.Warnings), text)
	}
	return s, nil
}

func (r *Run) finish() (*Summary, error) {
	s, err := r.Summary()
	if err != nil {
		return nil, err
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

// writeModel stores the released parameters with everything needed to use them again. The
// file does not depend on whether the run was interrupted.
func (r *Run) writeModel(s *Summary) error {
	meta := r.Config.metadata(r.Data)
	meta["riffle.epsilon"] = strconv.FormatFloat(float64(s.Epsilon), 'g', -1, 64)
	meta["riffle.bound"] = s.Bound
	if r.Data.rows > 0 || r.Data.pictures > 0 { // so that what trained it can be told from the rest
		for key, n := range map[string]int{"riffle.rows": r.Data.rows, "riffle.pictures": r.Data.pictures} {
			if n > 0 {
				meta[key] = strconv.Itoa(n)
			}
		}
		meta["riffle.seed"] = strconv.FormatInt(r.Config.Seed, 10)
		meta["riffle.test-fraction"] = strconv.FormatFloat(r.Config.TestFraction, 'g', -1, 64)
	}
	raw, err := modelFile(r.Model, r.Data, r.Theta(), meta)
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(r.Dir, ModelFile), raw)
}

// ModelFile returns the model that a task over a network released after a round, in the form
// that ReadModel reads, with its origin. epsilon is the cost at the task's delta of everything
// charged until now, by the bound's method; head is the digest of the ledger's last entry then.
func (t *Setup) ModelFile(round int64, theta []float32, epsilon float64, bound string, head [32]byte) ([]byte, error) {
	if len(theta) != t.Model.Params {
		return nil, fmt.Errorf("train: %d parameters, the task's model has %d", len(theta), t.Model.Params)
	}
	meta := t.Config.metadata(t.Data)
	id := wire.Digest(t.Wire)
	meta["riffle.epsilon"] = strconv.FormatFloat(epsilon, 'g', -1, 64)
	meta["riffle.bound"] = bound
	meta["riffle.task"], meta["riffle.task-id"] = t.Wire.Name, hex.EncodeToString(id[:])
	meta["riffle.round"] = strconv.FormatInt(round, 10)
	if head != [32]byte{} {
		meta["riffle.ledger-head"] = hex.EncodeToString(head[:])
	}
	return modelFile(t.Model, t.Data, theta, meta)
}

// metadata returns a model file's metadata about a resolved configuration.
func (c Config) metadata(d *Data) map[string]string {
	meta := map[string]string{"riffle.classes": strconv.Itoa(d.Train.Classes)}
	for _, f := range c.Fields() {
		if text := f.String(); text != "" && slices.Contains([]string{"model", "loss", "label", "range", "scale", "categories", "missing", "drop", "class-weights", "image-size", "image-colours", "delta", "trust"}, f.Name) {
			meta["riffle."+f.Name] = text
		}
	}
	return meta
}

// modelFile adds metadata about the data, and encodes the file.
func modelFile(m *model.Model, d *Data, theta []float32, meta map[string]string) ([]byte, error) {
	tensors, err := m.Tensors(theta)
	if err != nil {
		return nil, err
	}
	meta["riffle.inputs"] = strconv.Itoa(m.Inputs)
	for key, names := range map[string][]string{"columns": d.columns, "labels": d.ClassNames} {
		if len(names) == 0 {
			continue
		}
		text, err := json.Marshal(names)
		if err != nil {
			return nil, err
		}
		meta["riffle."+key] = string(text)
	}
	if d.PCA != nil {
		tensors = append(tensors, d.PCA.Tensors()...)
		meta["riffle.public"] = strconv.Itoa(d.Public)
	}
	return safetensors.Marshal(safetensors.File{Tensors: tensors, Metadata: meta})
}
