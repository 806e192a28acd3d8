package operate

import (
	"fmt"
	"image"
	"math"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/page/dashboard"
	"github.com/riffle-dp/riffle/page/report"
	"github.com/riffle-dp/riffle/run/train"
)

// samplesOf is how many right predictions a page shows, and how many wrong ones.
const samplesOf = 11

// Examine returns what a page shows of the predictions of parameters on the evaluation set: the
// classes' names, or their numbers if they have none, the confusion matrix and examples.
// A regression has neither classes nor a matrix.
func Examine(t *train.Setup, e *model.Evaluation, theta []float32) (classes []string, confusion [][]int64, examples []report.Sample) {
	for k, row := range e.Confusion {
		name := fmt.Sprint(k)
		if k < len(t.Data.ClassNames) {
			name = t.Data.ClassNames[k]
		}
		wide := make([]int64, len(row))
		for j, n := range row {
			wide[j] = int64(n)
		}
		classes, confusion = append(classes, name), append(confusion, wide)
	}
	return classes, confusion, samples(t, theta)
}

// samples returns the first images that are predicted rightly and the first that are not,
// so that no choice flatters the model. It returns none for rows of a table.
func samples(t *train.Setup, theta []float32) []report.Sample {
	if t.Data.EvalImages == nil {
		return nil
	}
	var right, wrong []report.Sample
	scratch, prob := t.Model.NewScratch(), make([]float64, t.Model.Classes)
	for i, label := range t.Data.Eval.Y {
		class := t.Model.Predict(theta, t.Data.Eval.Row(i), prob, scratch)
		into := &wrong
		if class == int(label) {
			into = &right
		}
		if len(*into) < samplesOf {
			s := report.Sample{Label: int(label), Predicted: class, Confidence: prob[class], Image: gray(t.Data.EvalImages, i)}
			if t.Config.Loss == model.Hinge { // its scores are not probabilities
				s.Confidence = math.NaN()
			}
			*into = append(*into, s)
		}
		if len(right) == samplesOf && len(wrong) == samplesOf {
			break
		}
	}
	return append(wrong, right...)
}

// gray returns a copy of image i for drawing. Several channels are averaged.
func gray(images *dataset.Images, i int) *image.Gray {
	g := image.NewGray(image.Rect(0, 0, images.Width, images.Height))
	px := images.Pixels[i*images.Size() : (i+1)*images.Size()]
	for p := range g.Pix {
		sum := 0
		for _, v := range px[p*images.Channels : (p+1)*images.Channels] {
			sum += int(v)
		}
		g.Pix[p] = uint8(sum / images.Channels)
	}
	return g
}

// Compare fills in on which data a task's model is evaluated, and how it compares with the
// best constant.
func Compare(t *dashboard.View, of *train.Setup) {
	t.Evaluated = "the program's " + of.Data.EvalName + " examples"
	if n := of.Data.Examples; n > 0 {
		t.Evaluated = dashboard.Grouped(n) + " " + of.Data.EvalName + " examples"
	}
	t.Baseline = of.Baseline.Short
	if accuracy, loss := float64(t.Accuracy), float64(t.Loss); !math.IsNaN(loss) {
		t.Warning = of.Baseline.NotBeaten(accuracy, loss)
	}
}
