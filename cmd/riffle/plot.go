package main

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/internal/picture"
)

// plotFlags are the flags that draw the answers of a curve.
type plotFlags struct{ file, bounds string }

func (p *plotFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.file, "plot", "", "draw the --curve (rounds=1..rounds:25 if there is none) to a .svg or .png `FILE`")
	cmd.Flags().StringVar(&p.bounds, "plot-bounds", strings.Join(plotDefault, ","), "what to draw: upper, lower, or bounds' names")
	completeList(cmd, "plot-bounds", append([]string{"upper", "lower"}, boundNames()...)...)
}

// plotDefault are the bounds that a picture shows by default.
var plotDefault = []string{"upper", "lower", "blanket-rdp", "clones-pld", "girgis-thm1"}

func (p *plotFlags) check() error {
	if ext := strings.ToLower(filepath.Ext(p.file)); p.file != "" && ext != ".svg" && ext != ".png" {
		return usage("--plot %s: the file's name must end in .svg or .png", p.file)
	}
	if p.file != "" {
		return inFolder("plot", p.file)
	}
	return nil
}

// plotPoints is the number of points of a picture without --curve.
const plotPoints = 25

func (p *plotFlags) plot(cmd *cobra.Command, q account.Query, c curve, answers []account.Reply, bounds string) error {
	if c.name == "" {
		text := fmt.Sprintf("rounds=1..%d:%d", max(1000, q.Rounds), plotPoints)
		if q.Participation == dp.Once { // more rounds cost nothing here
			text = fmt.Sprintf("eps0=%g..%g:%d", math.Max(.01, q.Eps0/10), q.Eps0, plotPoints)
		}
		var err error
		if c, err = parseCurve(text); err != nil {
			return err
		}
		queries := make([]account.Query, len(c.values))
		for i, x := range c.values {
			queries[i] = q
			c.set(&queries[i], x)
		}
		if answers, err = answerAll(cmd, queries, bounds); err != nil {
			return err
		}
	}
	var lines []line
	for _, name := range strings.Split(p.bounds, ",") {
		l, known := lineOf(strings.TrimSpace(name), c.quantity, answers)
		if !known {
			return usage("--plot-bounds: %q is none of upper, lower and the bounds listed", name)
		}
		if len(l.x) > 0 {
			lines = append(lines, l)
		}
	}
	if len(lines) == 0 {
		return fmt.Errorf("--plot: none of %s applies", p.bounds)
	}
	drawn := make([]picture.Line, len(lines))
	for i, l := range lines {
		drawn[i] = l.drawn(i)
	}
	text, err := picture.Picture{Title: plotTitle(q, c), X: picture.Axis{Label: c.label}, Y: picture.Axis{Label: plotAxis(q, c)}, Lines: drawn}.Render(strings.ToLower(filepath.Ext(p.file)))
	if err != nil {
		return err
	}
	return durable.WriteFile(p.file, text)
}

// line is one bound along a curve.
type line struct {
	name string
	kind dp.Kind
	best bool // whether it is the tightest of its kind
	x, y []float64
}

// lineOf collects a bound's finite values; known is false if no bound has the name.
func lineOf(name string, of quantity, answers []account.Reply) (l line, known bool) {
	l.name = name
	for _, a := range answers {
		var b *dp.Bound
		switch name {
		case "upper":
			b, known, l.best, l.kind = a.Upper, true, true, dp.Upper
		case "lower":
			b, known, l.best, l.kind = a.Lower, true, true, dp.Lower
		default:
			i := slices.IndexFunc(a.Bounds, func(b account.Listed) bool { return b.Method == name })
			if i < 0 {
				continue
			}
			known, l.kind = true, a.Bounds[i].Kind
			if a.Bounds[i].Applies {
				b = &a.Bounds[i].Bound
			}
		}
		if b == nil {
			continue
		}
		y := b.Eps
		if a.Query.AskDelta {
			y = b.Delta
		}
		if !math.IsInf(y, 0) && !math.IsNaN(y) {
			l.x, l.y = append(l.x, of.value(a.Query)), append(l.y, y)
		}
	}
	// With --bounds best the other defaults are missing, which is not a mistake.
	return l, known || slices.Contains(plotDefault, name)
}

func plotAxis(q account.Query, c curve) string {
	switch {
	case q.AskDelta:
		return "δ at ε = " + picture.Number(q.Eps)
	case c.name == "delta":
		return "ε (nats)"
	}
	return "ε (nats) at δ = " + picture.Number(q.Delta)
}

// plotTitle describes the query without the quantity of the curve.
func plotTitle(q account.Query, c curve) string {
	parts := []string{fmt.Sprintf("participation %s", q.Participation)}
	if q.Trust.Is(dp.Alone) {
		parts = append(parts, "no shuffler")
	}
	if q.Class != dp.Generic {
		parts = append(parts, fmt.Sprintf("randomizer %s", q.Class))
	}
	for _, of := range quantities() {
		if x := of.value(q); of.name != c.name && of.name != "delta" && x != 0 {
			parts = append(parts, of.symbol+" = "+picture.Number(x))
		}
	}
	if q.Dropout > 0 {
		parts = append(parts, fmt.Sprintf("dropout = %g", q.Dropout))
	}
	return strings.Join(parts, ", ")
}

// drawn returns the line in a picture, in which it is the i-th.
func (l line) drawn(i int) picture.Line {
	out := picture.Line{Name: l.name, X: l.x, Y: l.y, Style: picture.Style{Colour: picture.Palette[i%len(picture.Palette)]}}
	if l.best {
		out.Style.Colour, out.Style.Width = nil, 2.4
	}
	if i >= len(picture.Palette) { // colours repeat from here on
		out.Style.Dash = picture.LongDash
	}
	switch l.kind {
	case dp.Lower:
		out.Style.Dash = picture.Dashed
	case dp.Approximate:
		out.Style.Dash = picture.Dotted
	}
	if l.best || l.kind != dp.Upper {
		out.Name = map[dp.Kind]string{dp.Upper: "proved upper bound", dp.Lower: "lower bound", dp.Approximate: l.name + " (approximate)"}[l.kind]
		if !l.best && l.kind == dp.Lower {
			out.Name = l.name + " (lower)"
		}
	}
	return out
}
