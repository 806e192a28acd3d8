package report

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

func TestMatrix(t *testing.T) {
	doc := parse(t, write(t, example()))
	var rows []string
	for _, tr := range doc.class("matrix")[0].named("tbody")[0].named("tr") {
		var cells []string
		for _, c := range tr.Kids {
			cells = append(cells, c.text()+" "+c.Attr["class"])
		}
		rows = append(rows, strings.Join(cells, "|"))
	}
	// Worst mistake: c taken for a, 40 % of its class.
	want := []string{
		"a |8 right k8|2 wrong k5|0 none|80.0 % recall",
		"b |1 wrong k5|4 right k8|0 none|80.0 % recall",
		"c |2 wrong k10|0 none|3 right k6|60.0 % recall",
	}
	if fmt.Sprint(rows) != fmt.Sprint(want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
	first := doc.class("mistakes")[0].named("li")[0].text()
	if first != "a taken for b 2 times, 20.0 % of its class" {
		t.Errorf("first mistake is %q", first)
	}
}

// A class without examples has no recall, and many classes no matrix.
func TestMatrixEdges(t *testing.T) {
	m := newMatrix([]string{"a", "b"}, [][]int64{{0, 0}, {0, 5}})
	if m.Recalls[0].Value != "—" || m.Recalls[1].Value != "100.0 %" || len(m.Mistakes) != 0 {
		t.Errorf("got %+v", m)
	}
	classes, confusion := make([]string, 27), make([][]int64, 27)
	for i := range classes {
		classes[i], confusion[i] = fmt.Sprint("class", i), make([]int64, 27)
		confusion[i][i] = 1
		confusion[i][(i+1)%27] = int64(i)
	}
	r := example()
	r.Classes, r.Confusion, r.Samples = classes, confusion, nil
	doc := parse(t, write(t, r))
	if len(doc.class("matrix")) != 0 || !strings.Contains(doc.text(), "With 27 classes the full matrix is left out") {
		t.Error("a matrix of 27 classes is drawn")
	}
	if got := doc.class("mistakes")[0].named("li")[0].text(); !strings.HasPrefix(got, "class26 taken for class0 26 times") {
		t.Errorf("first mistake is %q", got)
	}
	if newMatrix([]string{"a"}, [][]int64{{0}}) != nil || newMatrix(nil, nil) != nil {
		t.Error("an empty matrix is drawn")
	}
}

func TestChartsLeaveOutWhatCannotBeDrawn(t *testing.T) {
	drawn := func(points []Point) string {
		var s []string
		list, _ := charts(points)
		for _, c := range list {
			s = append(s, c.Y+"/"+c.X)
		}
		return strings.Join(s, " ")
	}
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		points []Point
		want   string
		note   string
	}{
		{nil, "", ""},
		{[]Point{{Round: 1, Epsilon: 1, Loss: 1, Accuracy: 1}}, "accuracy/round epsilon/round loss/round accuracy/epsilon", ""},
		{[]Point{{Round: 1, Epsilon: inf, Loss: 1, Accuracy: 1}}, "accuracy/round loss/round", "infinite in every round"},
		{[]Point{{Round: 1, Epsilon: 1, Loss: inf, Accuracy: 1}}, "accuracy/round epsilon/round accuracy/epsilon", "1 of 1 evaluation"},
		{[]Point{{Round: 1, Epsilon: nan, Loss: nan, Accuracy: nan}}, "", "1 of 1 evaluation"},
		{[]Point{{Round: 1, Epsilon: 1, Loss: 1, Accuracy: 1}, {Round: 2, Epsilon: inf, Loss: 1, Accuracy: 1}},
			"accuracy/round epsilon/round loss/round accuracy/epsilon", "infinite in 1 of 2 evaluations"},
		// Finite values in different rounds do not make a point.
		{[]Point{{Round: 1, Epsilon: 1, Loss: nan, Accuracy: nan}, {Round: 2, Epsilon: inf, Loss: nan, Accuracy: 1}},
			"accuracy/round epsilon/round", "infinite in 1 of 2"},
	} {
		if got := drawn(c.points); got != c.want {
			t.Errorf("%+v: drawn %q, want %q", c.points, got, c.want)
		}
		_, notes := charts(c.points)
		if all := strings.Join(notes, " "); !strings.Contains(all, c.note) || c.note == "" && all != "" {
			t.Errorf("%+v: notes %q, want %q", c.points, all, c.note)
		}
		r := example()
		r.Points = c.points
		doc := parse(t, write(t, r))
		if got := len(doc.class("plot")); got != len(strings.Fields(c.want)) {
			t.Errorf("%+v: page has %d charts, want %q", c.points, got, c.want)
		}
	}
}

func TestChartLabel(t *testing.T) {
	list, _ := charts(example().Points)
	want := "Line chart of 3 points. Accuracy against rounds: from 30.00 % at round 1 to 75.00 % at round 80; best 80.00 % at round 40."
	if list[0].Label != want || list[0].Last != "75.00 % at round 80" {
		t.Errorf("got %q, %q", list[0].Label, list[0].Last)
	}
}

// Sections whose data is absent are left out, whatever the combination.
func TestAbsentSections(t *testing.T) {
	r := Run{Title: "bare", Command: "riffle train", TestAccuracy: math.NaN(), TestLoss: math.NaN(), Seconds: math.NaN(),
		Privacy: Privacy{Trust: dp.None, Population: 1, Epsilon: math.Inf(1)}}
	doc := parse(t, write(t, r))
	for _, class := range []string{"matrix", "samples", "config", "plot", "points", "mistakes"} {
		if n := len(doc.class(class)); n != 0 {
			t.Errorf("%d elements of class %s without data", n, class)
		}
	}
	text := doc.text()
	for _, want := range []string{"No evaluation was recorded.", "not measured", "∞"} {
		if !strings.Contains(text, want) {
			t.Errorf("page does not say %q", want)
		}
	}
	for _, bad := range []string{"NaN", "Inf", "%!"} {
		if strings.Contains(text, bad) {
			t.Errorf("page says %q", bad)
		}
	}
}

