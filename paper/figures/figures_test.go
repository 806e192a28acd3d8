package figures

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// A heap of a few megabytes is collected a hundred times a second. Five times as large it costs a tenth less.
var _ = debug.SetGCPercent(400)

// falls are the quantities in which ε falls.
var falls = []string{"n"}

// checkOrder holds what must be so at every point of a sweep: lower bounds below
// riffle's proved one, which is below every proved bound of the literature, and
// all monotone.
func checkOrder(t *testing.T, name string, d data) {
	t.Helper()
	up, low := d.find(upper), d.find(lower)
	if up == nil || low == nil {
		t.Fatalf("%s has no bounds of riffle", name)
	}
	const grid = 1.005 // what the composition's grid may cost
	for _, s := range d.Series {
		if !slices.Equal(s.X, up.X) {
			t.Fatalf("%s: %s has points of its own", name, s.Name)
		}
		for i, y := range s.Y {
			at := s.X[i]
			switch {
			case math.IsNaN(y):
				if s.Name == upper || s.Name == lower || s.Name == best {
					t.Errorf("%s: no %s at %v", name, s.Name, at)
				}
				continue
			case !(y > 0):
				t.Errorf("%s: %s is %v at %v", name, s.Name, y, at)
			case s.Kind == "upper" && up.Y[i] > y*grid:
				t.Errorf("%s: riffle's %v above %v of %s at %v", name, up.Y[i], y, s.Name, at)
			case s.Kind == "upper" && low.Y[i] > y:
				t.Errorf("%s: the lower bound %v above %v of %s at %v", name, low.Y[i], y, s.Name, at)
			}
			if i == 0 || math.IsNaN(s.Y[i-1]) || s.Kind == "approximate" {
				continue
			}
			before, after := s.Y[i-1], y
			if slices.Contains(falls, d.XName) {
				before, after = after, before
			}
			if before > after*(1+1e-6) {
				t.Errorf("%s: %s goes from %v to %v at %v", name, s.Name, s.Y[i-1], y, at)
			}
		}
	}
}

