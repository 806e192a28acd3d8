package train

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/internal/safetensors"
	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/feature"
	"github.com/riffle-dp/riffle/learn/model"
)

// Stored is a model read back from its file.
type Stored struct {
	Name    string       // of its kind, as Config.Model
	Model   *model.Model // see Task.Model
	Theta   []float32
	Epsilon dp.Number
	Delta   float64
	// Task and Round name the release of a task over a network; empty: a simulation's model.
	Task  string
	Round int64

	config          Config // the settings of its training that the file has
	pca             *feature.PCA
	rows            int // number of rows of the CSV file; 0: not known
	pictures        int // number of pictures of the folder; 0: not known
	columns, labels []string
}

// ReadModel reads a model file that a run wrote, or the one in a run directory.
func ReadModel(path string) (*Stored, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, ModelFile)
	}
	raw, err := durable.ReadFile(path)
	if err != nil {
		return nil, inputError("model: %v", err)
	}
	f, err := safetensors.Unmarshal(raw)
	if err != nil {
		return nil, inputError("model %s: %v", path, err)
	}
	s := &Stored{}
	if err := s.read(f); err != nil {
		return nil, inputError("model %s: %v", path, err)
	}
	return s, nil
}

// kept lists the settings that a model file has.
var kept = []string{"model", "loss", "label", "range", "scale", "categories", "missing", "drop", "class-weights", "image-size", "image-colours", "seed", "test-fraction"}

func (s *Stored) read(f safetensors.File) (err error) {
	meta := f.Metadata
	c := &s.config
	for _, f := range c.Fields() {
		text, ok := meta["riffle."+f.Name]
		if !slices.Contains(kept, f.Name) || !ok && f.Name != "model" {
			continue
		}
		if err := f.Set(text); err != nil {
			return fmt.Errorf("riffle.%s = %v", f.Name, err)
		}
	}
	s.Name = c.Model
	integer := func(key string) (n int) {
		if err == nil {
			n, err = strconv.Atoi(meta[key])
		}
		return n
	}
	number := func(key string) (x float64) {
		if err == nil {
			x, err = strconv.ParseFloat(meta[key], 64)
		}
		return x
	}
	names := func(key string) (out []string) {
		if text, ok := meta[key]; ok && err == nil {
			err = json.Unmarshal([]byte(text), &out)
		}
		return out
	}
	inputs, classes := integer("riffle.inputs"), integer("riffle.classes")
	s.Epsilon, s.Delta = dp.Number(number("riffle.epsilon")), number("riffle.delta")
	s.columns, s.labels = names("riffle.columns"), names("riffle.labels")
	if _, ok := meta["riffle.rows"]; ok {
		if s.rows = integer("riffle.rows"); err == nil && (s.rows < 2 || c.TestFraction == 0) {
			err = fmt.Errorf("%d rows, a share of %v of them for the test", s.rows, c.TestFraction)
		}
	}
	if _, ok := meta["riffle.pictures"]; ok {
		s.pictures = integer("riffle.pictures")
	}
	if s.Task = meta["riffle.task"]; s.Task != "" {
		s.Round = int64(integer("riffle.round"))
	}
	if err != nil {
		return fmt.Errorf("metadata: %v", err)
	}
	own := f.Tensors
	if s.Name == external {
		return s.readExternal(own)
	}
	if s.Name == pcaMLP {
		if s.pca, err = feature.PCAFromTensors(f.Tensors); err != nil {
			return err
		}
		own = slices.DeleteFunc(slices.Clone(own), func(t safetensors.Tensor) bool { return strings.HasPrefix(t.Name, "pca.") })
		if s.pca.Dim != inputs {
			return fmt.Errorf("%d principal components for %d inputs", s.pca.Dim, inputs)
		}
		if t, ok := f.Find("dense1.weight"); ok && len(t.Shape) == 2 {
			c.Hidden = int64(t.Shape[1]) // safe: Theta checks all shapes
		}
	}
	shape := &dataset.Table{Dim: inputs, Classes: classes}
	if c.regression() {
		shape.Targets = []float32{}
	}
	if s.Model, err = c.newModel(shape); err != nil {
		return err
	}
	if got := s.Model.Inputs; got != inputs {
		return fmt.Errorf("model %s takes %d inputs, the file says %d", s.Name, got, inputs)
	}
	s.Theta, err = s.Model.Theta(own)
	return err
}

// Tested is a stored model's result on data.
type Tested struct {
	*model.Evaluation
	Baseline Baseline
	// Classes names them; nil for a regression.
	Classes []string
	// Set is the set that was counted: "test" rows, or "all" rows of a table.
	Set string
	// Rows is the number of rows of a table; 0: images. Trained is the number of counted rows
	// that trained the model; -1: not known.
	Rows, Trained int
	// LabelUnit is the factor that turns the loss into the label's own units; 1: the label is
	// not scaled.
	LabelUnit float64
	Label     string // the column; empty: images
	// Warning is a problem to look at; empty: none.
	Warning string
}

