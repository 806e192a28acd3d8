package seed

import (
	"fmt"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// three is the law of three steps that the tests use: ε₀ = 2.834.
func three(dim int) Config {
	return Config{Dim: dim, Radius: 1, Edges: []float64{.95, 1.49, 2.02}, Height: 5.3381}
}

func kernels(b *testing.B, run func(b *testing.B, m *Mechanism)) {
	for _, dim := range []int{1930, 13_706} {
		for _, k := range []kernel{best(), portable} {
			m, err := New(three(dim))
			if err != nil {
				b.Fatal(err)
			}
			m.kernel = k
			b.Run(fmt.Sprintf("%d/%s", dim, k.name), func(b *testing.B) { run(b, m) })
		}
	}
}

func BenchmarkReader(b *testing.B) {
	kernels(b, func(b *testing.B, m *Mechanism) {
		sum := make([]int64, m.Dim)
		var s [Size]byte
		for b.Loop() {
			s[0]++
			m.AddTo(sum, &[32]byte{}, s)
		}
		b.ReportMetric(float64(m.Dim)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mvalues/s")
	})
}

func BenchmarkClient(b *testing.B) {
	kernels(b, func(b *testing.B, m *Mechanism) {
		src := rng.Replay(1)
		x := make([]float32, m.Dim)
		for i := range x {
			x[i] = float32(i%7) - 3
		}
		for b.Loop() {
			m.Draw(src, &[32]byte{}, x)
		}
	})
}
