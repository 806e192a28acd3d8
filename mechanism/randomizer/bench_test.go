package randomizer

import (
	"fmt"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

func benchInput(dim int) []float32 {
	src := rng.Replay(7)
	z := make([]float64, dim)
	sample.Gaussian(src, z)
	x := make([]float32, dim)
	for i, v := range z {
		x[i] = float32(v)
	}
	ClipNorm(x, 2, 1)
	return x
}

func perValue(b *testing.B, dim int) {
	b.ReportMetric(float64(dim)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mvalues/s")
}

func BenchmarkPrivUnit(b *testing.B) {
	const dim = 4420
	m := as[*privUnit](newPrivUnit(Config{Dim: dim, Radius: 1, Eps0: 3}))
	x, r, sum := benchInput(dim), m.NewReport(), make([]int64, dim)
	src := rng.Replay(1)
	b.Run("Randomize+Add", func(b *testing.B) {
		b.ReportAllocs()
		var i uint64
		for b.Loop() {
			src.Reset(1, i)
			i++
			m.Randomize(src, x, r)
			m.Add(sum, r)
		}
		perValue(b, dim)
	})
	z := make([]float64, dim)
	b.Run("sums", func(b *testing.B) {
		for b.Loop() {
			gaussianSums(src, z, x)
		}
		perValue(b, dim)
	})
	b.Run("products", func(b *testing.B) {
		for b.Loop() {
			products(x, z)
		}
		perValue(b, dim)
	})
	b.Run("round", func(b *testing.B) {
		for b.Loop() {
			round(r.Value, x, z, .5, .25)
		}
		perValue(b, dim)
	})
	b.Run("Add", func(b *testing.B) {
		for b.Loop() {
			m.Add(sum, r)
		}
		perValue(b, dim)
	})
	b.Run("Check", func(b *testing.B) {
		for b.Loop() {
			if m.Check(r) != nil {
				b.Fatal("refused")
			}
		}
		perValue(b, dim)
	})
	b.Run("scalars", func(b *testing.B) {
		for b.Loop() {
			m.height(src)
			length(src)
		}
	})
	b.Run("New", func(b *testing.B) {
		for b.Loop() {
			newPrivUnit(Config{Dim: dim, Radius: 1, Eps0: 3})
		}
	})
}

func benchMechanism(b *testing.B, m Mechanism) {
	x, r, sum := benchInput(m.Facts().Dim), m.NewReport(), make([]int64, m.Facts().Dim)
	src := rng.Replay(1)
	b.ReportAllocs()
	var i uint64
	for b.Loop() {
		src.Reset(1, i)
		i++
		m.Randomize(src, x, r)
		m.Add(sum, r)
	}
	perValue(b, len(r.Value))
}

func BenchmarkStepUnit(b *testing.B) {
	for _, dim := range []int{1930, 4420} {
		for _, encoding := range []string{Values, Seed} {
			b.Run(fmt.Sprintf("%d/%s", dim, encoding), func(b *testing.B) {
				benchMechanism(b, must(newStepUnit(Config{Dim: dim, Radius: 1, Eps0: 2.834, Encoding: encoding})))
			})
		}
		b.Run(fmt.Sprintf("%d/privunit", dim), func(b *testing.B) {
			benchMechanism(b, must(newPrivUnit(Config{Dim: dim, Radius: 1, Eps0: 2.5})))
		})
	}
}

// BenchmarkSeveral compares eight reports, one by one and as a sum.
func BenchmarkSeveral(b *testing.B) {
	const dim, count = 1930, 8
	for _, encoding := range []string{Values, Seed} {
		m := must(newStepUnit(Config{Dim: dim, Radius: 1, Eps0: 2, Encoding: encoding})).(Several)
		x, r, sum, src := benchInput(dim), m.NewReport(), make([]int64, dim), rng.Replay(1)
		b.Run(encoding+"/singles", func(b *testing.B) {
			for b.Loop() {
				for range count {
					m.Randomize(src, x, r)
					if m.Check(r) == nil {
						m.Add(sum, r)
					}
				}
			}
		})
		b.Run(encoding+"/sum", func(b *testing.B) {
			for b.Loop() {
				m.AddSeveral(src, sum, x, count)
			}
		})
	}
}

func BenchmarkRInf(b *testing.B) {
	benchMechanism(b, must(newRInf(Config{Dim: 13706, Radius: .01, Eps0: 1.5})))
}

func BenchmarkRR(b *testing.B) {
	benchMechanism(b, must(newRR(Config{Dim: 4420, Radius: 1, Eps0: 8})))
}

func BenchmarkDiscreteGaussian(b *testing.B) {
	benchMechanism(b, must(NewDiscreteGaussian(DiscreteGaussianConfig{Dim: 4420, Radius: 1, Sigma: 1})))
}

func BenchmarkRInf8(b *testing.B) {
	benchMechanism(b, must(newRInf(Config{Dim: 13706, Radius: .01, Eps0: 17, Bits: 8})))
}

func BenchmarkR1(b *testing.B) {
	for _, count := range []int{1, 2} {
		m := must(newR1(Config{Dim: 4420, Radius: 1, Eps0: 4, Bits: count}))
		b.Run(fmt.Sprintf("bits=%d", count), func(b *testing.B) { benchMechanism(b, m) })
	}
	b.Run("row", func(b *testing.B) {
		x := benchInput(4420)
		for b.Loop() {
			hadamardRow(x, 1234)
		}
		perValue(b, len(x))
	})
	b.Run("Add", func(b *testing.B) {
		sum := make([]int64, 4420)
		for b.Loop() {
			addRow(sum, 1234, false)
		}
		perValue(b, len(sum))
	})
}

func BenchmarkR2(b *testing.B) {
	benchMechanism(b, must(newR2(Config{Dim: 4420, Radius: 1, Eps0: 3})))
}

func BenchmarkKRR(b *testing.B) {
	m := must(newKRR(Config{Dim: 16, Eps0: 2}))
	b.Run("weights", func(b *testing.B) { benchMechanism(b, m) })
	b.Run("Symbol", func(b *testing.B) {
		src := rng.Replay(1)
		b.ReportAllocs()
		for b.Loop() {
			m.symbol(src, 3)
		}
	})
}

func BenchmarkLaplace(b *testing.B) {
	benchMechanism(b, must(newLaplace(Config{Dim: 4420, Radius: 1, Eps0: 2})))
}

func BenchmarkClipNorm(b *testing.B) {
	x := benchInput(4420)
	for b.Loop() {
		ClipNorm(x, 2, .25)
	}
	perValue(b, len(x))
}
