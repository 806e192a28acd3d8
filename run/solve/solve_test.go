package solve

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

func small() Config {
	return Config{
		Synthetic: "logistic", N: 3000, Dim: 5, Epsilon: 1, Delta: 1e-6, Radius: 8, Seed: 1, Workers: 2,
	}
}

func solved(t *testing.T, c Config) (*Setup, Result) {
	t.Helper()
	task, err := Prepare(context.Background(), c)
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	r, err := task.Run(context.Background(), Observer{})
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	return task, r
}

// Every optimiser runs with every way of protecting gradients that it has, and
// nothing costs more than was asked for.
func TestEveryOptimizerAndTrust(t *testing.T) {
	everyOptimizerAndTrust(t, func(optimizer, trust, loss string) bool {
		if !longtest.On && loss != "logistic" && loss != "hinge" {
			return false
		}
		if testing.Short() && loss != "logistic" {
			return false
		}
		switch trust { // budgets that take long to solve for
		case "distributed": // TestCheckIn
			return optimizer == "gd"
		case "shuffle":
			// TestCostIsTheAccountants runs two of them as well.
			return longtest.On && (optimizer == "agd" && loss == "logistic" || optimizer == "gd" && loss == "hinge")
		}
		return true
	})
}

func everyOptimizerAndTrust(t *testing.T, asked func(optimizer, trust, loss string) bool) {
	for _, method := range optimize.Methods() {
		for _, trust := range dp.TrustNames(dp.Known) {
			for _, loss := range []string{"logistic", "hinge", "absolute", "pinball:0.8"} {
				if !asked(method.Name, trust, loss) {
					continue
				}
				c := small()
				c.Optimizer, c.Trust, c.Loss, c.Lambda, c.MaxRounds = method.Name, dp.Trust(trust), loss, .02, 30
				c.Synthetic = strings.Replace(loss, "pinball:0.8", "absolute", 1)
				smooth := loss == "logistic"
				refused := method.Name == "agd" && !smooth ||
					method.Name == "gd" && trust == "distributed" ||
					method.Name == "pan-private" && trust != "central" && trust != "none"
				if refused {
					if _, err := Prepare(context.Background(), c); err == nil {
						t.Errorf("%s, %s, %s: not refused", method.Name, trust, loss)
					}
					continue
				}
				task, r := solved(t, c)
				sound(t, task, r)
				if trust == "local" && method.Name != "gd" && task.Delta != 0 {
					t.Errorf("local reports with delta %v", task.Delta)
				}
			}
		}
	}
}

// sound checks a run of small's budget and radius.
func sound(t *testing.T, task *Setup, r Result) {
	t.Helper()
	c, norm := task.Config, 0.0
	for _, v := range r.Theta {
		norm += v * v
	}
	if !(math.Sqrt(norm) <= c.Radius*(1+1e-9)) {
		t.Errorf("%s, %s, %s: model of norm %v", c.Optimizer, c.Trust, c.Loss, math.Sqrt(norm))
	}
	if !(r.Excess >= -1e-6 && r.Excess < 10) || r.Gap > 1e-6 || math.Abs(r.Loss-r.Optimum-r.Excess) > 1e-12 {
		t.Errorf("%s, %s, %s: %+v", c.Optimizer, c.Trust, c.Loss, r)
	}
	switch {
	case c.Trust == "none":
		if !math.IsInf(task.Epsilon, 1) {
			t.Errorf("%s, none: epsilon %v", c.Optimizer, task.Epsilon)
		}
	case !(task.Epsilon <= 1 && task.Epsilon > .99) || task.Delta > 1e-6:
		t.Errorf("%s, %s: epsilon %v at %v", c.Optimizer, c.Trust, task.Epsilon, task.Delta)
	}
}

// Whatever the budget, it is used and not exceeded.
func TestBudgets(t *testing.T) {
	for i, eps := range []float64{.05, .31, 1, 3.7, 12} {
		for j, delta := range []float64{1e-10, 1.7e-6, 1e-3} {
			if i%3 != j && !longtest.On {
				continue
			}
			for _, run := range [][2]string{
				{"agd", "vector-sum"}, {"gd", "vector-sum"}, {"agd-phases", "vector-sum"},
				{"agd", "central"}, {"gd", "central"}, {"agd", "local"}, {"pan-private", "central"},
			} {
				c := small()
				c.Epsilon, c.Delta, c.Optimizer, c.Trust, c.Lambda, c.MaxRounds = eps, delta, run[0], dp.Trust(run[1]), .01, 40
				task, err := Prepare(context.Background(), c)
				if err != nil {
					t.Errorf("%v at %v, %v: %v", eps, delta, run, err)
					continue
				}
				if !(task.Epsilon <= eps && task.Epsilon > .98*eps) || task.Delta > delta {
					t.Errorf("%v at %v, %v: costs %v at %v", eps, delta, run, task.Epsilon, task.Delta)
				}
			}
		}
	}
}

