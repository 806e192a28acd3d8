package amplify_test

import (
	"fmt"

	"github.com/riffle-dp/riffle/dp/amplify"
)

// What one round reveals about a client in which 1,000 of 60,000 clients, drawn at random,
// send a shuffled report with ε₀ = 2.
func ExampleFamily_Curve() {
	family, err := amplify.ClonesFamily(2, amplify.Blanket(2))
	if err != nil {
		fmt.Println(err)
		return
	}
	round, err := family.Curve(amplify.FamilyRound{Population: 60000, Reports: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	eps, err := round.Epsilon(1e-8)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("ε ≤ %.4f at δ = 1e-8\n", eps)
	// Output: ε ≤ 0.0084 at δ = 1e-8
}

// The pair of laws that dominates a round, for composition with others by package pld.
func ExampleFamily_Round() {
	family, err := amplify.KRR(2, 10)
	if err != nil {
		fmt.Println(err)
		return
	}
	pair, err := family.Round(amplify.FamilyRound{Population: 60000, Reports: 1000})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("fewer than 1,000 outcomes: %t; mass left out: %v\n", len(pair.Atoms) < 1000, pair.Dropped())
	// Output: fewer than 1,000 outcomes: true; mass left out: 0
}
