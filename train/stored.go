package train

import (
	"iter"
	"os"
	"path/filepath"
	"strconv"

	"github.com/riffle-dp/riffle/model"
	"github.com/riffle-dp/riffle/safetensors"
)

// Stored is a model read back from its file.
type Stored struct {
	Name    string // as Config.Model
	Model   model.Model
	Theta   []float32
	Epsilon Number
	Delta   float64
}

// ReadModel reads a model file that a run wrote, or the one in a run directory.
func ReadModel(path string) (*Stored, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, ModelFile)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, inputError("model: %v", err)
	}
	f, err := safetensors.Unmarshal(raw)
	if err != nil {
		return nil, inputError("model %s: %v", path, err)
	}
	s := &Stored{Name: f.Metadata["riffle.model"]}
	if err := oneOf(models...)(s.Name); err != nil {
		return nil, inputError("model %s: riffle.model = %v", path, err)
	}
	integer := func(key string) (n int) {
		if err == nil {
			n, err = strconv.Atoi(f.Metadata[key])
		}
		return n
	}
	inputs, classes := integer("riffle.inputs"), integer("riffle.classes")
	number := func(key string) (x float64) {
		if err == nil {
			x, err = strconv.ParseFloat(f.Metadata[key], 64)
		}
		return x
	}
	s.Epsilon, s.Delta = Number(number("riffle.epsilon")), number("riffle.delta")
	if err != nil {
		return nil, inputError("model %s: metadata: %v", path, err)
	}
	softmax, err := model.NewSoftmax(model.SoftmaxConfig{Inputs: inputs, Classes: classes})
	if err != nil {
		return nil, inputError("model %s: %v", path, err)
	}
	if s.Theta, err = softmax.Theta(f.Tensors); err != nil {
		return nil, inputError("model %s: %v", path, err)
	}
	s.Model = softmax
	return s, nil
}

// EvaluateTest runs the model on the test set of the named data.
func (s *Stored) EvaluateTest(data string, workers int) (*model.Evaluation, error) {
	_, test, err := LoadImages(data)
	if err != nil {
		return nil, err
	}
	extractor, err := Extractor(s.Name, test)
	if err != nil {
		return nil, inputError("model %s: %v", s.Name, err)
	}
	table, err := test.Table(extractor, workers)
	if err != nil {
		return nil, inputError("%v", err)
	}
	if table.Dim != s.Model.Inputs() || table.Classes > s.Model.Classes() {
		return nil, inputError("the model takes %d features and %d classes, the data have %d and %d",
			s.Model.Inputs(), s.Model.Classes(), table.Dim, table.Classes)
	}
	return model.Evaluate(s.Model, s.Theta, table.X, table.Y, workers)
}

// Prediction is what a model makes of one example of the evaluation set.
type Prediction struct {
	Index, Label, Class int
	Confidence          float64 // softmax probability of Class
}

// Predict runs the model to release now over the evaluation set, in order.
func (r *Run) Predict() iter.Seq[Prediction] {
	return func(yield func(Prediction) bool) {
		theta, scratch := r.Parameters(), r.Model.NewScratch()
		logits := make([]float32, r.Model.Classes())
		prob := make([]float64, r.Model.Classes())
		for i, y := range r.Data.Eval.Y {
			r.Model.Forward(theta, r.Data.Eval.Row(i), logits, scratch)
			model.Probabilities(logits, prob)
			class := model.Argmax(logits)
			if !yield(Prediction{Index: i, Label: int(y), Class: class, Confidence: prob[class]}) {
				return
			}
		}
	}
}