// The account is of the noise that is drawn: means of zero gradients have the
// variance that the Gaussian mechanism needs for the whole run, and at most the
// overhead more. 20,000 draws: a false alarm, six standard errors out, is rarer
// than 1e-8 for each case.
func TestNoiseIsThatOfTheAccount(t *testing.T) {
	const reps, dim, slack = 400, 50, .06
	for _, c := range []struct {
		optimizer, trust string
		over             float64 // expected, relative
		draws            float64
		by               vecsum.NoiseBy
	}{
		{"agd", "vector-sum", overhead, 1, ""}, {"gd", "vector-sum", overhead, 1, vecsum.ByClients}, {"agd", "central", 0, 1, ""}, {"gd", "central", 0, 1, ""},
		{"pan-private", "central", 0, 2, ""}, {"agd", "vector-sum", 0, 2, vecsum.ByAggregators}, {"gd", "vector-sum", 0, 2, vecsum.ByAggregators},
	} {
		if c.optimizer == "gd" && c.by != vecsum.ByClients && !longtest.On {
			continue // agd has smaller rounds
		}
		config := small()
		config.Dim, config.Optimizer, config.Trust, config.MaxRounds, config.NoiseBy = dim, c.optimizer, dp.Trust(c.trust), 7, c.by
		config.N = longtest.Pick[int64](1000, config.N) // a draw takes as long as there are clients
		task, err := Prepare(context.Background(), config)
		if err != nil {
			t.Fatal(err)
		}
		mu, err := gdp.Calibrate(guarantee(task))
		if err != nil {
			t.Fatal(err)
		}
		_, to := task.Plan.Batches.Places(1)
		b := batch{clients: to, sigma: task.Plan.Stages[0].Sigma}
		src, mean, zero := rng.Replay(3), make([]float64, dim), make([]float32, dim)
		square := 0.0
		for range reps {
			s, err := task.protection.open(src, b)
			if err != nil {
				t.Fatal(err)
			}
			for range b.clients {
				if err := s.add(src, zero); err != nil {
					t.Fatal(err)
				}
			}
			if err := task.protection.release(src, b, s, mean); err != nil {
				t.Fatal(err)
			}
			for _, v := range mean {
				square += v * v / (reps * dim)
			}
		}
		// σ of the mean for μ/√T a round, 2·clip/B between neighbours.
		want := 2 * task.Config.Clip / float64(b.clients) / float64(mu) * math.Sqrt(float64(task.Plan.Batches.Uses))
		got := square / (want * want * c.draws)
		high := 1 + c.over
		if c.optimizer == "pan-private" { // accounted by Rényi divergences, which ask for more
			high = 1.3
		}
		t.Logf("%s, %s: variance %.4f of the Gaussian mechanism's", c.optimizer, c.trust, got)
		if !(got > 1-slack && got < high+slack) {
			t.Errorf("%s, %s: variance %v of the Gaussian mechanism's", c.optimizer, c.trust, got)
		}
	}
}

