package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRoundUpNeverShowsLess(t *testing.T) {
	for x, want := range map[float64]string{1e-8: "1e-08", .15223601: "0.1523", 16: "16", .99999: "1", 1.00001: "1.001",
		123456: "1.235e+05", 0: "0", math.Inf(1): "+Inf"} {
		if got := roundUp(x); got != want {
			t.Errorf("%v is shown as %s, want %s", x, got, want)
		}
	}
	if got := roundDown(.38415); got != "0.3841" {
		t.Errorf("a lower bound of .38415 is shown as %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(1e-300, 1e300).Draw(t, "x")
		if y := parse(roundUp(x)); y < x || y > x*1.0011 {
			t.Errorf("%v is shown as %v", x, y)
		}
		if y := parse(roundDown(x)); y > x || y < x*.9989 {
			t.Errorf("as a lower bound %v is shown as %v", x, y)
		}
	})
}

// The bar of a run that goes on shows its share of the whole run, beside the round,
// and how long the rest takes at this process's rate.
func TestBarOfAResumedRun(t *testing.T) {
	begun := time.Now()
	for _, c := range []struct {
		before, done int64
		want         string
	}{
		{0, 0, "round 1/4  [          ]  0 %"},
		{0, 25, "round 1/4  [==        ]  25 %  30s left  2.5 reports/s"},
		{50, 50, "round 1/4  [=====     ]  50 %"},
		{50, 75, "round 1/4  [=======   ]  75 %  10s left  2.5 reports/s"},
		{50, 110, "round 1/4  [==========]  100 %  0s left  6.0 reports/s"},
	} {
		b := &bar{w: io.Discard, now: func() time.Time { return begun.Add(10 * time.Second) }, begun: begun,
			before: c.before, done: c.done, total: 100, unit: "reports", name: "round 1/4"}
		if got := b.line(len([]rune(c.want))); got != c.want {
			t.Errorf("%d, then %d: %q, want %q", c.before, c.done, got, c.want)
		}
	}
}

// Eval takes the data of the run whose directory it is given, and others by their name.
func TestEvalTakesTheRunsData(t *testing.T) {
	dir := t.TempDir()
	table, out := filepath.Join(dir, "table.csv"), filepath.Join(dir, "run")
	var b strings.Builder
	b.WriteString("x,y\n")
	for i := range 100 {
		fmt.Fprintf(&b, "%d,%s\n", i%10, []string{"no", "yes"}[i%10/5])
	}
	if err := os.WriteFile(table, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, exitDone, "", "train", "--data", table, "--label", "y", "--range", "x=0..9", "--rounds", "2", "--out", out)
	want(t, exitDone, "the 20 rows held out of training, of 100", "eval", out)
	want(t, exitUsage, "a .csv file with column y", "eval", filepath.Join(out, "model.safetensors"))
	want(t, exitUsage, "data mnist: the model was not trained on data of this kind", "eval", out, "--data", "mnist")
	if err := os.Rename(table, table+".away"); err != nil {
		t.Fatal(err)
	}
	want(t, exitUsage, "table.csv", "eval", out)
}
