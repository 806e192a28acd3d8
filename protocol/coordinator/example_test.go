package coordinator_test

import (
	"context"
	"fmt"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// A round: announce, charge the closed batch, open its reports, take the step.
func Example() {
	if err := round(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// round 1 of 1000 clients by privunit
	// nothing is opened before it is charged: true
	// summed 1000 reports, rejected 0
}

func round() error {
	const n = 1000
	m, err := randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: 3, Radius: 1, Eps0: 2})
	if err != nil {
		return err
	}
	o, err := optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: 3, Schedule: func(int64) float64 { return .5 }})
	if err != nil {
		return err
	}
	budget, err := ledger.New(ledger.Config{Accountant: new(account.Accountant), Delta: 1e-6, MaxEps: 1})
	if err != nil {
		return err
	}
	c, err := coordinator.New(coordinator.Config{Optimizer: o, Mechanism: m, Report: m.Event(), Ledger: budget,
		Trust: dp.Shuffle, Participation: dp.All, Population: n, MinReports: n / 2, Clip: 1})
	if err != nil {
		return err
	}
	a := c.Announce()
	fmt.Printf("round %d of %d clients by %s\n", a.Round, a.Population, a.Randomizer)
	_, err = c.NewTally()
	fmt.Println("nothing is opened before it is charged:", err != nil)
	if err := c.Receive(context.Background(), wire.RoundClosed{Round: a.Round, Reports: n}); err != nil {
		return err
	}
	tally, err := c.NewTally()
	if err != nil {
		return err
	}
	report := m.NewReport()
	for range n {
		m.Randomize(rng.Secure(), []float32{1, 0, 0}, report)
		tally.Open(report)
	}
	accepted, rejected, err := c.End(tally)
	fmt.Printf("summed %d reports, rejected %d\n", accepted, rejected)
	return err
}
