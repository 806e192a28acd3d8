package main

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// How far one report can move a mean is said wherever randomizer and dimension are
// known, and nowhere else.
func TestLargestReportIsSaid(t *testing.T) {
	ask := func(args ...string) (text string, largest float64) {
		t.Helper()
		for _, json_ := range []bool{false, true} {
			var out, errs bytes.Buffer
			all := args
			if json_ {
				all = append(args[:len(args):len(args)], "--json")
			}
			if code := run(all, &out, &errs); code != 0 {
				t.Fatalf("riffle %s: exit %d: %s", strings.Join(all, " "), code, errs.String())
			}
			if !json_ {
				text = out.String()
				continue
			}
			var d struct {
				Largest float64 `json:"largest_report"`
				Check   struct {
					Largest float64 `json:"largest_report"`
				} `json:"check"`
			}
			if err := json.Unmarshal(out.Bytes(), &d); err != nil {
				t.Fatal(err)
			}
			largest = d.Largest + d.Check.Largest
		}
		return text, largest
	}
	base := []string{"eps", "--participation", "all", "--n", "1000", "--delta", "1e-5", "--bounds", "best"}
	for _, c := range []struct {
		args []string
		want float64
	}{
		{append(base[:len(base):len(base)], "--eps0", "2", "--randomizer", "privunit", "--dim", "1930"), 62.88},
		{append(base[:len(base):len(base)], "--eps0", "2", "--randomizer", "rr2"), 1 / math.Tanh(1)},
		{append(base[:len(base):len(base)], "--eps0", "2", "--randomizer", "krr:4"), 0},
		{append(base[:len(base):len(base)], "--eps0", "2"), 0},
		{[]string{"plan", "--participation", "all", "--n", "1000", "--delta", "1e-5", "--target-eps", "1", "--solve", "eps0", "--randomizer", "privunit", "--dim", "100"}, 0},
	} {
		text, largest := ask(c.args...)
		said := strings.Contains(text, "one report can move the mean of n by up to ")
		if known := len(c.args) > 11; known != said || known != (largest > 0) || c.want > 0 && math.Abs(largest-c.want) > .01*c.want {
			t.Errorf("riffle %s: %v, want %v\n%s", strings.Join(c.args, " "), largest, c.want, text)
		}
	}
}
