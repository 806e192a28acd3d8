package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/run/measure"
	"github.com/riffle-dp/riffle/service/operate"
)

// Every example of riffle measure's help runs, in a folder with nothing in it.
func TestMeasureExamplesRun(t *testing.T) {
	t.Chdir(t.TempDir())
	for i, k := range kindsOfQuestions {
		lines := strings.Split(newMeasureKind(k).Example, "\n")
		if i > 0 {
			lines = lines[1:] // the table is there
		}
		for _, line := range lines {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "   #")
			args, err := shellWords(line)
			if err != nil {
				t.Fatal(err)
			}
			var out, problems bytes.Buffer
			if code := run(args[1:], &out, &problems); code != exitDone {
				t.Errorf("%s: exit code %d: %s", line, code, problems.String())
			}
		}
	}
}

// An answer's lines have at most 80 columns, however long names and numbers are.
func TestAnswersFitTheTerminal(t *testing.T) {
	long := strings.Repeat("a name without an end ", 20)
	for _, x := range []float64{0, 1, -12345.678, 1e6, -123456789.5, 9.87654321e12, 1e99, -1e-99} {
		for _, wide := range []float64{0, 1e-12, .01, 7.5, 1e4, 1e11, 1e98, math.Inf(1)} {
			n := statistic.Number{Value: x, Interval: statistic.Interval{Low95: x - wide, High95: x + wide, JointLow95: x - 2*wide, JointHigh95: x + 2*wide}}
			for name, a := range map[string]statistic.Answer{
				"numbers":      {Count: &n, Share: &n, Mean: &n, Variance: &n},
				"bins":         {Column: long, Bins: []statistic.Bin{{Category: &long, Count: x, Interval: n.Interval}, {Lower: &x, Upper: &wide, Count: x, Interval: n.Interval}}},
				"quantiles":    {Column: long, Count: &n, Quantiles: []statistic.Quantile{{Rank: .123456789, Value: x, Interval: n.Interval, RankHigh95: 1}}},
				"coefficients": {Column: long, Coefficients: []statistic.Coefficient{{Number: n}, {Column: long, Number: n}}},
			} {
				var out bytes.Buffer
				p := printer{w: &out}
				printAnswer(&p, a)
				for line := range strings.Lines(out.String()) {
					if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
						t.Fatalf("%s of %v ± %v: %d columns: %s", name, x, wide, n, line)
					}
				}
			}
		}
	}
}

// A count beyond where counts end is written with as many digits as the others.
func TestCountsBeyondTheirInterval(t *testing.T) {
	var table answerTable
	table.add("rare", -14292.123, statistic.Interval{JointHigh95: 7738})
	if want := [4]string{"rare", "-14292", "0 .. 0", "0 .. 7738"}; table.rows[0] != want {
		t.Errorf("%q, want %q", table.rows[0], want)
	}
}

// What is said about texts where numbers are asked for names flags that the question has.
func TestMeasureOfTexts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "t.csv")
	if err := os.WriteFile(file, []byte("age\nold\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		kind, flag, value, want string
	}{
		{"mean", "--range", "0..9", `"old" is not a number; leave cells without a number empty` + "\n"},
		{"histogram", "--bins", "0..9:3", `"old" is not a number; --categories, in place of --bins, count texts` + "\n"},
	} {
		var out, problems bytes.Buffer
		code := run([]string{"measure", test.kind, "--data", file, "--column", "age", test.flag, test.value}, &out, &problems)
		if code != exitUsage || !strings.HasSuffix(problems.String(), test.want) {
			t.Errorf("%s: exit code %d: %s; want %s", test.kind, code, problems.String(), test.want)
		}
	}
}

// Help names only modes of trust in which questions are answered, and says how a task's question is written.
func TestHelpOfQuestions(t *testing.T) {
	help := func(args ...string) string {
		var out, problems bytes.Buffer
		if code := run(append(args, "--help"), &out, &problems); code != exitDone {
			t.Fatalf("%v: exit code %d: %s", args, code, problems.String())
		}
		return strings.Join(strings.Fields(out.String()), " ")
	}
	if text := help("measure", "mean"); strings.Contains(text, "none (") || strings.Contains(text, "distributed (") || !strings.Contains(text, "central (") {
		t.Error(text)
	}
	if text := help("task", "create"); !strings.Contains(text, "of a question LOW..HIGH") || !strings.Contains(text, "of a question berlin|paris|*") {
		t.Error(text)
	}
}

// A regression is about those who reported, however many clients there are.
func TestReportsOf(t *testing.T) {
	for _, test := range []struct {
		a    statistic.Answer
		want string
	}{
		{statistic.Answer{Measure: "mean", Reports: 5, Clients: 5}, "5, of all clients"},
		{statistic.Answer{Measure: "mean", Reports: 5, Clients: 7}, "5 of 7 clients"},
		{statistic.Answer{Measure: statistic.LinearRegression, Reports: 5, Clients: 5}, "5, whose clients the answer is about"},
	} {
		if got := reportsOf(test.a); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// The keys of the JSON of both commands that show an answer, and their order, are contracts with scripts.
func TestKeysOfAnswers(t *testing.T) {
	const cost = "measure reports clients errors trust noise_by epsilon delta adjacency bound "
	a, g := statistic.Answer{Errors: []string{"noise"}}, measure.Guarantee{NoiseBy: "clients"}
	for _, c := range []struct {
		of   any
		want string
	}{
		{measureDocument{Answer: a, Guarantee: g, Ledger: &measureLedger{}}, cost + "ledger seed seconds question"},
		{operate.Answer{Answer: a, Guarantee: g, TooLong: true}, cost + "question format task name round too_long"},
	} {
		raw, err := json.Marshal(c.of)
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		d := json.NewDecoder(bytes.NewReader(raw))
		for d.Token(); d.More(); {
			key, err := d.Token()
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Decode(new(json.RawMessage)); err != nil {
				t.Fatal(err)
			}
			keys = append(keys, key.(string))
		}
		if got := strings.Join(keys, " "); got != c.want {
			t.Errorf("%T has the keys %s, want %s", c.of, got, c.want)
		}
	}
}
