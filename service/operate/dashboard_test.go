package operate

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/page/dashboard"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/coordinator"
)

// labelled is a task of a table in which three of four rows are of one class.
func labelled(t *testing.T, numbers bool) *train.Setup { return labelledIn(t, numbers, "") }

func labelledIn(t *testing.T, numbers bool, encoding string) *train.Setup {
	t.Helper()
	var b strings.Builder
	b.WriteString("x,y\n")
	for i := range 400 {
		switch {
		case numbers:
			fmt.Fprintf(&b, "%d,%g\n", i%10, .1*float64(i%10))
		case i%4 == 0:
			fmt.Fprintf(&b, "%d,yes\n", i%10)
		default:
			fmt.Fprintf(&b, "%d,no\n", i%10)
		}
	}
	path := filepath.Join(t.TempDir(), "table.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	c := train.Default()
	c.Data, c.Label, c.Range, c.Rounds, c.Eps0, c.Encoding = path, "y", "x=0..9", 2, 1, encoding
	if numbers {
		c.Loss, c.Range = "absolute", "x=0..9,y=0..1"
	}
	task, err := train.NewTask(t.Context(), "table", c, train.Enrolled{Population: wire.ID{7}, Clients: 300, MinReports: 2})
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// The page has what the best constant reaches beside what a model does, and warns of
// a model that is no better; also of what an earlier process measured.
func TestPageShowsTheBaseline(t *testing.T) {
	see := func(made *train.Setup, e any, before float64) dashboard.View {
		id := wire.Digest(made.Wire)
		v := &pageWriter{process: &coordinatorProcess{tasks: map[[32]byte]*train.Setup{id: made}}, plans: map[[32]byte]chan costs{id: make(chan costs, 1)}}
		v.plans[id] <- costs{planned: 1}
		last := &shownTask{accuracy: before, loss: before}
		return v.task(t.Context(), "a", wire.Status{ID: id, State: coordinator.Running, Evaluation: e}, last)
	}
	nan := math.NaN()
	classes, numbers := labelled(t, false), labelled(t, true)
	of := func(accuracy, loss float64) evaluation { return evaluation{Accuracy: &accuracy, Loss: dp.Number(loss)} }
	share := classes.Baseline.Accuracy
	for name, c := range map[string]struct {
		made     *train.Setup
		e        any
		before   float64
		baseline string
		warned   string
	}{
		"better":             {classes, of(.99, .1), nan, classes.Baseline.Short, ""},
		"equal":              {classes, of(share, .9), nan, classes.Baseline.Short, `always "no"`},
		"not evaluated":      {classes, nil, nan, classes.Baseline.Short, ""},
		"before, and worse":  {classes, nil, .25, classes.Baseline.Short, "accuracy 25.00 % is no better than the baseline"},
		"numbers, better":    {numbers, evaluation{Loss: .01}, nan, numbers.Baseline.Short, ""},
		"numbers, and worse": {numbers, evaluation{Loss: 5}, nan, numbers.Baseline.Short, "loss 5.0000 is no better than the baseline"},
	} {
		got := see(c.made, c.e, c.before)
		if got.Baseline != c.baseline || (got.Warning == "") != (c.warned == "") || !strings.Contains(got.Warning, c.warned) {
			t.Errorf("%s: baseline %q, want %q; warning %q, want %q", name, got.Baseline, c.baseline, got.Warning, c.warned)
		}
	}
}

// The page says what a report is: how many messages, what they promise together, what each holds.
func TestPageShowsMessages(t *testing.T) {
	made := labelled(t, false)
	if made.Wire.Mechanism.Encoding != wire.EncodingSeed {
		t.Fatalf("%+v", made.Wire.Mechanism)
	}
	value := func(name string) string {
		for _, f := range facts(made) {
			if f.Name == name {
				return f.Value
			}
		}
		return ""
	}
	if own, holds := value("Randomizer"), value("A report holds"); !strings.HasSuffix(own, " with ε₀ = 1.0000001 (eps0 1, and what covers rounding)") || holds != "a seed of 16 bytes" {
		t.Errorf("%q, %q", own, holds)
	}
	made.Config.Messages = 2
	if own, holds := value("Randomizer"), value("A report holds"); !strings.HasSuffix(own, " with ε₀ = 1.0000001 (eps0 1, and what covers rounding) in each of 2 messages, together 2.0000001 a round") || holds != "2 seeds of 16 bytes" {
		t.Errorf("%q, %q", own, holds)
	}
	if p := promise(made, wire.Status{}); p.Messages != 2 || !(p.Eps0 > 1) || p.Asked != 1 {
		t.Errorf("%+v", p)
	}
	made.Wire.Mechanism.Encoding = ""
	if holds := value("A report holds"); holds != "" {
		t.Errorf("of values: %q", holds)
	}
}
