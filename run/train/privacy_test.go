package train

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

func summedConfig() Config {
	c := Default()
	c.Trust, c.Population, c.Clip, c.Rounds, c.Epsilon = "vector-sum", 400, 1, 10, 2
	return c
}

func resolved(t *testing.T, c Config) Config {
	t.Helper()
	c.fill()
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	if err := c.resolvePopulation(int(c.Population)); err != nil {
		t.Fatal(err)
	}
	if err := c.resolvePrivacy(context.Background(), 10); err != nil {
		t.Fatal(err)
	}
	return c
}

// A budget buys what the randomizer's own law allows, and all of it is used.
func TestReportsMeetTheirBudget(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"privunit":        func(c *Config) {},
		"stepunit":        func(c *Config) { c.Randomizer = "stepunit" },
		"seeds":           func(c *Config) { c.Randomizer, c.Encoding, c.Steps = "stepunit", "seed", 4 },
		"check-in":        func(c *Config) { c.Randomizer, c.Participation, c.Gamma = "stepunit", "check-in", .5 },
		"once":            func(c *Config) { c.Randomizer, c.Participation, c.K = "stepunit", "once", 4000 },
		"local":           func(c *Config) { c.Trust, c.Epsilon = "local", 30 },
		"rounds solved":   func(c *Config) { c.Randomizer, c.Eps0 = "stepunit", 1 },
		"bit for bit":     func(c *Config) { c.Randomizer = "rinf" },
		"messages":        func(c *Config) { c.Randomizer, c.Messages = "stepunit", 8 },
		"drawn messages":  func(c *Config) { c.Messages, c.Participation, c.K = 4, "sampled", 15000 },
		"laplace, 1 norm": func(c *Config) { c.Randomizer = "laplace" },
	} {
		if !longtest.On && (name == "laplace, 1 norm" || name == "stepunit" || name == "rounds solved" || name == "seeds" || name == "messages") {
			continue // other tests of their kinds are quicker
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Default()
			c.Population, c.Epsilon = 20000, .5
			if change(&c); c.Eps0 == 0 {
				c.Rounds = 20
			}
			c = resolved(t, c)
			c.Clip = .2
			_, promise, err := c.newMechanism(10)
			if err != nil {
				t.Fatal(err)
			}
			cost, err := c.cost(t.Context(), func(q account.Query) account.Query { return q.Of(promise) })
			if err != nil {
				t.Fatal(err)
			}
			if least := c.Epsilon * (1 - 2.1e-4); cost.Eps > c.Epsilon || cost.Eps < least && name != "rounds solved" || cost.Eps < .98*least {
				t.Errorf("eps0 = %v, %d rounds cost %v of %v", c.Eps0, c.Rounds, cost.Eps, c.Epsilon)
			}
		})
	}
}

// What is designed costs no more than what was planned, whoever takes part.
func TestVectorSumMeetsItsBudget(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"all":                      func(*Config) {},
		"dropout":                  func(c *Config) { c.Dropout = .2 },
		"sampled":                  func(c *Config) { c.Participation, c.K = "sampled", 100 },
		"check-in":                 func(c *Config) { c.Participation, c.Gamma, c.Trust, c.NMin = "check-in", .5, "distributed", 12 },
		"once":                     func(c *Config) { c.Participation, c.K = "once", 100 },
		"honest":                   func(c *Config) { c.Honest = .7 },
		"honest, fewer":            func(c *Config) { c.Honest, c.NMin = .7, 300 },
		"honest, dropout":          func(c *Config) { c.Population, c.Honest, c.Dropout, c.NMin = 40, .6, .1, 25 },
		"honest, sampled":          func(c *Config) { c.Honest, c.Participation, c.K, c.NMin = .5, "sampled", 100, 60 },
		"honest, sampled, dropout": func(c *Config) { c.Honest, c.Participation, c.K, c.Dropout = .5, "sampled", 100, .1 },
		"honest, most are asked":   func(c *Config) { c.Honest, c.Participation, c.K, c.NMin = .5, "sampled", 300, 200 },
		"honest, check-in":         func(c *Config) { c.Population, c.Honest, c.Participation, c.Gamma, c.NMin = 40, .5, "check-in", .45, 8 },
		"honest, once":             func(c *Config) { c.Honest, c.Participation, c.K, c.Dropout, c.NMin = .5, "once", 100, .05, 50 },
	} {
		if !longtest.On && strings.Contains(name, ",") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := summedConfig()
			change(&c)
			if !longtest.On && (name == "dropout" || name == "check-in") {
				c.Population = 40
			}
			c = resolved(t, c)
			m, err := c.newVectorSum(6)
			if err != nil {
				t.Fatal(err)
			}
			if m.Event().Class != dp.Gaussian || m.Event().Sigma < c.Sigma {
				t.Errorf("%s: promises %+v, want sigma of at least %v", name, m.Event(), c.Sigma)
			}
			if cost, err := c.cost(context.Background(), func(q account.Query) account.Query { return q }); err != nil || cost.Eps > 2 {
				t.Errorf("%s: planned cost %+v, %v", name, cost, err)
			}
			// The round itself, whatever those do who are not relied on.
			q := account.Query{Class: account.VectorSumClass, Sum: m.Params, Participation: c.Participation, Population: c.Population,
				Reports: c.K, Gamma: c.Gamma, Dropout: c.Dropout, Rounds: c.Rounds, Delta: c.Delta}
			if q.Participation == dp.Once { // in each epoch
				q.Participation, q.Population, q.Reports, q.Dropout, q.Rounds = dp.All, c.K, 0, 0, c.task().ReportsPerClient
			}
			q.Sum.Radius = 1
			answer, err := account.Answer(context.Background(), q, "best")
			if err != nil || answer.Upper == nil || answer.Upper.Eps > 2 {
				t.Errorf("%s: costs %+v, %v", name, answer.Upper, err)
			} else if answer.Upper.Eps < .9 {
				t.Errorf("%s: of a budget of 2 no more than %v is used", name, answer.Upper.Eps)
			}
		})
	}
}

