package train

import (
	"fmt"
	"maps"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/model"
)

// Baseline is the best constant's result on an evaluation set, with words for it.
type Baseline struct {
	model.Baseline
	// Short is its figure alone, to stand beside a model's figure. Text also says which
	// constant it is, such as `95.00 %, always "no", the most frequent of these test examples`.
	Short, Text string
	// Weighted says that classes have weights, which move the model's decisions and
	// probabilities on purpose: a warning compares with a constant by weighted figures.
	Weighted bool
}

// newBaseline returns the baseline on a table. set names the table: "test", "validation" or
// "all".
func newBaseline(m *model.Model, t *dataset.Table, classes []string, set string) Baseline {
	b := Baseline{Baseline: m.Baseline(t.Len(), answers(t))}
	if set += " examples"; set == "all examples" {
		set = "examples"
	}
	if b.Class < 0 {
		b.Short = fmt.Sprintf("%.4g", b.Loss)
		b.Text = fmt.Sprintf("%.4f, the best constant for these %s", b.Loss, set)
		return b
	}
	name := fmt.Sprint(b.Class)
	if b.Class < len(classes) {
		name = classes[b.Class]
	}
	b.Short = percent(b.Accuracy)
	b.Text = fmt.Sprintf("%s, always %q, the most frequent of these %s", b.Short, name, set)
	return b
}

func percent(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }

// NotBeaten returns a warning unless a model is better than the baseline by its loss and, if
// there are classes, by its accuracy too; otherwise "".
func (b Baseline) NotBeaten(accuracy, loss float64) string {
	if b.unknown() || b.Weighted {
		return ""
	}
	if b.Class < 0 {
		if loss < b.Loss { // NaN is never better
			return ""
		}
		return fmt.Sprintf("loss %.4f is no better than the baseline: %s", loss, b.Text)
	}
	named := accuracy > b.Accuracy
	switch probable := loss < b.Loss; {
	case named && (probable || math.IsNaN(b.Loss)):
		return ""
	case named:
		return fmt.Sprintf("loss %.4f is no better than a constant's, %.4f: the model names more classes right (accuracy %.2f %%; baseline: %s), but its probabilities mislead",
			loss, b.Loss, 100*accuracy, b.Text)
	case probable:
		return fmt.Sprintf("accuracy %.2f %% is no better than the baseline: %s (by its probabilities it is: loss %.4f, and %.4f of a constant)",
			100*accuracy, b.Text, loss, b.Loss)
	}
	return fmt.Sprintf("accuracy %.2f %% is no better than the baseline: %s", 100*accuracy, b.Text)
}

// labelUnit returns the factor that turns a loss into the label's own units; 1 if the label is
// not scaled.
func (c Config) labelUnit() float64 {
	by, _, err := parseRanges(c.Range)
	if s, ok := by[c.Label]; err == nil && ok && c.regression() {
		return s.Unit
	}
	return 1
}

// besideBaseline adds the figures of an evaluation that have places of their own, and the
// baseline's, so that one map has all of them.
func besideBaseline(all map[string]dp.Number, e *model.Evaluation, b Baseline) map[string]dp.Number {
	out := maps.Clone(all)
	if out == nil {
		out = map[string]dp.Number{}
	}
	out["loss"] = dp.Number(e.Loss)
	if b.Class >= 0 {
		out["accuracy"], out["baseline_accuracy"] = dp.Number(e.Accuracy), dp.Number(b.Accuracy)
	}
	out["baseline_loss"] = dp.Number(b.Loss)
	return out
}
