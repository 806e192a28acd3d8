package coordinator

import (
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// unsized is a mechanism that does not say how long its reports are.
type unsized struct{ randomizer.Randomizer }

func (unsized) MeanBound(int64) float64 { return math.Inf(1) }

// train runs rounds of 200 clients of whom the first so many lie, and returns the
// model and how many steps were made shorter.
func shortened(t *testing.T, m randomizer.Randomizer, sized bool, liars int) (params []float32, short int) {
	t.Helper()
	const n, rounds = 200, 20
	d := m.Facts().Dim
	o, err := optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: d, Schedule: func(int64) float64 { return .1 }, Momentum: .9})
	if err != nil {
		t.Fatal(err)
	}
	used := m
	if !sized {
		used = unsized{m}
	}
	c, err := New(Config{Optimizer: o, Mechanism: used, Report: m.Event(), Ledger: &book{}, Trust: dp.Shuffle, Participation: dp.All,
		Population: n, MinReports: 2, Clip: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := m.NewReport()
	for round := range int64(rounds) {
		if err := c.Receive(t.Context(), wire.RoundClosed{Round: round + 1, Reports: n}); err != nil {
			t.Fatal(err)
		}
		tally, err := c.NewTally()
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			x := make([]float32, d)
			x[0], x[1] = float32(math.Sqrt(.5)), float32(-math.Sqrt(.5)) // all alike, and at the clip norm
			m.Randomize(rng.Replay(3, uint64(round), uint64(i)), x, r)
			if i < liars {
				clear(r.Value)
				r.Value[5] = 1 << 16
			}
			tally.Open(r)
		}
		if _, rejected, err := c.End(tally); err != nil || rejected != 0 {
			t.Fatalf("%d rejected: %v", rejected, err)
		}
		if c.Shortened {
			short++
		}
	}
	return slices.Clone(c.Parameters), short
}

// Honest training is the same bit for bit as without the bound. Where many lie, their
// steps are as short as honest ones.
func TestStepsAreAsShortAsHonestOnes(t *testing.T) {
	for name, m := range map[string]func() (randomizer.Randomizer, error){
		"privunit": func() (randomizer.Randomizer, error) {
			return randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: 100, Radius: 1, Eps0: 2})
		},
		"r2": func() (randomizer.Randomizer, error) {
			return randomizer.New(randomizer.R2, randomizer.Config{Dim: 100, Radius: 1, Eps0: 2})
		},
		"laplace": func() (randomizer.Randomizer, error) {
			return randomizer.New(randomizer.Laplace, randomizer.Config{Dim: 100, Radius: 1, Eps0: 2})
		},
		"rr": func() (randomizer.Randomizer, error) {
			return randomizer.New(randomizer.RR, randomizer.Config{Dim: 100, Radius: 1, Eps0: 2})
		},
	} {
		m, err := m()
		if err != nil {
			t.Fatal(err)
		}
		with, short := shortened(t, m, true, 0)
		without, _ := shortened(t, m, false, 0)
		if short != 0 || !slices.Equal(with, without) {
			t.Errorf("%s: %d of 20 honest steps are shorter, and the model is another", name, short)
		}
	}
	m, err := randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: 100, Radius: 1, Eps0: 2})
	if err != nil {
		t.Fatal(err)
	}
	with, short := shortened(t, m, true, 100)
	without, _ := shortened(t, m, false, 100)
	if short != 20 || !(math.Abs(float64(with[5])) < .75*math.Abs(float64(without[5]))) {
		t.Errorf("half of the clients lie: %d steps are shorter, the model is at %v, without the bound at %v", short, with[5], without[5])
	}
	t.Logf("half of 200 clients lie: the model is at %.1f, without the bound at %.1f", with[5], without[5])
}
