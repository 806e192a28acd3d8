package train

import (
	"fmt"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/model"
)

// baseline returns the best constant's result on a table.
func baseline(m *model.Model, t *dataset.Table) model.Baseline {
	return m.Baseline(t.Len(), answers(t))
}

// Baseline returns the best constant's result on the evaluation set.
func (r *Run) Baseline() model.Baseline { return baseline(r.Model, r.Data.Eval) }

// Baseline returns the best constant's result on the coordinator's evaluation set.
func (t *Task) Baseline() model.Baseline { return baseline(t.Model, t.Data.Eval) }

// DescribeBaseline describes a baseline in words, such as `95.00 %: always "no"`, with the
// evaluation set's name: "test", "validation" or "all".
func DescribeBaseline(b model.Baseline, classes []string, examples string) string {
	if examples += " examples"; examples == "all examples" {
		examples = "examples"
	}
	if b.Class < 0 {
		return fmt.Sprintf("%.4f, the best constant for these %s", b.Loss, examples)
	}
	name := fmt.Sprint(b.Class)
	if b.Class < len(classes) {
		name = classes[b.Class]
	}
	return fmt.Sprintf("%.2f %%, always %q, the most frequent of these %s", 100*b.Accuracy, name, examples)
}

// ShortBaseline returns the figure of a baseline alone, to stand beside a model's figure.
func ShortBaseline(b model.Baseline) string {
	if b.Class < 0 {
		return fmt.Sprintf("%.4g", b.Loss)
	}
	return fmt.Sprintf("%.2f %%", 100*b.Accuracy)
}

// NotBeaten returns a warning if a model's accuracy (for numbers its loss) is no better than
// its baseline; otherwise "".
func NotBeaten(b model.Baseline, accuracy, loss float64, classes []string, examples string) string {
	if b.Beaten(accuracy, loss) {
		return ""
	}
	got, also := fmt.Sprintf("loss %.4f", loss), ""
	if b.Class >= 0 {
		got = fmt.Sprintf("accuracy %.2f %%", 100*accuracy)
		if loss < b.Loss {
			also = fmt.Sprintf(" (by its probabilities it is: loss %.4f, and %.4f of a constant)", loss, b.Loss)
		}
	}
	return fmt.Sprintf("%s is no better than the baseline: %s%s", got, DescribeBaseline(b, classes, examples), also)
}

// labelUnit returns the factor by which a loss is in the label's own units; 1 if the label is
// not scaled.
func (c Config) labelUnit() float64 {
	by, _, err := ParseRanges(c.Range)
	if s, ok := by[c.Label]; err == nil && ok && c.regression() {
		return s.Unit
	}
	return 1
}
