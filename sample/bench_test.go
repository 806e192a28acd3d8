package sample

import (
	"testing"

	"github.com/riffle-dp/riffle/rng"
)

func BenchmarkGaussian(b *testing.B) {
	for _, n := range []int{512, 4420} {
		b.Run(map[int]string{512: "512", 4420: "4420"}[n], func(b *testing.B) {
			src := rng.Replay(1)
			dst := make([]float64, n)
			for b.Loop() {
				Gaussian(src, dst)
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mvalues/s")
		})
	}
}
