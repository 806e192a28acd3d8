package operate

import (
	"fmt"
	"iter"
	"math"

	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/page/dashboard"
	"github.com/riffle-dp/riffle/page/report"
	"github.com/riffle-dp/riffle/run/train"
)

// samplesOf is how many right predictions a page shows, and how many wrong ones.
const samplesOf = 11

// ClassNames returns the names of a data set's classes, or their numbers if it has no names.
func ClassNames(d *train.Data) []string {
	var names []string
	for k := range d.Eval.Classes {
		name := fmt.Sprint(k)
		if k < len(d.ClassNames()) {
			name = d.ClassNames()[k]
		}
		names = append(names, name)
	}
	return names
}

// Confusion returns an evaluation's confusion matrix for a page; nil for a regression.
func Confusion(e *model.Evaluation) (counts [][]int64) {
	for _, row := range e.Confusion {
		wide := make([]int64, len(row))
		for j, n := range row {
			wide[j] = int64(n)
		}
		counts = append(counts, wide)
	}
	return counts
}

// Samples returns the first images that are predicted rightly and the first that are not,
// so that no choice flatters the model. It returns none for rows of a table.
func Samples(d *train.Data, predictions iter.Seq[train.Prediction]) []report.Sample {
	if d.EvalImages == nil {
		return nil
	}
	var right, wrong []report.Sample
	for p := range predictions {
		into := &wrong
		if p.Class == p.Label {
			into = &right
		}
		if len(*into) < samplesOf {
			*into = append(*into, report.Sample{Label: p.Label, Predicted: p.Class, Confidence: p.Confidence, Image: d.EvalImages.Gray(p.Index)})
		}
		if len(right) == samplesOf && len(wrong) == samplesOf {
			break
		}
	}
	return append(wrong, right...)
}

// Examine returns what a page shows of a model's predictions on the evaluation set; nil for
// a regression.
func Examine(d *train.Data, e *model.Evaluation, predictions iter.Seq[train.Prediction]) (*report.Examined, error) {
	if e.Confusion == nil {
		return nil, nil
	}
	return report.Examine(ClassNames(d), Confusion(e), Samples(d, predictions))
}

// Compare fills in on which data a task's model is evaluated, and how it compares with the
// best constant.
func Compare(t *dashboard.Task, d *train.Data, base model.Baseline) {
	t.Evaluated = dashboard.Grouped(int64(d.Eval.Len())) + " " + d.EvalName + " examples"
	t.Baseline = train.ShortBaseline(base)
	if accuracy, loss := float64(t.Accuracy), float64(t.Loss); !math.IsNaN(loss) {
		t.Warning = train.NotBeaten(base, accuracy, loss, d.ClassNames(), d.EvalName)
	}
}
