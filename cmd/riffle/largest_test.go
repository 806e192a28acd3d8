package main

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

// How far one report can move a mean is said wherever randomizer and dimension are
// known, and nowhere else.
func TestLargestReportIsSaid(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and one goroutine: nothing for the race detector")
	}
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

// A task tells the epsilon that a report is charged with beside the asked one, and how many
// seeds are tried where its reports are seeds.
func TestTaskSaysWhatAReportIs(t *testing.T) {
	seeds := &operatorv1.Task{Trust: "shuffle", Messages: 1, Eps0: 2.50000018235, Eps0Asked: 2.5, LargestReport: 31, LargestReportTries: 1 << 40}
	values := &operatorv1.Task{Trust: "shuffle", Messages: 2, Eps0: 2.5, Eps0Asked: 2.5, LocalEpsilon: 5, LargestReport: 31}
	for _, c := range []struct {
		task   *operatorv1.Task
		has    []string
		absent string
	}{
		{seeds, []string{"one report", "epsilon 2.5000002 by itself (eps0 2.5, and what covers rounding)", "by up to 31 clip norms / n, whatever its client's data is: the best of 2^40 seeds"}, "messages"},
		{values, []string{"one message", "epsilon 2.5 by itself\n", "by up to 31 clip norms / n, whatever its client's data is; no step", "2 messages a round: epsilon 5 together"}, "seed"},
		{&operatorv1.Task{Trust: "vector-sum", Proofs: "pine", NoiseBy: "aggregators"}, []string{"by aggregators: as much of each as hides a client, whoever else takes part"}, "honest"},
		{&operatorv1.Task{Trust: "vector-sum", Proofs: "pine", NoiseBy: "clients"}, []string{"by clients, apart from their vectors: that of n-min, or of the share of them that is honest, hides a client"}, "whoever else"},
		{&operatorv1.Task{Trust: "vector-sum", LargestReport: 2}, []string{"by up to 2 clip norms / n"}, "seed"},
	} {
		var text strings.Builder
		printTask(&printer{w: &text}, c.task)
		for _, has := range c.has {
			if !strings.Contains(text.String(), has) {
				t.Errorf("not %q in\n%s", has, &text)
			}
		}
		if strings.Contains(text.String(), c.absent) {
			t.Errorf("%q in\n%s", c.absent, &text)
		}
		told := taskJSON(c.task, nil)
		for key, want := range map[string]bool{"eps0": c.task.Eps0 > 0, "eps0_asked": c.task.Eps0 > 0, "largest_report_tries": c.task == seeds} {
			if _, ok := told[key]; ok != want {
				t.Errorf("%s: %v, want %v", key, ok, want)
			}
		}
	}
}

// What the two encodings of a report cost is said where it differs, and how many seeds a liar is
// taken to try where reports are seeds.
func TestEncodingsAreSaid(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and one goroutine: nothing for the race detector")
	}
	base := []string{"eps", "--n", "60000", "--rounds", "160", "--delta", "1e-5", "--bounds", "best"}
	cost := map[string]float64{}
	for _, c := range []struct {
		args  []string
		said  string
		tries int64
		count int
	}{
		{[]string{"--randomizer", "stepunit", "--eps0", "2.834", "--dim", "1930"}, "epsilon <= 0.6283 with --encoding values, epsilon <= 0.6282 with --encoding seed", 0, 2},
		{[]string{"--randomizer", "stepunit", "--eps0", "2.834", "--dim", "1930", "--encoding", "seed"}, "clip norms / n, whatever its client's data is: the best of 2^40 seeds", 1 << 40, 2},
		{[]string{"--randomizer", "privunit", "--eps0", "2.5", "--dim", "1930"}, "epsilon <= 0.7122 with --encoding values, epsilon <= 0.7121 with --encoding seed", 0, 2},
		{[]string{"--randomizer", "privunit", "--eps0", "20", "--dim", "1930"}, "", 0, 0}, // a seed would take too long to find
		{[]string{"--randomizer", "r2", "--eps0", "2", "--dim", "100"}, "", 0, 0},
	} {
		args := append(base[:len(base):len(base)], c.args...)
		text := want(t, exitDone, "", args...)
		if !strings.Contains(text, c.said) || c.tries == 0 && strings.Contains(text, "2^40") || c.count == 0 && strings.Contains(text, "--encoding") {
			t.Errorf("riffle %s: not %q\n%s", strings.Join(args, " "), c.said, text)
		}
		var d struct {
			Upper     struct{ Eps float64 }
			Tries     int64 `json:"largest_report_tries"`
			Encodings []struct {
				Encoding string
				Eps      float64
			}
		}
		if err := json.Unmarshal([]byte(want(t, exitDone, "", append(args, "--json")...)), &d); err != nil {
			t.Fatal(err)
		}
		if d.Tries != c.tries || len(d.Encodings) != c.count {
			t.Errorf("riffle %s: %+v", strings.Join(args, " "), d)
		}
		for _, e := range d.Encodings {
			key := c.args[1] + e.Encoding
			if old, ok := cost[key]; ok && math.Abs(old-e.Eps) > 1e-12 {
				t.Errorf("%s costs %v, or %v where the other encoding is asked for", key, e.Eps, old)
			}
			cost[key] = e.Eps
			if named := c.tries > 0; named == (e.Encoding == "seed") && e.Eps != d.Upper.Eps {
				t.Errorf("riffle %s: %s costs %v, the bound is %v", strings.Join(args, " "), e.Encoding, e.Eps, d.Upper.Eps)
			}
		}
	}
}