// Test runs the model on the test set of the named data. For the table on which the model was
// trained these are the rows that training held out, unless all are asked for. For a table
// with another number of rows it is all rows. It refuses the model of a program: see TestBy.
func (s *Stored) Test(data string, all bool, workers int) (*Tested, error) {
	if s.Name == external {
		return nil, inputError("a program computed this model, and only a program evaluates it: name it with gradients, as 'python3 grad.py'")
	}
	c := s.config
	c.Data = data
	out := &Tested{Set: "test", Classes: s.labels, LabelUnit: c.labelUnit(), Label: c.Label}
	if all && !c.isCSV() {
		return nil, inputError("all goes with a table: data %s has a test set of its own", data)
	}
	table, err := s.table(c, workers, out)
	if err != nil {
		return nil, err
	}
	if c.isCSV() {
		table = s.heldOut(table, all, out)
	}
	if s.pca != nil {
		if table.Dim != s.pca.Inputs {
			return nil, inputError("the model's principal axes take %d features, the data have %d", s.pca.Inputs, table.Dim)
		}
		table = project(s.pca, table)
	}
	if table.Dim != s.Model.Inputs || table.Classes > s.Model.Classes {
		return nil, inputError("the model takes %d features and %d classes, the data have %d and %d",
			s.Model.Inputs, s.Model.Classes, table.Dim, table.Classes)
	}
	if out.Evaluation, err = s.Model.Evaluate(s.Theta, table.X, answers(table), workers); err != nil {
		return nil, inputError("%v", err)
	}
	out.Baseline = newBaseline(s.Model, table, out.Classes, out.Set)
	weights, err := c.weights(s.labels)
	if err != nil {
		return nil, err
	}
	if c.isCSV() || weights != nil {
		out.Numbers = out.Metrics(out.Classes, out.LabelUnit)
	}
	out.Numbers = addWeighted(out.Numbers, out.Confusion, weights)
	out.Baseline.Weighted = weights != nil
	out.Warning = out.Baseline.NotBeaten(out.Evaluation.Accuracy, out.Evaluation.Loss)
	if weights != nil && len(out.Confusion) == len(weights) {
		accuracy, baseline := weighted(out.Confusion, weights)
		out.Warning = weightedWarning(dp.Number(accuracy), dp.Number(baseline))
	}
	return out, nil
}

// heldOut splits a table as training did, and records what is counted.
func (s *Stored) heldOut(table *dataset.Table, all bool, out *Tested) *dataset.Table {
	out.Rows, out.Set, out.Trained = table.Len(), "all", -1
	if s.rows == 0 || s.rows != table.Len() {
		return table
	}
	whole := dataset.CSV{Table: table, Labels: s.labels}
	train, test, err := whole.Split(s.config.TestFraction, uint64(s.config.Seed))
	if err != nil { // this table cannot be the one that trained the model
		return table
	}
	if all {
		out.Trained = train.Len()
		return table
	}
	out.Set, out.Trained = "test", 0
	return test
}

// testImages returns the images to count. Of a folder of pictures that is not divided these are
// the ones that training held out if it is the folder of the training, as its number of pictures
// says; otherwise all.
func (s *Stored) testImages(c Config, out *Tested) (*dataset.Images, error) {
	if c.ImageSize == "" {
		_, test, err := c.readImages(nil, false)
		return test, err
	}
	if c.TestFraction == 0 {
		c.TestFraction = .2
	}
	train, test, err := c.readImages(s.labels, false)
	if err != nil || s.pictures == train.Len()+test.Len() || isFolder(c.Data, "train") && isFolder(c.Data, "test") {
		return test, err
	}
	all := *test
	all.Pixels, all.Labels = slices.Concat(train.Pixels, test.Pixels), slices.Concat(train.Labels, test.Labels)
	out.Set = "all"
	return &all, nil
}

func isFolder(path ...string) bool {
	info, err := os.Stat(filepath.Join(path...))
	return err == nil && info.IsDir()
}

func (s *Stored) table(c Config, workers int, out *Tested) (*dataset.Table, error) {
	if (c.Label != "") != c.isCSV() {
		return nil, inputError("data %s: the model was not trained on data of this kind; want %s", c.Data,
			map[bool]string{true: "a .csv file with column " + c.Label, false: "images"}[c.Label != ""])
	}
	if !c.isCSV() {
		test, err := s.testImages(c, out)
		if err != nil {
			return nil, err
		}
		e, err := extractor(s.Name, test)
		if err != nil {
			return nil, inputError("model %s: %v", s.Name, err)
		}
		table, err := test.Table(e, workers)
		if err != nil {
			return nil, inputError("%v", err)
		}
		return table, nil
	}
	file, err := c.readTable(dataset.CSVConfig{Features: s.columns})
	if err != nil {
		return nil, err
	}
	if !slices.Equal(file.Columns, s.columns) {
		return nil, inputError("data %s: columns are %q, the model takes %q", c.Data, file.Columns, s.columns)
	}
	// A file may lack some of the model's classes.
	for i, y := range file.Table.Y {
		k := slices.Index(s.labels, file.Labels[y])
		if k < 0 {
			return nil, inputError("data %s: class %q is none of the model's %q", c.Data, file.Labels[y], s.labels)
		}
		file.Table.Y[i] = int32(k)
	}
	file.Table.Classes = len(s.labels)
	return file.Table, nil
}
