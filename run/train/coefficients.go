package train

import (
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/model"
)

// Coefficient is what one column of a table adds to a linear model's score, for 1 in the
// column's own units; the last one of a class is Intercept's, the score where all columns are 0.
type Coefficient struct {
	Column string `json:"column"`
	// Class names the class whose score it is: of two classes with one score the second. Empty:
	// the score is the number to predict, in the label's own units.
	Class string    `json:"class,omitempty"`
	Value dp.Number `json:"value"`
}

// Intercept is the name of a coefficient that belongs to no column.
const Intercept = "(intercept)"

// newCoefficients returns the coefficients of a linear model whose features are the named ones
// of a table, class by class; nil for other models. A binary loss has one score, that of the
// second class: for the logistic loss its log-odds.
func newCoefficients(m *model.Model, theta []float32, declared dataset.CSVConfig, features, classes []string) (out []Coefficient) {
	scores := max(1, len(classes))
	switch {
	case !m.Convex || m.Inputs != len(features) || len(features) == 0:
		return nil
	case m.Loss.Name != "":
		classes, scores = classes[min(1, len(classes)):], 1
	}
	if len(theta) < m.Inputs*scores {
		return nil
	}
	for k := range scores {
		weights, intercept, class := make([]float64, m.Inputs), 0.0, ""
		for j := range weights {
			weights[j] = float64(theta[j*scores+k])
		}
		if at := m.Inputs*scores + k; at < len(theta) {
			intercept = float64(theta[at])
		}
		if k < len(classes) {
			class = classes[k]
		}
		intercept = declared.Unscale(features, weights, intercept)
		for j, name := range features {
			out = append(out, Coefficient{name, class, dp.Number(weights[j])})
		}
		out = append(out, Coefficient{Intercept, class, dp.Number(intercept)})
	}
	return out
}

// coefficients returns those of a model that learned from a table without principal axes.
func (c Config) coefficients(m *model.Model, theta []float32, columns, classes []string) []Coefficient {
	if !c.isTable() || c.network() {
		return nil
	}
	declared, err := c.declared()
	if err != nil {
		return nil // another check reports malformed declarations
	}
	return newCoefficients(m, theta, declared, slices.Clone(columns), classes)
}

// isTable says whether the model's data are a table, also where the file is not known.
func (c DataConfig) isTable() bool { return c.Label != "" }

// Coefficients returns those of a linear model of a table; nil for other models.
func (s *Stored) Coefficients() []Coefficient {
	return s.config.coefficients(s.Model, s.Theta, s.columns, s.labels)
}
