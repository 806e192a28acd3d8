package simulate_test

import (
	"context"
	"fmt"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/run/simulate"
)

// points are clients each of whom holds a number; their gradients lead to the mean.
type points int64

func (p points) worker() func(id int64, theta, grad []float32) {
	return func(id int64, theta, grad []float32) {
		grad[0], grad[1] = theta[0]-float32(id)/float32(p), theta[1]
	}
}

// Clients find the mean of what they hold, .5, by private reports.
func Example() {
	if err := run(); err != nil {
		fmt.Println(err)
	}
	// Output: reached 0.5, epsilon 0.36
}

func run() error {
	const n, clip = 20000, 1
	m, err := randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: 2, Radius: clip, Eps0: 2})
	if err != nil {
		return err
	}
	o, err := optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: 2, Schedule: func(int64) float64 { return .5 }})
	if err != nil {
		return err
	}
	budget, err := ledger.New(ledger.Config{Accountant: new(account.Accountant), Delta: 1e-6, MaxEps: 1})
	if err != nil {
		return err
	}
	co, err := coordinator.New(coordinator.Config{Optimizer: o, Mechanism: m, Report: m.Event(), Ledger: budget,
		Trust: dp.Shuffle, Participation: dp.All, Population: n, MinReports: n / 2, Clip: clip})
	if err != nil {
		return err
	}
	cl, err := client.New(client.Config{Mechanism: m, ClipMode: client.ClipNorm, Clip: clip, Norm: 2})
	if err != nil {
		return err
	}
	s, err := simulate.New(simulate.Config{Seed: 1, Clients: n, Worker: points(n).worker, Client: cl, Coordinator: co, Mechanism: m})
	if err != nil {
		return err
	}
	for range 10 {
		if _, err := s.Round(context.Background(), nil); err != nil {
			return err
		}
	}
	spent, err := co.Spent()
	fmt.Printf("reached %.1f, epsilon %.2f\n", co.Parameters[0], spent.Eps)
	return err
}
