package prio3_test

import (
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/mechanism/vecsum/prio3"
)

// Two aggregators, who would be two processes, sum three clients' counts. The
// key and the source are fixed for the example only.
func Example() {
	s, err := prio3.New(vecsum.Config{
		Params: vecsum.Params{Users: 3, Dim: 2, Radius: 1, Grid: 4, Norm: vecsum.Norm(2, 4, 0),
			Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: 8}},
		Round: vecsum.RoundID{1},
	})
	if err != nil {
		panic(err)
	}
	var both [2]*prio3.Aggregator
	for i := range both {
		if both[i], err = s.NewAggregator(i, prio3.VerifyKey{1}); err != nil {
			panic(err)
		}
	}
	for _, counts := range [][]int64{{4, 7}, {0, 12}, {5, 5}} {
		reports, err := s.Messages(rng.Replay(1, uint64(counts[0])), counts)
		if err != nil {
			panic(err)
		}
		var preps [2][]byte
		for i, a := range both {
			if preps[i], err = a.Begin(reports[i]); err != nil && !errors.Is(err, prio3.ErrRefused) {
				panic(err)
			}
		}
		for i, a := range both {
			if err := a.Finish(preps[1-i]); err != nil && !errors.Is(err, prio3.ErrRefused) {
				panic(err)
			}
		}
	}
	var partials [2][]byte
	for i, a := range both {
		if partials[i], err = a.Close(); err != nil {
			panic(err)
		}
	}
	counts, clients, err := s.Combine(partials[:]...)
	fmt.Println(counts, "of", clients, "clients,", both[0].Refused, "refused", err)
	// Output: [9 24] of 3 clients, 0 refused <nil>
}
