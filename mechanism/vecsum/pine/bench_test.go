package pine

import (
	"fmt"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

func BenchmarkReport(b *testing.B) {
	for _, field := range []int{64, 128} {
		for _, d := range []int{1930, 13706} {
			p, err := New(Config{Dim: d, Bound: 1 << 15, Field: field})
			if err != nil {
				b.Fatal(err)
			}
			x := make([]int64, d)
			for i := range x {
				x[i] = int64(i%200) - 100
			}
			src := rng.Replay(1)
			b.Run(fmt.Sprintf("client/%d/%d", field, d), func(b *testing.B) {
				for b.Loop() {
					if _, _, err := p.Shard(src, Nonce{}, x); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(p.sizes.Input[0]+p.sizes.Public), "leader-bytes")
				b.ReportMetric(float64(p.sizes.Prep), "prep-bytes")
			})
			public, in, err := p.Shard(src, Nonce{}, x)
			if err != nil {
				b.Fatal(err)
			}
			for i, role := range []string{"leader", "helper"} {
				b.Run(fmt.Sprintf("%s/%d/%d", role, field, d), func(b *testing.B) {
					_, other, err := p.PrepInit(VerifyKey{1}, 1-i, Nonce{}, public, in[1-i])
					if err != nil {
						b.Fatal(err)
					}
					sum := make([]byte, p.sizes.Out)
					for b.Loop() {
						state, prep, err := p.PrepInit(VerifyKey{1}, i, Nonce{}, public, in[i])
						if err != nil {
							b.Fatal(err)
						}
						both := [2][]byte{prep, other}
						if i == 1 {
							both = [2][]byte{other, prep}
						}
						m, err := p.PrepMessage(both[0], both[1])
						if err != nil {
							b.Fatal(err)
						}
						out, err := p.PrepNext(state, m)
						if err != nil {
							b.Fatal(err)
						}
						if err := p.Add(sum, out); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
