package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/learn/dataset"
)

// shoppers writes a table of n rows with an id, a text column and empty cells, whose first row is
// the given one.
func shoppers(t *testing.T, n int, first string) string {
	t.Helper()
	var text strings.Builder
	text.WriteString("id,age,city,spent,bought\n" + first + "\n")
	for i := 1; i < n; i++ {
		city, spent := []string{"berlin", "paris", "rome"}[i%3], fmt.Sprint(i%50)
		if i%7 == 0 {
			spent = ""
		}
		fmt.Fprintf(&text, "u%d,%d,%s,%s,%s\n", i, 20+i%60, city, spent, []string{"no", "yes"}[(i%60)/40])
	}
	path := filepath.Join(t.TempDir(), "people.csv")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func bought(path string) Config {
	c := Default()
	c.Data, c.Label, c.Range, c.Rounds = path, "bought", "age=0..100,spent=0..50", 2
	c.Categories, c.Missing, c.Drop = "city=berlin|paris|*", "spent=25+indicator", "id"
	return c
}

// A table as people have it is learned from, and its model reads other such tables.
func TestTableWithTextAndGaps(t *testing.T) {
	const first = "u0,30,oslo,1,yes"
	c := bought(shoppers(t, 300, first))
	r, err := Prepare(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	columns := []string{"age", "city=berlin", "city=paris", "city=*", "spent", "spent missing"}
	if !slices.Equal(r.Data.columns, columns) || r.Data.Train.Dim != 6 {
		t.Errorf("columns %q", r.Data.columns)
	}
	// Two numbers in −1..1, one city and an indicator.
	if r.Data.norm != 2 {
		t.Errorf("norm %v, want 2", r.Data.norm)
	}
	for i := range r.Data.Train.Len() {
		square := 0.0
		for _, v := range r.Data.Train.Row(i) {
			square += float64(v) * float64(v)
		}
		if math.Sqrt(square) > r.Data.norm {
			t.Fatalf("row %d has norm %v", i, math.Sqrt(square))
		}
	}
	if len(r.Data.Notes) != 1 || !strings.Contains(r.Data.Notes[0], "classes no, yes of column bought are read off the table and taken to be public; --classes") {
		t.Errorf("notes %q", r.Data.Notes)
	}
	dir := filepath.Join(t.TempDir(), "run")
	if err := r.Create(dir); err != nil {
		t.Fatal(err)
	}
	s, err := r.Train(context.Background(), Observer{})
	if err != nil {
		t.Fatal(err)
	}
	// One map has all figures beside the baseline's; evaluations on the way have the other ones.
	for name, want := range map[string]float64{
		"accuracy": s.Evaluation.Accuracy, "loss": s.Evaluation.Loss, "baseline_accuracy": s.Baseline.Accuracy, "baseline_loss": s.Baseline.Loss,
		"recall_no": float64(s.Evaluation.Confusion[0][0]) / float64(s.Evaluation.Confusion[0][0]+s.Evaluation.Confusion[0][1]),
	} {
		if got, ok := s.Numbers[name]; !ok || float64(got) != want {
			t.Errorf("metrics: %s = %v, want %v", name, got, want)
		}
	}
	last := r.Metrics[len(r.Metrics)-1].Numbers
	if auc := s.Numbers["auc"]; !(auc > 0 && auc <= 1) || last["auc"] != auc || last["recall_yes"] != s.Numbers["recall_yes"] {
		t.Errorf("metrics %v, on the way %v", s.Numbers, last)
	}
	if _, ok := last["accuracy"]; ok {
		t.Errorf("accuracy has a place of its own on the way: %v", last)
	}
	stored, err := ReadModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := stored.Test(c.Data, false, 1); err != nil || got.Loss != s.Evaluation.Loss || got.Trained != 0 || got.Numbers["auc"] != float64(s.Numbers["auc"]) {
		t.Errorf("held out: %+v, %v; in training the loss was %v", got, err, s.Evaluation.Loss)
	}
	// Another table needs no id that means anything, and may have other cities.
	if got, err := stored.Test(shoppers(t, 50, ",0,,,no"), false, 1); err != nil || got.Examples != 50 {
		t.Errorf("another table: %+v, %v", got, err)
	}
}

// Everything that is decided before the first round follows from what was declared: a table
// that differs in one row gives the same configuration, features and scaling.
func TestOneRowChangesNoPreprocessing(t *testing.T) {
	prepare := func(first string) *Run {
		t.Helper()
		c := bought(shoppers(t, 300, first))
		c.Classes, c.Missing, c.Trust, c.Epsilon = "no|yes", "spent=25+indicator,age=40", dp.VectorSum, 1
		r, err := Prepare(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Data.Notes) != 0 {
			t.Errorf("notes %q, the classes were given", r.Data.Notes)
		}
		r.Config.Data = ""
		return r
	}
	want := prepare("u0,30,berlin,1,yes")
	for _, first := range []string{"u0,99999,nowhere,-1e9,no", ",,,,yes", "\"x,y\",0,*,0,no"} {
		got := prepare(first)
		if !reflect.DeepEqual(got.Config, want.Config) {
			t.Errorf("first row %q: configuration %+v, want %+v", first, got.Config, want.Config)
		}
		if !slices.Equal(got.Data.columns, want.Data.columns) || !slices.Equal(got.Data.Classes, want.Data.Classes) || got.Data.norm != want.Data.norm {
			t.Errorf("first row %q: columns %q, classes %q", first, got.Data.columns, got.Data.Classes)
		}
		differ := 0
		for i := range want.Data.Train.Len() {
			if !slices.Equal(got.Data.Train.Row(i), want.Data.Train.Row(i)) {
				differ++
			}
		}
		if differ > 1 {
			t.Errorf("first row %q: %d rows differ", first, differ)
		}
	}
}

// Each wrong use is refused with the flag that helps.
func TestColumnsRefuse(t *testing.T) {
	path := shoppers(t, 60, "u0,30,oslo,1,yes")
	for _, c := range []struct {
		change func(c *Config)
		want   string
	}{
		{func(c *Config) { c.Drop = "" }, `"u0" is not a number: text needs public categories (--categories 'COLUMN=a|b|*'), a column without use is left out (--drop COLUMN)`},
		{func(c *Config) { c.Missing = "" }, `is an empty cell, must be a number; --missing 'COLUMN=VALUE' says`},
		{func(c *Config) { c.Categories = "city=berlin|paris" }, `"oslo" is none of the column's categories; * behind the last of its --categories`},
		{func(c *Config) { c.Classes = "no|maybe" }, `class "yes" is none of the 2 that there are; --classes lists them all`},
		{func(c *Config) { c.Classes, c.Label, c.Loss = "a|b", "spent", "absolute" }, "classes goes with classes, and loss absolute predicts numbers"},
		{func(c *Config) { c.Data, c.Label, c.Range = "mnist", "", "" }, "categories goes with a CSV file, not with data mnist"},
		{func(c *Config) { c.Loss = "absolute" }, `"yes" is not a number to predict; classes need a loss of their own, such as logistic`},
		{func(c *Config) { c.Drop = "nothing" }, `column "nothing", which is to be dropped, is the label or no column`},
		{func(c *Config) { c.Categories = "city=berlin|paris|*,spent=a|b" }, `column "spent" has categories, and a range too`},
	} {
		config := bought(path)
		c.change(&config)
		if _, err := Prepare(context.Background(), config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

// Errors of numbers are told in the column's own units, beside those of the median.
func TestMetricsOfNumbersHaveTheirUnits(t *testing.T) {
	c := spending(100).write(t, 200)
	config := Default()
	config.Data, config.Label, config.Loss, config.Rounds, config.Trust = c, "y", "absolute", 2, "none"
	plain := metricsOf(t, config)
	config.Range = "y=0..1000"
	scaled := metricsOf(t, config)
	if x := plain["baseline_mae"]; !(x > 0) || math.Abs(float64(scaled["baseline_mae"]/x)-1) > 1e-3 {
		t.Errorf("the median's error is %v, with a range %v", x, scaled["baseline_mae"])
	}
	for _, name := range []string{"r2", "mae"} {
		if _, ok := scaled[name]; !ok {
			t.Errorf("no %s in %v", name, scaled)
		}
	}
	if _, ok := scaled["accuracy"]; ok {
		t.Errorf("numbers have no accuracy: %v", scaled)
	}
}

func metricsOf(t *testing.T, c Config) map[string]dp.Number {
	t.Helper()
	r, err := Prepare(context.Background(), c)
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
	return s.Numbers
}

// A row has one of a column's categories, however many there are, so the clip does not grow with
// them, for the euclidean ball and for that of single signs.
func TestClipCountsACategoryOnce(t *testing.T) {
	path := shoppers(t, 60, "u0,30,oslo,1,yes")
	for _, randomizer := range []string{"privunit", "r1"} {
		clip := func(categories string) float64 {
			c := bought(path)
			c.Categories, c.Randomizer = categories, randomizer
			r, err := Prepare(context.Background(), c)
			if err != nil {
				t.Fatal(err)
			}
			return r.Config.Clip
		}
		few, many := clip("city=berlin|*"), clip("city=berlin|paris|rome|a|b|c|d|e|f|g|h|i|j|k|l|m|n|*")
		if want := map[string]float64{"privunit": 1.7, "r1": 3.5}[randomizer]; few != many || few != want {
			t.Errorf("%s: clip %v with two categories, %v with many, want %v", randomizer, few, many, want)
		}
	}
}

// What an empty cell counts as may lie outside of its column's range: the bound on rows says so.
func TestNormCountsWhatEmptyCellsCountAs(t *testing.T) {
	c := bought(shoppers(t, 60, "u0,30,oslo,,yes"))
	c.Missing = "spent=125" // 4 once 0..50 is scaled to −1..1
	r, err := Prepare(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if want := math.Sqrt(1 + 16 + 1); math.Abs(r.Data.norm-want) > 1e-6 {
		t.Errorf("norm %v, want %v", r.Data.norm, want)
	}
}

// shop writes the table of riffle data export --synthetic shop, and returns what
// docs/your-own-data.md declares of it.
func shop(t *testing.T, rows int) Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.csv")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(dataset.WriteShop(f, rows, 1), f.Close()); err != nil {
		t.Fatal(err)
	}
	c := Default()
	c.Data, c.Range, c.Categories, c.Missing = path, "age=18..90,visits=0..50,spent=0..500", "city=berlin|paris|rome|*,plan=free|plus|pro", "age=50+indicator,spent=50+indicator"
	c.Trust, c.Epsilon, c.EvalEvery = dp.VectorSum, 1, 1000
	return c
}

// On a table as people have it, of which 7 % are positive, the model beats a constant by its
// probabilities, its order and its accuracy at ε = 1, and every figure is told; so does one of
// numbers.
func TestShopBeatsAConstant(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector is slow, and other tests run the same code")
	}
	rows := longtest.Pick(4000, 50000)
	c := shop(t, rows)
	c.Label, c.Drop, c.Classes = "bought", "id,name,amount", "no|yes"
	got := metricsOf(t, c)
	for _, name := range []string{"accuracy", "loss", "auc", "baseline_accuracy", "baseline_loss", "recall_no", "recall_yes", "precision_no"} {
		if _, ok := got[name]; !ok {
			t.Errorf("no %s in %v", name, got)
		}
	}
	if !(got["loss"] < .93*got["baseline_loss"] && got["auc"] > .71) {
		t.Errorf("classes: %v", got)
	}
	if rows == 50000 && !(got["loss"] < .88*got["baseline_loss"] && got["auc"] > .75 && got["accuracy"] > got["baseline_accuracy"]) {
		t.Errorf("classes: %v", got)
	}
	c.Label, c.Drop, c.Classes, c.Loss, c.Range = "amount", "id,name,bought", "", "absolute", c.Range+",amount=0..400"
	if got = metricsOf(t, c); !(got["mae"] < .58*got["baseline_mae"] && got["r2"] > .68) {
		t.Errorf("numbers: %v", got)
	}
}
