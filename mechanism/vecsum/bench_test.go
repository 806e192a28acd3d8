package vecsum

import (
	"fmt"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

func benchParams(bits int64) Params {
	return Params{Users: 60_000, Dim: 4420, Radius: 1, Grid: 500, Norm: Norm(4420, 500, NormBeta), Noise: Noise{Kind: Binomial, Bits: bits}}
}

func benchInput(dim int) []float32 {
	x, src := make([]float32, dim), rng.Replay(1)
	for j := range x {
		x[j] = float32(int64(src.Uint64())) / (1 << 63) / 40
	}
	return x
}

func BenchmarkEncode(b *testing.B) {
	for _, bits := range []int64{64, 500, 100_000} {
		b.Run(fmt.Sprint(bits), func(b *testing.B) {
			p := benchParams(bits)
			e := mustEncoder(b, p)
			x, counts, src := benchInput(p.Dim), make([]int64, p.Dim), rng.Replay(2)
			for b.Loop() {
				if err := e.Encode(src, x, counts); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(p.Dim)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mcoordinates/s")
		})
	}
}

// One client of a simulation: a round of 60,000 takes 60,000 times as long.
func BenchmarkRound(b *testing.B) {
	p := benchParams(500)
	e, err := NewEncoder(p)
	if err != nil {
		b.Fatal(err)
	}
	x, src, counts := benchInput(p.Dim), rng.Replay(2), make([]int32, p.Streams())
	for b.Loop() {
		if err := e.Round(src, x, counts); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(p.Dim)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mcoordinates/s")
}

func BenchmarkShares(b *testing.B) {
	p := benchParams(500)
	s, err := NewShares(Config{Params: p})
	if err != nil {
		b.Fatal(err)
	}
	counts, src := make([]int64, p.Dim), rng.Replay(3)
	ms, err := s.Messages(src, counts)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("split", func(b *testing.B) {
		b.SetBytes(int64(len(ms[1])))
		for b.Loop() {
			if _, err := s.Messages(src, counts); err != nil {
				b.Fatal(err)
			}
		}
	})
	for i, name := range []string{"add seed", "add vector"} {
		b.Run(name, func(b *testing.B) {
			a, err := s.NewAggregator(i)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(ms[1])))
			for b.Loop() {
				clear(a.ids)
				if err := a.Add(ms[i]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTight(b *testing.B) {
	for b.Loop() {
		mustTight(b, Target{Eps: 1, Delta: 1e-6, Users: 60_000, Dim: 4420, Radius: 1})
	}
}
