package main

import (
	"bytes"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/model"
)

func TestFiguresOfClasses(t *testing.T) {
	numbers := map[string]dp.Number{
		"accuracy": .9, "loss": .2, "baseline_accuracy": .8, "baseline_loss": .3,
		"auc": .75, "recall_no": .96, "precision_no": .9, "recall_yes": 0,
	}
	var out bytes.Buffer
	p := printer{w: &out}
	p.figures(numbers, &model.Evaluation{Confusion: [][]int{{96, 4}, {10, 0}}}, []string{"no", "yes"})
	const want = `  no                 recall 96.00 % of 100, precision 90.00 %
  yes                recall 0.00 % of 10
auc                  0.75
`
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
	if got, want := measures(numbers), []string{"auc 0.75", "precision_no 0.9", "recall_no 0.96", "recall_yes 0"}; !slices.Equal(got, want) {
		t.Errorf("measures %q, want %q", got, want)
	}
	if got, want := briefly(numbers), []string{"auc 0.75"}; !slices.Equal(got, want) {
		t.Errorf("briefly %q, want %q", got, want)
	}
}

func TestFiguresOfNumbers(t *testing.T) {
	var out bytes.Buffer
	p := printer{w: &out}
	p.figures(map[string]dp.Number{"loss": .1, "r2": .25, "mae": 12, "baseline_mae": 20}, &model.Evaluation{}, nil)
	const want = `mean absolute error  12, of the best constant 20
r2                   0.25
`
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}
