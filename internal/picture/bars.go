package picture

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Bars are columns that stand side by side on 0, each with the ends of an interval.
type Bars struct {
	Name     string // of the columns
	Interval string // of the intervals
	// From and To are where columns begin and end on the x axis, ascending. nil: columns of equal
	// width with Names below them.
	From, To     []float64
	Names        []string
	Y, Low, High []float64
}

// mostNames is the largest number of names below columns; of more, only some are shown.
const mostNames = 40

// place fits the axes to the columns.
func (b *Bars) place(pl *plot.Plot, x, y *Axis) {
	low, high := 0., 0.
	for i := range b.Y {
		low, high = min(low, b.Low[i], b.Y[i]), max(high, b.High[i], b.Y[i])
	}
	step := linearStep(high - low)
	*y = Axis{Label: y.Label, Scale: Linear, Min: low * 1.05, Max: step * math.Ceil(high/step)}
	if y.Min == y.Max {
		y.Max = step
	}
	x.Scale = Linear
	if b.From != nil {
		x.Min, x.Max = b.From[0], b.To[len(b.To)-1]
		return
	}
	x.Min, x.Max = 0, float64(len(b.Y))
	letters := 0
	for i := range b.Y {
		b.From, b.To = append(b.From, float64(i)+.1), append(b.To, float64(i)+.9)
		letters += len(b.Names[i]) + 2
	}
	if letters > 70 {
		pl.X.Tick.Label.Rotation, pl.X.Tick.Label.XAlign, pl.X.Tick.Label.YAlign = math.Pi/4, draw.XRight, draw.YCenter
	}
}

// ticks returns a mark for each name.
func (b *Bars) ticks(_, _ float64) (out []plot.Tick) {
	every := (len(b.Names) + mostNames - 1) / mostNames
	for i, name := range b.Names {
		if i%every == 0 {
			if r := []rune(name); len(r) > 24 {
				name = string(r[:23]) + "…"
			}
			out = append(out, plot.Tick{Value: float64(i) + .5, Label: name})
		}
	}
	return out
}

// Plot implements plot.Plotter.
func (b *Bars) Plot(c draw.Canvas, pl *plot.Plot) {
	x, y := pl.Transforms(&c)
	for i, v := range b.Y {
		left, right := x(b.From[i]), x(b.To[i])
		gap := min(vg.Points(.5), (right-left)/8)
		columnStyle{}.fill(c, left+gap, right-gap, y(0), y(v))
	}
	for i := range b.Y {
		left, right := x(b.From[i]), x(b.To[i])
		middle, cap := (left+right)/2, min(vg.Points(3), (right-left)/4)
		style := intervalStyle(right - left)
		c.StrokeLine2(style, middle, y(b.Low[i]), middle, y(b.High[i]))
		if cap > vg.Points(.7) {
			c.StrokeLine2(style, middle-cap, y(b.Low[i]), middle+cap, y(b.Low[i]))
			c.StrokeLine2(style, middle-cap, y(b.High[i]), middle+cap, y(b.High[i]))
		}
	}
	c.StrokeLine2(draw.LineStyle{Color: color.Black, Width: vg.Points(.6)}, c.Min.X, y(0), c.Max.X, y(0))
}

// intervalStyle is the look of intervals on columns of a width.
func intervalStyle(wide vg.Length) draw.LineStyle {
	return draw.LineStyle{Color: color.Black, Width: max(vg.Points(.3), min(vg.Points(1.1), wide/3))}
}

// columnStyle draws columns, also for a legend.
type columnStyle struct{}

func (columnStyle) fill(c draw.Canvas, left, right, low, high vg.Length) {
	c.SetColor(Palette[4])
	c.Fill(vg.Rectangle{Min: vg.Point{X: left, Y: min(low, high)}, Max: vg.Point{X: right, Y: max(low, high)}}.Path())
}

// Thumbnail implements plot.Thumbnailer.
func (s columnStyle) Thumbnail(c *draw.Canvas) { s.fill(*c, c.Min.X, c.Max.X, c.Min.Y, c.Max.Y) }

// barStyle draws an interval for a legend.
type barStyle struct{}

// Thumbnail implements plot.Thumbnailer.
func (barStyle) Thumbnail(c *draw.Canvas) {
	style, middle := intervalStyle(vg.Points(10)), c.Center().X
	c.StrokeLine2(style, middle, c.Min.Y, middle, c.Max.Y)
	for _, y := range []vg.Length{c.Min.Y, c.Max.Y} {
		c.StrokeLine2(style, middle-vg.Points(3), y, middle+vg.Points(3), y)
	}
}
