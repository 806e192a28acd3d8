package simulate

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
)

// points is a population whose client i holds the target (i mod 7)/7 in every
// coordinate; the gradient of its loss is θ minus the target.
type points struct{}

func (points) worker() func(id int64, theta, grad []float32) {
	return func(id int64, theta, grad []float32) {
		for j := range grad {
			grad[j] = theta[j] - float32(id%7)/7
		}
	}
}

// counting stands for an accountant: ε is the number of rounds.
type counting struct{}

func (counting) Eps(ev dp.Event, delta float64) (dp.Bound, error) {
	var rounds int64
	for _, e := range ev.(dp.Sequence) {
		rounds += e.(dp.Repeat).Times
	}
	return dp.Bound{Guarantee: dp.Guarantee{Eps: float64(rounds), Delta: delta}}, nil
}

type setup struct {
	n             int64
	participation dp.Participation
	k             int64
	rate, dropout float64
	workers       int
	nMin          int64
	budget        float64
	seed          uint64
	plain         bool
	worker        func() func(id int64, theta, grad []float32)
	trust         dp.Trust // "": shuffle
	messages      int64
}

func build(t testing.TB, c setup) (*Simulation, *coordinator.Coordinator) {
	t.Helper()
	const dim = 12
	var mechanism randomizer.Mechanism
	var promise dp.Report
	if c.plain {
		m, err := randomizer.NewPlain(randomizer.Config{Dim: dim, Radius: 4})
		if err != nil {
			t.Fatal(err)
		}
		mechanism = m
	} else {
		m, err := randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: dim, Eps0: 2, Radius: 4})
		if err != nil {
			t.Fatal(err)
		}
		mechanism, promise = m, m.Event()
	}
	opt, err := optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: dim, Schedule: func(int64) float64 { return .5 }})
	if err != nil {
		t.Fatal(err)
	}
	if c.budget == 0 {
		c.budget = math.Inf(1)
	}
	var book coordinator.Ledger = ledger.Unprotected
	if !c.plain {
		if book, err = ledger.New(ledger.Config{Accountant: counting{}, Delta: 1e-5, MaxEps: c.budget}); err != nil {
			t.Fatal(err)
		}
	}
	var blocks schedule.Blocks
	if c.participation == dp.Once {
		if blocks, err = schedule.NewBlocks(c.n, c.k); err != nil {
			t.Fatal(err)
		}
	}
	if c.trust == "" {
		c.trust = dp.Shuffle
	}
	co, err := coordinator.New(coordinator.Config{
		Blocks: blocks, Optimizer: opt, Mechanism: mechanism, Report: promise, Ledger: book, Trust: c.trust, Participation: c.participation,
		Population: c.n, Sample: c.k, Gamma: c.rate, MinReports: max(1, c.nMin), Messages: c.messages, Clip: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.New(client.Config{Mechanism: mechanism, ClipMode: client.ClipNorm, Clip: 4, Norm: 2})
	if err != nil {
		t.Fatal(err)
	}
	if c.worker == nil {
		c.worker = points{}.worker
	}
	s, err := New(Config{Blocks: blocks, Seed: c.seed, Clients: c.n, Worker: c.worker, Client: cl, Coordinator: co, Mechanism: mechanism,
		Dropout: c.dropout, Workers: c.workers})
	if err != nil {
		t.Fatal(err)
	}
	return s, co
}

func rounds(t testing.TB, s *Simulation, n int) (reports []int64) {
	t.Helper()
	for range n {
		r, err := s.Round(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		reports = append(reports, r.Reports)
	}
	return reports
}

func TestResultDoesNotDependOnWorkers(t *testing.T) {
	for _, c := range []setup{
		{participation: dp.All},
		{participation: dp.Sampled, k: 300},
		{participation: dp.CheckIn, rate: .4, dropout: .25},
		{participation: dp.Once, k: 300, dropout: .25},
	} {
		c.n, c.seed = 1000, 7
		var want []float32
		for _, workers := range []int{1, 2, 5} {
			c.workers = workers
			s, co := build(t, c)
			rounds(t, s, 3)
			got := append([]float32(nil), co.Parameters...)
			if want == nil {
				want = got
			}
			for j := range got {
				if got[j] != want[j] {
					t.Fatalf("%s: %d workers give %v, one gives %v", c.participation, workers, got, want)
				}
			}
		}
		c.seed = 8
		s, co := build(t, c)
		rounds(t, s, 3)
		if co.Parameters[0] == want[0] {
			t.Errorf("%s: another seed gives the same parameters", c.participation)
		}
	}
}

// Without noise the mean over all clients is exact: one step from 0 at rate ½
// goes half way to the mean target.
func TestPlainRoundIsTheExactMean(t *testing.T) {
	s, co := build(t, setup{n: 700, participation: dp.All, plain: true})
	if got := rounds(t, s, 1); got[0] != 700 {
		t.Fatalf("%d reports summed", got[0])
	}
	if got, want := float64(co.Parameters[0]), .5*3/7; math.Abs(got-want) > 1e-6 {
		t.Errorf("parameter %v, want %v", got, want)
	}
}

func TestParticipationCounts(t *testing.T) {
	s, _ := build(t, setup{n: 1000, participation: dp.Sampled, k: 137})
	for _, k := range rounds(t, s, 3) {
		if k != 137 {
			t.Errorf("sampled round with %d of 137", k)
		}
	}
	// γ = p(1−p′) = .3: mean 6000, sd 64.8; 6 sd fail with probability 2e-9.
	s, co := build(t, setup{n: 20000, participation: dp.CheckIn, rate: .4, dropout: .25})
	for _, k := range rounds(t, s, 3) {
		if math.Abs(float64(k)-6000) > 6*64.8 {
			t.Errorf("check-in round with %d reports, want about 6000", k)
		}
	}
	for _, e := range co.State().Charged {
		if e.Event.Participation != dp.CheckIn || e.Event.Least != 1 || e.Event.Gamma != .4 {
			t.Errorf("charged %+v, want its terms", e.Event)
		}
	}
}

// Who drops out is no chance: a round of all clients is charged for n-min of them, however many come.
func TestDropoutsAreNoChance(t *testing.T) {
	s, co := build(t, setup{n: 1000, participation: dp.All, dropout: .5})
	k := rounds(t, s, 1)[0]
	e := co.State().Charged[0].Event
	if k >= 1000 || e.Population != 1 || e.Participation != dp.All || e.Validate() != nil {
		t.Errorf("%d reports charged as %+v", k, e)
	}
}

func TestVoidRoundReleasesAndChargesNothing(t *testing.T) {
	s, co := build(t, setup{n: 1000, participation: dp.CheckIn, rate: .01, nMin: 900})
	before := append([]float32(nil), co.Parameters...)
	r, err := s.Round(context.Background(), nil)
	if err != nil || !r.Void || r.Reports != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if len(co.State().Charged) != 0 || co.Parameters[0] != before[0] || co.Round != 1 {
		t.Errorf("void round left charges %v, parameters %v, round %d", co.State().Charged, co.Parameters, co.Round)
	}
}

// With trust local the reports of a void round were seen by who carries them.
func TestVoidRoundOfTrustLocalIsCharged(t *testing.T) {
	s, co := build(t, setup{n: 1000, participation: dp.CheckIn, rate: .01, nMin: 900, trust: dp.Local})
	r, err := s.Round(context.Background(), nil)
	if err != nil || !r.Void || r.Reports != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if e := co.State().Charged; len(e) != 1 || e[0].Round != 1 || co.Round != 1 || co.State().Optimizer.Steps != 0 {
		t.Errorf("round %d, charged %+v", co.Round, e)
	}
}

// spy counts gradients: after a refused charge not one report may be made.
type spy struct {
	points
	evaluated *atomic.Int64
}

func (s spy) worker() func(id int64, theta, grad []float32) {
	inner := s.points.worker()
	return func(id int64, theta, grad []float32) { s.evaluated.Add(1); inner(id, theta, grad) }
}

func TestNothingIsOpenedWhenTheBudgetRefuses(t *testing.T) {
	var evaluated atomic.Int64
	s, co := build(t, setup{n: 100, participation: dp.All, budget: 2, worker: spy{points{}, &evaluated}.worker})
	rounds(t, s, 2)
	parameters := append([]float32(nil), co.Parameters...)
	if _, err := s.Round(context.Background(), nil); !errors.Is(err, ledger.ErrBudget) {
		t.Fatalf("third round of two: %v", err)
	}
	if evaluated.Load() != 200 || co.Parameters[0] != parameters[0] || co.Round != 2 {
		t.Errorf("refused round evaluated %d gradients, now at round %d", evaluated.Load()-200, co.Round)
	}
	if _, err := co.NewTally(); err == nil {
		t.Error("a refused round can be opened")
	}
}

// A round that is cut off and run again gives what it would have given, and is
// charged once.
func TestAbandonedRoundRunsAgain(t *testing.T) {
	c := setup{n: 3000, participation: dp.CheckIn, rate: .5, seed: 3}
	whole, want := build(t, c)
	rounds(t, whole, 3)

	s, co := build(t, c)
	rounds(t, s, 1)
	ctx, cancel := context.WithCancel(context.Background())
	if _, err := s.Round(ctx, func(int64) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Fatalf("abandoned round: %v", err)
	}
	state := co.State()
	if state.Round != 1 || len(state.Charged) != 2 {
		t.Fatalf("abandoned in round 2: state is of round %d with %d charges", state.Round, len(state.Charged))
	}
	again, resumed := build(t, c)
	if err := resumed.Restore(state); err != nil {
		t.Fatal(err)
	}
	rounds(t, again, 2)
	for j, v := range resumed.Parameters {
		if v != want.Parameters[j] {
			t.Fatalf("resumed %v, uninterrupted %v", resumed.Parameters, want.Parameters)
		}
	}
	if got := resumed.State().Charged; len(got) != 3 {
		t.Errorf("%d charges for 3 rounds", len(got))
	}
}

type otherDim struct{ randomizer.Mechanism }

func (m otherDim) Facts() randomizer.Facts {
	f := m.Mechanism.Facts()
	f.Dim = 13
	return f
}

// A client that was made for another task stays away: nothing is charged.
func TestClientsOfAnotherTaskStayAway(t *testing.T) {
	s, co := build(t, setup{n: 10, participation: dp.All})
	other, err := randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: 12, Eps0: 3, Radius: 4})
	if err != nil {
		t.Fatal(err)
	}
	if s.config.Client, err = client.New(client.Config{Mechanism: other, ClipMode: client.ClipNorm, Clip: 4, Norm: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Round(context.Background(), nil); err == nil || len(co.State().Charged) != 0 {
		t.Errorf("reports of eps0 = 3 in a task of eps0 = 2: %v, charged %v", err, co.State().Charged)
	}
}

func TestConfigIsChecked(t *testing.T) {
	s, _ := build(t, setup{n: 10, participation: dp.All})
	good := s.config
	for _, broken := range []func(*Config){
		func(c *Config) { c.Worker = nil }, func(c *Config) { c.Client = nil },
		func(c *Config) { c.Coordinator = nil }, func(c *Config) { c.Mechanism = nil },
		func(c *Config) { c.Clients = 11 }, func(c *Config) { c.Mechanism = otherDim{c.Mechanism} },
		func(c *Config) { c.Dropout = 1 }, func(c *Config) { c.Dropout = math.NaN() }, func(c *Config) { c.Workers = -1 },
	} {
		c := good
		broken(&c)
		if _, err := New(c); err == nil {
			t.Errorf("accepted %+v", c)
		}
	}
}

// BenchmarkCollect is the part of a round that touches every client id:
// coins, tickets, permutation.
func BenchmarkCollect(b *testing.B) {
	s, co := build(b, setup{n: 60000, participation: dp.CheckIn, rate: .5})
	ann := co.Announce()
	for b.Loop() {
		if _, err := s.collect(ann); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)*60000/b.Elapsed().Seconds(), "clients/s")
}
