package model

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func TestMetricsOfClasses(t *testing.T) {
	// 100 of class no, of which 90 are found; 10 of class yes, of which 4 are found.
	e := &Evaluation{Confusion: [][]int{{90, 10}, {6, 4}}}
	for i := range 110 {
		score, target := -1., 0.
		if i >= 100 {
			target = 1
		}
		if i < 10 || i >= 106 {
			score = 1
		}
		e.Scores, e.targets = append(e.Scores, score), append(e.targets, target)
	}
	want := map[string]float64{
		"recall_no": .9, "precision_no": 90. / 96, "recall_yes": .4, "precision_yes": 4. / 14,
		"auc": .4*.9 + (.4*.1+.6*.9)/2, // yes above no, and equal scores
	}
	same(t, e.Metrics([]string{"no", "yes"}, 1), want)
	// A model that always says no flatters itself by its accuracy only.
	e = &Evaluation{Confusion: [][]int{{95, 0}, {5, 0}}, Scores: make([]float64, 100), targets: make([]float64, 100)}
	for i := range 5 {
		e.targets[i] = 1
	}
	same(t, e.Metrics([]string{"no", "yes"}, 1), map[string]float64{"recall_no": 1, "precision_no": .95, "recall_yes": 0, "auc": .5})
	// With one class only there is no area.
	e.targets = make([]float64, 100)
	if _, ok := e.Metrics([]string{"no", "yes"}, 1)["auc"]; ok {
		t.Error("an area of one class")
	}
	e.targets[3], e.Scores[7] = 1, math.NaN()
	if _, ok := e.Metrics([]string{"no", "yes"}, 1)["auc"]; ok {
		t.Error("an area of scores that are no numbers")
	}
	// Three classes have no area, and with very many classes nothing is told.
	same(t, (&Evaluation{Confusion: [][]int{{1, 0, 1}, {0, 3, 0}, {0, 0, 0}}}).Metrics([]string{"a", "b", "c"}, 1),
		map[string]float64{"recall_a": .5, "precision_a": 1, "recall_b": 1, "precision_b": 1, "precision_c": 0})
	many := make([][]int, mostNamed+1)
	names := make([]string, len(many))
	for i := range many {
		many[i], names[i] = make([]int, len(many)), fmt.Sprint(i)
		many[i][i] = 1
	}
	same(t, (&Evaluation{Confusion: many}).Metrics(names, 1), nil)
}

func TestMetricsOfNumbers(t *testing.T) {
	e := &Evaluation{Scores: []float64{1, 2, 5}, targets: []float64{1, 3, 8}}
	// Around the mean 4: 9 + 1 + 16; left: 0 + 1 + 9. The median is 3.
	same(t, e.Metrics(nil, 10), map[string]float64{"r2": 1 - 10./26, "mae": 10 * 4. / 3, "baseline_mae": 10 * 7. / 3})
	e = &Evaluation{Scores: []float64{1, 2}, targets: []float64{3, 3}}
	same(t, e.Metrics(nil, 1), map[string]float64{"mae": 1.5, "baseline_mae": 0})
	mean := &Evaluation{Scores: []float64{4, 4, 4}, targets: []float64{1, 3, 8}}
	if got := mean.Metrics(nil, 1)["r2"]; math.Abs(got) > 1e-12 {
		t.Errorf("R² of the mean is %v", got)
	}
}

// The area is the share of pairs in order.
func TestAreaCountsPairs(t *testing.T) {
	src := rand.New(rand.NewPCG(7, 7))
	for range 50 {
		n := 2 + src.IntN(40)
		scores, targets := make([]float64, n), make([]float64, n)
		for i := range scores {
			scores[i], targets[i] = float64(src.IntN(8)), float64(src.IntN(2)*2-1)
		}
		pairs, right := 0., 0.
		for i, a := range scores {
			for j, b := range scores {
				if targets[i] > 0 && targets[j] < 0 {
					if pairs++; a > b {
						right++
					} else if a == b {
						right += .5
					}
				}
			}
		}
		got, ok := auc(scores, targets)
		if ok != (pairs > 0) || ok && math.Abs(got-right/pairs) > 1e-12 {
			t.Fatalf("area %v %v, want %v of %v pairs", got, ok, right, pairs)
		}
	}
}

// Evaluate keeps the scores from which the figures follow, for both kinds of two-class models.
func TestEvaluateKeepsScores(t *testing.T) {
	logistic, err := ParseLoss(Logistic)
	if err != nil {
		t.Fatal(err)
	}
	absolute, err := ParseLoss(Absolute)
	if err != nil {
		t.Fatal(err)
	}
	x := []float32{-2, -1, 1, 2}
	y := []float64{0, 1, 0, 1} // three of four pairs are in order
	for _, c := range []struct {
		loss  Loss
		theta []float32
	}{{logistic, []float32{3, 0}}, {Loss{}, []float32{0, 3, 0, 0}}} {
		m, err := NewSoftmax(1, 2)
		if c.loss.Name != "" {
			m, err = NewLinear(LinearConfig{Inputs: 1, Loss: c.loss})
		}
		if err != nil {
			t.Fatal(err)
		}
		e, err := m.Evaluate(c.theta, x, func(i int) float64 { return y[i] }, 1)
		if err != nil {
			t.Fatal(err)
		}
		same(t, e.Metrics([]string{"a", "b"}, 1), map[string]float64{"auc": .75, "recall_a": .5, "precision_a": .5, "recall_b": .5, "precision_b": .5})
	}
	m, err := NewLinear(LinearConfig{Inputs: 1, Loss: absolute})
	if err != nil {
		t.Fatal(err)
	}
	e, err := m.Evaluate([]float32{1, 0}, x, func(i int) float64 { return float64(x[i]) }, 1)
	if err != nil {
		t.Fatal(err)
	}
	same(t, e.Metrics(nil, 1), map[string]float64{"r2": 1, "mae": 0, "baseline_mae": 1.5})
}

func same(t *testing.T, got, want map[string]float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("figures %v, want %v", got, want)
	}
	for name, x := range want {
		if y, ok := got[name]; !ok || math.Abs(x-y) > 1e-12 {
			t.Errorf("%s = %v, want %v", name, y, x)
		}
	}
}
