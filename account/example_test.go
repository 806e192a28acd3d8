package account_test

import (
	"context"
	"fmt"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
)

// In each of 100 rounds 1,000 of 60,000 clients, drawn at random, send a shuffled report
// with ε₀ = 2.
var training = account.Query{
	Trust: dp.Shuffle, Participation: dp.Sampled, Eps0: 2,
	Population: 60000, Reports: 1000, Rounds: 100, Delta: 1e-6,
}

func ExampleAnswer() {
	reply, err := account.Answer(context.Background(), training, "best")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("ε ≤ %.2f at δ = %g, by %s\n", reply.Upper.Eps, reply.Upper.Delta, reply.Upper.Method)
	// Output: ε ≤ 0.06 at δ = 1e-06, by blanket-pld
}

func ExamplePlan() {
	q, reply, err := account.Plan(context.Background(), 0.1, training, "rounds")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d rounds cost ε ≤ %.3f\n", q.Rounds, reply.Upper.Eps)
	// Output: 257 rounds cost ε ≤ 0.100
}

// An accountant counts what happened, whether or not the rounds are alike.
func ExampleAccountant_Eps() {
	round := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 2}, Trust: dp.Shuffle, Participation: dp.Sampled, Population: 60000, Reports: 1000}
	fewer := round
	fewer.Reports = 500
	bound, err := new(account.Accountant).Eps(dp.Sequence{dp.Repeat{Event: round, Times: 50}, fewer}, 1e-6)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("ε ≤ %.3f\n", bound.Eps)
	// Output: ε ≤ 0.042
}

// Each row of Methods is a bound, and says what it needs.
func ExampleMethods() {
	for _, m := range account.Methods() {
		if m.ID == "lower-krr" {
			fmt.Printf("%s: %s, %s; needs %s\n", m.ID, m.Kind, m.Status, m.Needs)
		}
	}
	// Output: lower-krr: lower, proved; needs class krr:K, K ≥ 4, or cap
}
