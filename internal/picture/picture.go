// Package picture draws lines over one axis as SVG or PNG. The pictures are readable in grey
// and by the colour-blind, and the legend lies beside the plot, never on it.
package picture

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"io"
	"math"
	"regexp"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Picture is lines over one axis.
type Picture struct {
	Title string
	X, Y  Axis
	Band  *Band // drawn below the lines
	Lines []Line
	// Bars, if not nil, are drawn in place of lines and decide the axes' limits.
	Bars *Bars
	// Narrow makes a picture for phones: the legend lies below the plot, and there is no
	// title.
	Narrow bool
}

// Axis is linear or logarithmic. Without scale and limits it is fitted to the values:
// logarithmic if they spread over more than a factor of 20, otherwise linear from 0.
type Axis struct {
	Label    string
	Scale    scale
	Min, Max float64 // both 0: fitted
}

// scale says how an axis is divided: linearly or logarithmically.
type scale int

// Scales of an axis.
const (
	Fitted scale = iota
	Linear
	Log
)

// Band is the area between two curves.
type Band struct {
	Name         string
	X, Low, High []float64
}

// Line is a curve. Values that are not finite, or not positive on a logarithmic
// axis, interrupt it.
type Line struct {
	Name string
	X, Y []float64
	// Low and High, unless nil, are the ends of an error bar at each point.
	Low, High []float64
	Style     Style
}

// Style is the look of a line.
type Style struct {
	Colour color.Color // nil: black
	Width  float64     // points; 0: 1.4
	Dash   dash
	Marker marker
	// Points draws the markers without a line.
	Points bool
}

// dash is a pattern of dashes.
type dash int

// Patterns of dashes.
const (
	Solid dash = iota
	Dashed
	Dotted
	DashDot
	LongDash
)

func (d dash) lengths() []vg.Length {
	switch d {
	case Dashed:
		return []vg.Length{6, 4}
	case Dotted:
		return []vg.Length{2, 3}
	case DashDot:
		return []vg.Length{8, 3, 2, 3}
	case LongDash:
		return []vg.Length{12, 5}
	}
	return nil
}

// marker is the shape of a point.
type marker int

// Shapes of points.
const (
	Dot marker = iota
	NoMarker
	Ring
	Square
	Box
	Triangle
	Pyramid
	Cross
	Plus
)

// glyph returns the shape and its radius in points; nil for none.
func (m marker) glyph() (draw.GlyphDrawer, float64) {
	switch m {
	case Dot:
		return draw.CircleGlyph{}, 1.7
	case Ring:
		return draw.RingGlyph{}, 3
	case Square:
		return draw.SquareGlyph{}, 2.8
	case Box:
		return draw.BoxGlyph{}, 2.6
	case Triangle:
		return draw.TriangleGlyph{}, 3.4
	case Pyramid:
		return draw.PyramidGlyph{}, 3.4
	case Cross:
		return draw.CrossGlyph{}, 3
	case Plus:
		return draw.PlusGlyph{}, 3.4
	}
	return nil, 0
}

