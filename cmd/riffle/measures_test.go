package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/model"
)

func TestFiguresOfClasses(t *testing.T) {
	numbers := map[string]dp.Number{
		"accuracy": .9, "loss": .2, "baseline_accuracy": .8, "baseline_loss": .3,
		"auc": .75, "recall_no": .96, "precision_no": .9, "recall_yes": 0,
	}
	var out bytes.Buffer
	p := printer{w: &out}
	p.figures(numbers, &model.Evaluation{Confusion: [][]int{{96, 4}, {10, 0}}}, []string{"no", "yes"})
	const want = `  no                 recall 96.00 % of 100, precision 90.00 %
  yes                recall 0.00 % of 10
auc                  0.75
`
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
	if got, want := measures(numbers), []string{"auc 0.75", "precision_no 0.9", "recall_no 0.96", "recall_yes 0"}; !slices.Equal(got, want) {
		t.Errorf("measures %q, want %q", got, want)
	}
	if got, want := briefly(numbers), []string{"auc 0.75"}; !slices.Equal(got, want) {
		t.Errorf("briefly %q, want %q", got, want)
	}
}

func TestFiguresOfNumbers(t *testing.T) {
	var out bytes.Buffer
	p := printer{w: &out}
	p.figures(map[string]dp.Number{"loss": .1, "r2": .25, "mae": 12, "baseline_mae": 20}, &model.Evaluation{}, nil)
	const want = `mean absolute error  12, of the best constant 20
r2                   0.25
`
	if out.String() != want {
		t.Errorf("printed\n%swant\n%s", out.String(), want)
	}
}

// A table with text and gaps is learned from, evaluated and predicted for on the command line.
func TestTableOnTheCommandLine(t *testing.T) {
	dir := t.TempDir()
	path, out := filepath.Join(dir, "shop.csv"), filepath.Join(dir, "run")
	var text strings.Builder
	text.WriteString("id,age,city,bought\n")
	for i := range 200 {
		age := fmt.Sprint(20 + i%60)
		if i%9 == 0 {
			age = ""
		}
		fmt.Fprintf(&text, "u%d,%s,%s,%s\n", i, age, []string{"paris", "rome", "oslo"}[i%3], []string{"no", "yes"}[(i%60)/40])
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"train", "--data", path, "--label", "bought", "--range", "age=0..100", "--trust", "none", "--rounds", "3", "--no-progress"}
	want(t, exitUsage, "--drop COLUMN", args...)
	want(t, exitUsage, "--categories", append(args, "--drop", "id", "--missing", "age=40")...)
	want(t, exitUsage, "--missing 'COLUMN=VALUE'", append(args, "--drop", "id", "--categories", "city=paris|*")...)
	args = append(args, "--drop", "id", "--categories", "city=paris|*", "--missing", "age=40+indicator", "--out", out)
	want(t, exitDone, "the classes no, yes of column bought are read off the table", args...)
	if page, err := os.ReadFile(filepath.Join(out, "report.html")); err != nil || !regexp.MustCompile(`loss 0\.\d{4} of the best constant, auc `).Match(page) {
		t.Errorf("the page does not have the best constant's loss: %v", err)
	}
	want(t, exitDone, "auc ", "eval", out)
	want(t, exitDone, "\"metrics\"", "eval", out, "--json")
	want(t, exitDone, "bought,probability no,probability yes\n", "predict", out, "--data", path)
	want(t, exitUsage, "data is required", "predict", out)
	want(t, exitUsage, "no such file", "predict", out, "--data", filepath.Join(dir, "gone.csv"))
}

func TestSignificant(t *testing.T) {
	for _, c := range []struct {
		x, wide float64
		want    string
	}{{-.3, 10, "0"}, {-.04, .3, "-0.04"}, {-.004, .3, "0.00"}, {1234.5, 20, "1234"}, {-7.6, 12, "-8"}} {
		if got := significant(c.x, c.wide); got != c.want {
			t.Errorf("%v ± %v: %q, not %q", c.x, c.wide, got, c.want)
		}
	}
}
