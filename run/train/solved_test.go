package train

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/run/solve"
)

// A solved problem's model reads the same tables, has the loss that the solver says, and its
// coefficients are those of the stored model.
func TestSolvedModelIsRead(t *testing.T) {
	columns := DataConfig{Range: "age=0..100,spent=0..50", Categories: "city=berlin|paris|*", Missing: "spent=25+indicator", Drop: "id"}
	path := shoppers(t, 300, "u0,30,oslo,1,yes")
	for name, change := range map[string]func(c *solve.Config, columns *DataConfig){
		"classes": func(*solve.Config, *DataConfig) {},
		"numbers": func(c *solve.Config, columns *DataConfig) {
			c.Label, c.Loss, columns.Categories = "age", "absolute", "city=berlin|paris|*,bought=no|yes"
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, columns := solve.Config{Data: path, Label: "bought", Trust: "none", Optimizer: "gd", Lambda: .3, Radius: 5, Seed: 1, Workers: 1}, columns
			change(&c, &columns)
			for what, text := range map[string]string{"range": columns.Range, "categories": columns.Categories, "missing": columns.Missing, "drop": columns.Drop} {
				if err := c.Columns.Declare(what, text); err != nil {
					t.Fatal(err)
				}
			}
			if c.Loss == "absolute" {
				c.Optimizer, c.Lambda = "agd-smooth", 0
			}
			p, err := solve.Prepare(context.Background(), c)
			if err != nil {
				t.Fatal(err)
			}
			r, err := p.Run(context.Background(), solve.Observer{})
			if err != nil {
				t.Fatal(err)
			}
			raw, err := SolvedFile(p, r, columns)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "model.safetensors")
			if err := os.WriteFile(file, raw, 0o600); err != nil {
				t.Fatal(err)
			}
			stored, err := ReadModel(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := stored.Test(path, false, 1)
			if err != nil || got.Examples != 300 {
				t.Fatalf("%+v, %v", got, err)
			}
			square := 0.0
			for _, v := range r.Theta {
				square += v * v
			}
			if want := r.Loss - c.Lambda/2*square; math.Abs(got.Loss-want) > 1e-6 {
				t.Errorf("loss %v, the solver says %v", got.Loss, want)
			}
			a, b := stored.Coefficients(), SolvedCoefficients(p, r)
			if len(a) == 0 || len(a) != len(b) {
				t.Fatalf("coefficients %v and %v", a, b)
			}
			for i := range a {
				if a[i] != b[i] {
					t.Errorf("coefficient %+v, of the solver %+v", a[i], b[i])
				}
			}
		})
	}
	p, err := solve.Prepare(context.Background(), solve.Config{Synthetic: "logistic", N: 2000, Dim: 3, Trust: "none", Radius: 8, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := SolvedFile(p, solve.Result{}, DataConfig{}); err == nil || !strings.Contains(err.Error(), "synthetic") {
		t.Errorf("error %v", err)
	}
	if got := SolvedCoefficients(p, solve.Result{Theta: make([]float64, 3)}); got != nil {
		t.Errorf("coefficients %v of synthetic rows", got)
	}
}
