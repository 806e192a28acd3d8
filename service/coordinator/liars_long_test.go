//go:build long

package coordinator

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	side "github.com/riffle-dp/riffle/protocol/client"
	pure "github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
)

// protection is how the reports of a run are hidden.
type protection struct {
	config func(*train.Config)
	// together: liars lie along the mean of their gradients, not each along its own.
	together bool
	// stubborn: and all the time along that of the first round in which they lie.
	stubborn bool
}

var (
	single = protection{func(c *train.Config) {
		c.Eps0 = 2
		c.Encoding = randomizer.Values // a liar moves a mean of seeds far less
	}, false, false}
	singleTogether = protection{single.config, true, false}
	unproved       = protection{func(c *train.Config) { c.Trust, c.Epsilon = "vector-sum", 1 }, true, false}
	normed         = protection{func(c *train.Config) {
		c.Trust, c.Epsilon, c.NoiseBy, c.Proofs = "vector-sum", 1, vecsum.ByAggregators, "pine"
	}, true, false}
	normedStubborn = protection{normed.config, true, true}
)

// learn runs the demonstration's task with so many liars among its 1,000 clients, who lie from some
// round on, counted from 0, against a gradient. Of single reports, a liar sends the longest that
// Check accepts. Of sums without proofs, liars shift their shares until the sum is at an end of its
// range. Of sums with proofs, each sends the vector of the largest norm that has a proof. learn
// returns the accuracy of each round's model and how many rounds gave no step.
func learn(t *testing.T, by protection, liars, from int64, guard *Guard) (accuracy []float64, held, short int) {
	t.Helper()
	const n, rounds = 1000, 12
	c := train.Default()
	c.Model, c.Rounds, c.PerClient, c.Participation = "hog-linear", rounds, 20, "all"
	by.config(&c)
	task, err := train.NewTask(t.Context(), "liars", c, train.Enrolled{Population: wire.ID{1}, Clients: n, MinReports: 2})
	if err != nil {
		t.Fatal(err)
	}
	config, err := task.Coordinator()
	if err != nil {
		t.Fatal(err)
	}
	limits := task.Limit
	if !task.Config.Trust.Is(dp.SumsOnly) {
		limits.MaxEps = math.Inf(1)
	}
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
	dim := task.Mechanism.Facts().Dim
	grad, report := make([]float32, dim), task.Mechanism.NewReport()
	mean := make([]float32, dim) // of the liars' gradients, times their number
	sums := task.Config.Trust.Is(dp.SumsOnly)
	for round := range int64(rounds) {
		if err := co.Receive(t.Context(), wire.RoundClosed{Round: round + 1, Reports: n}); err != nil {
			t.Fatal(err)
		}
		tally, err := co.NewTally()
		if err != nil {
			t.Fatal(err)
		}
		sum := make([]int64, dim) // of sums
		lie := round >= from
		if !by.stubborn || round <= from {
			clear(mean)
		}
		for _, g := range gradients[:liars] {
			if !lie || !by.together || by.stubborn && round > from {
				break
			}
			g(co.Parameters, grad)
			for j, v := range grad {
				mean[j] += v
			}
		}
		for i, g := range gradients {
			if lies := lie && int64(i) < liars; lies && by.together {
				copy(grad, mean)
			} else {
				g(co.Parameters, grad)
			}
			switch lies := lie && int64(i) < liars; {
			case !lies:
				reporter.Report(rng.Replay(1, uint64(round), uint64(i)), grad, report)
			case sums:
				clear(report.Value) // see shift
				if m, ok := task.Mechanism.(*mechanism.AggregatedSum); ok {
					along(grad, -float64(m.Bound), report.Value)
				}
			default:
				along(grad, -73000, report.Value)
			}
			if !sums {
				tally.Open(report)
				continue
			}
			if m, ok := task.Mechanism.(*mechanism.AggregatedSum); ok {
				if err := m.Check(report); err != nil { // stands for the proof: package proved has both
					t.Fatal(err)
				}
			}
			task.Mechanism.Add(sum, report)
		}
		if sums {
			switch m := task.Mechanism.(type) {
			case *mechanism.AggregatedSum:
				if err := m.AddNoise(rng.Replay(2, uint64(round)), sum, n); err != nil {
					t.Fatal(err)
				}
			case interface{ CheckSum([]int64, int64) error }:
				if lie && liars > 0 {
					shift(sum, mean, func(s []int64) bool { return m.CheckSum(s, n) == nil })
				}
			}
			if err := tally.AddSum(sum, n); err != nil {
				t.Fatal(err)
			}
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

// along writes a vector of integers of the direction of x and, rounded towards 0, of a length.
func along(x []float32, length float64, out []int32) {
	var square float64
	for _, v := range x {
		square += float64(v) * float64(v)
	}
	for j, v := range x {
		out[j] = int32(length * float64(v) / math.Sqrt(square))
	}
}

// shift moves a sum against x as far as it passes.
func shift(sum []int64, x []float32, passes func([]int64) bool) {
	moved := make([]int64, len(sum))
	by := func(length float64) []int64 {
		for j, v := range x {
			moved[j] = sum[j] - int64(length*float64(v))
		}
		return moved
	}
	low, high := 0., 1.
	for passes(by(high)) && high < 1e12 {
		high *= 2
	}
	for range 40 {
		if mid := (low + high) / 2; passes(by(mid)) {
			low = mid
		} else {
			high = mid
		}
	}
	copy(sum, by(low))
}

// 5 % of liars, each doing its worst, cost sums with proofs less than 3 points. They own a model of sums
// without proofs and of single reports; a guard keeps within 3 points of the last good one.
func TestFivePercentOfLiars(t *testing.T) {
	guard := &Guard{Metric: "accuracy", Measure: func(v any) float64 { return v.(float64) }, Fall: .02}
	last := func(a []float64) float64 { return 100 * a[len(a)-1] }
	for _, c := range []struct {
		name string
		by   protection
	}{{"sums, norms proved", normed}, {"sums, nothing proved", unproved}, {"single reports", singleTogether}} {
		honest, _, short := learn(t, c.by, 0, 0, nil)
		start, _, _ := learn(t, c.by, 50, 0, nil)
		late, _, _ := learn(t, c.by, 50, 6, nil)
		guarded, held, _ := learn(t, c.by, 50, 6, guard)
		t.Logf("%s: %.1f %% of honest clients; 5 %% of liars %.1f %%; from round 7 on %.1f %%, with a guard %.1f %%, which held %d steps back (after round 6: %.1f %%)",
			c.name, last(honest), last(start), last(late), last(guarded), held, last(guarded[:6]))
		if short != 0 {
			t.Errorf("%s: %d steps of honest clients were shortened", c.name, short)
		}
		if good := last(guarded[:6]); !(last(guarded) > good-3) {
			t.Errorf("%s: %v with a guard after %v", c.name, last(guarded), good)
		}
		if fall := last(honest) - last(start); c.name == "sums, norms proved" {
			stubborn, _, _ := learn(t, normedStubborn, 50, 0, nil)
			t.Logf("liars who always send the first round's direction: %.1f %%", last(stubborn))
			if !(fall < 3) || !(last(honest)-last(stubborn) < 3) || !(last(honest)-last(late) < 3) || !(last(honest) > 85) {
				t.Errorf("%s: %v, %v, %v", c.name, honest, start, late)
			}
		} else if !(fall > 10) {
			t.Errorf("%s: liars cost %v points only", c.name, fall)
		}
	}
}

// 2 % of liars turn a model, and no report of theirs is refused. With a guard the
// last good model stays.
func TestGuardAgainstTwoPercentOfLiars(t *testing.T) {
	guard := &Guard{Metric: "accuracy", Measure: func(v any) float64 { return v.(float64) }, Fall: .02}
	last := func(a []float64) float64 { return a[len(a)-1] }
	honest, _, short := learn(t, single, 0, 0, nil)
	alone, _, _ := learn(t, single, 20, 6, nil)
	guarded, held, _ := learn(t, single, 20, 6, guard)
	same, none, _ := learn(t, single, 0, 0, guard)
	early, _, _ := learn(t, single, 20, 0, guard)
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
