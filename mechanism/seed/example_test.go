package seed_test

import (
	"crypto/sha256"
	"fmt"
	"log"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/seed"
)

// A thousand clients report the same vector; the reader estimates their mean.
func Example() {
	m, err := seed.New(seed.Config{Dim: 2, Radius: 1, Edges: []float64{.95, 1.49, 2.02}, Height: 5.338})
	if err != nil {
		log.Fatal(err)
	}
	round := sha256.Sum256([]byte("the announcement"))
	src := rng.Replay(1) // a real client takes rng.Secure()
	sum := make([]int64, 2)
	const clients = 1000
	for range clients {
		report := m.Draw(src, &round, []float32{.6, -.8})
		m.AddTo(sum, &round, report)
	}
	fmt.Printf("a report has %d bytes\n", seed.Size)
	for _, s := range sum {
		fmt.Printf("%.1f\n", float64(s)*m.Scale()/clients)
	}
	// Output:
	// a report has 16 bytes
	// 0.6
	// -0.8
}
