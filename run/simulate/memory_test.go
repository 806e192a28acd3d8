package simulate

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// allocated runs rounds of 10,000 expected reports among n clients, and returns how many bytes were
// allocated in all: more than were ever held.
func allocated(t *testing.T, participation dp.Participation, n int64, rounds int) uint64 {
	t.Helper()
	const k = 10_000
	s, _ := build(t, setup{n: n, participation: participation, k: map[dp.Participation]int64{dp.Sampled: k}[participation], rate: float64(k) / float64(n), seed: 5, workers: 2})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		if _, err := s.Round(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// checkFlat fails if a hundred times as many clients need more than a quarter more memory.
func checkFlat(t *testing.T, participation dp.Participation, rounds int) {
	t.Helper()
	few, many := allocated(t, participation, 1_000_000, rounds), allocated(t, participation, 100_000_000, rounds)
	t.Logf("%s: %d rounds of 10,000 among 1e6 clients allocate %d bytes, among 1e8 %d", participation, rounds, few, many)
	if many > few+few/4 {
		t.Errorf("%s: a round among 1e8 clients allocates %d bytes, among 1e6 %d", participation, many/uint64(rounds), few/uint64(rounds))
	}
}

// A round's memory is that of its reports, however many clients there are.
func TestMemoryDoesNotGrowWithClients(t *testing.T) { checkFlat(t, dp.Sampled, 2) }

// Rounds of 10,000 reports among more and more clients: a draw takes the same time, own coins take one
// coin each.
func BenchmarkPopulation(b *testing.B) {
	for _, n := range []int64{1_000_000, 10_000_000, 100_000_000} {
		for _, p := range []dp.Participation{dp.Sampled, dp.CheckIn} {
			b.Run(fmt.Sprintf("%s/n=%.0e", p, float64(n)), func(b *testing.B) {
				const k = 10_000
				s, co := build(b, setup{n: n, participation: p, k: map[dp.Participation]int64{dp.Sampled: k}[p], rate: float64(k) / float64(n), seed: 5})
				ann := co.Announce()
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.collect(ann); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
