package amplify

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// The bound for all inputs at once is never below the divergence of any choice of inputs, summed over
// all counts, and near the largest of them: by z³/(3√V) of δ, which is z/(3√V) of ε.
func TestManyBinaryReportsAgainstExact(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 9))
	for _, c := range []struct {
		eps0     float64
		variance float64
	}{{.05, 1e4}, {1, 1e4}, {1, 3e5}, {3, 1e5}, {8, 2e4}, {8, 1e6}} {
		s := math.Exp(-c.eps0)
		others := int64(c.variance / (s / ((1 + s) * (1 + s))))
		b := newBinary(c.eps0, others+1, 2e7, 512)
		u := b.axis.u
		over, all, most := make([]float64, len(u)), make([]float64, len(u)), make([]float64, len(u))
		for i, x := range u {
			over[i] = math.Expm1(b.loss(x, 1))
		}
		b.raiseAll(all, over, others)
		for _, ones := range []int64{0, others, others / 2, others / 3, r.Int64N(others), 1 + r.Int64N(others/10), others - r.Int64N(others/10)} {
			one := make([]float64, len(u))
			b.raise(one, over, ones, others-ones)
			for i, v := range one {
				// raise adds up to this for rounding.
				if less := v * (1 - 1e-9); less > all[i] && less > 1e-90 {
					t.Errorf("eps0 = %v, %d others, %d of them hold 1, eps = %v: divergence %v, bound %v", c.eps0, others, ones, math.Log1p(over[i]), v, all[i])
				}
				most[i] = math.Max(most[i], v)
			}
		}
		for i, v := range most {
			z := math.Sqrt(-2 * math.Log(v*math.Sqrt(c.variance))) // about so many deviations
			if !(v > 1e-30) || math.IsNaN(z) {
				continue
			}
			if room := (1 + z*z*z) / math.Sqrt(c.variance); !(all[i] <= v*(1+room)) {
				t.Errorf("eps0 = %v, %d others, eps = %v: bound %v, a choice of inputs has %v", c.eps0, others, math.Log1p(over[i]), all[i], v)
				break
			}
		}
	}
}

// On either side of the border between sum and bound ε is alike.
func TestManyBinaryReportsAtTheBorder(t *testing.T) {
	round := func(eps0 float64, k int64) dp.Pair {
		c, err := must(RR2(eps0)).Round(FamilyRound{Population: k, Reports: k})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	at := func(c dp.Pair, eps0, delta float64) float64 {
		lo, hi := 0., eps0
		for range 50 {
			mid := (lo + hi) / 2
			if deltaOf(c, mid) > delta {
				lo = mid
			} else {
				hi = mid
			}
		}
		return hi
	}
	for _, eps0 := range longtest.Pick([]float64{.5}, []float64{.5, 6}) {
		s := math.Exp(-eps0)
		k := int64(maxSummed/(s/((1+s)*(1+s)))) + 1
		below, above := round(eps0, k-1), round(eps0, k+2)
		for _, delta := range []float64{1e-6, 1e-20} {
			summed, bounded := at(below, eps0, delta), at(above, eps0, delta)
			if !(bounded < summed*(1+1e-5)) || !(bounded > summed*(1-6e-3)) {
				t.Errorf("eps0 = %v, delta = %v, k = %d: epsilon %v by the sum, %v by the bound", eps0, delta, k, summed, bounded)
			}
		}
	}
}

// With ever more reports δ at z deviations tends to the normal law's, from above.
func TestManyBinaryReportsTendToTheNormalLaw(t *testing.T) {
	for _, eps0 := range []float64{.01, 1, 5, 12} {
		s := math.Exp(-eps0)
		for _, k := range []int64{1e11, 1e13, 1 << 52} {
			variance := float64(k-1) * s / ((1 + s) * (1 + s))
			if variance < maxSummed {
				continue
			}
			c, err := must(RR2(eps0)).Round(FamilyRound{Population: k, Reports: k})
			if err != nil {
				t.Fatal(err)
			}
			mu := math.Tanh(eps0/2) / math.Sqrt(variance)
			for _, z := range []float64{0, 1, 3, 6, 10} {
				normal := mu * (math.Exp(-z*z/2)/math.Sqrt(2*math.Pi) - z*math.Erfc(z/math.Sqrt2)/2)
				// 4e-4: chords between nodes, for δ.
				got, room := deltaOf(c, mu*z), (1+z)*(1+z)*4e-4+z*z*z/math.Sqrt(variance)
				if !(got > normal*(1-2/math.Sqrt(variance)*(1+z*z*z))) || !(got < normal*(1+room)) {
					t.Errorf("eps0 = %v, k = %d, z = %v: delta %v, normal law %v", eps0, k, z, got, normal)
				}
			}
		}
	}
}
