package train

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// The coefficients, applied to the cells of a row in their own units, give what the model
// predicts for that row, with ranges, categories, indicators and none of them.
func TestCoefficientsPredict(t *testing.T) {
	path := shoppers(t, 300, "u0,30,oslo,1,yes")
	for name, change := range map[string]func(c *Config){
		"classes":       func(*Config) {},
		"unit scale":    func(c *Config) { c.Scale = unit },
		"one range":     func(c *Config) { c.Range = "*=-10..110" },
		"cross-entropy": func(c *Config) { c.Loss = crossEntropy },
		"numbers": func(c *Config) {
			c.Label, c.Loss, c.Range, c.Categories = "age", "absolute", "age=10..90,spent=0..50", "city=berlin|paris|*,bought=no|yes"
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := bought(path)
			change(&c)
			_, s, dir := trainedIn(t, c)
			stored, err := ReadModel(dir)
			if err != nil {
				t.Fatal(err)
			}
			if got := stored.Coefficients(); len(got) == 0 || !slices.Equal(got, s.Coefficients) {
				t.Fatalf("stored %v, of the run %v", got, s.Coefficients)
			}
			var written Summary
			if raw, err := os.ReadFile(filepath.Join(dir, SummaryFile)); err != nil || json.Unmarshal(raw, &written) != nil || !slices.Equal(written.Coefficients, s.Coefficients) {
				t.Errorf("summary: %v, %v", written.Coefficients, err)
			}
			// A row: 37 years, of Paris, 12 spent, who bought; and one without what was spent.
			for _, row := range []struct {
				cells string
				own   map[string]float64
			}{
				{"1,37,paris,12,yes", map[string]float64{"age": 37, "city=paris": 1, "spent": 12, "bought=yes": 1}},
				{"1,21,oslo,,no", map[string]float64{"age": 21, "city=*": 1, "spent": 25, "spent missing": 1, "bought=no": 1}},
			} {
				score := map[string]float64{}
				for _, x := range stored.Coefficients() {
					if x.Column == Intercept {
						score[x.Class] += float64(x.Value)
					} else {
						score[x.Class] += float64(x.Value) * row.own[x.Column]
					}
				}
				file := filepath.Join(t.TempDir(), "one.csv")
				if err := os.WriteFile(file, []byte("id,age,city,spent,bought\n"+row.cells+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				predicted, err := stored.Predict(file, 1)
				if err != nil {
					t.Fatal(err)
				}
				number := func(column int) float64 { x, _ := strconv.ParseFloat(predicted[1][column], 64); return x }
				got, want := score[""], number(0)
				if c.Label == "bought" {
					got, want = score["yes"]-score["no"], math.Log(number(2)/number(1))
				}
				if !(math.Abs(got-want) < 1e-3*(1+math.Abs(want))) {
					t.Errorf("row %s: the coefficients say %v, the model %v", row.cells, got, want)
				}
			}
		})
	}
}

// Models without one coefficient for each column have none, and figures beyond all bounds can be
// written.
func TestNoCoefficients(t *testing.T) {
	c := bought(shoppers(t, 300, "u0,30,oslo,1,yes"))
	c.Model = pcaMLP
	r, err := Prepare(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Config.coefficients(r.Model, r.Theta(), r.Data.columns, r.Data.Classes); got != nil {
		t.Errorf("coefficients %v of principal axes", got)
	}
	if _, err := json.Marshal([]Coefficient{{"x", "", dp.Number(math.Inf(1))}}); err != nil {
		t.Error(err)
	}
}
