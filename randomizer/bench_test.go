package randomizer

import (
	"testing"

	"github.com/riffle-dp/riffle/rng"
	"github.com/riffle-dp/riffle/sample"
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
	m, err := NewPrivUnit(PrivUnitConfig{Dim: dim, Radius: 1, Eps0: 3})
	if err != nil {
		b.Fatal(err)
	}
	x, r, sum := benchInput(dim), m.NewReport(), make([]int64, dim)
	src := rng.NewStream(1)
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
			NewPrivUnit(PrivUnitConfig{Dim: dim, Radius: 1, Eps0: 3})
		}
	})
}

func benchMechanism(b *testing.B, m Mechanism) {
	x, r, sum := benchInput(m.Dim()), m.NewReport(), make([]int64, m.Dim())
	src := rng.NewStream(1)
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

func BenchmarkRInf(b *testing.B) {
	benchMechanism(b, must(NewRInf(RInfConfig{Dim: 13706, Radius: .01, Eps0: 1.5})))
}

func BenchmarkRR(b *testing.B) {
	benchMechanism(b, must(NewRR(RRConfig{Dim: 4420, Radius: 1, Eps0: 8})))
}

func BenchmarkDiscreteGaussian(b *testing.B) {
	benchMechanism(b, must(NewDiscreteGaussian(DiscreteGaussianConfig{Dim: 4420, Radius: 1, Sigma: 1})))
}

func BenchmarkClipNorm(b *testing.B) {
	x := benchInput(4420)
	for b.Loop() {
		ClipNorm(x, 2, .25)
	}
	perValue(b, len(x))
}
