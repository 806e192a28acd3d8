package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/dp"
)

// series is the data that the page's script draws, by column.
type series struct {
	Round    []int64     `json:"round"`
	Epsilon  []dp.Number `json:"epsilon"`
	Accuracy []dp.Number `json:"accuracy"`
	Loss     []dp.Number `json:"loss"`
	Seconds  []dp.Number `json:"seconds"`
}

func newSeries(points []Point) series {
	var s series
	for _, p := range points {
		s.Round = append(s.Round, p.Round)
		s.Epsilon = append(s.Epsilon, dp.Number(p.Epsilon))
		s.Accuracy = append(s.Accuracy, dp.Number(p.Accuracy))
		s.Loss = append(s.Loss, dp.Number(p.Loss))
		s.Seconds = append(s.Seconds, dp.Number(p.Seconds))
	}
	return s
}

// pointRow is a row of the table for pages without scripts.
type pointRow struct{ Round, Epsilon, Accuracy, Loss, Seconds string }

func pointRows(points []Point) []pointRow {
	var rows []pointRow
	for _, p := range points {
		rows = append(rows, pointRow{count(p.Round), roundUp(p.Epsilon, 4), percent(p.Accuracy, 2), number(p.Loss), number(p.Seconds)})
	}
	return rows
}

// chart is one drawing: its texts, and the columns of series that it uses.
type chart struct {
	X, Y, Title string
	Label       string // for people who cannot see the drawing
	Last        string // the readout while no point is selected
}

// quantity is a column of series that charts use as an axis.
type quantity struct {
	key  string
	of   func(Point) float64
	show func(float64) string
}

// charts returns the drawings that have at least one point, and sentences about those that
// have none.
func charts(points []Point) (list []chart, notes []string) {
	if len(points) == 0 {
		return nil, nil
	}
	round := quantity{"round", func(p Point) float64 { return float64(p.Round) }, number}
	accuracy := quantity{"accuracy", func(p Point) float64 { return p.Accuracy },
		func(x float64) string { return percent(x, 2) }}
	loss := quantity{"loss", func(p Point) float64 { return p.Loss }, number}
	epsilon := quantity{"epsilon", func(p Point) float64 { return p.Epsilon },
		func(x float64) string { return "ε " + roundUp(x, 4) }}
	for _, c := range []struct {
		title string
		x, y  quantity
	}{
		{"Accuracy against rounds", round, accuracy},
		{"ε against rounds", round, epsilon},
		{"Loss against rounds", round, loss},
		{"Accuracy against ε", epsilon, accuracy},
	} {
		if d, ok := newChart(c.title, c.x, c.y, points); ok {
			list = append(list, d)
		}
	}
	infinite, other := 0, 0
	measured := slices.ContainsFunc(points, func(p Point) bool { return finite(p.Accuracy) }) // a regression has none
	for _, p := range points {
		if math.IsInf(p.Epsilon, 1) {
			infinite++
		}
		if measured && !finite(p.Accuracy) || !finite(p.Loss) || !finite(p.Epsilon) && !math.IsInf(p.Epsilon, 1) {
			other++
		}
	}
	switch infinite {
	case 0:
	case len(points):
		notes = append(notes, "ε is infinite in every round, so there is no curve of it: nothing is promised to the clients.")
	default:
		notes = append(notes, fmt.Sprintf("ε is infinite in %s of %s; those are not drawn against ε.",
			count(int64(infinite)), plural(int64(len(points)), "evaluation")))
	}
	if other > 0 {
		notes = append(notes, fmt.Sprintf("%s of %s with a value that is missing or not finite; the curves have gaps there.",
			count(int64(other)), plural(int64(len(points)), "evaluation")))
	}
	return list, notes
}

func newChart(title string, x, y quantity, points []Point) (chart, bool) {
	var first, last, top Point
	n := int64(0)
	for _, p := range points {
		if !finite(x.of(p)) || !finite(y.of(p)) {
			continue
		}
		if n == 0 {
			first, top = p, p
		}
		if y.of(p) > y.of(top) {
			top = p
		}
		last = p
		n++
	}
	at := func(p Point) string {
		where := x.show(x.of(p))
		if x.key == "round" {
			where = "round " + count(p.Round)
		}
		return y.show(y.of(p)) + " at " + where
	}
	label := fmt.Sprintf("Line chart of %s. %s: from %s to %s", plural(n, "point"), title, at(first), at(last))
	if y.key == "accuracy" && top.Round != last.Round {
		label += "; best " + at(top)
	}
	return chart{X: x.key, Y: y.key, Title: title, Label: label + ".", Last: at(last)}, n > 0
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
