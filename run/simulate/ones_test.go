package simulate

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// counts returns the mechanisms of n clients that count at most that many ones in dim places, as a
// simulation has them; of 0 ones they sum vectors of the ball.
func counts(t testing.TB, n int64, dim, ones int) map[string]randomizer.Randomizer {
	t.Helper()
	target := vecsum.Target{Sigma: 3 / math.Sqrt(float64(n)), Delta: 1e-5, Users: n, Dim: dim, Ones: ones}
	apart, err := vecsum.NewAggregated(n, dim, 2, 3)
	if ones > 0 {
		apart, err = vecsum.NewAggregatedOnes(n, dim, ones, 3)
	} else {
		target.Radius = 2
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := vecsum.Tight(target)
	if err != nil {
		t.Fatal(err)
	}
	v, err := mechanism.NewVectorSum(p, target.Sigma)
	if err != nil {
		t.Fatal(err)
	}
	a, err := mechanism.NewAggregatedSum(apart, 3, n)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]randomizer.Randomizer{"clients": mechanism.Rounding{VectorSum: v}, "aggregators": a}
}

// simulation returns a simulation of one round of sums, and what it releases.
func simulation(t testing.TB, m randomizer.Randomizer, n int64, clip float64, c Config) (*Simulation, *coordinator.Coordinator) {
	t.Helper()
	opt, err := optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: m.Facts().Dim, Schedule: func(int64) float64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	book, err := ledger.New(ledger.Config{Accountant: counting{}, Delta: 1e-5, MaxEps: 5})
	if err != nil {
		t.Fatal(err)
	}
	co, err := coordinator.New(coordinator.Config{Optimizer: opt, Mechanism: m, Report: m.Event(), Ledger: book, Trust: dp.Distributed,
		Participation: dp.All, Population: n, MinReports: 1, Clip: clip})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := client.New(client.Config{Mechanism: m, ClipMode: client.ClipNorm, Clip: clip, Norm: 2})
	if err != nil {
		t.Fatal(err)
	}
	c.Seed, c.Clients, c.Client, c.Coordinator, c.Mechanism = 3, n, cl, co, m
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s, co
}

// places gives client id up to four ones in dim places, the last client none.
func places(dim int) func() func(id int64, theta []float32, places []int) []int {
	return func() func(id int64, theta []float32, places []int) []int {
		return func(id int64, _ []float32, places []int) []int {
			for i := range id % 5 {
				places = append(places, int(7*id+i)%dim)
			}
			return places
		}
	}
}

// Told by the places of its ones or as a vector, a client adds the same to a sum, whether the sum
// counts ones or not, and whoever adds the noise.
func TestOnesAreVectors(t *testing.T) {
	const n, dim = 500, 40
	for _, ones := range []int{0, 3} {
		for name, m := range counts(t, n, dim, ones) {
			clip := 2.
			if ones > 0 {
				clip = math.Sqrt(float64(ones))
			}
			released := func(c Config) []float32 {
				s, co := simulation(t, m, n, clip, c)
				if r, err := s.Round(context.Background(), nil); err != nil || r.Reports != n || r.Rejected != 0 {
					t.Fatalf("%+v, %v", r, err)
				}
				return slices.Clone(co.Parameters)
			}
			at := places(dim)()
			vectors := released(Config{Workers: 2, Worker: func() func(id int64, theta, x []float32) {
				return func(id int64, theta, x []float32) {
					clear(x)
					for _, j := range at(id, theta, nil) {
						x[j] = 1
					}
				}
			}})
			for _, workers := range []int{1, 3} {
				if got := released(Config{Workers: workers, Ones: places(dim)}); !slices.Equal(got, vectors) || slices.Max(got) == slices.Min(got) {
					t.Errorf("%s, at most %d ones: places give %v, vectors %v", name, ones, got[:5], vectors[:5])
				}
			}
		}
	}
	if _, err := New(Config{Worker: points{}.worker, Ones: places(3)}); err == nil {
		t.Error("vectors and places were taken together")
	}
}

// BenchmarkCounts counts a million clients in 1,024 bins.
func BenchmarkCounts(b *testing.B) {
	const n, dim = 1_000_000, 1024
	for name, m := range counts(b, n, dim, 1) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s, _ := simulation(b, m, n, 1, Config{Ones: func() func(id int64, theta []float32, places []int) []int {
					return func(id int64, _ []float32, places []int) []int { return append(places, int(id%dim)) }
				}})
				if _, err := s.Round(context.Background(), nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
