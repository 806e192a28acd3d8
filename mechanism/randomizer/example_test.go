package randomizer_test

import (
	"fmt"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// Local use: no shuffler, so one report is worth exactly its ε₀, and a client
// that reports T times spends T·ε₀. 20,000 clients name one of four symbols.
func Example_local() {
	m, err := randomizer.New(randomizer.KRR, randomizer.Config{Dim: 4, Eps0: 2})
	if err != nil {
		panic(err)
	}
	const clients = 20_000
	counts, report := make([]int64, m.Facts().Dim), m.NewReport()
	for client := range clients {
		src := rng.Replay(1, uint64(client)) // a real client uses rng.Secure()
		x := make([]float32, 4)
		x[client%10/4] = 1 // 40 %, 40 %, 20 %, nobody
		m.Randomize(src, x, report)
		m.Add(counts, report)
	}
	share := make([]float64, m.Facts().Dim)
	m.Estimate(share, counts, clients)
	fmt.Printf("%.2f, each client %v-LDP\n", share, m.Event().Eps0)
	// Output: [0.40 0.39 0.20 0.01], each client 2-LDP
}

// A randomizer chosen by its name, as a task does, and what it says about itself.
func ExampleNew() {
	m, err := randomizer.New("privunit", randomizer.Config{Dim: 100, Radius: 1, Eps0: 4})
	if err != nil {
		panic(err)
	}
	k, err := randomizer.KindOf(m.Facts().Name)
	if err != nil {
		panic(err)
	}
	x := make([]float32, m.Facts().Dim)
	x[0] = 3
	randomizer.ClipNorm(x, k.Norm, 1)
	report := m.NewReport()
	m.Randomize(rng.Replay(1), x, report)
	fmt.Printf("x[0] = %v, %d values, mean squared error %.1f, class %s\n", x[0], len(report.Value), m.Facts().MSE, m.Event().Class)
	// Output: x[0] = 1, 100 values, mean squared error 43.8, class cap
}
