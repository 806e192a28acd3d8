package train

import (
	"slices"
	"strconv"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/model"
)

// Predict returns what the model predicts for each row of a table, whose label column may be
// absent. The first row of the result names its columns: the prediction, which is a class or a
// number in the label's own units, and where the model has probabilities one for each class.
func (s *Stored) Predict(data string, workers int) ([][]string, error) {
	c := s.config
	c.Data = data
	if s.Name == external {
		return nil, inputError("a program computed this model, and riffle cannot predict with it; riffle eval lets the program evaluate it")
	}
	if c.Label == "" {
		return nil, inputError("the model was trained on images; only those of tables predict for rows")
	}
	if !c.isCSV() {
		return nil, inputError("data %s: the model takes a table, a .csv file", data)
	}
	file, err := c.readTable(dataset.CSVConfig{Unlabelled: true, Features: s.columns})
	if err != nil {
		return nil, err
	}
	if !slices.Equal(file.Columns, s.columns) {
		return nil, inputError("data %s: columns are %q, the model takes %q", data, file.Columns, s.columns)
	}
	table := file.Table
	if s.pca != nil {
		table = project(s.pca, table)
	}
	if s.Model.Classes == 0 {
		return s.predictNumbers(c, table, workers)
	}
	head := []string{c.Label}
	probable := c.Loss != model.Hinge
	if probable {
		for _, class := range s.labels {
			head = append(head, "probability "+class)
		}
	}
	out := [][]string{head}
	prob, scratch := make([]float64, s.Model.Classes), s.Model.NewScratch()
	for i := range table.Len() {
		row := []string{s.labels[s.Model.Predict(s.Theta, table.Row(i), prob, scratch)]}
		for k := 0; k < len(prob) && probable; k++ {
			row = append(row, strconv.FormatFloat(prob[k], 'g', 6, 64))
		}
		out = append(out, row)
	}
	return out, nil
}

// predictNumbers scales the model's scores back to the label's own units.
func (s *Stored) predictNumbers(c Config, table *dataset.Table, workers int) ([][]string, error) {
	e, err := s.Model.Evaluate(s.Theta, table.X, func(int) float64 { return 0 }, workers)
	if err != nil {
		return nil, inputError("%v", err)
	}
	by, _, err := parseRanges(c.Range)
	if err != nil {
		return nil, inputError("range %v", err)
	}
	scale, ok := by[c.Label]
	if !ok {
		scale.Unit = 1
	}
	out := [][]string{{c.Label}}
	for _, score := range e.Scores {
		out = append(out, []string{strconv.FormatFloat(scale.Shift+scale.Unit*score, 'g', 6, 64)})
	}
	return out, nil
}
