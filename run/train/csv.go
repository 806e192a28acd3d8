package train

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/model"
)

// isCSV says whether the data are a CSV file, which its suffix decides.
func (c DataConfig) isCSV() bool { return strings.EqualFold(filepath.Ext(c.Data), ".csv") }

// parseRanges reads the public range of each column, which is scaled to 0..1, and of all others.
func parseRanges(text string) (by map[string]dataset.Scaling, rest dataset.Scaling, err error) {
	c := dataset.CSVConfig{Scale: map[string]dataset.Scaling{}}
	err = c.Declare("range", text)
	return c.Scale, c.Rest, err
}

// crossEntropy is the loss of all models but linear, which chooses its own.
const crossEntropy = "cross-entropy"

func checkLoss(text string) error {
	if text == crossEntropy {
		return nil
	}
	if _, err := model.ParseLoss(text); err != nil {
		return fmt.Errorf("%q must be %s, logistic, hinge, absolute or pinball:T with 0 < T < 1", text, crossEntropy)
	}
	return nil
}

// regression says whether targets are real numbers.
func (c LearningConfig) regression() bool {
	if c.Loss == "" || c.Loss == crossEntropy {
		return false
	}
	loss, err := model.ParseLoss(c.Loss)
	return err == nil && !loss.Binary
}

// readTable reads the file with the columns that the configuration declares. Of config it takes what does not
// follow from the configuration.
func (c Config) readTable(config dataset.CSVConfig) (*dataset.CSV, error) {
	declared, err := c.declared()
	if err != nil {
		return nil, err
	}
	declared.Classes, declared.Features = config.Classes, config.Features
	declared.Unlabelled, declared.Blanks = config.Unlabelled, config.Blanks
	config = declared
	if config.Unlabelled {
		delete(config.Scale, c.Label)
	}
	file, err := dataset.ReadCSV(c.Data, config)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, inputError("data %s: no such file", c.Data)
	}
	if err != nil {
		return nil, fmt.Errorf("train: %w%s%w", err, Hint(err), ErrInput)
	}
	return file, nil
}

// declared returns all that the configuration declares of columns.
func (c Config) declared() (d dataset.CSVConfig, err error) {
	by, rest, err := parseRanges(c.Range)
	if err != nil {
		return d, inputError("range %v", err)
	}
	if c.Scale == centred {
		for name, s := range by {
			if name != c.Label {
				by[name] = middle(s)
			}
		}
		rest = middle(rest)
	}
	d = dataset.CSVConfig{Label: c.Label, Scale: by, Rest: rest, Regression: c.regression()}
	return d, c.declare(&d)
}

// middle turns a scaling to 0..1 into one to −1..1; no scaling stays none.
func middle(s dataset.Scaling) dataset.Scaling {
	if s == (dataset.Scaling{}) {
		return s
	}
	return dataset.Scaling{Shift: s.Shift + s.Unit/2, Unit: s.Unit / 2}
}

// ranged says whether every column has a public range.
func (c DataConfig) ranged(columns []string) bool {
	by, rest, err := parseRanges(c.Range)
	return err == nil && (rest != dataset.Scaling{} || !slices.ContainsFunc(columns, func(name string) bool {
		_, ok := by[name]
		return !ok
	}))
}

func (c Config) loadCSV() (*Data, error) {
	var declared dataset.CSVConfig
	if err := c.declare(&declared); err != nil {
		return nil, err
	}
	file, err := c.readTable(dataset.CSVConfig{Classes: declared.Classes})
	if err != nil {
		return nil, err
	}
	d, err := c.splitCSV(file)
	if err != nil {
		return nil, err
	}
	digest := file.Digest()
	d.digest = digest[:]
	return d, nil
}

// splitCSV deals a file's rows out to training and test.
func (c Config) splitCSV(file *dataset.CSV) (d *Data, err error) {
	d = &Data{EvalName: "test", Classes: file.Labels, columns: file.Columns, rows: file.Table.Len(), Warnings: c.unscaled(file), Notes: c.tookClasses(file)}
	d.norm = c.publicNorm(file)
	if d.Train, d.Eval, err = file.Split(c.TestFraction, uint64(c.Seed)); err != nil {
		return nil, inputError("data %s: %v", c.Data, err)
	}
	if c.Validation > 0 {
		d.EvalName = "validation"
		if d.Train, d.Eval, err = holdOut(c, d.Train); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Thresholds for warnings. There is a warning about an unscaled column whose root mean square
// is above largeColumn, and about a column with more than the share manyOutside of its cells
// outside of its range. There is one about more than manyNumbers classes that are all numbers:
// they may be meant as a regression's targets.
const (
	largeColumn = 4
	manyOutside = .05
	manyNumbers = 30
)

// unscaled returns warnings about columns, the label's included, with which learning will have
// trouble. It looks at the rows, so its warnings are for the owner of the file.
func (c DataConfig) unscaled(file *dataset.CSV) (warnings []string) {
	by, rest, err := parseRanges(c.Range)
	if err != nil {
		return nil // another check reports the malformed ranges
	}
	t := file.Table
	low := 0.0
	if c.Scale == centred {
		low = -1
	}
	check := func(column string, ranged bool, low float64, cell func(row int) float32) {
		square, outside := 0.0, 0
		for i := range t.Len() {
			v := float64(cell(i))
			square += v * v
			if v < low || v > 1 {
				outside++
			}
		}
		size, share := math.Sqrt(square/float64(t.Len())), float64(outside)/float64(t.Len())
		switch {
		case ranged && share > manyOutside:
			warnings = append(warnings, fmt.Sprintf("%.0f %% of column %s lie outside of its range", 100*share, column))
		case !ranged && size > largeColumn:
			warnings = append(warnings, fmt.Sprintf("column %s has values of about %.3g and no public range: learning goes badly with it, or not at all; give one that everybody knows, as --range %q",
				column, size, column+"=LOW..HIGH"))
		}
	}
	for j, column := range file.Columns {
		if file.Binary != nil && file.Binary[j] {
			continue
		}
		_, ranged := by[column]
		check(column, ranged || rest != dataset.Scaling{}, low, func(row int) float32 { return t.Row(row)[j] })
	}
	if n := len(file.Labels); n > manyNumbers && !slices.ContainsFunc(file.Labels, func(text string) bool {
		_, err := strconv.ParseFloat(text, 64)
		return err != nil
	}) {
		warnings = append(warnings, fmt.Sprintf("the %d different numbers of column %s are taken as classes; --loss absolute predicts numbers", n, c.Label))
	}
	if t.Targets != nil {
		_, ranged := by[c.Label]
		check(c.Label, ranged, 0, func(row int) float32 { return t.Targets[row] })
	}
	return warnings
}
