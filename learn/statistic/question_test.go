package statistic

import (
	"math"
	"slices"
	"strings"
	"testing"
)

func TestCanonicalJSON(t *testing.T) {
	for _, text := range []string{
		`{"measure":"count","where":[{"column":"age","is":">=","value":"40"}]}`,
		`{"measure":"mean","column":"age","high":120}`,
		`{"measure":"mean","column":"t","low":-5,"high":1e+21,"everyone":true}`,
		`{"measure":"histogram","column":"age","edges":[0,18,40.5,120]}`,
		`{"measure":"histogram","column":"größe","where":[{"column":"a","is":"!=","value":"<b>"}],"categories":["s","m","*"]}`,
	} {
		q, err := Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := string(q.JSON()); got != text {
			t.Errorf("%s became %s", text, got)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		`{"measure":"mode","column":"a"}`:                                                                        `"mode" is none of the questions`,
		`{"measure":"mean","column":"a","high":1,"bins":3}`:                                                      "unknown field",
		`{"measure":"mean","column":"a","high":1}{}`:                                                             "follows",
		`{"measure":"mean","column":"a","high":1} `:                                                              "canonical",
		`{"measure":"mean","column":"a","high":1.0}`:                                                             "canonical",
		`{"measure":"mean","column":"a","high":1,"high":1}`:                                                      "canonical",
		`{"Measure":"mean","column":"a","high":1}`:                                                               "canonical",
		`{"column":"a","measure":"mean","high":1}`:                                                               "canonical",
		`{"measure":"mean","column":"a","low":0,"high":1}`:                                                       "canonical",
		`{"measure":"mean","column":"a","low":-0,"high":1}`:                                                      "range",
		`{"measure":"mean","column":"a"}`:                                                                        "would tell of it",
		`{"measure":"mean","column":"a","high":1e200}`:                                                           "goes beyond ±1e+100",
		`{"measure":"mean","column":"a","low":2,"high":1}`:                                                       "the lower one first",
		`{"measure":"quantiles","column":"a","high":1,"ranks":[0,0.5],"levels":1}`:                               "rank 0 must lie strictly between 0 and 1",
		`{"measure":"quantiles","column":"a","high":1,"ranks":[0.5,1],"levels":1}`:                               "rank 1 must lie strictly between 0 and 1",
		`{"measure":"quantiles","column":"a","high":1,"ranks":[1e-10],"levels":1}`:                               "at least 1e-09 away",
		`{"measure":"quantiles","column":"a","high":1,"ranks":[0.5,0.4],"levels":1}`:                             "rank 0.4 must be above the one before it, 0.5",
		`{"measure":"histogram","column":"a","edges":[0,1e200]}`:                                                 "beyond ±1e+100",
		`{"measure":"histogram","column":"a","categories":["x",""]}`:                                             "category 2 of 2 is empty",
		`{"measure":"mean","column":"a","low":1,"high":1.00000000000001}`:                                        "too narrow",
		`{"measure":"mean","column":"a","high":1,"edges":[1,2]}`:                                                 "edges is given, which a mean does not use",
		`{"measure":"mean","column":" a","high":1}`:                                                              "spaces",
		`{"measure":"mean","column":"a","where":[{"column":"b","is":">","value":"1"}],"high":1,"everyone":true}`: "everyone",
		`{"measure":"histogram","column":"a"}`:                                                                   "would tell of it",
		`{"measure":"histogram","column":"a","edges":[1,1]}`:                                                     "edge 1",
		`{"measure":"histogram","column":"a","edges":[0,1],"categories":["x"]}`:                                  "one of them",
		`{"measure":"histogram","column":"a","categories":["x","x"]}`:                                            "twice",
		`{"measure":"histogram","column":"a","categories":["*","x"]}`:                                            "last",
		`{"measure":"histogram","edges":[0,1]}`:                                                                  "column is missing",
		`{"measure":"count"}`:                                                                                    "needs a column or a condition",
		`{"measure":"count","where":[{"column":"a","is":"~","value":"1"}]}`:                                      "none of",
		`{"measure":"count","where":[{"column":"a","is":"<","value":"x"}]}`:                                      "not a number",
		`{"measure":"count","where":[{"column":"a","is":"<","value":"1","or":1}]}`:                               "unknown field",
		`null`: "none of the questions",
		``:     "EOF",
		`{"measure":"count","column":"` + strings.Repeat("x", 300) + `"}`: "limit",
		strings.Repeat(" ", 1<<21):                                        "limit",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.99s: %v, want %q", text, err, want)
		}
	}
	for name, q := range map[string]Question{
		"NaN edge":  {Measure: "histogram", Column: "a", Edges: []float64{0, math.NaN(), 2}},
		"NaN range": {Measure: "mean", Column: "a", High: math.NaN()},
		"Inf range": {Measure: "mean", Column: "a", High: math.Inf(1)},
	} {
		if q.Validate() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// row is a client's row as a map.
type row map[string]string

func (r row) cell(column string) string { return r[column] }

func TestEncode(t *testing.T) {
	const r, r1 = 1.00623058987490536, 1.06066017177982129 // √1.0125 and √1.125
	for _, c := range []struct {
		question string
		cells    row
		want     []float32
	}{
		{`{"measure":"count","column":"a"}`, row{"a": "x"}, []float32{1}},
		{`{"measure":"count","column":"a"}`, row{"a": " "}, []float32{0}},
		{`{"measure":"count","where":[{"column":"a","is":">=","value":"40"}]}`, row{"a": "40.0"}, []float32{1}},
		{`{"measure":"count","where":[{"column":"a","is":">","value":"40"}]}`, row{"a": "40.0"}, []float32{0}},
		{`{"measure":"count","where":[{"column":"a","is":"!=","value":"x"}]}`, row{}, []float32{0}},
		{`{"measure":"count","where":[{"column":"a","is":"!=","value":"4"}]}`, row{"a": "y"}, []float32{1}},
		{`{"measure":"count","where":[{"column":"a","is":"=","value":"4"}]}`, row{"a": "4.00"}, []float32{1}},
		{`{"measure":"count","where":[{"column":"a","is":"<","value":"4"}]}`, row{"a": "NaN"}, []float32{0}},
		{`{"measure":"mean","column":"a","high":10}`, row{"a": "7.5"}, []float32{.5 / r, -.325 / r, .1 / r}},
		{`{"measure":"mean","column":"a","high":10}`, row{"a": "1e300"}, []float32{1 / r, .05 / r, .1 / r}},
		{`{"measure":"mean","column":"a","high":10}`, row{"a": "-3"}, []float32{-1 / r, .05 / r, .1 / r}},
		{`{"measure":"mean","column":"a","high":10}`, row{"a": "NaN"}, []float32{0, -.45 / r, -.9 / r}},
		{`{"measure":"mean","column":"a","high":10}`, row{"a": "1e999"}, []float32{0, -.45 / r, -.9 / r}},
		{`{"measure":"mean","column":"a","high":10}`, row{}, []float32{0, -.45 / r, -.9 / r}},
		{`{"measure":"mean","column":"a","where":[{"column":"b","is":"=","value":"x"}],"high":10}`, row{"a": "10", "b": "y"}, []float32{0, -.45 / r, -.9 / r}},
		{`{"measure":"mean","column":"a","high":10,"everyone":true}`, row{}, []float32{0, -1}},
		{`{"measure":"variance","column":"a","high":10}`, row{"a": "10"}, []float32{1 / r1, .25 / r1, .25 / r1}},
		{`{"measure":"variance","column":"a","high":10}`, row{}, []float32{0, -.75 / r1, -.75 / r1}},
		{`{"measure":"histogram","column":"a","edges":[0,1,2]}`, row{"a": "1"}, []float32{0, 1}},
		{`{"measure":"histogram","column":"a","edges":[0,1,2]}`, row{"a": "2"}, []float32{0, 1}},
		{`{"measure":"histogram","column":"a","edges":[0,1,2]}`, row{"a": "9"}, []float32{0, 1}},
		{`{"measure":"histogram","column":"a","edges":[0,1,2]}`, row{"a": "-9"}, []float32{1, 0}},
		{`{"measure":"histogram","column":"a","edges":[0,1,2]}`, row{"a": "old"}, []float32{0, 0}},
		{`{"measure":"histogram","column":"a","categories":["x","*"]}`, row{"a": "x"}, []float32{1, 0}},
		{`{"measure":"histogram","column":"a","categories":["x","*"]}`, row{"a": "z"}, []float32{0, 1}},
		{`{"measure":"histogram","column":"a","categories":["x","*"]}`, row{"a": "*"}, []float32{0, 1}},
		{`{"measure":"histogram","column":"a","categories":["x","*"]}`, row{}, []float32{0, 0}},
		{`{"measure":"histogram","column":"a","categories":["x","y"]}`, row{"a": "z"}, []float32{0, 0}},
	} {
		q, err := Parse([]byte(c.question))
		if err != nil {
			t.Fatal(err)
		}
		e, err := NewEncoder(q)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float32, q.Dim())
		for i := range x {
			x[i] = 7 // what was there before must go
		}
		e.Encode(c.cells.cell, nil, x)
		near := func(a, b float32) bool { return math.Abs(float64(a-b)) < 1e-6 }
		if !slices.EqualFunc(x, c.want, near) {
			t.Errorf("%s of %v is %v, want %v", c.question, c.cells, x, c.want)
		}
		var norm float64
		for _, v := range x {
			norm += float64(v) * float64(v)
		}
		if norm > q.Radius()*q.Radius() {
			t.Errorf("%s: norm %v above %v", c.question, norm, q.Radius())
		}
	}
}
