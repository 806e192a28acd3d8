package main

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
)

// plotFlags draw the answers of a curve.
type plotFlags struct{ file, bounds string }

func (p *plotFlags) flags(fs *pflag.FlagSet) {
	fs.StringVar(&p.file, "plot", "", "draw the --curve (rounds=1..rounds:25 if there is none) to a .svg or .png `FILE`")
	fs.StringVar(&p.bounds, "plot-bounds", strings.Join(plotDefault, ","), "what to draw: upper, lower, or bounds' names")
}

// plotDefault are the bounds that a picture shows unless told otherwise.
var plotDefault = []string{"upper", "lower", "blanket-rdp", "clones-pld", "girgis-thm1"}

func (p *plotFlags) check() error {
	if ext := strings.ToLower(filepath.Ext(p.file)); p.file != "" && ext != ".svg" && ext != ".png" {
		return usage("--plot %s: the file's name must end in .svg or .png", p.file)
	}
	return nil
}

// plotPoints is how many points a picture without --curve has.
const plotPoints = 25

func (p *plotFlags) plot(cmd *cobra.Command, q account.Query, c curve, answers []account.Reply, bounds string) error {
	if c.name == "" {
		text := fmt.Sprintf("rounds=1..%d:%d", max(1000, q.Rounds), plotPoints)
		if q.Participation == dp.Once { // more rounds cost nothing
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
	text, err := picture{title: plotTitle(q, c), x: c.label, y: plotAxis(q, c), lines: lines}.render(strings.ToLower(filepath.Ext(p.file)))
	if err != nil {
		return err
	}
	return durable.WriteFile(p.file, text)
}

// line is one bound along a curve.
type line struct {
	name string
	kind dp.Kind
	best bool // the tightest of its kind
	x, y []float64
}

// lineOf collects a bound's finite values; known is false if nothing has the name.
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
	// With --bounds best the other defaults are not there, which is no mistake.
	return l, known || slices.Contains(plotDefault, name)
}

func plotAxis(q account.Query, c curve) string {
	switch {
	case q.AskDelta:
		return "δ at ε = " + plainNumber(q.Eps)
	case c.name == "delta":
		return "ε (nats)"
	}
	return "ε (nats) at δ = " + plainNumber(q.Delta)
}

// plainNumber writes 60000, 1e6 and 1e-8.
func plainNumber(x float64) string {
	text := strconv.FormatFloat(x, 'g', -1, 64)
	if short := strconv.FormatFloat(x, 'f', -1, 64); x == math.Trunc(x) && len(strings.TrimRight(short, "0")) > 2 {
		text = short // a count with digits of its own
	}
	return strings.NewReplacer("e+0", "e", "e+", "e", "e-0", "e-").Replace(text)
}

// plotTitle describes the query without what the curve runs over.
func plotTitle(q account.Query, c curve) string {
	parts := []string{fmt.Sprintf("participation %s", q.Participation)}
	if q.Trust == dp.Local {
		parts = append(parts, "no shuffler")
	}
	if q.Class != dp.Generic {
		parts = append(parts, fmt.Sprintf("randomizer %s", q.Class))
	}
	for _, of := range quantities() {
		if x := of.value(q); of.name != c.name && of.name != "delta" && x != 0 {
			parts = append(parts, of.symbol+" = "+plainNumber(x))
		}
	}
	if q.Dropout > 0 {
		parts = append(parts, fmt.Sprintf("dropout = %g", q.Dropout))
	}
	return strings.Join(parts, ", ")
}

// picture is lines over one axis.
type picture struct {
	title, x, y string
	lines       []line
}

// Colours that differ for the colour-blind too (Okabe and Ito), after black.
var plotColours = []color.RGBA{{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{86, 180, 233, 255}, {230, 159, 0, 255}, {120, 120, 120, 255}}

const (
	plotWidth  = 9 * vg.Inch
	plotHeight = 5.5 * vg.Inch
)

// render returns the file's content for .svg or .png.
func (p picture) render(suffix string) ([]byte, error) {
	pl := plot.New()
	pl.Title.Text = p.title
	pl.Title.Padding = vg.Points(8)
	for _, style := range []*font.Font{&pl.Title.TextStyle.Font, &pl.X.Label.TextStyle.Font, &pl.Y.Label.TextStyle.Font,
		&pl.X.Tick.Label.Font, &pl.Y.Tick.Label.Font} {
		style.Variant, style.Size = "Sans", vg.Points(11)
	}
	var xs, ys []float64
	for _, l := range p.lines {
		xs, ys = append(xs, l.x...), append(ys, l.y...)
	}
	axis(&pl.X, xs)
	axis(&pl.Y, ys)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{225}, color.Gray{225}
	pl.Add(grid)
	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	legend.TextStyle.Font.Variant, legend.TextStyle.Font.Size = "Sans", vg.Points(10)
	legend.ThumbnailWidth, legend.Padding = vg.Points(26), vg.Points(3)
	for i, l := range p.lines {
		if err := l.draw(pl, &legend, i); err != nil {
			return nil, err
		}
	}
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	if suffix == ".svg" {
		canvas = vgsvg.New(plotWidth, plotHeight)
	} else {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(plotWidth, plotHeight), vgimg.UseDPI(150))}
	}
	c := draw.New(canvas)
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	// Beside the plot, as wide as its texts need.
	beside := legend.Rectangle(c).Size().X + vg.Points(24)
	inner := draw.Crop(c, vg.Points(24), -beside, vg.Points(22), -vg.Points(6))
	pl.Draw(inner)
	// The library would leave room for a label at the middle value, which on a
	// logarithmic axis is near the end.
	text := pl.X.Label.TextStyle
	text.XAlign, text.YAlign = draw.XCenter, draw.YBottom
	c.FillText(text, vg.Point{X: inner.Center().X, Y: c.Min.Y + vg.Points(6)}, p.x)
	text.Rotation, text.YAlign = math.Pi/2, draw.YTop
	c.FillText(text, vg.Point{X: c.Min.X + vg.Points(6), Y: inner.Center().Y}, p.y)
	legend.Draw(draw.Crop(c, plotWidth-beside+vg.Points(10), 0, 0, -vg.Points(34)))
	var out bytes.Buffer
	_, err := canvas.WriteTo(&out)
	return out.Bytes(), err
}

