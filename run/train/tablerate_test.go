package train

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/learn/model"
)

// madeTable is the law of a table as people have them: columns in their own units.
type madeTable struct {
	columns []string
	row     func(r *rand.Rand) (x []float64, y string)
}

func (m madeTable) write(t *testing.T, rows int) string {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	var text strings.Builder
	fmt.Fprintf(&text, "%s,y\n", strings.Join(m.columns, ","))
	for range rows {
		x, y := m.row(r)
		for _, v := range x {
			fmt.Fprintf(&text, "%.6g,", v)
		}
		fmt.Fprintln(&text, y)
	}
	path := filepath.Join(t.TempDir(), "table.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

var peopleColumns = []string{"age", "height", "income", "kids"}

// peopleRanges are public; income uses little of its own.
const peopleRanges = "age=0..100,height=100..220,income=0..200000,kids=0..10"

func person(r *rand.Rand) []float64 {
	age := 18 + 70*r.Float64()
	return []float64{age, 170 + 10*r.NormFloat64(), 20000 * math.Exp(.5*r.NormFloat64()+.005*age), float64(r.IntN(5))}
}

// spending is a number to predict, between 0 and 5000 for almost all.
func spending(sd float64) madeTable {
	return madeTable{peopleColumns, func(r *rand.Rand) ([]float64, string) {
		x := person(r)
		return x, fmt.Sprintf("%.4g", 500+20*x[0]+.01*x[2]-60*x[3]+3*(x[1]-170)+sd*r.NormFloat64())
	}}
}

// buyers are two classes; a shift makes one of them rare.
func buyers(shift float64) madeTable {
	return madeTable{peopleColumns, func(r *rand.Rand) ([]float64, string) {
		x := person(r)
		score := (x[0]-53)/20 + (x[2]-30000)/15000 - .7*(x[3]-2) + shift
		if r.Float64() < 1/(1+math.Exp(-score)) {
			return x, "yes"
		}
		return x, "no"
	}}
}

// kinds are classes by noisy directions of standardised features.
func kinds(classes, features int) madeTable {
	law := rand.New(rand.NewPCG(7, uint64(classes*features)))
	w := make([]float64, classes*features)
	for i := range w {
		w[i] = 2 * law.NormFloat64() / math.Sqrt(float64(features))
	}
	var columns []string
	for j := range features {
		columns = append(columns, fmt.Sprint("x", j))
	}
	return madeTable{columns, func(r *rand.Rand) ([]float64, string) {
		x := make([]float64, features)
		for j := range x {
			x[j] = r.NormFloat64()
		}
		best, class := math.Inf(-1), 0
		for k := range classes {
			score := -math.Log(-math.Log(r.Float64()))
			for j, v := range x {
				score += w[k*features+j] * v
			}
			if score > best {
				best, class = score, k
			}
		}
		return x, fmt.Sprint("kind ", class)
	}}
}

// constantLoss is the least loss of a constant on the evaluation set, by search.
func constantLoss(t testing.TB, r *Run) float64 {
	t.Helper()
	e := r.Data.Eval
	loss, err := model.ParseLoss(r.Config.Loss)
	if err != nil { // cross-entropy
		counts, sum := make([]float64, e.Classes), 0.0
		for _, y := range e.Y {
			counts[y]++
		}
		for _, n := range counts {
			if n > 0 {
				sum -= n / float64(e.Len()) * math.Log(n/float64(e.Len()))
			}
		}
		return sum
	}
	constant, err := model.NewLinear(model.LinearConfig{Inputs: 1, Loss: loss})
	if err != nil {
		t.Fatal(err)
	}
	best := math.Inf(1)
	for score := -8.0; score <= 8; score += 1. / 256 {
		sum := 0.0
		for i := range e.Len() {
			sum += constant.Grad([]float32{0, float32(score)}, []float32{0}, e.Target(i), make([]float32, 2), nil)
		}
		best = min(best, sum/float64(e.Len()))
	}
	return best
}

// tableCase is a table, what is asked of it, and which share of the best constant's
// loss is enough.
type tableCase struct {
	table  madeTable
	rows   int
	change func(*Config)
	most   float64
}

func beatConstants(t *testing.T, cases map[string]tableCase) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := Default()
			config.Data, config.Label, config.EvalEvery = c.table.write(t, c.rows), "y", 1000
			c.change(&config)
			r, err := Prepare(context.Background(), config)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Create(filepath.Join(t.TempDir(), "run")); err != nil {
				t.Fatal(err)
			}
			s, err := r.Train(context.Background(), Observer{})
			if err != nil {
				t.Fatal(err)
			}
			if base := constantLoss(t, r); !(s.Evaluation.Loss <= c.most*base) {
				t.Errorf("loss %.4f, a constant has %.4f: above %g of it (lr %s)", s.Evaluation.Loss, base, c.most, r.Config.LR)
			}
			if len(r.Data.Warnings) > 0 {
				t.Errorf("warned of %q", r.Data.Warnings)
			}
		})
	}
}

