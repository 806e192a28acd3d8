package figures

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/internal/picture"
)

// Config says what to draw and where.
type Config struct {
	Dir     string   // Required. Made if it does not exist.
	Only    []string // names of figures; none: all
	Results fs.FS    // holds e1.csv, e2.csv, …; nil: nothing was recorded
	// Plan, unless "", is the relative address of the planning page, to which the index
	// links.
	Plan string
	// Begin, if not nil, is called before each figure.
	Begin func(name string, number, of int)

	points int // of a curve, for tests; 0: the figure's own number
}

// Drawn is a figure that was written.
type Drawn struct {
	Name    string   `json:"name"`
	Paper   string   `json:"paper"`
	Where   string   `json:"where"`
	Title   string   `json:"title"`
	Files   []string `json:"files"`
	Notes   []string `json:"notes"`
	Seconds float64  `json:"seconds"`
}

// Write draws the figures into the directory, each of its files atomically, and an index of
// all figures there. When ctx ends it keeps the finished ones, brings the index up to date
// and returns ctx's error.
func Write(ctx context.Context, c Config) ([]Drawn, error) {
	list, err := List(c.Only...)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("figures: %w", err)
	}
	d := &desk{results: c.Results, points: c.points}
	var out []Drawn
	var failed error
	for i, f := range list {
		if c.Begin != nil {
			c.Begin(f.Name, i+1, len(list))
		}
		drawn, err := f.write(ctx, d, c.Dir)
		if err != nil {
			failed = err
			break
		}
		out = append(out, drawn)
	}
	if err := writeIndex(c.Dir, c.Plan); err != nil && failed == nil {
		failed = err
	}
	return out, failed
}

// narrow is the suffix of the pictures for phones.
const narrow = "-narrow.svg"

// write draws one figure. Its note comes last: the index lists the figures that have one.
func (f figure) write(ctx context.Context, d *desk, dir string) (Drawn, error) {
	start := time.Now()
	data, err := f.draw(ctx, d)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return Drawn{}, err
	}
	out := Drawn{Name: f.Name, Paper: f.Paper, Where: f.Where, Title: f.Title, Notes: slices.Concat(f.Notes, data.Notes)}
	put := func(suffix string, text []byte) error {
		name := f.Name + suffix
		if err := durable.WriteFile(filepath.Join(dir, name), text); err != nil {
			return fmt.Errorf("figures: %v", err)
		}
		out.Files = append(out.Files, name)
		return nil
	}
	for _, suffix := range []string{".svg", narrow, ".png"} {
		if !data.drawable() { // an older run may have left a picture
			if err := os.Remove(filepath.Join(dir, f.Name+suffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return Drawn{}, fmt.Errorf("figures: %v", err)
			}
			continue
		}
		p := f.picture(data)
		p.Narrow = suffix == narrow
		text, err := p.Render(filepath.Ext(suffix))
		if err != nil {
			return Drawn{}, fmt.Errorf("figures: %s: %v", f.Name, err)
		}
		if err := put(suffix, text); err != nil {
			return Drawn{}, err
		}
	}
	if err := put(".csv", data.csv()); err != nil {
		return Drawn{}, err
	}
	if err := put(".md", f.note(data)); err != nil {
		return Drawn{}, err
	}
	out.Seconds = time.Since(start).Seconds()
	return out, nil
}

func (d data) drawable() bool {
	return slices.ContainsFunc(d.Series, func(s series) bool { return !s.Hidden && len(s.X) > 0 })
}

// find returns the series with the name, or nil.
func (d data) find(name string) *series {
	i := slices.IndexFunc(d.Series, func(s series) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &d.Series[i]
}

func (f figure) picture(data data) picture.Picture {
	p := picture.Picture{Title: f.Title, X: data.X, Y: data.Y}
	up := data.find(upper)
	if up == nil {
		up = data.find("riffle-blanket")
	}
	if low := data.find(lower); data.band && up != nil && low != nil {
		p.Band = &picture.Band{Name: "between riffle's bounds", X: up.X, Low: low.Y, High: up.Y}
	}
	for _, s := range data.Series {
		if !s.Hidden {
			l := picture.Line{Name: s.Label, X: s.X, Y: s.Y, Low: slices.Clone(s.Low), High: s.High, Style: s.Style}
			for i := range l.Low {
				if s.BarEvery > 1 && (len(l.Low)-1-i)%s.BarEvery != 0 {
					l.Low[i] = math.NaN()
				}
			}
			p.Lines = append(p.Lines, l)
		}
	}
	return p
}

// number writes x exactly, so that a bound that is read back is the same bound. A missing
// value is an empty field.
func number(x float64) string {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return ""
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// csv writes a column for each series if all share x, otherwise a row for each point of each
// series.
func (d data) csv() []byte {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	put := func(row ...string) {
		_ = w.Write(row) // cannot fail: a buffer takes everything
	}
	shared := len(d.Series) > 0
	for _, s := range d.Series {
		shared = shared && slices.Equal(s.X, d.Series[0].X) && s.Low == nil
	}
	switch {
	case len(d.Table.Rows) > 0:
		put(d.Table.Header...)
		for _, r := range d.Table.Rows {
			put(r...)
		}
	case shared:
		row := []string{d.XName}
		for _, s := range d.Series {
			row = append(row, s.Name)
		}
		put(row...)
		for i, x := range d.Series[0].X {
			row = []string{number(x)}
			for _, s := range d.Series {
				row = append(row, number(s.Y[i]))
			}
			put(row...)
		}
	default:
		put("series", d.XName, "value", "low", "high")
		for _, s := range d.Series {
			for i, x := range s.X {
				row := []string{s.Name, number(x), number(s.Y[i]), "", ""}
				if s.Low != nil {
					row[3], row[4] = number(s.Low[i]), number(s.High[i])
				}
				put(row...)
			}
		}
	}
	w.Flush()
	return out.Bytes()
}

// notesHead begins the part of a note that the index repeats.
const notesHead = "## Notes"

// note returns the figure's Markdown file.
func (f figure) note(d data) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s, %s. %s\n\n", f.Title, f.Paper, f.Where, f.Caption)
	cell := strings.NewReplacer("|", "\\|", "\n", " ")
	row := func(cells ...string) {
		for _, c := range cells {
			b.WriteString("| " + cell.Replace(c) + " ")
		}
		b.WriteString("|\n")
	}
	line := func(n int) { b.WriteString(strings.Repeat("|---", n) + "|\n") }
	if len(d.Table.Rows) > 0 {
		row(d.Table.Header...)
		line(len(d.Table.Header))
		for _, r := range d.Table.Rows {
			row(r...)
		}
		b.WriteString("\n")
	}
	if len(d.Series) > 0 {
		row("column", "kind", "in the picture", "source")
		line(4)
		for _, s := range d.Series {
			shown := s.Label
			if s.Hidden {
				shown = "–"
			}
			row(s.Name, s.Kind, shown, s.Source)
		}
		b.WriteString("\n")
	}
	b.WriteString(notesHead + "\n\n")
	for _, n := range slices.Concat(f.Notes, d.Notes) {
		fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(n, "\n", " "))
	}
	return []byte(b.String())
}
