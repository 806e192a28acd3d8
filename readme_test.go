package riffle_test

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/ledger"
)

// What a protocol costs: a thousand of a million clients a round, 100,000
// rounds, each report 2-locally private.
func Example() {
	reply, err := account.Answer(context.Background(), account.Query{
		Participation: dp.Sampled, Eps0: 2, Population: 1e6, Reports: 1000, Rounds: 1e5, Delta: 1e-8,
	}, "best")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("epsilon below %.2f by %s\n", math.Ceil(reply.Upper.Eps*100)/100, reply.Upper.Method)
	// Output: epsilon below 0.16 by blanket-pld
}

// What leaves a client: one report that is private by itself.
func Example_report() {
	m, err := randomizer.New(randomizer.PrivUnit, randomizer.Config{Dim: 1000, Radius: 1, Eps0: 3})
	if err != nil {
		fmt.Println(err)
		return
	}
	gradient := make([]float32, 1000)
	gradient[7] = 0.5
	report := m.NewReport()
	m.Randomize(rng.Secure(), gradient, report)
	fmt.Println(len(report.Value), m.Check(report), m.Event().Eps0 >= 3)
	// Output: 1000 <nil> true
}

// A budget: rounds are charged before their reports are opened, and refused
// when they would exceed it.
func Example_ledger() {
	book, err := ledger.New(ledger.Config{Accountant: new(account.Accountant), Delta: 1e-5, MaxEps: 0.3})
	if err != nil {
		fmt.Println(err)
		return
	}
	round := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 2}, Trust: dp.Shuffle,
		Participation: dp.All, Population: 60000}
	for n := int64(1); ; n++ {
		if err := book.Charge(context.Background(), ledger.Charge{Round: n, Event: round}); err != nil {
			fmt.Println("round", n, "refused:", errors.Is(err, ledger.ErrBudget))
			return
		}
	}
	// Output: round 49 refused: true
}
