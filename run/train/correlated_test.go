package train

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/simulate"
)

// A simulation of noise that clients send apart has no proofs; over a network it needs them.
func TestNoiseOfClientsApartAndProofs(t *testing.T) {
	c := correlatedRun("x.csv", toeplitz.Band)
	c.NoiseBy, c.Proofs = vecsum.ByClients, wire.ProofsPine
	want := "simulate noise-by clients without them"
	if _, err := Prepare(t.Context(), c); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
	c.Proofs, want = "", "every = 5 needs proofs pine over a network"
	c.fill()
	if err := c.networked(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}

// correlatedRun is a run of clients in one of 5 rounds at most, some of whose rounds are void.
func correlatedRun(data string, kind toeplitz.Kind) Config {
	c := Default()
	c.Data, c.Label, c.Range, c.Trust, c.Epsilon = data, "income", "*=0..100", "vector-sum", 2
	c.Every, c.Strategy, c.Rounds, c.Dropout, c.NMin, c.Workers, c.CheckpointEvery = 5, kind, 23, .2, 60, 2, 50
	return c
}

// A run with correlated noise keeps to its budget, uses it up but for void rounds at the end, costs what the
// accountant says of its rounds, and is the same whatever the workers and wherever it was stopped.
func TestCorrelatedRuns(t *testing.T) {
	data := people(t, 500)
	for i, kind := range append(slices.Clone(toeplitz.Kinds), toeplitz.Band) {
		c := correlatedRun(data, kind)
		if i == len(toeplitz.Kinds) {
			c.NoiseBy, c.Honest = vecsum.ByClients, .7
		}
		whole := prepared(t, c)
		void, last := 0, int64(0)
		s, err := whole.Train(context.Background(), Observer{Round: func(r simulate.Result) {
			if r.Void {
				void++
			} else {
				last = r.Round
			}
		}})
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if void < 3 || void > 15 || len(whole.Charged) != int(c.Rounds)-void {
			t.Errorf("%s: %d void rounds, %d charged of %d", kind, void, len(whole.Charged), c.Rounds)
		}
		strategy, err := whole.Config.correlation()
		if err != nil {
			t.Fatal(err)
		}
		share := strategy.Squared(last, c.Every) / strategy.Squared(c.Rounds, c.Every)
		q := account.Query{Class: dp.GaussianSum, Trust: dp.Distributed, Participation: dp.All, Population: 100, Rounds: 1, Delta: whole.Config.accountedDelta(),
			Sigma: whole.Config.Sigma / math.Sqrt(strategy.Squared(last, c.Every))}
		r, err := account.Answer(context.Background(), q, "best")
		if err != nil {
			t.Fatal(err)
		}
		if eps := float64(s.Epsilon); eps > 2 || share == 1 && eps < 1.999 || math.Abs(eps/r.Upper.Eps-1) > 1e-6 {
			t.Errorf("%s: epsilon = %v of 2, the accountant says %v for %v of the cost", kind, eps, r.Upper.Eps, share)
		}

		c.Workers = 3
		parted := prepared(t, c)
		dir := parted.Dir
		for _, stop := range longtest.Pick([]int64{3, 11, 12}, []int64{1, 3, 9, 11, 12, 22}) {
			ctx, cancel := context.WithCancel(context.Background())
			_, err := parted.Train(ctx, Observer{Round: func(result simulate.Result) {
				if result.Round == stop {
					cancel()
				}
			}})
			cancel()
			if !errors.Is(err, ErrInterrupted) {
				t.Fatalf("%s: %v", kind, err)
			}
			if parted, err = Resume(context.Background(), dir, nil); err != nil {
				t.Fatal(err)
			}
			if parted.Resumed != stop && parted.Resumed != stop+1 { // a void round is over before it looks
				t.Errorf("%s: resumed after %d, want %d", kind, parted.Resumed, stop)
			}
		}
		if _, err := parted.Train(context.Background(), Observer{}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(parted.Theta(), whole.Theta()) {
			t.Errorf("%s: %v after stops, %v without", kind, parted.Theta(), whole.Theta())
		}
	}
}

func TestEveryRefuses(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"goes with every":                  func(c *Config) { c.Every = 0 },
		"goes with trust vector-sum":       func(c *Config) { c.Trust, c.Epsilon = "shuffle", 0 },
		"a part of clients' vectors":       func(c *Config) { c.NoiseBy, c.Noise = "clients", "skellam" },
		"participation check-in":           func(c *Config) { c.Participation = dp.All },
		"gamma = 0.3 goes with coins":      func(c *Config) { c.Gamma = .3 },
		"sigma = 3 with every needs round": func(c *Config) { c.Sigma, c.Epsilon, c.Rounds = 3, 0, 0 },
		"rounds = 65537 with every":        func(c *Config) { c.Rounds = 65537 },
		"measures each round by itself":    func(c *Config) { c.Evaluate = "private" },
		"not once":                         func(c *Config) { c.Optimizer = "agd" },
	} {
		c := correlatedRun("x.csv", toeplitz.Root)
		change(&c)
		c.fill()
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// Where clients add the noise, a round stuffed with others' reports shows earlier rounds' sums without noise. Tokens
// are what keeps them out, so they go with it; where aggregators add it nobody needs them.
func TestTokensGoWithNoiseOfClients(t *testing.T) {
	for by, want := range map[vecsum.NoiseBy]string{vecsum.ByClients: "", vecsum.ByAggregators: "tokens do not go with every"} {
		c := correlatedRun("x.csv", toeplitz.Band)
		c.NoiseBy, c.Tokens = by, true
		c.fill()
		if err := c.Check(); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("noise by %s: error %v, want %q", by, err, want)
		}
	}
}