func TestInterrupted(t *testing.T) {
	r := example()
	r.Interrupted, r.Resume = true, "riffle train --resume runs/x"
	r.Privacy.Rounds = 37
	doc := parse(t, write(t, r))
	if !strings.Contains(doc.text(), "stopped after 37 of 80 rounds") || doc.id(t, "resume").text() != r.Resume {
		t.Error("page does not say that the run was interrupted and how to go on")
	}
	r.Interrupted = false
	if strings.Contains(parse(t, write(t, r)).text(), r.Resume) {
		t.Error("a finished run offers to be resumed")
	}
}

func TestHeadline(t *testing.T) {
	values := func(r Run) string {
		var s []string
		for _, n := range parse(t, write(t, r)).class("tile") {
			s = append(s, n.class("value")[0].text()+" ("+n.class("detail")[0].text()+")")
		}
		return strings.Join(s, "; ")
	}
	r := example()
	want := "75.00 % (15 of 20 test examples); 0.7842 (proved, replace one client); 10⁻⁵ (additive slack); blanket-pld (a theorem)"
	if got := values(r); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	r.Privacy.Status, r.Privacy.Adjacency = dp.Approximation, dp.AddRemoveOne
	r.TestAccuracy = 0.5 // measured elsewhere: the matrix's counts do not belong to it
	want = "50.00 % (loss 0.5); 0.7842 (not a guarantee: approximate, add or remove one client); 10⁻⁵ (additive slack); blanket-pld (a theorem)"
	if got := values(r); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRefusals(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for want, change := range map[string]func(*Run){
		"title":             func(r *Run) { r.Title = "" },
		"command":           func(r *Run) { r.Command = "" },
		"test accuracy":     func(r *Run) { r.TestAccuracy = 1.01 },
		"population":        func(r *Run) { r.Privacy.Population = 0 },
		"rounds":            func(r *Run) { r.Privacy.Rounds = -1 },
		"reports per round": func(r *Run) { r.Privacy.ReportsPerRound = nan },
		"epsilon = NaN":     func(r *Run) { r.Privacy.Epsilon = nan },
		"epsilon = -1":      func(r *Run) { r.Privacy.Epsilon = -1 },
		"must be infinite":  func(r *Run) { r.Privacy.Trust = dp.None },
		"unknown trust":     func(r *Run) { r.Privacy.Trust = "vector-sum" },
		"unknown particip":  func(r *Run) { r.Privacy.Participation = "" },
		"unknown adjacency": func(r *Run) { r.Privacy.Adjacency = "" },
		"unknown status":    func(r *Run) { r.Privacy.Status = "" },
		"eps0 = 51":         func(r *Run) { r.Privacy.Eps0 = 51 },
		"delta = 0":         func(r *Run) { r.Privacy.Delta = 0 },
		"reports per round = +Inf": func(r *Run) {
			r.Privacy.ReportsPerRound = inf
		},
		"point 1 has round 1": func(r *Run) { r.Points[1].Round = 1 },
		"point 0 has round":   func(r *Run) { r.Points[0].Round = -1 },
		"has 2 rows":          func(r *Run) { r.Confusion = r.Confusion[:2] },
		"row 1 has 2 entries": func(r *Run) { r.Confusion[1] = r.Confusion[1][:2] },
		"[2][0] = -1":         func(r *Run) { r.Confusion[2][0] = -1 },
		"sample 1 has label":  func(r *Run) { r.Samples[1].Label = 3 },
		"predicted -1":        func(r *Run) { r.Samples[0].Predicted = -1 },
	} {
		r := example()
		change(&r)
		var b strings.Builder
		err := Write(&b, r)
		if err == nil || !strings.HasPrefix(err.Error(), "report: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error about %q, got %v", want, err)
		}
		if b.Len() != 0 {
			t.Errorf("%s: %d bytes written before the error", want, b.Len())
		}
	}
}

// What a model is compared with, and what is to be looked at, stands on the page.
func TestBaselineAndWarnings(t *testing.T) {
	r := example()
	r.Baseline, r.LossUnits, r.Warnings = `92.17 %, always "no"`, "83.14 in the units of spend", []string{"no better than <nothing>"}
	var page strings.Builder
	if err := Write(&page, r); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Baseline", "92.17 %, always &#34;no&#34;", "83.14 in the units of spend", "Warning", "no better than &lt;nothing&gt;"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is not on the page", want)
		}
	}
}

// What clients measured is a section of its own, which a run without it has not.
func TestMeasuredByClients(t *testing.T) {
	r := example()
	if doc := parse(t, write(t, r)); len(doc.class("measured")) != 0 || strings.Contains(doc.text(), "Measured by clients") {
		t.Error("a run that clients did not measure says that they did")
	}
	r.Measured, r.MeasuredOn = [][]string{{"Round", "Loss"}, {"1", "0.5"}, {"80", "0.25 <b>"}}, "On the share 0.2."
	doc := parse(t, write(t, r))
	var got []string
	for _, tr := range doc.class("measured")[0].named("tr") {
		for _, cell := range tr.Kids {
			got = append(got, cell.text())
		}
	}
	if fmt.Sprint(got) != "[Round Loss 1 0.5 80 0.25 <b>]" || !strings.Contains(doc.text(), "On the share 0.2.") {
		t.Errorf("got %q", got)
	}
}