// draw adds the line to the plot and the legend.
func (l line) draw(pl *plot.Plot, legend *plot.Legend, i int) error {
	points := plotter.XYs{}
	for i, x := range l.x {
		if y := l.y[i]; y > 0 || pl.Y.Min <= 0 {
			points = append(points, plotter.XY{X: x, Y: y})
		}
	}
	if len(points) == 0 {
		return nil
	}
	drawn, dots, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	colour := color.Color(color.Black)
	if !l.best {
		colour = plotColours[i%len(plotColours)]
	}
	drawn.Color, drawn.Width = colour, vg.Points(1.4)
	dots.Color, dots.Radius, dots.Shape = colour, vg.Points(1.7), draw.CircleGlyph{}
	if l.best {
		drawn.Width = vg.Points(2.4)
	}
	if i >= len(plotColours) { // colours come again
		drawn.Dashes = []vg.Length{vg.Points(8), vg.Points(2)}
	}
	switch l.kind {
	case dp.Lower:
		drawn.Dashes = []vg.Length{vg.Points(6), vg.Points(4)}
	case dp.Approximate:
		drawn.Dashes = []vg.Length{vg.Points(2), vg.Points(3)}
	}
	pl.Add(drawn, dots)
	name := l.name
	if l.best || l.kind != dp.Upper {
		name = map[dp.Kind]string{dp.Upper: "proved upper bound", dp.Lower: "lower bound", dp.Approximate: l.name + " (approximate)"}[l.kind]
		if !l.best && l.kind == dp.Lower {
			name = l.name + " (lower)"
		}
	}
	legend.Add(name, drawn, dots)
	return nil
}

// axis is logarithmic where values spread over more than a factor of 20.
func axis(a *plot.Axis, values []float64) {
	low, high := math.Inf(1), 0.
	for _, v := range values {
		if v > 0 {
			low = math.Min(low, v)
		}
		high = math.Max(high, v)
	}
	if high > 20*low {
		a.Scale, a.Tick.Marker = plot.LogScale{}, plot.TickerFunc(logTicks)
		a.Min, a.Max = outward(low, -1), outward(high, +1)
		return
	}
	step := linearStep(high)
	a.Min, a.Max, a.Tick.Marker = 0, step*math.Ceil(high/step*(1-1e-12)), plot.TickerFunc(linearTicks)
}

// linearStep is 1, 2 or 5 times a power of ten, at most eight of which reach high.
func linearStep(high float64) float64 {
	if !(high > 0) {
		return 1
	}
	return outward(high/8, +1)
}

func linearTicks(_, high float64) []plot.Tick {
	var out []plot.Tick
	step := linearStep(high)
	for i := range int(math.Round(high/step)) + 1 {
		v, _ := strconv.ParseFloat(strconv.FormatFloat(float64(i)*step, 'g', 6, 64), 64)
		out = append(out, plot.Tick{Value: v, Label: plainNumber(v)})
	}
	return out
}

// outward is the next of 1, 2 and 5 times a power of ten, below or above x > 0.
func outward(x float64, side int) float64 {
	var below, above float64
	for e := int(math.Floor(math.Log10(x))) - 1; above == 0; e++ {
		for _, m := range []int{1, 2, 5} {
			v, _ := strconv.ParseFloat(fmt.Sprintf("%de%d", m, e), 64)
			if v <= x {
				below = v
			}
			if v >= x && above == 0 {
				above = v
			}
		}
	}
	if side < 0 && below > 0 {
		return below
	}
	if side < 0 {
		return x
	}
	return above
}

// logTicks labels powers of ten, and 2 and 5 times those where few.
func logTicks(low, high float64) []plot.Tick {
	var out []plot.Tick
	decades := math.Log10(high / low)
	every := max(1, int(math.Ceil(decades/12)))
	for e := int(math.Floor(math.Log10(low))); e <= int(math.Ceil(math.Log10(high))); e++ {
		for m := 1; m <= 9; m++ {
			v, _ := strconv.ParseFloat(fmt.Sprintf("%de%d", m, e), 64)
			label := ""
			if m == 1 && e%every == 0 || decades < 3 && (m == 2 || m == 5) {
				label = plainNumber(v)
			}
			if v >= low*(1-1e-9) && v <= high*(1+1e-9) && (label != "" || every == 1) {
				out = append(out, plot.Tick{Value: v, Label: label})
			}
		}
	}
	return out
}
