package coordinator

import (
	"errors"
	"reflect"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// failing is an optimiser whose step fails once when told to.
type failing struct {
	Learner
	fail bool
}

var errStep = errors.New("no step today")

func (f *failing) Step(g []float64) error {
	if f.fail {
		f.fail = false
		return errStep
	}
	return f.Learner.Step(g)
}

// correlatedTask is a task of 40 clients, each in one of 3 rounds at most.
func correlatedTask(t *testing.T, l Ledger) (Config, *failing) {
	t.Helper()
	c := config(t, l)
	s := toeplitz.Strategy{Bits: 3, Weights: []int64{8, 5, 2}}
	p, err := vecsum.NewCorrelated(40, len(c.Optimizer.Point()), 1, 4, s)
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(9)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewCorrelatedSum(p, s, sigma, 13)
	if err != nil {
		t.Fatal(err)
	}
	f := &failing{Learner: c.Optimizer}
	c.Optimizer, c.Mechanism, c.Report, c.Trust = f, m, m.Event(), dp.Distributed
	c.Participation, c.Population, c.Gamma, c.MinReports, c.Every, c.Clip = dp.CheckIn, 40, 1./3, 2, 3, 1
	return c, f
}

// Charges of whichever rounds release add up to what the rounds up to the last of them cost, void ones
// included, also where a coordinator is restored after a charge.
func TestVoidRoundsAreChargedWithTheNext(t *testing.T) {
	for void := range 1 << 9 {
		b := &book{}
		config, _ := correlatedTask(t, b)
		c, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		for round := int64(1); round <= 9; round++ {
			if void>>(round-1)&1 == 1 {
				if err := c.Void(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			if err := c.Receive(t.Context(), batch(round, 5).Closed()); err != nil {
				t.Fatal(err)
			}
			if round%2 == 0 {
				again, err := New(config)
				if err != nil {
					t.Fatal(err)
				}
				if err := again.Restore(c.State()); err != nil {
					t.Fatal(err)
				}
				c = again
				if err := c.Receive(t.Context(), batch(round, 5).Closed()); err != nil {
					t.Fatal(err)
				}
			}
			var square float64
			for _, e := range b.charged {
				if e.Event.Participation != dp.All {
					t.Fatalf("chance is credited: %+v", e)
				}
				square += 4 / (e.Event.Report.Sigma * e.Event.Report.Sigma)
			}
			m := config.Mechanism.(*mechanism.AggregatedSum)
			want := 4 / (config.Report.Sigma * config.Report.Sigma) * m.Strategy.Squared(round, config.Every)
			if !(square >= want*(1-1e-15) && square <= want*(1+1e-12)) {
				t.Fatalf("void %b, round %d: charged %v, want %v", void, round, square, want)
			}
			if _, _, err := c.End(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A round whose step failed may be ended again, here or where the state was restored, and then all is as if
// it had not failed. Ended without a step it still is a round that was released: later ones do without
// what they have of it.
func TestFailedStepOfCorrelatedRound(t *testing.T) {
	const failed, rounds = 4, 8
	run := func(how string) *Coordinator {
		config, f := correlatedTask(t, &book{})
		c, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		tally := func(c *Coordinator, round int64) *Tally {
			out, err := c.NewTally()
			if err != nil {
				t.Fatal(err)
			}
			out.Sum, out.Accepted = []int64{1000 * round, -77 * round * round}, 5
			return out
		}
		for round := int64(1); round <= rounds; round++ {
			if err := c.Receive(t.Context(), batch(round, 5).Closed()); err != nil {
				t.Fatal(err)
			}
			if round != failed || how == "" {
				if _, _, err := c.End(tally(c, round)); err != nil {
					t.Fatal(err)
				}
				continue
			}
			f.fail = true
			if _, _, err := c.End(tally(c, round)); !errors.Is(err, errStep) {
				t.Fatalf("a failing step: %v", err)
			}
			if how == "restored" {
				config, _ := correlatedTask(t, &book{})
				again, err := New(config)
				if err != nil {
					t.Fatal(err)
				}
				if err := again.Restore(c.State()); err != nil {
					t.Fatal(err)
				}
				if c = again; c.Receive(t.Context(), batch(round, 5).Closed()) != nil {
					t.Fatal("the batch is not taken again")
				}
			}
			if how == "left" {
				_, _, err = c.End()
			} else {
				_, _, err = c.End(tally(c, round))
			}
			if err != nil {
				t.Fatalf("%s: %v", how, err)
			}
		}
		return c
	}
	whole := run("").State()
	for _, how := range []string{"again", "restored"} {
		if got := run(how).State(); !reflect.DeepEqual(got.Optimizer, whole.Optimizer) {
			t.Errorf("%s: %+v, want %+v", how, got, whole)
		}
	}
	_, want := split(whole.Optimizer)
	if len(want) != 2 {
		t.Fatalf("%d rounds are kept, want 2", len(want))
	}
	got := run("left").State()
	if _, kept := split(got.Optimizer); !reflect.DeepEqual(kept, want) || reflect.DeepEqual(got.Optimizer, whole.Optimizer) {
		t.Errorf("left: %+v, want the recovery of %+v, and a step less", got, whole)
	}
}

// What is refused: correlated noise where clients do not count rounds, and the other way round.
func TestEveryGoesWithCorrelatedNoise(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no every":      func(c *Config) { c.Every = 0 },
		"every 1":       func(c *Config) { c.Every = 1 },
		"negative":      func(c *Config) { c.Every = -3 },
		"participation": func(c *Config) { c.Participation, c.Gamma = dp.All, 0 },
		"independent": func(c *Config) {
			m := c.Mechanism.(*mechanism.AggregatedSum)
			p := m.Aggregated
			p.Bits, p.Weight = 0, 0
			var err error
			if c.Mechanism, err = mechanism.NewAggregatedSum(p, m.Event().Sigma, 13); err != nil {
				t.Fatal(err)
			}
		},
	} {
		c, _ := correlatedTask(t, &book{})
		if _, err := New(c); err != nil {
			t.Fatal(err)
		}
		change(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
