package operate

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/learn/statistic"
)

// TestShownAnswers: the page has every number of an answer under its name, and is JSON whatever the
// numbers are.
func TestShownAnswers(t *testing.T) {
	at := func(x float64) statistic.Interval {
		return statistic.Interval{Low95: x - 1, High95: x + 1, JointLow95: x - 2, JointHigh95: x + 2}
	}
	number := func(x float64) *statistic.Number { return &statistic.Number{Value: x, Interval: at(x)} }
	zero, one, rome, rest := 0., 1., "rome", statistic.Others
	for _, c := range []struct {
		a    statistic.Answer
		want string
		bars bool
	}{
		{statistic.Answer{Count: number(3), Share: number(.5)}, "clients counted|share of clients", false},
		{statistic.Answer{Mean: number(3), Variance: number(.5)}, "mean|variance", false},
		{statistic.Answer{Bins: []statistic.Bin{{Lower: &zero, Upper: &one, Count: 4, Interval: at(4)}, {Lower: &zero, Upper: &one, Count: 4, Interval: at(4)}}}, "[0, 1)|[0, 1]", true},
		{statistic.Answer{Bins: []statistic.Bin{{Category: &rome, Count: -4, Interval: at(-4)}, {Category: &rest, Interval: at(0)}}}, "rome|* (all others)", true},
		{statistic.Answer{Quantiles: []statistic.Quantile{{Rank: .25, Value: 3, Interval: at(3)}}}, "0.25", false},
		{statistic.Answer{Items: []statistic.Item{{Text: &rome, Count: 4, Interval: at(4)}, {Bytes: []byte{1, 255}, Count: 4, Interval: at(4)}}, Search: &statistic.Searched{}}, "rome|\"\\x01\\xff\"|(texts too long or with other symbols)", true},
		{statistic.Answer{Coefficients: []statistic.Coefficient{{Number: *number(1)}, {Column: "age", Number: statistic.Number{Value: 2, Interval: at(math.Inf(1))}}}}, "intercept|age", false},
		{statistic.Answer{Bins: make([]statistic.Bin, mostFigures+5)}, strings.Repeat("|", mostFigures-1), true},
	} {
		out := shownAnswer(c.a)
		var names []string
		for _, r := range out.Rows {
			names = append(names, r.Name)
		}
		if got := strings.Join(names, "|"); got != c.want || out.Bars != c.bars {
			t.Errorf("the page has %.100q with bars %t, want %.100q with %t", got, out.Bars, c.want, c.bars)
		}
		if _, err := json.Marshal(out); err != nil {
			t.Error(err)
		}
		if more := strings.Contains(out.Note, "5 more figures"); more != (len(c.a.Bins) > mostFigures) {
			t.Errorf("the note is %q", out.Note)
		}
	}
	for measure, want := range map[string]string{"histogram": "From 45 reports of 50 clients. ", statistic.LinearRegression: "From 45 reports. "} {
		if out := shownAnswer(statistic.Answer{Measure: measure, Reports: 45, Clients: 50}); !strings.HasPrefix(out.Note, want) {
			t.Errorf("%s: the note is %q, want %q", measure, out.Note, want)
		}
	}
}
