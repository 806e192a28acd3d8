package train

import (
	"maps"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/dataset"
)

// weightsOf reads the public weights of classes, as "no=1|yes=13"; nil: none.
func weightsOf(text string) (map[string]float64, error) {
	var c dataset.CSVConfig
	err := c.Declare("class-weights", text)
	return c.Weights, err
}

// weights returns the factor of each class's gradients: its weight over the largest one, so that
// no gradient becomes longer. nil: all are 1.
func (c Config) weights(classes []string) ([]float64, error) {
	by, err := weightsOf(c.ClassWeights)
	if err != nil || by == nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		if !slices.Contains(classes, name) {
			return nil, inputError("class-weights: %q is none of the classes %s", name, strings.Join(classes, ", "))
		}
	}
	out, most := make([]float64, len(classes)), 0.0
	for k, name := range classes {
		out[k] = 1
		if w, ok := by[name]; ok {
			out[k] = w
		}
		most = max(most, out[k])
	}
	for k := range out {
		out[k] /= most
	}
	return out, nil
}

// checkWeights refuses weights where they have no meaning.
func (c Config) checkWeights() error {
	switch {
	case c.ClassWeights == "":
		return nil
	case c.Gradients != "" || c.Model == external:
		return inputError("class-weights go with gradients that riffle computes: a program weighs its own")
	case c.regression():
		return inputError("class-weights go with classes, and loss %s predicts numbers", c.Loss)
	case c.planned():
		return inputError("class-weights go with optimizer %s or %s: the bound of %s is for the loss as it is", cldpSGD, adam, c.Optimizer)
	}
	return nil
}

// weighting scales a gradient of a row of a class whose factor is w; lambda is the ridge, whose
// part is the same for all classes.
func weighting(grad, theta []float32, w, lambda float64) {
	for j, g := range grad {
		grad[j] = float32(w*float64(g) + (1-w)*lambda*float64(theta[j]))
	}
}

// weighted returns the accuracy of an evaluation in which each row counts with its class's
// factor, and that of the best constant.
func weighted(confusion [][]int, weights []float64) (accuracy, baseline float64) {
	right, all, most := 0.0, 0.0, 0.0
	for k, row := range confusion {
		n := 0
		for _, count := range row {
			n += count
		}
		right += weights[k] * float64(row[k])
		all += weights[k] * float64(n)
		most = max(most, weights[k]*float64(n))
	}
	return right / all, most / all
}

// addWeighted adds the figures of rows that count with their class's factor; weights nil: none.
func addWeighted(numbers map[string]float64, confusion [][]int, weights []float64) map[string]float64 {
	if len(weights) == 0 || len(confusion) != len(weights) {
		return numbers
	}
	out := maps.Clone(numbers)
	if out == nil {
		out = map[string]float64{}
	}
	out["weighted_accuracy"], out["baseline_weighted_accuracy"] = weighted(confusion, weights)
	return out
}

// weightedWarning is NotBeaten for classes with weights, which move the model's decisions and
// probabilities on purpose.
func weightedWarning(accuracy, baseline dp.Number) string {
	if accuracy > baseline {
		return ""
	}
	return "with the class weights the accuracy is " + percent(float64(accuracy)) + ", no better than the " + percent(float64(baseline)) + " of the best constant"
}
