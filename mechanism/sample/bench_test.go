package sample

import (
	"fmt"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

func BenchmarkGaussian(b *testing.B) {
	for _, n := range []int{64, 512, 4420} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			src := rng.Replay(1)
			dst := make([]float64, n)
			for b.Loop() {
				Gaussian(src, dst)
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mvalues/s")
		})
	}
}

func BenchmarkOne(b *testing.B) {
	src := rng.Replay(1)
	g, err := NewDiscreteGaussian(Ratio{1 << 33, 1})
	if err != nil {
		b.Fatal(err)
	}
	var sink int64
	for _, c := range []struct {
		name string
		draw func()
	}{
		{"Uniform", func() { sink += int64(Uniform(src, 4420)) }},
		{"Bernoulli", func() { Bernoulli(src, .3) }},
		{"BernoulliExp", func() { bernoulliExp(src, 1.5) }},
		{"Flip", func() { Flip(src, 1.5) }},
		{"Laplace", func() { sink += Laplace(src, Ratio{1 << 16, 1}) }},
		{"DiscreteGaussian", func() { sink += g.Draw(src) }},
		{"Normal", func() { sink += int64(Normal(src)) }},
		{"Exponential", func() { sink += int64(Exponential(src)) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				c.draw()
			}
		})
	}
}

func BenchmarkSubset(b *testing.B) {
	src := rng.Replay(1)
	var dst []int
	for _, c := range []struct{ n, k int }{{60_000, 10_000}, {10_000_000, 1000}} {
		b.Run(fmt.Sprintf("%d of %d", c.k, c.n), func(b *testing.B) {
			for b.Loop() {
				dst = Subset(src, dst[:0], c.n, c.k)
			}
		})
	}
}

func BenchmarkShuffle(b *testing.B) {
	src := rng.Replay(1)
	s := make([]uint32, 60_000)
	for b.Loop() {
		Shuffle(src, s)
	}
}

func BenchmarkTable(b *testing.B) {
	for _, n := range []int64{64, 1000, 100_000, 10_000_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			t, err := NewBinomial(n, .5)
			if err != nil {
				b.Fatal(err)
			}
			src := rng.Replay(1)
			dst := make([]int64, 4096)
			for b.Loop() {
				t.Fill(src, dst)
			}
			b.ReportMetric(4096*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mvalues/s")
		})
	}
}

func BenchmarkNewBinomial(b *testing.B) {
	for b.Loop() {
		if _, err := NewBinomial(1e10, .5); err != nil {
			b.Fatal(err)
		}
	}
}
