package train

import (
	"context"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// provedConfig simulates sums with noise of the aggregators.
func provedConfig(t *testing.T) Config {
	c := csvConfig(smallCSV(t, 80))
	c.Trust, c.Epsilon, c.Eps0, c.NoiseBy, c.Population, c.NMin = dp.VectorSum, 2, 0, vecsum.ByAggregators, 40, 10
	return c
}

// A task with proofs says all that its clients need, is made again from what was signed, and costs
// what its simulation does.
func TestTaskWithProofs(t *testing.T) {
	simulated := provedConfig(t)
	for name, change := range map[string]func(*Config){
		"proofs":     func(c *Config) { c.Proofs, c.NoiseBy = wire.ProofsPine, "" },
		"with noise": func(c *Config) { c.Proofs, c.NoiseBy = wire.ProofsPine, vecsum.ByAggregators },
	} {
		c := simulated
		change(&c)
		s, err := NewTask(t.Context(), "sums", c, Enrolled{Population: wire.ID{1}, Clients: 40, MinReports: 2})
		if err != nil {
			t.Fatal(name, err)
		}
		sum := s.Wire.Mechanism.Sum
		if s.Config.NoiseBy != vecsum.ByAggregators || sum.Proofs != wire.ProofsPine || sum.NoiseBy != wire.NoiseByAggregators || sum.Users != 1<<32 || s.Wire.Trust != dp.Distributed || s.Limit.MaxEps != 2 {
			t.Errorf("%s: %+v", name, s.Wire)
		}
		if err := mechanism.CheckSigma(t.Context(), s.Wire.Mechanism, s.Wire.Delta, s.Wire.Rounds); err != nil {
			t.Error(name, err)
		}
		again, err := OpenTask(t.Context(), s.Wire, c.Data, nil)
		if err != nil || wire.Digest(again.Wire) != wire.Digest(s.Wire) {
			t.Errorf("%s: made again: %v", name, err)
		}
		r, err := Prepare(context.Background(), simulated)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := *r.Mechanism.(*mechanism.AggregatedSum), s.Mechanism.(*mechanism.AggregatedSum); b.Users == 0 || a.Steps != b.Steps || a.Bound != b.Bound || a.Variance != b.Variance || a.Facts().MSE != b.Facts().MSE || a.Event() != b.Event() {
			t.Errorf("%s: %+v, simulated %+v", name, b.Aggregated, a.Aggregated)
		}
		r.Close()
	}
	c := simulated
	c.Proofs, c.Epsilon, c.Sigma = wire.ProofsPine, 0, 1
	s, err := NewTask(t.Context(), "sums", c, Enrolled{Population: wire.ID{1}, Clients: 40, MinReports: 2})
	if err != nil || s.Limit.MaxEps != mechanism.MostEps {
		t.Errorf("without a budget: %v", err)
	}
}

func TestProofsAreRefused(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"leave out noise-by clients":        func(c *Config) { c.NoiseBy = vecsum.ByClients },
		"proofs go with trust":              func(c *Config) { c.Trust, c.Epsilon, c.NoiseBy = dp.Shuffle, 0, "" },
		"honest = 0.9 is of clients' noise": func(c *Config) { c.Honest = .9 },
		"epsilon = 51 must be at most 50":   func(c *Config) { c.Epsilon = 51 },
		"transport shares carries":          func(c *Config) { c.Transport = shares },
		"proofs":                            func(c *Config) { c.Proofs = "prio" },
	} {
		c := provedConfig(t)
		c.Proofs = wire.ProofsPine
		change(&c)
		if _, err := NewTask(t.Context(), "t", c, Enrolled{Population: wire.ID{1}, Clients: 40, MinReports: 2}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	c := provedConfig(t)
	c.Proofs = wire.ProofsPine
	if _, err := Prepare(t.Context(), c); err == nil || !strings.Contains(err.Error(), "are of tasks over a network") {
		t.Errorf("simulated: %v", err)
	}
}
