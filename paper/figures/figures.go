// Package figures draws, for the program, the figures and tables of the papers that riffle
// reproduces, each with riffle's own bounds beside the paper's: a picture as SVG and PNG, its
// data as CSV, and a note where a curve differs from the paper's and why. Figures of riffle's
// own compare the noise of single messages with a trusted curator's. The package computes bounds
// itself; accuracies come from recorded experiments.
package figures

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/riffle-dp/riffle/internal/picture"
)

// figure is one figure or table of a paper, or of riffle.
type figure struct {
	Name    string // of its files, and in --only
	Paper   string // short name and year; ownFigures: riffle's
	Where   string // place in the paper, such as "Figure 2a"
	Title   string
	Caption string // what it shows, with every parameter
	// Notes say where riffle's picture differs from the paper's, and why.
	Notes []string
	draw  func(ctx context.Context, d *desk) (data, error)
}

// data is the content of a figure: series, a table, or both.
type data struct {
	X, Y   picture.Axis
	XName  string // of the CSV column
	Series []series
	// Table, if it has rows, is written in place of the series.
	Table table
	Notes []string // notes from computing: what is missing, what does not apply
	band  bool     // whether to fill the area between riffle's bounds
}

// series is one curve.
type series struct {
	Name   string // of the CSV column: a method id of package account, or riffle-upper, riffle-best, riffle-lower
	Label  string // in the legend
	Source string // theorem and version
	Kind   string // upper, lower, approximate or measured
	X, Y   []float64
	// Low and High are the spread of measured values; nil for bounds.
	Low, High []float64
	BarEvery  int // a picture shows every BarEvery-th bar; 0: all
	Style     picture.Style
	Hidden    bool // in the CSV only
}

// table has rows of text.
type table struct {
	Header []string
	Rows   [][]string
}

// all lists the figures in the order of the index.
func all() []figure {
	return slices.Concat(girgisFigures(), girgisAccuracy(), eabFigures(), checkInFigures(), []figure{checkInAccuracy()}, convexFigures(), singleFigures(), []figure{claimsTable()})
}

// List returns the figures with the names, in the order of the index; no names mean all.
func List(names ...string) ([]figure, error) {
	if len(names) == 0 {
		return all(), nil
	}
	var out []figure
	var known []string
	for _, f := range all() {
		known = append(known, f.Name)
		if slices.Contains(names, f.Name) {
			out = append(out, f)
		}
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("figures: no figure %q; want one of %s", n, strings.Join(known, ", "))
		}
	}
	return out, nil
}

// desk holds what figures are made from.
type desk struct {
	asker
	results fs.FS // holds e1.csv, e2.csv, …; nil if nothing was recorded
	points  int   // points of a curve; 0: the figure's own number
}

// grid is gridOf rounded to whole numbers.
func grid(low, high float64, points int) []float64 {
	var out []float64
	for _, x := range gridOf(low, high, points) {
		if x = math.Round(x); len(out) == 0 || x > out[len(out)-1] {
			out = append(out, x)
		}
	}
	return out
}

// gridOf returns points evenly spaced in the logarithm, to four digits.
func gridOf(low, high float64, points int) []float64 {
	out := make([]float64, points)
	for i := range out {
		x := low * math.Pow(high/low, float64(i)/float64(points-1))
		out[i], _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', 4, 64), 64)
	}
	return out
}

// fewer keeps n of the points, the first and the last among them.
func fewer(xs []float64, n int) []float64 {
	if n < 2 || n >= len(xs) {
		return xs
	}
	var out []float64
	for i := range n {
		out = append(out, xs[i*(len(xs)-1)/(n-1)])
	}
	return out
}
