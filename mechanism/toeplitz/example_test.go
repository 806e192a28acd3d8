package toeplitz_test

import (
	"fmt"
	"log"

	"github.com/riffle-dp/riffle/mechanism/toeplitz"
)

// Three rounds of sums of one coordinate, round 1 void, without noise to show what is undone.
func Example() {
	s, err := toeplitz.Banded(100, 5, 6) // a client is in one of any 5 of 100 rounds
	if err != nil {
		log.Fatal(err)
	}
	rms, _, err := s.Gain(100, 5)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("weights %d, squared sensitivity %.3f, gain %.2f\n", s.Weights, s.Squared(100, 5), rms)

	r, err := toeplitz.NewRecovery(s, 1)
	if err != nil {
		log.Fatal(err)
	}
	sums := map[int64]int64{0: 10, 2: 7}
	for _, round := range []int64{0, 2} {
		y := []int64{0}
		for k, w := range s.Weights {
			y[0] += w * sums[round-int64(k)]
		}
		x, err := r.Recover(round, y)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("round %d released %d: sum %v\n", round, y, x)
	}
	// Output:
	// weights [64 43 37 33 29], squared sensitivity 45.137, gain 1.96
	// round 0 released [640]: sum [10]
	// round 2 released [818]: sum [7]
}