// The mean is unbiased, by clients that each add noise and by noise for all.
func TestVectorSumIsUnbiased(t *testing.T) {
	c := resolved(t, summedConfig())
	m, err := c.newVectorSum(6)
	if err != nil {
		t.Fatal(err)
	}
	x := []float32{.5, -.25, 0, .1, -.7, .2}
	src := rng.Replay(8)
	for _, together := range []bool{false, true} {
		var mean [6]float64
		const reps = 20
		for range reps {
			sum, out, r := make([]int64, 6), make([]float64, 6), m.NewReport()
			for range 400 {
				if together {
					mechanism.Rounding{VectorSum: m}.Randomize(src, x, r)
				} else {
					m.Randomize(src, x, r)
				}
				if err := m.Check(r); err != nil {
					t.Fatal(err)
				}
				m.Add(sum, r)
			}
			if together {
				if err := m.AddNoise(src, sum, 400); err != nil {
					t.Fatal(err)
				}
			}
			m.Estimate(out, sum, 400)
			for j, v := range out {
				mean[j] += v / reps
			}
		}
		// MSE/6 is one coordinate's variance for one report; six deviations.
		sd := math.Sqrt(m.Facts().MSE / 6 / 400 / reps)
		for j, v := range mean {
			if math.Abs(v-float64(x[j])) > 6*sd {
				t.Errorf("together %v: coordinate %d has mean %v, want %v within %v", together, j, v, x[j], 6*sd)
			}
		}
	}
	r := m.NewReport()
	m.Randomize(src, []float32{float32(math.NaN()), 0, 0, 0, 0, 0}, r) // counts as nothing
	if err := m.Check(r); err != nil {
		t.Error(err)
	}
	r.Value[2] = math.MaxInt32
	if m.Check(r) == nil {
		t.Error("accepted a count out of range")
	}
}

func TestVectorSumRefuses(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"randomizer and eps0":     func(c *Config) { c.Eps0 = 1 },
		"go with trust":           func(c *Config) { c.Trust, c.Sigma = "shuffle", 1 },
		"needs transport shares":  func(c *Config) { c.Noise = "discrete-gaussian" },
		"n-min = 500 must be at ": func(c *Config) { c.NMin = 500 },
	} {
		c := summedConfig()
		change(&c)
		c.fill()
		err := c.Check()
		if err == nil {
			if err = c.resolvePopulation(400); err == nil {
				err = c.resolvePrivacy(context.Background(), 10)
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// What split-and-mix shows besides sums fits into the share of delta kept for it,
// with no factor of two to spare, and the rest is what is accounted for.
func TestMixKeepsToItsShare(t *testing.T) {
	for _, eps := range []float64{.1, 1, 8, 30} {
		c := summedConfig()
		c.Transport, c.Epsilon, c.Rounds = splitAndMix, eps, 37
		security, err := c.mixSecurity()
		if err != nil {
			t.Fatal(err)
		}
		cost := (1 + math.Exp(eps)) * 37 * math.Ldexp(1, -security)
		if !(cost <= 1e-3*c.Delta) || cost < 1e-3*c.Delta/4 {
			t.Errorf("epsilon %v: security %d costs %v of delta = %v", eps, security, cost, c.Delta)
		}
		if sum := c.accountedDelta() + vecsum.TailShare*c.Delta + cost; !(sum <= c.Delta) {
			t.Errorf("epsilon %v: delta adds up to %v of %v", eps, sum, c.Delta)
		}
	}
	c := summedConfig()
	c.Transport, c.Epsilon, c.Delta = splitAndMix, 49, 1e-12
	if _, err := c.mixSecurity(); err == nil {
		t.Error("a security above what is supported")
	}
}
