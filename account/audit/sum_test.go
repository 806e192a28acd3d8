package audit

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

func sumConfig(t *testing.T, trials int64, change func(*vecsum.Target)) SumConfig {
	t.Helper()
	target := vecsum.Target{Eps: 1, Delta: 1e-2, Users: 20, Dim: 3, Radius: 2}
	if change != nil {
		change(&target)
	}
	p, err := vecsum.Tight(target)
	if err != nil {
		t.Fatal(err)
	}
	return SumConfig{Params: p, Claimed: target.Eps, Delta: target.Delta, Trials: trials, Seed: 3, Workers: 2, Confidence: 1 - 1e-4}
}

// True claims stand and most of each is found; with too little noise, or with
// fewer honest clients than it was made for, the claim is refuted.
func TestSumClaims(t *testing.T) {
	longtest.Only(t, "eleven audits of sums")
	const trials = 160_000
	for name, c := range map[string]struct {
		target  func(*vecsum.Target)
		change  func(*vecsum.Params)
		refuted bool
	}{
		"binomial":         {},
		"skellam":          {target: func(t *vecsum.Target) { t.Kind = vecsum.Skellam }},
		"one coordinate":   {target: func(t *vecsum.Target) { t.Dim = 1 }},
		"honest half":      {target: func(t *vecsum.Target) { t.Honest = .5 }},
		"n-min below n":    {target: func(t *vecsum.Target) { t.MinUsers = 10 }},
		"half the noise":   {change: func(p *vecsum.Params) { p.Noise.Bits /= 2 }, refuted: true},
		"half dishonest":   {change: func(p *vecsum.Params) { p.Honest = .5 }, refuted: true},
		"half of n-min":    {change: func(p *vecsum.Params) { p.MinUsers = 10 }, refuted: true},
		"twice the length": {change: func(p *vecsum.Params) { p.Grid *= 2; p.Norm *= 4 }, refuted: true},
		"counts":           {target: func(t *vecsum.Target) { t.Radius, t.Ones = 0, 2 }},
		"larger counts":    {target: func(t *vecsum.Target) { t.Radius, t.Ones = 0, 2 }, change: func(p *vecsum.Params) { p.Grid *= 2 }, refuted: true},
	} {
		config := sumConfig(t, trials, c.target)
		if c.change != nil {
			c.change(&config.Params)
		}
		r, err := RunSum(context.Background(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: at least %.3f, %s", name, r.LowerBound, r.Witness)
		if r.Refuted != c.refuted || r.Refuted != (r.LowerBound > 1) {
			t.Errorf("%s: refuted %v, eps at least %v", name, r.Refuted, r.LowerBound)
		}
		if !c.refuted && r.LowerBound < .7 {
			t.Errorf("%s: only %v of 1 found", name, r.LowerBound)
		}
	}
}

// What is claimed of one aggregator's noise stands and most of it is found; with less noise than
// charged, or longer vectors, the claim is refuted.
func TestSumClaimsOfAggregators(t *testing.T) {
	const eps, delta = 1, 1e-2
	mu, err := gdp.Calibrate(dp.Guarantee{Eps: eps, Delta: delta})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		dim     int
		ones    int
		change  func(*vecsum.Aggregated)
		refuted bool
	}{
		"counts":            {dim: 5, ones: 2},
		"most are ones":     {dim: 3, ones: 2},
		"counts as one":     {dim: 5, ones: 2, change: func(p *vecsum.Aggregated) { p.Variance /= 4 }, refuted: true},
		"three coordinates": {dim: 3},
		"one coordinate":    {dim: 1},
		"half the variance": {dim: 3, change: func(p *vecsum.Aggregated) { p.Variance /= 2 }, refuted: true},
		"twice the length":  {dim: 3, change: func(p *vecsum.Aggregated) { p.Steps *= 2; p.Bound *= 2 }, refuted: true},
	} {
		p, err := vecsum.NewAggregated(5, c.dim, 2, 2/float64(mu))
		if c.ones > 0 {
			p, err = vecsum.NewAggregatedOnes(5, c.dim, c.ones, 2/float64(mu))
		}
		if err != nil {
			t.Fatal(err)
		}
		if c.change != nil {
			c.change(&p)
		}
		config := SumConfig{Aggregated: &p, Claimed: eps, Delta: delta, Trials: 160_000, Seed: 3, Workers: 2, Confidence: 1 - 1e-4}
		r, err := RunSum(context.Background(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: at least %.3f, %s", name, r.LowerBound, r.Witness)
		if r.Refuted != c.refuted || r.Refuted != (r.LowerBound > eps) || !c.refuted && r.LowerBound < .7 {
			t.Errorf("%s: refuted %v, eps at least %v", name, r.Refuted, r.LowerBound)
		}
		config.Workers = 5
		if again := must(RunSum(context.Background(), config)); again != r {
			t.Errorf("%+v with 2 workers, %+v with 5", r, again)
		}
		config.Params.Dim = 3
		if _, err := RunSum(context.Background(), config); err == nil || !strings.Contains(err.Error(), "not both") {
			t.Error(err)
		}
		config.Params, p.Variance = vecsum.Params{}, 3
		if _, err := RunSum(context.Background(), config); err == nil || !strings.Contains(err.Error(), "noise variance 3") {
			t.Error(err)
		}
	}
}

func TestSumIsTheSameOnAnyWorkers(t *testing.T) {
	c := sumConfig(t, 10_000, nil)
	a := must(RunSum(context.Background(), c))
	var last int64
	c.Workers = 5
	c.Progress = func(done int64) { last = done }
	if b := must(RunSum(context.Background(), c)); a != b {
		t.Errorf("%+v with 2 workers, %+v with 5", a, b)
	}
	if last < 9990 || last > 10_000 {
		t.Errorf("%d rounds of 10000", last)
	}
	c.Seed++
	if b := must(RunSum(context.Background(), c)); a == b {
		t.Error("another seed, the same result")
	}
}

func TestSumRefuses(t *testing.T) {
	for want, change := range map[string]func(*SumConfig){
		"trials = 9999":     func(c *SumConfig) { c.Trials = 9999 },
		"claimed eps = NaN": func(c *SumConfig) { c.Claimed = math.NaN() },
		"delta = 0":         func(c *SumConfig) { c.Delta = 0 },
		"confidence = 1":    func(c *SumConfig) { c.Confidence = 1 },
		"workers = -1":      func(c *SumConfig) { c.Workers = -1 },
		"dim = 0":           func(c *SumConfig) { c.Params.Dim = 0 },
		"n-min = 20000":     func(c *SumConfig) { c.Params.Users, c.Params.MinUsers = 20_000, 20_000 },
		"split":             func(c *SumConfig) { c.Params.Split = true },
	} {
		c := sumConfig(t, 10_000, nil)
		change(&c)
		if _, err := RunSum(context.Background(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := RunSum(done, sumConfig(t, 10_000, nil)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
