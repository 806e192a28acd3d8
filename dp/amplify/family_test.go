package amplify

import (
	"fmt"
	"testing"
)

func BenchmarkFamilyRound(b *testing.B) {
	for _, k := range []int64{200, 1e3, 1e4, 1e6, 1e9, 1e12} {
		for _, K := range []int{3, 20, 1000} {
			b.Run(fmt.Sprintf("krr%d/%.0e", K, float64(k)), func(b *testing.B) {
				f, _ := KRR(2, K)
				for b.Loop() {
					if _, err := f.Round(FamilyRound{Population: 10 * k, Reports: k}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
	b.Run("krr20/check-in", func(b *testing.B) {
		f, _ := KRR(1, 20)
		for b.Loop() {
			if _, err := f.Arrival(FamilyArrival{Population: 1e7, Asked: 1e7, Gamma: 1e-3}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkBinaryRound(b *testing.B) {
	for _, k := range []int64{200, 1e3, 1e4, 1e6, 1e8, 1e9} {
		b.Run(fmt.Sprintf("%.0e", float64(k)), func(b *testing.B) {
			f, _ := RR2(2)
			for b.Loop() {
				if _, err := f.Round(FamilyRound{Population: 10 * k, Reports: k}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("check-in", func(b *testing.B) {
		f, _ := RR2(1)
		for b.Loop() {
			if _, err := f.Arrival(FamilyArrival{Population: 1e7, Asked: 1e7, Gamma: 1e-3}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
