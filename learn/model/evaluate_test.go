package model

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
)

// class returns the class of a row.
func class(y []int32) func(row int) float64 {
	return func(row int) float64 { return float64(y[row]) }
}

func TestEvaluate(t *testing.T) {
	m := newSoftmax(t, 1, 3)
	// Scores (x, 0, −x): class 0 for x > 0, class 2 for x < 0, and class 0,
	// the first of equals, for x = 0.
	theta := []float32{1, 0, -1, 0, 0, 0}
	x := []float32{2, 1, -1, 0, -3}
	y := []int32{0, 1, 2, 0, 0}
	e, err := m.Evaluate(theta, x, class(y), 1)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]int{{2, 0, 1}, {1, 0, 0}, {0, 0, 1}}
	if e.Examples != 5 || e.Correct != 3 || e.Accuracy != 0.6 || !reflect.DeepEqual(e.Confusion, want) {
		t.Errorf("%+v, want 3 of 5 and %v", e, want)
	}
	loss := 0.0
	for i := range y {
		loss += exactLoss(m, widen(theta), x[i:i+1], int(y[i])) / 5
	}
	if math.Abs(e.Loss-loss) > 1e-12 {
		t.Errorf("loss %v, want %v", e.Loss, loss)
	}
}

// TestEvaluateIgnoresWorkers: the same bits with any number of goroutines,
// for sizes around the chunk.
func TestEvaluateIgnoresWorkers(t *testing.T) {
	m := newSoftmax(t, 6, 10)
	theta, _ := example(m, 0, 3)
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, evaluateChunk - 1, evaluateChunk, evaluateChunk + 1, 3000} {
		x := make([]float32, n*6)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		y := make([]int32, n)
		for i := range y {
			y[i] = r.Int32N(10)
		}
		want, err := m.Evaluate(theta, x, class(y), 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, workers := range []int{0, 2, 3, 16} {
			got, err := m.Evaluate(theta, x, class(y), workers)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("n = %d, %d workers: %+v, %v; want %+v", n, workers, got, err, want)
			}
		}
		total := 0
		for _, row := range want.Confusion {
			for _, c := range row {
				total += c
			}
		}
		if total != n {
			t.Errorf("confusion matrix counts %d of %d", total, n)
		}
	}
}

func TestEvaluateRefuses(t *testing.T) {
	m := newSoftmax(t, 2, 3)
	theta := make([]float32, m.Params)
	for name, run := range map[string]func() (*Evaluation, error){
		"no examples":      func() (*Evaluation, error) { return m.Evaluate(theta, nil, class(nil), 1) },
		"short theta":      func() (*Evaluation, error) { return m.Evaluate(theta[1:], make([]float32, 2), class([]int32{0}), 1) },
		"ragged features":  func() (*Evaluation, error) { return m.Evaluate(theta, make([]float32, 3), class([]int32{0}), 1) },
		"class too large":  func() (*Evaluation, error) { return m.Evaluate(theta, make([]float32, 2), class([]int32{3}), 1) },
		"class below 0":    func() (*Evaluation, error) { return m.Evaluate(theta, make([]float32, 2), class([]int32{-1}), 1) },
		"negative workers": func() (*Evaluation, error) { return m.Evaluate(theta, make([]float32, 2), class([]int32{0}), -1) },
	} {
		if _, err := run(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestProbabilities(t *testing.T) {
	p := make([]float64, 3)
	m := newSoftmax(t, 1, 3)
	class := m.Predict([]float32{0, 0, 0, 0, float32(math.Log(2)), -1e30}, []float32{1}, p, m.NewScratch())
	if class != 1 {
		t.Errorf("class %d, want 1", class)
	}
	for j, want := range []float64{1.0 / 3, 2.0 / 3, 0} {
		if math.Abs(p[j]-want) > 1e-7 {
			t.Errorf("probabilities %v", p)
		}
	}
}

func BenchmarkEvaluate(b *testing.B) {
	m := newSoftmax(b, 441, 10)
	theta, x := example(m, 0, 1)
	const n = 2000
	rows := make([]float32, 0, n*441)
	for range n {
		rows = append(rows, x...)
	}
	y := make([]int32, n)
	for b.Loop() {
		if _, err := m.Evaluate(theta, rows, class(y), 1); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "examples/s")
}
