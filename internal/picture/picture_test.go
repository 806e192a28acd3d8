package picture

import (
	"bytes"
	"image/png"
	"math"
	"strings"
	"testing"

	"gonum.org/v1/plot"
)

func sample() Picture {
	nan := math.NaN()
	return Picture{Title: "title", X: Axis{Label: "rounds"}, Y: Axis{Label: "loss (nats)"},
		Band: &Band{Name: "between", X: []float64{1, 10, 100}, Low: []float64{.1, .2, .3}, High: []float64{.2, .4, .6}},
		Lines: []Line{
			{Name: "whole", X: []float64{1, 10, 100}, Y: []float64{1, 2, 5}, Style: Style{Dash: DashDot, Marker: Square}},
			{Name: "interrupted", X: []float64{1, 3, 10, 30, 100}, Y: []float64{.1, .2, nan, .3, math.Inf(1)}, Low: []float64{.1, .1, nan, .2, 0}, High: []float64{.2, .3, nan, .4, 1}},
			{Name: "nothing", X: []float64{1, 2}, Y: []float64{nan, nan}},
			{Name: "points", X: []float64{2, 50}, Y: []float64{1, 2}, Style: Style{Points: true, Marker: Pyramid}},
		}}
}

func TestRender(t *testing.T) {
	svg, err := sample().Render(".svg")
	if err != nil {
		t.Fatal(err)
	}
	if n, all := strings.Count(string(svg), "<text textLength="), strings.Count(string(svg), "<text "); n != all || n < 10 {
		t.Errorf("%d of %d texts have a width: in another font they would be cut", n, all)
	}
	for _, want := range []string{"<svg", ">whole<", ">interrupted<", ">points<", ">between<", ">rounds<", ">loss (nats)<", ">title<", "Liberation Sans,Arial,Helvetica,sans-serif"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %s in the picture", want)
		}
	}
	if strings.Contains(string(svg), ">nothing<") {
		t.Error("a line without points is in the legend")
	}
	if again, err := sample().Render(".svg"); err != nil || !bytes.Equal(svg, again) {
		t.Errorf("the same picture is drawn in two ways: %v", err)
	}
	// For phones the same lines, with the legend below.
	narrow := sample()
	narrow.Narrow = true
	small, err := narrow.Render(".svg")
	if err != nil || !strings.Contains(string(small), ">interrupted<") || strings.Contains(string(small), ">title<") || !strings.Contains(string(small), `<svg width="324pt"`) {
		t.Errorf("a narrow picture: %v\n%s", err, small[:200])
	}
	narrow.Lines[0].Name = strings.Repeat("a long name ", 10)
	if small, err = narrow.Render(".svg"); err != nil || strings.Contains(string(small), `<svg width="324pt"`) {
		t.Errorf("a long name does not widen a narrow picture: %v", err)
	}
	text, err := sample().Render(".png")
	if err != nil {
		t.Fatal(err)
	}
	image, err := png.Decode(bytes.NewReader(text))
	if err != nil || image.Bounds().Dx() != 1350 || image.Bounds().Dy() != 825 {
		t.Errorf("%v, %v", image.Bounds(), err)
	}
	if _, err := sample().Render(".pdf"); err == nil {
		t.Error("a PDF was drawn")
	}
	if _, err := (Picture{Title: "empty"}).Render(".svg"); err != nil {
		t.Errorf("an empty picture: %v", err)
	}
}

func TestAxis(t *testing.T) {
	for _, c := range []struct {
		axis     Axis
		values   []float64
		log      bool
		min, max float64
	}{
		{Axis{}, []float64{1, 1000, math.NaN()}, true, 1, 1000},
		{Axis{}, []float64{3, 7, math.Inf(1)}, false, 0, 7},
		{Axis{}, []float64{.03, .9}, true, .02, 1},
		{Axis{Scale: Log}, []float64{3, 7}, true, 2, 10},
		{Axis{Scale: Log}, []float64{5}, true, 5, 10},
		{Axis{Scale: Linear, Min: 70, Max: 100}, []float64{81, 2000}, false, 70, 100},
		{Axis{Scale: Log, Min: 100, Max: 1e5}, nil, true, 100, 1e5},
		{Axis{Scale: Log}, nil, false, 0, 1},
	} {
		p := plot.New()
		c.axis.set(&p.X, c.values)
		_, log := p.X.Scale.(plot.LogScale)
		if log != c.log || p.X.Min != c.min || p.X.Max != c.max {
			t.Errorf("%+v of %v: logarithmic %v, %v to %v", c.axis, c.values, log, p.X.Min, p.X.Max)
		}
		labels := 0
		for _, tick := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
			if tick.Value < c.min*(1-1e-9) || tick.Value > c.max*(1+1e-9) {
				t.Errorf("%+v: tick at %v", c.axis, tick.Value)
			}
			if tick.Label != "" {
				labels++
			}
		}
		if labels < 2 || labels > 13 {
			t.Errorf("%+v of %v: %d labels", c.axis, c.values, labels)
		}
	}
}

// Fixed limits hold whatever is drawn.
func TestLimitsHold(t *testing.T) {
	p := sample()
	p.Y = Axis{Label: "y", Scale: Log, Min: .1, Max: 1}
	p.Lines[0].Y[2] = 1e9
	svg, err := p.Render(".svg")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(svg), ">1e9<") || !strings.Contains(string(svg), ">0.5<") {
		t.Error("a value beyond the limits has moved them")
	}
}

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{60000: "60000", 1e6: "1e6", 1e-8: "1e-8", .25: "0.25", 0: "0", 1234: "1234", 1e10: "1e10"} {
		if got := Number(x); got != want {
			t.Errorf("%v is written %s, want %s", x, got, want)
		}
	}
}

func TestBars(t *testing.T) {
	named := Picture{X: Axis{Label: "city"}, Y: Axis{Label: "clients"}, Bars: &Bars{Name: "count", Interval: "95 % interval",
		Names: []string{"berlin", "a name that is far too long to be shown whole"}, Y: []float64{10, -2}, Low: []float64{7, -5}, High: []float64{13, 1}}}
	svg, err := named.Render(".svg")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">berlin<", ">a name that is far too …<", ">count<", ">95 % interval<", ">-5<", ">15<"} {
		if !strings.Contains(string(svg), want) {
			t.Errorf("no %s in the picture", want)
		}
	}
	if named.Bars.From != nil {
		t.Error("drawing changes the picture")
	}
	edges := Picture{Bars: &Bars{From: []float64{0, 18}, To: []float64{18, 65}, Y: []float64{1, 2}, Low: []float64{0, 1}, High: []float64{2, 3}}}
	for _, suffix := range []string{".svg", ".png"} {
		if _, err := edges.Render(suffix); err != nil {
			t.Error(err)
		}
	}
}
