package vecsum_test

import (
	"fmt"
	"log"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// Thirty clients sum vectors through two aggregators.
func Example() {
	p, err := vecsum.Tight(vecsum.Target{Eps: 2, Delta: 1e-6, Users: 30, Dim: 2, Radius: 1})
	if err != nil {
		log.Fatal(err)
	}
	transport, err := vecsum.NewShares(vecsum.Config{Params: p, Round: vecsum.RoundID{1}})
	if err != nil {
		log.Fatal(err)
	}
	encoder, err := vecsum.NewEncoder(p)
	if err != nil {
		log.Fatal(err)
	}
	src := rng.Secure()
	var all [][]byte
	for range 30 {
		counts := make([]int64, p.Streams())
		if err := encoder.Encode(src, []float32{.6, -.8}, counts); err != nil {
			log.Fatal(err)
		}
		messages, err := transport.Messages(src, counts)
		if err != nil {
			log.Fatal(err)
		}
		all = append(all, messages...)
	}
	counts, clients, err := transport.Sum(all)
	if err != nil {
		log.Fatal(err)
	}
	sum := make([]float64, 2)
	if err := p.Estimate(sum, counts, clients); err != nil {
		log.Fatal(err)
	}
	eps, err := p.Epsilon(1e-6, 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d clients, eps %.2f\n", clients, eps)
	// Output: 30 clients, eps 2.00
}
