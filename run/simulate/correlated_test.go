package simulate

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// failing is an optimiser that may refuse a step.
type failing struct {
	coordinator.Learner
	fail bool
	sums [][]float64 // of the steps
}

var errStep = errors.New("no step today")

func (f *failing) Step(g []float64) error {
	if f.fail {
		return errStep
	}
	f.sums = append(f.sums, slices.Clone(g))
	return f.Learner.Step(g)
}

// turning returns a simulation of n clients, each in one of `every` rounds, whose vectors are all the same, and
// who was there in each round.
func turning(t *testing.T, n, every int64, sigma float64, s toeplitz.Strategy) (sim *Simulation, f *failing) {
	t.Helper()
	p, err := vecsum.NewCorrelated(n, 2, 2, sigma, s)
	if err != nil {
		t.Fatal(err)
	}
	worth, _, err := p.Sigma(50)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewCorrelatedSum(p, s, worth, n/every)
	if err != nil {
		t.Fatal(err)
	}
	opt, err := optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: 2, Schedule: func(int64) float64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	book, err := ledger.New(ledger.Config{Accountant: counting{}, Delta: 1e-5, MaxEps: 1e3})
	if err != nil {
		t.Fatal(err)
	}
	f = &failing{Learner: opt}
	co, err := coordinator.New(coordinator.Config{Optimizer: f, Mechanism: m, Report: m.Event(), Ledger: book, Trust: dp.Distributed,
		Participation: dp.CheckIn, Gamma: 1 / float64(every), Every: every, Population: n, MinReports: 1, Clip: 2})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.New(client.Config{Mechanism: m, ClipMode: client.ClipNorm, Clip: 2, Norm: 2})
	if err != nil {
		t.Fatal(err)
	}
	sim, err = New(Config{Seed: 5, Clients: n, Client: cl, Coordinator: co, Mechanism: m, Every: every, Workers: 2, Worker: func() func(int64, []float32, []float32) {
		return func(_ int64, _, x []float32) { x[0], x[1] = 1, -.5 }
	}})
	if err != nil {
		t.Fatal(err)
	}
	return sim, f
}

// Means come out right whatever was mixed in, every client has its turn once in `every` rounds, and a round whose
// step failed may be run again.
func TestCorrelatedRounds(t *testing.T) {
	const n, every, rounds = 900, 4, 13
	s := toeplitz.Strategy{Bits: 4, Weights: []int64{16, 9, 7, 2}}
	run := func(fail int64) (*failing, []int64) {
		sim, f := turning(t, n, every, .5, s)
		var reports []int64
		for round := int64(1); round <= rounds; round++ {
			if f.fail = round == fail; f.fail {
				if _, err := sim.Round(context.Background(), nil); !errors.Is(err, errStep) {
					t.Fatalf("a failing step: %v", err)
				}
				f.fail = false
				for _, h := range sim.Held() {
					if h.Round >= round {
						t.Errorf("round %d is held while it is open", h.Round)
					}
				}
			}
			r, err := sim.Round(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			reports = append(reports, r.Reports)
		}
		return f, reports
	}
	whole, reports := run(0)
	for i, mean := range whole.sums {
		// Some 225 vectors, noise of deviation .5·2·√2 on their sum, more by what recovery adds.
		if math.Abs(mean[0]-1) > .06 || math.Abs(mean[1]+.5) > .06 {
			t.Errorf("round %d: mean %v, want 1 and -.5", i+1, mean)
		}
		if i >= every && reports[i] != reports[i-every] {
			t.Errorf("round %d has %d reports, %d rounds before %d", i+1, reports[i], every, reports[i-every])
		}
		if i+every <= len(reports) {
			var all int64
			for _, k := range reports[i : i+every] {
				all += k
			}
			if all != n {
				t.Errorf("%d of %d clients in %d rounds", all, n, every)
			}
		}
	}
	for fail := int64(1); fail <= rounds; fail += 3 {
		again, _ := run(fail)
		for i := range whole.sums {
			if !slices.Equal(again.sums[i], whole.sums[i]) {
				t.Errorf("round %d failed once: mean %d is %v, want %v", fail, i+1, again.sums[i], whole.sums[i])
			}
		}
	}
}
