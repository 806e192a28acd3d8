package experiment

import (
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/run/solve"
	"github.com/riffle-dp/riffle/run/train"
)

func TestTable(t *testing.T) {
	c := &train.Config{PrivacyConfig: train.PrivacyConfig{Rounds: 20}}
	e := Experiment{Name: "x", Title: "Title", Source: "Source", Claims: []claim{{Value: .9, Eps: 1}, {Value: .5, Eps: .01}},
		Settings: []Setting{{Name: "theirs", Paper: true, Train: c, Note: "As written."}, {Name: "bad", Paper: true, Train: c},
			{Name: "ours", Train: c}, {Name: "dear", Train: c}, {Name: "begun", Train: c}, {Name: "absent", Train: c}}}
	nan := math.NaN()
	row := func(setting string, seed, round int64, proved, paper, value, seconds float64) Row {
		return Row{Experiment: "x", Setting: setting, Seed: seed, Round: round, EpsProved: proved, EpsBest: proved, EpsPaper: paper, Value: value, Seconds: seconds,
			Final: setting != "begun" && round >= 19} // a run of "dear" ends by its budget
	}
	rows := []Row{
		row("theirs", 1, 10, .1, .9, .70, 1), row("theirs", 1, 20, .2, 1.8, .80, 3),
		row("theirs", 2, 10, .1, .9, .74, 2), row("theirs", 2, 20, .2, 1.8, .84, 5),
		row("bad", 1, 10, .1, .9, .1, 1), row("bad", 1, 20, .2, 1.8, .2, 1),
		row("ours", 1, 20, .5, nan, .95, 1),
		row("dear", 1, 20, 1.0001, nan, .99, 1), row("dear", 2, 19, 1.0002, nan, .99, 1),
		row("dear", 3, 20, 1.00005, nan, .99, 1),
		row("begun", 1, 10, .1, nan, .999, 1),
	}
	table := NewTable(e, rows, nil)
	if len(table.Outcomes) != 5 {
		t.Fatalf("%d outcomes", len(table.Outcomes))
	}
	o := table.Outcomes[0]
	if o.Seeds != 2 || math.Abs(o.Value.Mean-.82) > 1e-12 || o.Value.Min != .80 || o.Value.Max != .84 || o.Seconds.Mean != 4 || o.Rounds != 20 {
		t.Errorf("%+v", o)
	}
	if curve := o.Curve; len(curve) != 2 || math.Abs(curve[0].Value-.72) > 1e-12 {
		t.Errorf("%+v", curve)
	}
	if d := table.Outcomes[3]; d.Seeds != 3 || d.Rounds != 20 || d.EpsProved != 1.0002 {
		t.Errorf("%+v", d)
	}
	if b := table.Outcomes[4]; b.Seeds != 0 || b.Unfinished != 1 || b.Reached.Round != 10 || !math.IsNaN(b.Value.Mean) {
		t.Errorf("%+v", b)
	}
	got := table.Comparisons[0]
	if got.Setting != "theirs" || math.Abs(got.Same.Mean-.72) > 1e-12 || got.Round != 10 || got.Proved != .1 || got.FinalProved != .2 ||
		got.OurSetting != "ours" || got.Ours.Mean != .95 {
		t.Errorf("%+v", got)
	}
	if got := table.Comparisons[1]; got.Setting != "theirs" || !math.IsNaN(got.Same.Mean) || math.Abs(got.Final.Mean-.82) > 1e-12 || got.OurSetting != "" {
		t.Errorf("%+v", got)
	}
	text := table.Text()
	for _, want := range []string{
		"theirs   paper  20      0.2       1.8                 82.00 % [80.00, 84.00]        2                            4\n",
		"begun    riffle  –", "0 (and 1 to round 10 of 20: 99.90 % at ε 0.1)",
		"90.00 % at ε = 1", "72.00 % (theirs, round 10; proved ε 0.1)", "95.00 % at ε 0.5 (ours)",
	} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), strings.Join(strings.Fields(want), " ")) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	page := table.markdown(func(s Setting) string { return "riffle " + s.Name })
	for _, want := range []string{"# X: Title\n\nSource: Source.\n", "| theirs | paper | 20 | 0.2 | 1.8 | 82.00 % [80.00, 84.00] | 2 | 4 |\n",
		"\ntheirs: As written.\n\n    riffle theirs\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}

func TestTableOfExcessLoss(t *testing.T) {
	e := Experiment{Name: "x"}
	var rows []Row
	for i, n := range []int64{1e4, 1e5, 1e6} {
		e.Settings = append(e.Settings, Setting{Name: "a/b/c", Solve: &solve.Config{N: n, Dim: 5, Epsilon: 1}})
		for seed := range int64(2) {
			rows = append(rows, Row{Experiment: "x", Setting: "a/b/c", Seed: seed + 1, Round: 7, EpsProved: 1, EpsBest: 1, EpsPaper: math.NaN(),
				Value: math.Pow(10, -float64(i)*.8) * (.9 + .2*float64(seed)), Final: true, N: n, Dim: 5, Epsilon: 1})
		}
	}
	table := NewTable(e, rows, nil)
	if len(table.Outcomes) != 3 || len(table.Slopes) != 1 || math.Abs(table.Slopes[0].Slope+.8) > 1e-9 {
		t.Errorf("%+v", table)
	}
	if text := table.Text(); !strings.Contains(text, "0.158 [0.143, 0.174]") || !strings.Contains(text, "-0.80") {
		t.Error(text)
	}
}

func TestEpsIsNeverShownTooSmall(t *testing.T) {
	for x := 1e-5; x < 1e4; x *= 1.0173 {
		text := eps(x)
		if v := parseEps(t, text); v < x || v > x*1.002 {
			t.Errorf("%v shown as %s", x, text)
		}
	}
}

func parseEps(t *testing.T, text string) float64 {
	t.Helper()
	rows, err := parseRows([]byte(strings.Join(columns, ",") + "\nx,y,1,1," + text + ",,,,,false\n"))
	if err != nil {
		t.Fatal(err)
	}
	return rows[0].EpsProved
}