// Palette has colours that differ for the colour-blind too (Okabe and Ito),
// without black.
var Palette = []color.RGBA{{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{86, 180, 233, 255}, {230, 159, 0, 255}, {120, 120, 120, 255}}

const (
	width  = 9 * vg.Inch
	height = 5.5 * vg.Inch
	dpi    = 150

	narrowWidth = 4.5 * vg.Inch
	narrowPlot  = 3.9 * vg.Inch
)

// Render returns the file's content; suffix is ".svg" or ".png".
func (p Picture) Render(suffix string) ([]byte, error) {
	pl := plot.New()
	if !p.Narrow {
		pl.Title.Text = p.Title
	}
	pl.Title.Padding = vg.Points(8)
	for _, style := range []*font.Font{&pl.Title.TextStyle.Font, &pl.X.Label.TextStyle.Font, &pl.Y.Label.TextStyle.Font,
		&pl.X.Tick.Label.Font, &pl.Y.Tick.Label.Font} {
		style.Variant, style.Size = "Sans", vg.Points(11)
	}
	if p.Bars != nil {
		bars := *p.Bars
		bars.place(pl, &p.X, &p.Y)
		p.Bars = &bars
	}
	xs, ys := p.values()
	p.X.set(&pl.X, xs)
	p.Y.set(&pl.Y, ys)
	if p.Bars != nil && p.Bars.Names != nil {
		pl.X.Tick.Marker = plot.TickerFunc(p.Bars.ticks)
	}
	x, y := pl.X, pl.Y // the saved limits, which drawing would widen
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{225}, color.Gray{225}
	pl.Add(grid)
	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	legend.TextStyle.Font.Variant, legend.TextStyle.Font.Size = "Sans", vg.Points(10)
	legend.ThumbnailWidth, legend.Padding = vg.Points(26), vg.Points(3)
	if p.Band != nil {
		if err := p.Band.draw(pl, &legend); err != nil {
			return nil, err
		}
	}
	if p.Bars != nil {
		pl.Add(p.Bars)
		legend.Add(p.Bars.Name, columnStyle{})
		legend.Add(p.Bars.Interval, barStyle{})
	}
	for _, l := range p.Lines {
		if err := l.draw(pl, &legend); err != nil {
			return nil, err
		}
	}
	pl.X, pl.Y = x, y
	width, height := width, height
	needed := legend.Rectangle(draw.Canvas{}).Size()
	if p.Narrow {
		width, height = max(narrowWidth, needed.X+vg.Points(24)), narrowPlot+needed.Y+vg.Points(18)
	}
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	switch suffix {
	case ".svg":
		canvas = vgsvg.New(width, height)
	case ".png":
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))}
	default:
		return nil, fmt.Errorf("picture: %q is neither .svg nor .png", suffix)
	}
	c := draw.New(canvas)
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	// The legend goes beside the plot, as wide as its texts need; or below it.
	beside, below := needed.X+vg.Points(24), vg.Length(0)
	if p.Narrow {
		beside, below = vg.Points(10), needed.Y+vg.Points(14)
	}
	inner := draw.Crop(c, vg.Points(24), -beside, below+vg.Points(22), -vg.Points(6))
	pl.Draw(inner)
	// The library would leave room for a label at the middle value, which on a
	// logarithmic axis is near the end.
	text := pl.X.Label.TextStyle
	text.XAlign, text.YAlign = draw.XCenter, draw.YBottom
	c.FillText(text, vg.Point{X: inner.Center().X, Y: c.Min.Y + below + vg.Points(6)}, p.X.Label)
	text.Rotation, text.YAlign = math.Pi/2, draw.YTop
	c.FillText(text, vg.Point{X: c.Min.X + vg.Points(6), Y: inner.Center().Y}, p.Y.Label)
	if p.Narrow {
		legend.Draw(draw.Crop(c, vg.Points(10), 0, 0, needed.Y+vg.Points(8)-height))
	} else {
		legend.Draw(draw.Crop(c, width-beside+vg.Points(10), 0, 0, -vg.Points(34)))
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil || suffix != ".svg" {
		return out.Bytes(), err
	}
	return fixedTexts(out.Bytes(), pl.Title.TextStyle.Font), nil
}

var svgText = regexp.MustCompile(`(?s)<text ([^>]*font-size:([0-9.]+)px">)([^<]+)</text>`)

