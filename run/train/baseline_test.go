package train

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/learn/model"
)

// A model that is no better than a constant is warned of, in the summary and when
// it is read back; and eval counts just the rows that training did not see.
func TestBaselineIsTold(t *testing.T) {
	path := spending(100).write(t, 200)
	c := Default()
	c.Data, c.Label, c.Loss, c.Rounds, c.TestFraction = path, "y", "absolute", 2, .25 // nothing is scaled
	r, s, dir := trainedIn(t, c)
	has := func(warnings []string, text string) bool {
		return slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, text) })
	}
	if s.Baseline.Loss >= s.Evaluation.Loss || !has(s.Warnings, "is no better than the baseline: ") || len(s.Warnings) != 5 {
		t.Errorf("loss %v, baseline %+v, warnings %q", s.Evaluation.Loss, s.Baseline, s.Warnings)
	}
	var written Summary
	raw, err := os.ReadFile(filepath.Join(dir, SummaryFile))
	if err == nil {
		err = json.Unmarshal(raw, &written)
	}
	if err != nil || written.BaselineLoss == nil || *written.BaselineLoss != s.Baseline.Loss || written.BaselineAccuracy != nil || len(written.Warnings) != 5 {
		t.Errorf("summary: %s %v", raw, err)
	}
	if m := r.Metrics[len(r.Metrics)-1]; m.BaselineLoss == nil || *m.BaselineLoss != s.Baseline.Loss || m.BaselineAccuracy != nil {
		t.Errorf("metrics: %+v", m)
	}

	stored, err := ReadModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	test, err := stored.Test(path, false, 1)
	if err != nil {
		t.Fatal(err)
	}
	if test.Loss != s.Evaluation.Loss || test.Examples != 50 || test.Trained != 0 || test.Rows != 200 || !strings.Contains(test.Warning, "no better") {
		t.Errorf("held out: %+v, in training the loss was %v", test, s.Evaluation.Loss)
	}
	whole, err := stored.Test(path, true, 1)
	if err != nil || whole.Examples != 200 || whole.Trained != 150 {
		t.Errorf("all: %+v %v", whole, err)
	}
	other, err := stored.Test(spending(100).write(t, 199), false, 1)
	if err != nil || other.Examples != 199 || other.Trained != -1 {
		t.Errorf("another table: %+v %v", other, err)
	}
}

func TestNotBeaten(t *testing.T) {
	known := model.Baseline{Accuracy: .625, Class: 0, Loss: math.NaN()} // a program that says no loss
	classes, numbers := model.Baseline{Accuracy: .625, Class: 2, Loss: .9}, model.Baseline{Accuracy: math.NaN(), Class: -1, Loss: .1}
	for _, c := range []struct {
		base           model.Baseline
		accuracy, loss float64
		beaten         bool
	}{
		{classes, .625, .1, false}, {classes, .75, .8, true}, {classes, .75, 2, false}, {classes, .75, .9, false}, {classes, .75, math.NaN(), false}, {known, .75, math.NaN(), true}, {classes, math.NaN(), .1, false},
		{numbers, math.NaN(), .1, false}, {numbers, math.NaN(), math.NaN(), false}, {numbers, math.NaN(), .09, true},
	} {
		base := Baseline{Baseline: c.base}
		if text := base.NotBeaten(c.accuracy, c.loss); (text == "") != c.beaten {
			t.Errorf("accuracy %v, loss %v against %+v: %q", c.accuracy, c.loss, c.base, text)
		}
	}
}

// A warning says by which figure a constant is as good.
func TestNotBeatenSaysByWhat(t *testing.T) {
	base := Baseline{Baseline: model.Baseline{Accuracy: .5, Class: 0, Loss: .7}, Text: "TEXT"}
	for want, figures := range map[string][2]float64{
		"loss 0.9000 is no better than a constant's, 0.7000: the model names more classes right (accuracy 60.00 %; baseline: TEXT), but its probabilities mislead": {.6, .9},
		"accuracy 50.00 % is no better than the baseline: TEXT (by its probabilities it is: loss 0.6000, and 0.7000 of a constant)":                                {.5, .6},
		"accuracy 50.00 % is no better than the baseline: TEXT": {.5, .8},
	} {
		if got := base.NotBeaten(figures[0], figures[1]); got != want {
			t.Errorf("%v: %q, want %q", figures, got, want)
		}
	}
}
