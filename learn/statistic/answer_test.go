package statistic

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// The variance has no bias by the square of the sum's error, and its interval counts that square.
func TestVarianceOfSquares(t *testing.T) {
	q := Question{Measure: "variance", Column: "t", Low: -1, High: 1, Everyone: true}
	const n, sigma = 1000, 200
	law, err := OfCurator(1, sigma*sigma, n, true)
	if err != nil {
		t.Fatal(err)
	}
	// Half of the clients have −.5, half .9: mean .2, variance .49.
	ask := func(e float64) Answer {
		a, err := q.Answer(Release{Sums: []float64{.2*n + e, (.53 - 1) * n}, Reports: n, Law: law})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	// A law with these two values has the variance σ².
	if got := (ask(sigma).Variance.Value + ask(-sigma).Variance.Value) / 2; math.Abs(got-.49) > 1e-6 {
		t.Errorf("the mean of estimates is %v, want .49", got)
	}
	v := *ask(0).Variance
	want := 1.95996 * sigma / n * math.Sqrt(1+4*.2*.2+2*sigma*sigma/float64(n*n))
	if got := (v.High95 - v.Low95) / 2; math.Abs(got/want-1) > 1e-4 {
		t.Errorf("half of the interval is %v, want %v", got, want)
	}
}

// Where noise may be all there is, the interval is the public range.
func TestNothingIsKnown(t *testing.T) {
	law, err := OfCurator(1, 1e6, 10, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		q    Question
		sums []float64
	}{
		{Question{Measure: "mean", Column: "t", Low: 10, High: 30}, []float64{500, 0, -3000}},
		{Question{Measure: "mean", Column: "t", Low: 10, High: 30}, []float64{500, 0, 0}},
		{Question{Measure: "variance", Column: "t", Low: 10, High: 30}, []float64{500, 100, 200}},
		{Question{Measure: "quantiles", Column: "t", Low: 10, High: 30, Ranks: []float64{.5}, Levels: 1}, []float64{-500, 300}},
	} {
		a, err := c.q.Answer(Release{Sums: c.sums, Reports: 10, Law: law})
		if err != nil {
			t.Fatal(err)
		}
		if m := a.Mean; m != nil && (m.Low95 != 10 || m.High95 != 30 || m.JointLow95 != 10 || m.JointHigh95 != 30) {
			t.Errorf("%s of %v: %+v", c.q.Measure, c.sums, *m)
		}
		if v := a.Variance; v != nil && (v.Low95 != 0 || v.High95 != 100) {
			t.Errorf("%s of %v: %+v", c.q.Measure, c.sums, *v)
		}
		for _, v := range a.Quantiles {
			if v.Low95 != 10 || v.High95 != 30 || v.RankLow95 != 0 || v.RankHigh95 != 1 {
				t.Errorf("%s of %v: %+v", c.q.Measure, c.sums, v)
			}
		}
		if _, err := json.Marshal(a); err != nil {
			t.Errorf("%s of %v: %v", c.q.Measure, c.sums, err)
		}
	}
}

func TestAnswerRefuses(t *testing.T) {
	law, err := OfCurator(1, 9, 10, true)
	if err != nil {
		t.Fatal(err)
	}
	q := Question{Measure: "histogram", Column: "t", Edges: []float64{0, 1, 2}}
	good := Release{Sums: []float64{1, 2}, Reports: 10, Clients: 20, Law: law}
	if _, err := q.Answer(good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Release){
		"1 sums":                   func(r *Release) { r.Sums = r.Sums[:1] },
		"sum 1 is NaN":             func(r *Release) { r.Sums = []float64{1, math.NaN()} },
		"sum 0 is -Inf":            func(r *Release) { r.Sums = []float64{math.Inf(-1), 1} },
		"0 reports of 20 clients":  func(r *Release) { r.Reports = 0 },
		"21 reports of 20 clients": func(r *Release) { r.Reports = 21 },
		"-3 clients":               func(r *Release) { r.Clients = -3 },
		"law of the errors":        func(r *Release) { r.Law = nil },
	} {
		r := good
		change(&r)
		if _, err := q.Answer(r); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := (Question{Measure: "histogram"}).Answer(good); err == nil {
		t.Error("a question that is none has an answer")
	}
	// Sums of a tree must have independent errors.
	tree := Question{Measure: "quantiles", Column: "t", High: 1, Ranks: []float64{.5}, Levels: 1}
	if _, err := tree.Answer(Release{Sums: []float64{1, 2}, Reports: 10, Law: response{n: 10, truth: .9, lie: .1, untruth: .1, unlie: .9}}); err == nil {
		t.Error("a tree of single messages has an answer")
	}
}

// Names of bins are short, and no two are alike.
func TestBinNames(t *testing.T) {
	for _, test := range []struct {
		edges []float64
		want  string
	}{
		{[]float64{0, .1, .2}, "[0, 0.1) [0.1, 0.2]"},
		{[]float64{0, 1. / 3, 2. / 3, 1}, "[0, 0.3333) [0.3333, 0.6667) [0.6667, 1]"},
		{[]float64{-1000000, 12345.5, 1e9}, "[-1000000, 12350) [12350, 1000000000]"},
		{[]float64{1e15, 1e15 + 1, 1e15 + 2}, "[1e+15, 1.000000000000001e+15) [1.000000000000001e+15, 1.000000000000002e+15]"},
		{[]float64{100, 100 + 1./3, 100 + 2./3}, "[100, 100.3) [100.3, 100.7]"},
		{[]float64{100, 100.001 + 1e-10, 100.002}, "[100, 100.001) [100.001, 100.002]"},
	} {
		a := Answer{Bins: make([]Bin, len(test.edges)-1)}
		for i := range a.Bins {
			a.Bins[i] = Bin{Lower: &test.edges[i], Upper: &test.edges[i+1]}
		}
		if got := strings.Join(a.BinNames(), " "); got != test.want {
			t.Errorf("%v: %s, want %s", test.edges, got, test.want)
		}
	}
}

// The JSON of answers has the names that the commands promise.
func TestAnswerJSON(t *testing.T) {
	law, err := OfCurator(1, 100, 50, true)
	if err != nil {
		t.Fatal(err)
	}
	q := Question{Measure: "histogram", Column: "t", Edges: []float64{0, 1, 2}}
	a, err := q.Answer(Release{Sums: []float64{30, 20}, Reports: 50, Law: law})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"measure":"histogram","column":"t","reports":50,"clients":50,"errors":["noise"],"bins":[` +
		`{"lower":0,"upper":1,"count":30,"low95":11,"high95":49,"joint_low95":8,"joint_high95":52},` +
		`{"lower":1,"upper":2,"count":20,"low95":1,"high95":39,"joint_low95":-2,"joint_high95":42}]}`
	if string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
}
