//go:build long

package coordinator

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	side "github.com/riffle-dp/riffle/protocol/client"
	pure "github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
)

// learn runs the demonstration's task with so many liars among its 1,000 clients, who
// lie from some round on, counted from 0. A
// liar sends the longest report that Check accepts, against its own gradient. It
// returns the accuracy of each round's model and how many rounds gave no step.
func learn(t *testing.T, liars, from int64, guard *Guard) (accuracy []float64, held, short int) {
	t.Helper()
	const n, rounds = 1000, 12
	c := train.Default()
	c.Model, c.Eps0, c.Rounds, c.PerClient, c.Participation = "hog-linear", 2, rounds, 20, "all"
	c.Encoding = randomizer.Values // a liar moves a mean of seeds far less
	task, err := train.NewTask(t.Context(), "liars", c, train.Enrolled{Population: wire.ID{1}, Clients: n, MinReports: 2})
	if err != nil {
		t.Fatal(err)
	}
	config, err := task.Coordinator()
	if err != nil {
		t.Fatal(err)
	}
	limits := task.Limit
	limits.MaxEps = math.Inf(1)
	if config.Ledger, err = ledger.New(limits); err != nil {
		t.Fatal(err)
	}
	co, err := pure.New(config)
	if err != nil {
		t.Fatal(err)
	}
	norm, err := mechanism.Norm(task.Wire.Mechanism)
	if err != nil {
		t.Fatal(err)
	}
	reporter, err := side.New(side.Config{Mechanism: task.Mechanism, ClipMode: side.ClipMode(c.ClipMode), Clip: task.Config.Clip, Norm: norm})
	if err != nil {
		t.Fatal(err)
	}
	data := &train.Local{Data: "mnist"}
	var gradients []func(theta, grad []float32)
	for i := range int64(n) {
		g, err := train.LocalClient{Local: data, Client: i}.Open(task.Wire)
		if err != nil {
			t.Fatal(err)
		}
		gradients = append(gradients, g)
	}
	measure := func() float64 {
		e, err := task.Evaluate(co.Parameters)
		if err != nil {
			t.Fatal(err)
		}
		return e.Accuracy
	}
	best := measure()
	grad, report := make([]float32, task.Mechanism.Facts().Dim), task.Mechanism.NewReport()
	for round := range int64(rounds) {
		if err := co.Receive(t.Context(), wire.RoundClosed{Round: round + 1, Reports: n}); err != nil {
			t.Fatal(err)
		}
		tally, err := co.NewTally()
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range gradients {
			g(co.Parameters, grad)
			if int64(i) < liars && round >= from {
				var square float64
				for _, v := range grad {
					square += float64(v) * float64(v)
				}
				for j, v := range grad {
					report.Value[j] = int32(-73000 * float64(v) / math.Sqrt(square))
				}
			} else {
				reporter.Report(rng.Replay(1, uint64(round), uint64(i)), grad, report)
			}
			tally.Open(report)
		}
		before := co.State().Optimizer
		if _, rejected, err := co.End(tally); err != nil || rejected != 0 {
			t.Fatalf("%d rejected: %v", rejected, err)
		}
		if co.Shortened {
			short++
		}
		v := measure()
		if guard != nil {
			if f, _ := guard.judge(v, best); f != nil {
				if err := co.TakeBack(before); err != nil {
					t.Fatal(err)
				}
				held++
				v = measure()
			}
			best = max(best, v)
		}
		accuracy = append(accuracy, v)
	}
	return accuracy, held, short
}

// 2 % of liars turn a model, and no report of theirs is refused. With a guard the
// last good model stays.
func TestGuardAgainstTwoPercentOfLiars(t *testing.T) {
	guard := &Guard{Metric: "accuracy", Measure: func(v any) float64 { return v.(float64) }, Fall: .02}
	last := func(a []float64) float64 { return a[len(a)-1] }
	honest, _, short := learn(t, 0, 0, nil)
	alone, _, _ := learn(t, 20, 6, nil)
	guarded, held, _ := learn(t, 20, 6, guard)
	same, none, _ := learn(t, 0, 0, guard)
	early, _, _ := learn(t, 20, 0, guard)
	t.Logf("accuracy after 12 rounds: %.1f %% of honest clients; %.1f %% with 2 %% of liars from round 7 on, %.1f %% with a guard, which held %d steps back; %.1f %% with a guard and liars from the start",
		100*last(honest), 100*last(alone), 100*last(guarded), held, 100*last(early))
	if short != 0 || none != 0 || last(same) != last(honest) {
		t.Errorf("of honest clients %d steps were shortened and %d held back", short, none)
	}
	best := 0.
	for i, v := range guarded {
		if best = max(best, v); v < best-.02 {
			t.Errorf("round %d: accuracy %v after %v", i+1, v, best)
		}
	}
	if !(last(alone) < last(honest)-.1) || !(last(guarded) > last(honest)-.1) || held == 0 {
		t.Errorf("%v of honest clients, %v with liars, %v with a guard", honest, alone, guarded)
	}
}
