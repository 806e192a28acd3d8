package train

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func aggregatedConfig() Config {
	c := summedConfig()
	c.NoiseBy = vecsum.ByAggregators
	return c
}

// The budget is used and kept, in every way to take part. Without chance only the number of
// rounds counts.
func TestNoiseByAggregatorsMeetsItsBudget(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"all":                func(*Config) {},
		"fewer":              func(c *Config) { c.Population, c.NMin = 3, 1 },
		"honest":             func(c *Config) { c.Honest = .01 },
		"dropout":            func(c *Config) { c.Dropout = .2 },
		"sampled":            func(c *Config) { c.Participation, c.K = "sampled", 100 },
		"honest, sampled":    func(c *Config) { c.Participation, c.K, c.Honest = "sampled", 100, .5 },
		"honest, most asked": func(c *Config) { c.Participation, c.K, c.Honest = "sampled", 300, .5 },
		"check-in":           func(c *Config) { c.Participation, c.Gamma, c.Trust = "check-in", .1, "distributed" },
		"once":               func(c *Config) { c.Participation, c.K = "once", 100 },
	} {
		t.Run(name, func(t *testing.T) {
			c := aggregatedConfig()
			change(&c)
			if name == "check-in" && !longtest.On {
				c.Population, c.Rounds = 100, 3
			}
			c = resolved(t, c)
			m, err := c.newAggregatedSum(6)
			if err != nil {
				t.Fatal(err)
			}
			if e := m.Event(); e.Class != dp.GaussianSum || e.Sigma < c.Sigma || e.Sigma > c.Sigma*1.0001 {
				t.Errorf("promises %+v, want sigma of at least %v", e, c.Sigma)
			}
			if blocks, err := c.blocks(); err != nil {
				t.Fatal(err)
			} else if c.Participation == dp.Once {
				if e, err := blocks.Epoch(m.Event(), c.NMin); err != nil || !e.Trust.Is(dp.SumsOnly) {
					t.Errorf("an epoch is charged as %+v, %v", e, err)
				}
			}
			cost, err := c.cost(context.Background(), func(q account.Query) account.Query { return q })
			if err != nil || cost.Eps > 2 || cost.Eps < 1.99 {
				t.Errorf("planned cost %+v, %v", cost, err)
			}
			uses := float64(c.task().ReportsPerClient)
			plain := 2 * math.Sqrt(uses)
			mu, err := gdp.Calibrate(dp.Guarantee{Eps: 2, Delta: c.accountedDelta()})
			if err != nil {
				t.Fatal(err)
			}
			want := plain / float64(mu)
			if chance := strings.Contains(name, "sampled") || name == "check-in"; !chance && math.Abs(c.Sigma/want-1) > 2e-3 {
				t.Errorf("sigma = %v, without chance it is %v", c.Sigma, want)
			} else if chance && !(c.Sigma < want) {
				t.Errorf("sigma = %v, without chance it would be %v", c.Sigma, want)
			}
		})
	}
}

func TestNoiseByAggregatorsRefuses(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"noise-by goes with trust":     func(c *Config) { c.Trust, c.Epsilon = "shuffle", 0 },
		"noise = skellam is of client": func(c *Config) { c.Noise = vecsum.Skellam },
		"transport shares carries":     func(c *Config) { c.Transport = shares },
		"with optimizer psgd":          func(c *Config) { c.Optimizer, c.Model, c.Data, c.Radius = "psgd", linear, "x.csv", 1 },
		"must be at most 400":          func(c *Config) { c.Epsilon = 401 },
		"noise-by":                     func(c *Config) { c.NoiseBy = "nobody" },
	} {
		c := aggregatedConfig()
		change(&c)
		c.fill()
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	_, err := NewTask(context.Background(), "t", aggregatedConfig(), Enrolled{Population: wire.ID{1}, Clients: 400, MinReports: 2})
	if err == nil || !strings.Contains(err.Error(), "needs proofs pine over a network") {
		t.Errorf("a task over a network: %v", err)
	}
}

// Without a budget training ends before epsilon is more than what is counted.
func TestNoiseByAggregatorsIsCountedUpToALimit(t *testing.T) {
	c := aggregatedConfig()
	c.Epsilon, c.Sigma = 0, 1
	if limit := resolved(t, c).limit(); limit.MaxEps != vecsum.MostEps {
		t.Errorf("limit %v", limit.MaxEps)
	}
}

// Clients add the noise by default, and may be named.
func TestNoiseByClientsIsTheDefault(t *testing.T) {
	plain, named, other := summedConfig(), summedConfig(), aggregatedConfig()
	named.NoiseBy = vecsum.ByClients
	for _, c := range []*Config{&plain, &named, &other} {
		c.fill()
	}
	if plain.Fields().Digest() != named.Fields().Digest() || plain.Fields().Digest() == other.Fields().Digest() {
		t.Error("noise-by clients is not what goes without saying, or aggregators is")
	}
}