// With nothing but label, loss and public ranges given, a linear model of a table
// ends well below the best constant, whatever kind of table it is.
func TestTablesBeatAConstant(t *testing.T) {
	beatConstants(t, map[string]tableCase{
		"few numbers":       {spending(100), 300, func(c *Config) { c.Loss, c.Range = "absolute", peopleRanges+",y=0..5000" }, .35},
		"two classes":       {buyers(0), 500, func(c *Config) { c.Range = peopleRanges }, .75},
		"hinge":             {buyers(0), 1000, func(c *Config) { c.Loss, c.Range = "hinge", peopleRanges }, .6},
		"standardised":      {kinds(3, 4), 600, func(*Config) {}, .65},
		"numbers, no noise": {spending(100), 500, func(c *Config) { c.Loss, c.Range, c.Trust = "absolute", peopleRanges+",y=0..5000", "none" }, .3},
	})
}

// The rate falls with the noise, never exceeds what is stable, and is a schedule
// even of a single round.
func TestTableRates(t *testing.T) {
	path := kinds(2, 4).write(t, 400)
	first := func(change func(*Config)) float64 {
		t.Helper()
		c := Default()
		c.Data, c.Label = path, "y"
		change(&c)
		r, err := Prepare(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		var rate float64
		if _, err := fmt.Sscanf(r.Config.LR, "%g", &rate); err != nil {
			t.Fatal(err)
		}
		return rate
	}
	usual := first(func(*Config) {})
	for name, c := range map[string]struct {
		change func(*Config)
		want   float64 // times the usual one
	}{
		"four times the rounds":  {func(c *Config) { c.Rounds = 4 * 160 }, .5},
		"four times the clients": {func(c *Config) { c.Population = 4 * 320 }, 2},
		"no momentum":            {func(c *Config) { c.Momentum = given(0); c.Rounds = 100 * 160 }, 1},
		"one round":              {func(c *Config) { c.Rounds = 1; c.Trust = "none" }, 4 / (1 + 4./3) / usual},
		"a hundredth of the clip, hardly any noise": {func(c *Config) { c.Clip, c.Trust = .015, "none" }, 100 * 4 / (1 + 4./3) / usual},
	} {
		if got := first(c.change) / usual; math.Abs(got/c.want-1) > .05 {
			t.Errorf("%s: %.3g times the usual rate, want %.3g", name, got, c.want)
		}
	}
}

// Columns that nothing scales are named, and so are ranges that do not hold what
// they should; what is small anyway is no cause.
func TestUnscaledColumnsAreWarnedOf(t *testing.T) {
	path := spending(100).write(t, 200)
	for ranges, want := range map[string][]string{
		peopleRanges + ",y=0..5000": nil,
		peopleRanges:                {"column y has values of about"},
		"":                          {"column age has", "column height has", "column income has", "column y has"},
		"*=0..300,y=0..5000":        {"% of column income lie outside of its range"},
		"income=0..200000,y=0..900": {"column age has", "column height has", "% of column y lie outside"},
	} {
		c := Default()
		c.Data, c.Label, c.Loss, c.Range = path, "y", "absolute", ranges
		r, err := Prepare(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		got := r.Data.Warnings
		if len(got) != len(want) || slices.ContainsFunc(want, func(text string) bool {
			return !slices.ContainsFunc(got, func(w string) bool { return strings.Contains(w, text) })
		}) {
			t.Errorf("--range %q: warned of %q, want %q", ranges, got, want)
		}
	}
}

// Many different numbers without a loss for numbers are classes, and that is said.
func TestNumbersTakenAsClassesAreWarnedOf(t *testing.T) {
	for name, c := range map[string]struct {
		format string
		rows   int
		want   bool
	}{"digits": {"%d", 10, false}, "ages": {"%d", 90, true}, "names": {"kind %d", 90, false}} {
		var text strings.Builder
		text.WriteString("x,y\n")
		for i := range 400 {
			fmt.Fprintf(&text, "0.5,"+c.format+"\n", i%c.rows)
		}
		path := filepath.Join(t.TempDir(), "t.csv")
		if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		config := Default()
		config.Data, config.Label = path, "y"
		r, err := Prepare(context.Background(), config)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(r.Data.Warnings, "\n"), "different numbers of column y are taken as classes"); got != c.want {
			t.Errorf("%s: warnings %q", name, r.Data.Warnings)
		}
	}
}

// A range is mapped to −1..1 about its middle, or to 0..1 if asked for, and a
// stored configuration that says neither means 0..1, as it did when it was written.
func TestScaleOfRanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.csv")
	if err := os.WriteFile(path, []byte("a,b,y\n0,10,no\n50,20,yes\n100,30,no\n25,10,yes\n75,20,no\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	span := func(c Config) (low, high float32) {
		r, err := Prepare(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		all := append(slices.Clone(r.Data.Train.X), r.Data.Eval.X...)
		return slices.Min(all), slices.Max(all)
	}
	c := Default()
	c.Data, c.Label, c.Range, c.Rounds = path, "y", "a=0..100,*=10..30", 2
	if low, high := span(c); low != -1 || high != 1 {
		t.Errorf("values of %v to %v, want -1 to 1", low, high)
	}
	c.Scale = "unit"
	if low, high := span(c); low != 0 || high != 1 {
		t.Errorf("scale unit: values of %v to %v, want 0 to 1", low, high)
	}
	c.Scale, c.Range = centred, ""
	if _, err := Prepare(context.Background(), c); err == nil || !strings.Contains(err.Error(), "scale centred needs range") {
		t.Errorf("a scale without ranges: %v", err)
	}
}