// Less noise costs more and is refused: the account does not repeat the plan.
func TestLessNoiseIsSeen(t *testing.T) {
	c := small()
	c.Trust, c.Optimizer = "central", "agd"
	task, err := Prepare(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	plan := *task.Plan
	plan.Stages = slices.Clone(plan.Stages)
	plan.Stages[0].Sigma /= 2
	if eps, _, err := task.protection.prepare(&plan); err != nil || eps < 1.5 {
		t.Errorf("half the noise costs %v: %v", eps, err)
	}
	c.Trust = "vector-sum"
	if task, err = Prepare(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	p := task.protection.(*vectorSum).stages[0].(mechanism.Rounding).Params
	p.Noise.Bits /= 4
	if eps, err := p.Epsilon(c.Delta, 1); err != nil || eps < 1.5 {
		t.Errorf("a quarter of the bits cost %v: %v", eps, err)
	}
}

func TestNoiseByAggregators(t *testing.T) {
	c := small()
	c.NoiseBy = vecsum.ByAggregators
	for _, optimizer := range []string{"agd", "gd"} {
		c.Optimizer, c.MaxRounds = optimizer, 10
		task, r := solved(t, c)
		if !(task.Epsilon <= 1 && task.Epsilon > .99) || task.Delta != c.Delta || math.IsNaN(r.Excess) {
			t.Errorf("%s: epsilon = %v at %v, excess %v", optimizer, task.Epsilon, task.Delta, r.Excess)
		}
	}
	for want, change := range map[string]func(*Config){
		"trust vector-sum or distributed, not shuffle": func(c *Config) { c.Trust = dp.Shuffle },
		"there are no coins to check in by":            func(c *Config) { c.Trust, c.Optimizer = dp.Distributed, "gd" },
		"must be clients or aggregators":               func(c *Config) { c.NoiseBy = "me" },
	} {
		bad := c
		change(&bad)
		if _, err := Prepare(context.Background(), bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// Clients who take part by coins need no minimum for aggregators' noise: the cost is the
// accountant's, most of the budget, and the noise of the released mean is what the plan counts on.
func TestCheckInOfAggregators(t *testing.T) {
	c := small()
	c.N, c.Trust, c.NoiseBy, c.Optimizer, c.MaxRounds, c.Workers = 12000, dp.Distributed, vecsum.ByAggregators, "agd", 2, 3
	task, one := solved(t, c)
	if !(task.Epsilon <= 1 && task.Epsilon > .99) || task.Delta != c.Delta || !math.IsNaN(task.Bound) || !(one.Excess < .2) {
		t.Errorf("epsilon = %v at %v, excess %v", task.Epsilon, task.Delta, one.Excess)
	}
	task.Config.Workers = 1
	again, err := task.Run(context.Background(), Observer{})
	if err != nil || !slices.Equal(one.Theta, again.Theta) {
		t.Errorf("another model with other workers: %v", err)
	}
	m := task.coins
	if task.Rounds != m.rounds || m.rounds != 2 {
		t.Fatalf("%d rounds, by coins %d", task.Rounds, m.rounds)
	}
	p := m.made.(aggregatedDesign).Aggregated
	sigma, _, err := p.Sigma(m.rounds)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := account.Answer(context.Background(), account.Query{Class: account.VectorSumClass, NoiseBy: vecsum.ByAggregators,
		Sum: vecsum.Params{Dim: task.Params}, Sigma: sigma, Participation: dp.CheckIn, Population: c.N, Gamma: .5, Rounds: 2, Delta: c.Delta}, "best")
	// A share of delta is kept for tails, which eps subtracts exactly.
	if err != nil || !(task.Epsilon >= reply.Upper.Eps && task.Epsilon < reply.Upper.Eps*1.001) {
		t.Errorf("riffle eps says %+v, the run %v, %v", reply.Upper, task.Epsilon, err)
	}
	// A sum of zeros shows the noise: of both aggregators, whatever the plan's stage is.
	const reps = 400
	b := batch{clients: m.least}
	mean, square := make([]float64, task.Params), 0.
	for k := range uint64(reps) {
		src := rng.Replay(4, k)
		s, err := m.open(src, b)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.release(src, b, s, mean); err != nil {
			t.Fatal(err)
		}
		for _, v := range mean {
			square += v * v
		}
	}
	d := float64(task.Params)
	released := math.Sqrt2 * sigma * float64(p.Bound) / float64(p.Steps) * task.Config.Clip / float64(m.least)
	if got := math.Sqrt(square / (reps * d)); math.Abs(got/released-1) > 6/math.Sqrt(2*reps*d) {
		t.Errorf("a mean's noise deviates by %v, want %v", got, released)
	}
	if planned := task.Plan.Stages[0].Sigma; !(planned >= released && planned < released*1.03) {
		t.Errorf("the plan counts on %v, released is %v", planned, released)
	}
}

// With parameters of the theory acceleration pays, where there is little noise
// and where there is more.
func TestAccelerationPays(t *testing.T) {
	longtest.Only(t, "two methods on one problem")
	for _, eps := range []float64{1, 8} {
		excess := map[string]float64{}
		for _, name := range []string{"agd", "psgd"} {
			c := small()
			c.N, c.Dim, c.Rows, c.Epsilon, c.Optimizer = 50000, 20, 5000, eps, name
			task, r := solved(t, c)
			if excess[name] = r.Excess; r.Excess > task.Plan.Bound {
				t.Errorf("epsilon %v, %s: excess %v above the bound %v", eps, name, r.Excess, task.Plan.Bound)
			}
		}
		t.Logf("epsilon %v: %v", eps, excess)
		if !(excess["agd"] < excess["psgd"]) {
			t.Errorf("epsilon %v: %v", eps, excess)
		}
	}
}

// Results depend on the seed and not on the workers.
func TestWorkersDoNotMatter(t *testing.T) {
	for _, trust := range dp.TrustNames(dp.Known) {
		if trust == "distributed" {
			continue // TestCheckIn
		}
		if trust == "shuffle" && !longtest.On {
			continue // TestCostIsTheAccountants
		}
		c := small()
		c.N, c.Rows, c.MaxRounds, c.Trust, c.Optimizer = 20000, 500, 2, dp.Trust(trust), "agd"
		c.Workers = 1
		task, one := solved(t, c)
		sameByWorkers(t, task, one)
	}
}

// sameByWorkers runs a task, solved as one, with other workers and with another seed.
func sameByWorkers(t *testing.T, task *Setup, one Result) {
	t.Helper()
	c := task.Config
	task.Config.Workers = 3
	three, err := task.Run(context.Background(), Observer{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(one.Theta, three.Theta) {
		t.Errorf("%s: another model with other workers", c.Trust)
	}
	var other Result
	if c.Trust == dp.None { // only the data is random
		c.Seed = 2
		_, other = solved(t, c)
	} else {
		task.Config.Seed = 2 // of the noise
		if other, err = task.Run(context.Background(), Observer{}); err != nil {
			t.Fatal(err)
		}
	}
	if slices.Equal(one.Theta, other.Theta) {
		t.Errorf("%s: the seed makes no difference", c.Trust)
	}
}

// Without noise the mean over all clients is the loss's own gradient, ridge
// included: checked by differences.
func TestGradientIsTheLosss(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.csv")
	var text strings.Builder
	text.WriteString("a,b,y\n")
	for i := range 40 {
		text.WriteString([]string{"0.2,0.9,no\n", "0.7,0.1,yes\n", "0.4,0.3,yes\n"}[i%3])
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{Data: path, Label: "y", Columns: dataset.CSVConfig{Rest: dataset.Scaling{Unit: 1}}, Trust: "none", Optimizer: "gd", Lambda: .3, Radius: 5, Seed: 1, Workers: 1}
	task, err := Prepare(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := task.Config.Clip, math.Sqrt(3); math.Abs(got-want) > 1e-12 {
		t.Errorf("clip %v, want %v", got, want)
	}
	g, err := task.newGradients()
	if err != nil {
		t.Fatal(err)
	}
	theta := []float64{.5, -1, .25}
	mean, err := g.mean(context.Background(), 1, task.cohort(1, 1), theta)
	if err != nil {
		t.Fatal(err)
	}
	for j := range theta {
		const h = 1. / 1024
		ends := [2]float64{}
		for k, step := range []float64{-h, h} {
			at := slices.Clone(theta)
			at[j] += step
			if ends[k], err = task.loss(at); err != nil {
				t.Fatal(err)
			}
		}
		if slope := (ends[1] - ends[0]) / (2 * h); math.Abs(slope-mean[j]) > 1e-5 {
			t.Errorf("coordinate %d: %v, differences give %v", j, mean[j], slope)
		}
	}
	// Rows are in an order of their own, each once.
	seen, sorted := make([]int, 40), true
	for place := range int64(40) {
		seen[task.people.row(place)]++
		sorted = sorted && task.people.row(place) == int(place)
	}
	if sorted || slices.Min(seen) != 1 || slices.Max(seen) != 1 {
		t.Errorf("rows %v, in the file's order: %v", seen, sorted)
	}
	// Without a range nothing public bounds a row.
	c.Columns.Rest = dataset.Scaling{}
	if _, err := Prepare(context.Background(), c); err == nil || !strings.Contains(err.Error(), "clip is needed") {
		t.Errorf("no range: %v", err)
	}
	c.Clip, c.Optimizer = .5, ""
	if task, err = Prepare(context.Background(), c); err != nil || task.Config.Optimizer != "agd-smooth" {
		t.Errorf("clipped: %+v, %v", task, err)
	}
}

func TestClip(t *testing.T) {
	for _, c := range []struct {
		x    []float32
		norm float64
	}{
		{[]float32{3, 4}, 1}, {[]float32{.3, .4}, .5}, {[]float32{math.MaxFloat32, math.MaxFloat32}, 1},
		{[]float32{float32(math.NaN()), 1}, 0}, {[]float32{float32(math.Inf(-1)), 1}, 0}, {[]float32{0, 0}, 0},
	} {
		x := slices.Clone(c.x)
		clip(x, 1)
		got := math.Hypot(float64(x[0]), float64(x[1]))
		if !(got <= 1 && math.Abs(got-c.norm) < 2e-6) {
			t.Errorf("%v becomes %v", c.x, x)
		}
	}
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	task, err := Prepare(context.Background(), small())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := task.Run(ctx, Observer{Optimum: func(float64) { cancel() }}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := task.Run(ctx, Observer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted before: %v", err)
	}
}

// By coins a client is in one round of T on average, each round's clients are in
// order and some of all, and rounds of too few are void.
func TestCheckIn(t *testing.T) {
	longtest.Only(t, "solves for a budget with chance")
	c := small()
	c.N = 12000 // so that rounds have parts
	c.Trust, c.Optimizer, c.MaxRounds = "distributed", "agd", 2
	task, one := solved(t, c)
	task.Config.Workers = 1
	again, err := task.Run(context.Background(), Observer{})
	if err != nil || !slices.Equal(one.Theta, again.Theta) {
		t.Errorf("another model with other workers: %v", err)
	}
	if !(task.Epsilon <= 1 && task.Epsilon > .99) || !(one.Excess < .2) {
		t.Errorf("epsilon %v, excess %v", task.Epsilon, one.Excess)
	}
	m := task.coins
	if task.Rounds != m.rounds || m.rounds != 2 || !math.IsNaN(task.Bound) {
		t.Fatalf("%d rounds, by coins %d, bound %v", task.Rounds, m.rounds, task.Bound)
	}
	seen := make([]float64, c.N)
	const reps = 500
	for round := range int64(reps) {
		places := m.present(rng.Replay(9, uint64(round)))
		if !slices.IsSorted(places) || places == nil {
			t.Fatalf("places %v", places)
		}
		for i, p := range places {
			if i > 0 && p == places[i-1] {
				t.Fatal("a client checks in twice")
			}
			seen[p]++
		}
	}
	// Each is in reps/T of them, variance below that; 6 deviations and the union
	// over the clients.
	want := float64(reps) / float64(m.rounds)
	total := 0.0
	for p, got := range seen {
		total += got
		if math.Abs(got-want) > 7*math.Sqrt(want) {
			t.Errorf("client %d is in %v of %d rounds, want about %v", p, got, reps, want)
		}
	}
	if sd := math.Sqrt(want * float64(c.N)); math.Abs(total-want*float64(c.N)) > 6*sd {
		t.Errorf("%v check-ins, want %v within %v", total, want*float64(c.N), 6*sd)
	}
	m.least = c.N
	if m.present(rng.Replay(9)) != nil {
		t.Error("a round of too few is not void")
	}
}

// The cost is what riffle eps says of the same rounds.
func TestCostIsTheAccountants(t *testing.T) {
	if testing.Short() {
		t.Skip("the race detector is slow, and other tests run the same code")
	}
	for _, optimizer := range longtest.Pick([]string{"agd"}, []string{"agd", "gd"}) {
		c := small()
		c.Trust, c.Optimizer, c.MaxRounds = "shuffle", optimizer, longtest.Pick[int64](2, 10)
		c.Workers = 1
		if c.Lambda = .02; optimizer == "gd" {
			c.Synthetic, c.Loss = "hinge", "hinge"
		}
		task, r := solved(t, c)
		sound(t, task, r)
		unit := task.protection.(*reports).stages[0].(randomizer.Randomizer).Event()
		q := account.Query{Participation: dp.All, Population: task.Batch, Rounds: 1, Delta: c.Delta}.Of(unit)
		if optimizer == "gd" {
			q.Population, q.Rounds = c.N, task.Rounds
		}
		answer, err := account.Answer(context.Background(), q, "best")
		if err != nil || answer.Upper.Eps != task.Epsilon || answer.Upper.Eps > c.Epsilon {
			t.Errorf("%s: epsilon %v, the accountant says %v, eps0 = %v: %v", optimizer, task.Epsilon, answer.Upper, unit.Eps0, err)
		}
		// Counted as any report is, the same eps0 would cost more than the budget.
		q.Class, q.TV = dp.Generic, 0
		generic, err := account.Answer(context.Background(), q, "best")
		if err != nil || unit.Class != dp.Cap || generic.Upper.Eps < c.Epsilon*1.03 || answer.Upper.Eps < c.Epsilon*.9997 {
			t.Errorf("%s: eps0 = %v of class %s costs %v, as any report %v: %v", optimizer, unit.Eps0, unit.Class, answer.Upper.Eps, generic.Upper, err)
		}
		sameByWorkers(t, task, r)
	}
}

func guarantee(t *Setup) dp.Guarantee { return dp.Guarantee{Eps: t.Epsilon, Delta: t.Delta} }
