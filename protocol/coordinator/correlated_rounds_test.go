package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// recording is a learner that keeps the last mean and counts steps.
type recording struct {
	mean  []float64
	steps int64
}

func (r *recording) Point() []float64 { return make([]float64, 2) }
func (r *recording) Step(mean []float64) error {
	r.mean, r.steps = slices.Clone(mean), r.steps+1
	return nil
}
func (r *recording) Model(dst []float64) { clear(dst) }
func (r *recording) State() optimize.State {
	return optimize.State{Steps: r.steps, Vectors: map[string][]float64{"m": {float64(r.steps)}}}
}
func (r *recording) Restore(s optimize.State) error {
	if len(s.Vectors) > 1 || len(s.Vectors) == 1 && s.Vectors["m"] == nil {
		return fmt.Errorf("a learner's state with %v", slices.Sorted(maps.Keys(s.Vectors)))
	}
	r.steps = s.Steps
	return nil
}

// correlatedConfig is a task of 9 clients, each in one of every rounds.
func correlatedConfig(t *testing.T, s toeplitz.Strategy, every int64, l Ledger) (Config, *mechanism.AggregatedSum) {
	t.Helper()
	p, err := vecsum.NewCorrelated(9, 2, 1, 2, s)
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(9)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewCorrelatedSum(p, s, sigma, 9)
	if err != nil {
		t.Fatal(err)
	}
	return Config{Optimizer: &recording{}, Mechanism: m, Report: m.Event(), Ledger: l, Trust: dp.Distributed, Participation: dp.CheckIn,
		Population: 9, MinReports: 1, Gamma: 1 / float64(every), Every: every, Clip: 1}, m
}

// Whatever rounds are void or fail, and wherever the coordinator is restored: without noise each mean is exact, the
// rounds that it asks for are those that were recovered, and what is charged is what all rounds so far cost together.
func TestCorrelatedRounds(t *testing.T) {
	for seed := range uint64(60) {
		src := rng.Replay(seed)
		every := 2 + int64(src.Uint64()%3)
		s := toeplitz.Strategy{Bits: 4, Weights: []int64{16, 9, 5, 5}[:1+src.Uint64()%uint64(every)]}
		b := &book{}
		config, m := correlatedConfig(t, s, every, b)
		c, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		begin := func() *toeplitz.Window {
			w, err := toeplitz.NewWindow(s, 2, nil)
			if err != nil {
				t.Fatal(err)
			}
			return w
		}
		w := begin()
		for round := int64(1); round <= 20; round++ {
			if src.Uint64()%4 == 0 {
				state := c.State()
				config.Optimizer, config.Ledger = &recording{}, &book{}
				if c, err = New(config); err == nil {
					err = c.Restore(state)
				}
				if err != nil {
					t.Fatal(err)
				}
				b = config.Ledger.(*book)
			}
			var want []int64
			for _, h := range w.Held() {
				if round-h.Round < int64(len(s.Weights)) {
					want = append(want, h.Round)
				}
			}
			if got := c.Earlier(); !slices.Equal(got, want) {
				t.Fatalf("seed %d, round %d: earlier %v, want %v", seed, round, got, want)
			}
			what := src.Uint64() % 6
			if what == 0 {
				if err := c.Void(); err != nil {
					t.Fatal(err)
				}
				continue
			}
			n := 1 + int64(src.Uint64()%9)
			if err := c.Receive(t.Context(), wire.RoundClosed{Round: round, Reports: n}); err != nil {
				t.Fatal(err)
			}
			var spent float64
			for _, e := range b.charged {
				r := e.Event
				if r.Report.Class != dp.GaussianSum || r.Participation != dp.All || r.Population < 1 {
					t.Fatalf("charged %+v", r)
				}
				spent += 1 / (r.Report.Sigma * r.Report.Sigma)
			}
			if cost := s.Squared(round, every) / (m.Event().Sigma * m.Event().Sigma); !(spent >= cost*(1-1e-15) && spent <= cost*(1+1e-12)+1e-15) {
				t.Fatalf("seed %d: %v is charged until round %d, the cost is %v", seed, spent, round, cost)
			}
			if what == 1 { // no sum
				if _, _, err := c.End(); err != nil {
					t.Fatal(err)
				}
				if err := c.Forget(); err != nil {
					t.Fatal(err)
				}
				w = begin()
				continue
			}
			if what == 2 { // what was held is lost
				if err := c.Forget(); err != nil {
					t.Fatal(err)
				}
				w = begin()
			}
			own := []int64{int64(src.Uint64()%1000) - 500, int64(src.Uint64()%1000) - 500}
			sum := slices.Clone(own)
			if err := w.Mix(round, sum); err != nil {
				t.Fatal(err)
			}
			tally, err := c.NewTally()
			if err == nil {
				err = tally.AddSum(sum, n)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := c.End(tally); err != nil {
				t.Fatal(err)
			}
			for j, v := range c.config.Optimizer.(*recording).mean {
				if v != m.Step()*float64(own[j])/float64(n) {
					t.Fatalf("seed %d, round %d: mean %v of a sum of %d over %d", seed, round, v, own[j], n)
				}
			}
		}
	}
}

// A state is taken only by a task of the same kind, and only if it can have come about.
func TestCorrelatedStates(t *testing.T) {
	s := toeplitz.Strategy{Bits: 4, Weights: []int64{16, 9, 5}}
	for name, c := range map[string]struct {
		vectors map[string][]float64
		want    string // "": it is taken
	}{
		"none":               {nil, ""},
		"two":                {map[string][]float64{"recovered.6": {1, 2}, "recovered.7": {3, 4}}, ""},
		"one that is old":    {map[string][]float64{"recovered.2": {1, 2}}, ""},
		"of the open round":  {map[string][]float64{"recovered.8": {1, 2}}, "kept round 8"},
		"of another length":  {map[string][]float64{"recovered.7": {1}}, "2 finite values"},
		"of no round":        {map[string][]float64{"recovered.x": {1, 2}}, `recovered round "recovered.x"`},
		"of an empty number": {map[string][]float64{"recovered.": {1, 2}}, `recovered round "recovered."`},
	} {
		config, _ := correlatedConfig(t, s, 3, &book{})
		co, err := New(config)
		if err != nil {
			t.Fatal(err)
		}
		vectors := map[string][]float64{"m": {7}}
		maps.Copy(vectors, c.vectors)
		err = co.Restore(State{Round: 7, Optimizer: optimize.State{Steps: 7, Vectors: vectors}})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	plain, err := New(config(t, &book{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := plain.Restore(State{Round: 7, Optimizer: optimize.State{Vectors: map[string][]float64{"recovered.7": {1, 2}}}}); err == nil || !strings.Contains(err.Error(), "not correlated") {
		t.Errorf("a task without correlated noise: %v", err)
	}
	if plain.Forget() != nil || plain.Earlier() != nil {
		t.Error("it has recovered rounds")
	}
	for want, change := range map[string]func(*Config){
		"every = 0":              func(c *Config) { c.Every = 0 },
		"every = 1":              func(c *Config) { c.Every = 1 },
		"participation all":      func(c *Config) { c.Participation = dp.All },
		"participation sampled:": func(c *Config) { c.Participation, c.Sample = dp.Sampled, 3 },
	} {
		bad, _ := correlatedConfig(t, s, 3, &book{})
		change(&bad)
		if _, err := New(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	bad := config(t, &book{})
	bad.Every = 3
	if _, err := New(bad); err == nil || !strings.Contains(err.Error(), "every = 3") {
		t.Errorf("every without correlated noise: %v", err)
	}
}
