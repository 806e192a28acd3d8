package train

import (
	"fmt"
	"math"
	"strconv"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/run/solve"
)

// SolvedFile returns the model that a convex problem on a table ended with, in the form that
// ReadModel reads. columns has the ranges, Categories, Missing and Drop that the problem
// declared, which were scaled to 0..1.
func SolvedFile(t *solve.Setup, r solve.Result, columns DataConfig) ([]byte, error) {
	if t.Features == nil {
		return nil, inputError("only models of a CSV file are stored: those of synthetic rows have no columns")
	}
	c := Default()
	c.DataConfig = columns
	c.Data, c.Label, c.Scale, c.Classes = t.Config.Data, t.Config.Label, "", ""
	if c.Range != "" {
		c.Scale = unit
	}
	c.Model, c.Loss, c.Lambda, c.Delta, c.Trust = linear, t.Config.Loss, t.Config.Lambda, t.Config.Delta, t.Config.Trust
	data := &Data{Train: &dataset.Table{Dim: t.Model.Inputs, Classes: len(t.Classes)}, Classes: t.Classes, ClassNames: t.Classes, columns: t.Features}
	meta := c.metadata(data)
	meta["riffle.epsilon"] = strconv.FormatFloat(t.Epsilon, 'g', -1, 64)
	meta["riffle.optimizer"] = t.Config.Optimizer
	theta := make([]float32, len(r.Theta))
	for j, v := range r.Theta {
		if theta[j] = float32(v); math.IsInf(float64(theta[j]), 0) || v != v {
			return nil, fmt.Errorf("train: parameter %d is %v, which a model file cannot hold", j, v)
		}
	}
	return modelFile(t.Model, data, theta, meta)
}

// SolvedCoefficients returns the coefficients of the model that a convex problem on a table
// ended with; nil for synthetic rows.
func SolvedCoefficients(t *solve.Setup, r solve.Result) []Coefficient {
	theta := make([]float32, len(r.Theta))
	for j, v := range r.Theta {
		theta[j] = float32(v)
	}
	return newCoefficients(t.Model, theta, t.Config.Columns, t.Features, t.Classes)
}
