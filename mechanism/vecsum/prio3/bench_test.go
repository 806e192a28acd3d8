package prio3

import (
	"fmt"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// One report, M = 511: 9 digits a count. Encrypting and sending are not in it.
func BenchmarkReport(b *testing.B) {
	for _, d := range []int{100, 1000} {
		p := vecsum.Params{Users: 1 << 40, MinUsers: 1, Dim: d, Radius: 1, Grid: 355, Norm: vecsum.Norm(d, 355, vecsum.NormBeta),
			Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: 156}}
		s := mustNew(b, p)
		src := rng.Replay(1)
		counts := make([]int64, d)
		for j := range counts {
			counts[j] = int64(src.Uint64() % 512)
		}
		b.Run(fmt.Sprint("client/", d), func(b *testing.B) {
			for b.Loop() {
				if _, err := s.Messages(src, counts); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(s.Cost().Bytes), "bytes/report")
		})
		for i, role := range []string{"leader", "helper"} {
			b.Run(fmt.Sprint(role, "/", d), func(b *testing.B) {
				all := pair(b, s)
				for b.Loop() {
					b.StopTimer()
					ms, err := s.Messages(src, counts)
					if err != nil {
						b.Fatal(err)
					}
					other, err := all[1-i].Begin(ms[1-i])
					if err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
					if _, err := all[i].Begin(ms[i]); err != nil {
						b.Fatal(err)
					}
					if err := all[i].Finish(other); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(s.prepSize()), "prep-bytes/report")
			})
		}
	}
}
