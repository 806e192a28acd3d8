package measure

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/learn/statistic"
)

func TestAskedBecomesAQuestion(t *testing.T) {
	for _, test := range []struct {
		asked Asked
		want  string
	}{
		{Asked{Measure: "count", Where: `age>=40,city=Paris\, TX`},
			`{"measure":"count","where":[{"column":"age","is":">=","value":"40"},{"column":"city","is":"=","value":"Paris, TX"}]}`},
		{Asked{Measure: "mean", Column: "age", Range: "-5..1e2", Everyone: true}, `{"measure":"mean","column":"age","low":-5,"high":100,"everyone":true}`},
		{Asked{Measure: "histogram", Column: "age", Bins: "0,18,65"}, `{"measure":"histogram","column":"age","edges":[0,18,65]}`},
		{Asked{Measure: "histogram", Column: "age", Bins: "0..1:10"}, `{"measure":"histogram","column":"age","edges":[0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1]}`},
		{Asked{Measure: "histogram", Column: "age", Bins: "-1..2:3"}, `{"measure":"histogram","column":"age","edges":[-1,0,1,2]}`},
		{Asked{Measure: "histogram", Column: "city", Categories: `a\|b|c|*`}, `{"measure":"histogram","column":"city","categories":["a|b","c","*"]}`},
		{Asked{Measure: "quantiles", Column: "age", Range: "0..100"}, `{"measure":"quantiles","column":"age","high":100,"ranks":[0.25,0.5,0.75],"levels":10}`},
		{Asked{Measure: statistic.LinearRegression, Column: "rent", Range: "0..9", Features: `a\,b=0..1,c=-1..1`},
			`{"measure":"linear-regression","column":"rent","high":9,"features":[{"column":"a,b","high":1},{"column":"c","low":-1,"high":1}]}`},
	} {
		q, err := test.asked.Question()
		if err != nil || string(q.JSON()) != test.want {
			t.Errorf("%+v: %s, %v; want %s", test.asked, q.JSON(), err, test.want)
			continue
		}
		if again, err := statistic.Parse(q.JSON()); err != nil || !reflect.DeepEqual(again, q) {
			t.Errorf("%s is read as %+v, %v", q.JSON(), again, err)
		}
	}
}

// What is missing is never read off the data, and a mistake names value and rule.
func TestAskedRefuses(t *testing.T) {
	for _, test := range []struct {
		asked Asked
		want  string
	}{
		{Asked{Measure: "mean", Column: "age"}, "never read off the data"},
		{Asked{Measure: "variance", Column: "age"}, "never read off the data"},
		{Asked{Measure: "quantiles", Column: "age"}, "never read off the data"},
		{Asked{Measure: "histogram", Column: "age"}, "never read off the data"},
		{Asked{Measure: "histogram", Column: "age", Bins: "0..1:2", Categories: "a|b"}, "bins"},
		{Asked{Measure: statistic.LinearRegression, Column: "age", Range: "0..1"}, "never read off the data"},
		{Asked{Measure: "mean", Column: "age", Range: "5"}, `range: "5" must be two finite numbers`},
		{Asked{Measure: "mean", Column: "age", Range: "0..NaN"}, `range: "0..NaN"`},
		{Asked{Measure: "mean", Column: "age", Range: "0..inf"}, `range: "0..inf"`},
		{Asked{Measure: "histogram", Column: "age", Bins: "0..1:0"}, `bins: "0..1:0" must be LOW..HIGH:COUNT`},
		{Asked{Measure: "histogram", Column: "age", Bins: "0..1:9e9"}, `bins: "0..1:9e9"`},
		{Asked{Measure: "histogram", Column: "city", Categories: "city=a|b"}, `"city=a" begins with the column`},
		{Asked{Measure: "histogram", Column: "age", Bins: "4"}, `bins: "4" must have at least two edges`},
		{Asked{Measure: "histogram", Column: "age", Bins: "1,0"}, "edge"},
		{Asked{Measure: "histogram", Column: "age", Bins: "0,x"}, `bins: "x" is not a finite number`},
		{Asked{Measure: "quantiles", Column: "age", Range: "0..1", Ranks: "2"}, "rank"},
		{Asked{Measure: "count", Where: "age"}, `condition "age" must compare`},
		{Asked{Measure: "mean", Column: "age", Range: "0..1", Bins: "0..1:2"}, "bins is given, which a mean does not use"},
		{Asked{Measure: "count", Column: "age", Range: "0..1"}, "range is given, which a count does not use"},
		{Asked{Measure: "count", Where: "age=>5"}, `condition "age=>5" must compare with one of != <= >= = < >`},
		{Asked{Measure: "count", Where: "city==rome"}, "must compare with one of"},
		{Asked{Measure: "histogram", Column: "age", Bins: "0..1:2", Categories: "a|b"}, "bins and categories"},
		{Asked{Measure: "mean", Column: "age", Range: "0..1e308"}, "goes beyond ±1e+100"},
		{Asked{Measure: "median", Column: "age"}, `"median" is none of the questions`},
		{Asked{Measure: statistic.LinearRegression, Column: "y", Range: "0..1", Features: "x"}, `features: "x" must be COLUMN=LOW..HIGH`},
	} {
		if q, err := test.asked.Question(); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %s, %v; want %q", test.asked, q.JSON(), err, test.want)
		}
	}
}

// Bins of equal width begin and end where they are asked to, and rise.
func TestBinsRise(t *testing.T) {
	for _, text := range []string{"0..1:7", "-1e-9..3:1000", "0.1..0.3:3", "1e15..2e15:1024", "-100..-99:9"} {
		edges, err := parseBins(text)
		if err != nil {
			t.Fatal(err)
		}
		low, high, _ := parseRange(text[:strings.Index(text, ":")])
		if edges[0] != low || edges[len(edges)-1] != high || !slices.IsSorted(edges) || len(slices.Compact(slices.Clone(edges))) != len(edges) {
			t.Errorf("%s has the edges %v", text, edges)
		}
	}
}

// A cell with the decimal of an edge lies in the bin that begins there.
func TestBinsBeginAtDecimals(t *testing.T) {
	for _, test := range []struct {
		bins  string
		tenth int // the bins are this many tenths wide, from 0
		n     int
	}{{"0..1.2:12", 1, 12}, {"0..10:100", 1, 100}, {"0..3:10", 3, 10}, {"0..0.7:7", 1, 7}} {
		edges, err := parseBins(test.bins)
		if err != nil {
			t.Fatal(err)
		}
		for i := range test.n + 1 {
			decimal := fmt.Sprintf("%d.%d", i*test.tenth/10, i*test.tenth%10)
			if v, _ := strconv.ParseFloat(decimal, 64); edges[i] != v {
				t.Errorf("bins %s: edge %d is %v, want %s", test.bins, i, edges[i], decimal)
			}
		}
	}
}

// Every setting has its own name, and a row for each of Asked but the kind.
func TestFieldsOfAsked(t *testing.T) {
	var a Asked
	names := map[string]bool{}
	for _, f := range a.Fields() {
		names[f.Name] = true
	}
	if want := reflect.TypeFor[Asked]().NumField() - 1; len(names) != want || len(a.Fields()) != want {
		t.Errorf("%d names in %d rows for %d settings", len(names), len(a.Fields()), want)
	}
}