// fixedTexts writes the width of each text into the SVG, so that a text fits its place in any
// font of a browser. Where Liberation is missing, Arial has the same widths.
func fixedTexts(svg []byte, face font.Font) []byte {
	svg = svgText.ReplaceAllFunc(svg, func(element []byte) []byte {
		part := svgText.FindSubmatch(element)
		size, err := strconv.ParseFloat(string(part[2]), 64)
		if err != nil {
			return element
		}
		drawn := font.DefaultCache.Lookup(face, vg.Points(size))
		wide := drawn.Width(html.UnescapeString(string(part[3])))
		return fmt.Appendf(nil, `<text textLength="%.5g" lengthAdjust="spacingAndGlyphs" %s%s</text>`, wide.Points(), part[1], part[3])
	})
	return bytes.ReplaceAll(svg, []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
}

// values lists what the axes must show.
func (p Picture) values() (xs, ys []float64) {
	add := func(x []float64, rows ...[]float64) {
		xs = append(xs, x...)
		for _, y := range rows {
			ys = append(ys, y...)
		}
	}
	for _, l := range p.Lines {
		add(l.X, l.Y, l.Low, l.High)
	}
	if p.Band != nil {
		add(p.Band.X, p.Band.Low, p.Band.High)
	}
	return xs, ys
}

// shown says whether the plot's axes have a place for the point.
func shown(pl *plot.Plot, x, y float64) bool {
	finite := !math.IsNaN(x+y) && !math.IsInf(x+y, 0)
	_, logX := pl.X.Scale.(plot.LogScale)
	_, logY := pl.Y.Scale.(plot.LogScale)
	return finite && (x > 0 || !logX) && (y > 0 || !logY)
}

// draw adds the line to the plot and the legend.
func (l Line) draw(pl *plot.Plot, legend *plot.Legend) error {
	line := draw.LineStyle{Color: l.Style.Colour, Width: vg.Points(l.Style.Width), Dashes: l.Style.Dash.lengths()}
	if line.Color == nil {
		line.Color = color.Black
	}
	if line.Width == 0 {
		line.Width = vg.Points(1.4)
	}
	shape, radius := l.Style.Marker.glyph()
	var sample []plot.Thumbnailer
	var points plotter.XYs
	end := func() error {
		if len(points) == 0 {
			return nil
		}
		drawn, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		points, sample = nil, nil
		drawn.LineStyle = line
		if !l.Style.Points {
			pl.Add(drawn)
			sample = append(sample, drawn)
		}
		if shape != nil {
			dots.Color, dots.Radius, dots.Shape = line.Color, vg.Points(radius), shape
			pl.Add(dots)
			sample = append(sample, dots)
		}
		return nil
	}
	for i, x := range l.X {
		if shown(pl, x, l.Y[i]) {
			points = append(points, plotter.XY{X: x, Y: l.Y[i]})
			continue
		}
		if err := end(); err != nil {
			return err
		}
	}
	if err := end(); err != nil {
		return err
	}
	if err := l.bars(pl, line); err != nil {
		return err
	}
	if sample != nil {
		legend.Add(l.Name, sample...)
	}
	return nil
}

// bars adds a bar from Low to High at each point.
func (l Line) bars(pl *plot.Plot, style draw.LineStyle) error {
	if l.Low == nil || l.High == nil {
		return nil
	}
	var points plotter.XYs
	var errors plotter.YErrors
	for i, x := range l.X {
		if y := l.Y[i]; shown(pl, x, y) && shown(pl, x, l.Low[i]) && shown(pl, x, l.High[i]) && l.High[i] > l.Low[i] {
			points = append(points, plotter.XY{X: x, Y: y})
			errors = append(errors, struct{ Low, High float64 }{y - l.Low[i], l.High[i] - y})
		}
	}
	if len(points) == 0 {
		return nil
	}
	bars, err := plotter.NewYErrorBars(struct {
		plotter.XYs
		plotter.YErrors
	}{points, errors})
	if err != nil {
		return err
	}
	bars.LineStyle = draw.LineStyle{Color: style.Color, Width: vg.Points(1)}
	bars.CapWidth = vg.Points(5)
	pl.Add(bars)
	return nil
}

// draw adds the area to the plot and the legend.
func (b Band) draw(pl *plot.Plot, legend *plot.Legend) error {
	var outline, back plotter.XYs
	for i, x := range b.X {
		if shown(pl, x, b.Low[i]) && shown(pl, x, b.High[i]) {
			outline = append(outline, plotter.XY{X: x, Y: b.High[i]})
			back = append(back, plotter.XY{X: x, Y: b.Low[i]})
		}
	}
	if len(outline) < 2 {
		return nil
	}
	for i := range back {
		outline = append(outline, back[len(back)-1-i])
	}
	area, err := plotter.NewPolygon(outline)
	if err != nil {
		return err
	}
	area.Color, area.LineStyle.Width = color.Gray{205}, 0
	pl.Add(area)
	legend.Add(b.Name, area)
	return nil
}