func TestSweepsAreInOrder(t *testing.T) {
	longtest.Only(t, "some thousand bounds")
	if testing.Short() {
		t.Skip("seconds of composition")
	}
	d := &desk{points: 2}
	for _, name := range []string{"g21-2a", "g21-2c", "g21-4a", "sci-1a", "sci-2a"} {
		list, err := List(name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := list[0].draw(context.Background(), d)
		if err != nil {
			t.Fatal(err)
		}
		checkOrder(t, name, data)
	}
}

func TestDivergencesAreInOrder(t *testing.T) {
	d := &desk{points: 5}
	for _, name := range []string{"eab-2a", "eab-2b", "eab-3"} {
		list, err := List(name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := list[0].draw(context.Background(), d)
		if err != nil {
			t.Fatal(err)
		}
		order := []string{"lower-2rr", lower, "riffle-blanket", "eab-thm1", "gddsk"}
		for i, s := range order {
			for j, y := range data.find(s).Y {
				if i > 0 && !(data.find(order[i-1]).Y[j] <= y*(1+1e-4)) {
					t.Errorf("%s at %v: %s is %v, %s %v", name, data.Series[0].X[j], order[i-1], data.find(order[i-1]).Y[j], s, y)
				}
				if j > 0 && data.find(s).Y[j-1] > y {
					t.Errorf("%s: %s falls to %v", name, s, y)
				}
			}
		}
	}
}

// drawTo draws into a new directory.
func drawTo(t *testing.T, c Config) (string, []Drawn) {
	t.Helper()
	c.Dir = filepath.Join(t.TempDir(), "out")
	drawn, err := Write(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return c.Dir, drawn
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestWrite(t *testing.T) {
	points := longtest.Pick(5, 25)
	dir, drawn := drawTo(t, Config{Only: []string{"eab-3", "eab-table1", "g21-5b"}, Plan: "plan/", points: points})
	var files []string
	for _, d := range drawn {
		files = append(files, d.Files...)
	}
	if len(drawn) != 3 || len(files) != 5+2+5 {
		t.Fatalf("drew %v", files)
	}
	for _, f := range append(files, "index.html", "figures.css") {
		if info, err := os.Stat(filepath.Join(dir, f)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", f, err)
		}
	}
	rows, err := csv.NewReader(strings.NewReader(read(t, dir, "eab-3.csv"))).ReadAll()
	if err != nil || len(rows) != 1+points || rows[0][0] != "eps0" || !slices.Contains(rows[0], "riffle-blanket") {
		t.Errorf("eab-3.csv has %d rows, %v: %v", len(rows), rows[0], err)
	}
	page := read(t, dir, "index.html")
	for _, want := range []string{`src="eab-3.svg"`, `href="eab-3.csv"`, `href="eab-table1.md"`, `<th scope="row" role="rowheader">eab-thm1</th>`, `srcset="eab-3-narrow.svg"`, `href="plan/"`, "is not recorded", "more not drawn here"} {
		if !strings.Contains(page, want) {
			t.Errorf("the index lacks %s", want)
		}
	}
	for _, never := range []string{"http:", "https:", "<script", "style="} {
		if strings.Contains(page, never) {
			t.Errorf("the index has %s", never)
		}
	}
	// Another run adds to it.
	if _, err := Write(context.Background(), Config{Dir: dir, Only: []string{"eab-4"}}); err != nil {
		t.Fatal(err)
	}
	if page = read(t, dir, "index.html"); !strings.Contains(page, `id="eab-3"`) || !strings.Contains(page, `id="eab-4"`) || strings.Contains(page, `href="plan/"`) {
		t.Error("the index was not brought up to date")
	}
}

func TestInterruptedRunKeepsWhatIsFinished(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	dir := t.TempDir()
	drawn, err := Write(ctx, Config{Dir: dir, Only: []string{"g21-5b", "sci-1a"}, Begin: func(name string, number, of int) {
		if name == "sci-1a" {
			stop()
		}
		if of != 2 {
			t.Errorf("%s is %d of %d", name, number, of)
		}
	}})
	if !errors.Is(err, context.Canceled) || len(drawn) != 1 || drawn[0].Name != "g21-5b" {
		t.Fatalf("%v, %v", drawn, err)
	}
	if page := read(t, dir, "index.html"); !strings.Contains(page, `id="g21-5b"`) || strings.Contains(page, `id="sci-1a"`) {
		t.Error("the index has something else than what is finished")
	}
	if _, err := os.Stat(filepath.Join(dir, "sci-1a.csv")); err == nil {
		t.Error("an interrupted figure left a file")
	}
}

func TestSelect(t *testing.T) {
	if _, err := List("g21-2a", "g21-9z"); err == nil || !strings.Contains(err.Error(), `no figure "g21-9z"`) {
		t.Errorf("%v", err)
	}
	seen := map[string]bool{}
	for _, f := range all() {
		if seen[f.Name] || f.Paper == "" || f.Where == "" || f.Title == "" || f.Caption == "" || len(f.Notes) == 0 || f.draw == nil {
			t.Errorf("%q is drawn twice or lacks a text", f.Name)
		}
		seen[f.Name] = true
	}
	// Every figure and table of the papers that riffle reproduces, and riffle's own.
	for _, want := range []string{"g21-2a", "g21-2b", "g21-2c", "g21-3a", "g21-3b", "g21-3c", "g21-4a", "g21-4b", "g21-4c", "g21-neurips3", "g21-5a", "g21-5b",
		"eab-2a", "eab-2b", "eab-3", "eab-4", "eab-table1", "sci-1a", "sci-1b", "sci-1c", "sci-2a", "sci-2b", "cjmp-table1", "claims", "noise-eps0", "noise-eps", "noise-table", "noise-trust-table"} {
		if !seen[want] {
			t.Errorf("no figure %s", want)
		}
	}
}

// What the notes say of the limit law.
func TestLimitLawIsNoBound(t *testing.T) {
	at := map[string]float64{}
	var s shuffles
	for _, b := range divergences {
		y, err := s.largest(b.methods, 5, 1e4, 8)
		if err != nil {
			t.Fatal(err)
		}
		at[b.name] = y
	}
	if ratio := at["gdp-approx"] / at["eab-thm1"]; !(ratio > .7 && ratio < .8) {
		t.Errorf("the limit law has %.3g of the pair's divergence", ratio)
	}
}

func TestDigits(t *testing.T) {
	for _, c := range []struct {
		x    float64
		kind string
		want string
	}{{.123412, "upper", "0.1235"}, {.123412, "lower", "0.1234"}, {.123462, "lower", "0.1234"}, {.123462, "upper", "0.1235"}, {.123412, "", "0.1234"},
		{.99999, "upper", "1"}, {0, "upper", "0"}, {math.Inf(1), "upper", "+Inf"}, {123456, "upper", "1.235e+05"}} {
		if got := digits(c.x, c.kind); got != c.want {
			t.Errorf("%v as %q is shown as %s, want %s", c.x, c.kind, got, c.want)
		}
	}
}

func TestNumberIsExact(t *testing.T) {
	d := data{XName: "x", Series: []series{{Name: "a", X: []float64{1}, Y: []float64{1.0 / 3}}, {Name: "b", X: []float64{1}, Y: []float64{math.NaN()}}}}
	if got := d.csv(); !bytes.Equal(got, []byte("x,a,b\n1,0.3333333333333333,\n")) {
		t.Errorf("%q", got)
	}
	d.Series[1].X = []float64{2}
	if got := string(d.csv()); !strings.HasPrefix(got, "series,x,value,low,high\na,1,0.3333333333333333,,\n") {
		t.Errorf("%q", got)
	}
}
