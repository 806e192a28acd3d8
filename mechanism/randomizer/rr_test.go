package randomizer

import (
	"fmt"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// bitLaw returns P[+1] and P[−1] of randomizedBit from the parameters its two
// exact coins are given.
func bitLaw(x, a, eps0 float64) (plus, minus float64) {
	b, flip := bitProbability(x, a), 1/(1+math.Exp(eps0))
	keep := 1 / (1 + math.Exp(-eps0))
	return b*keep + (1-b)*flip, (1-b)*keep + b*flip
}

// inputs covers [−a, a], its ends to the last bit, and what is mapped into it.
func inputs(a float64) []float64 {
	list := []float64{-a, a, 0, math.Nextafter(a, 0), -math.Nextafter(a, 0), 1e-300, math.NaN(), math.Inf(1), math.Inf(-1), 2 * a, -1e30}
	for k := range 41 {
		list = append(list, a*float64(k-20)/20)
	}
	return list
}

// All outputs enumerated, all pairs of inputs: the likelihood ratio never
// exceeds E, and reaches it at ±a (else the bound would be for nothing).
// Products of d bits, each of ε₀/d, cover RR; the mixture over coordinates
// covers R_∞, whose coordinate does not depend on the input.
func TestBitRatioIsExact(t *testing.T) {
	for _, a := range []float64{1, .01, 3e10} {
		for _, eps0 := range []float64{1e-6, .1, 1, 2, 8, 20, 36} {
			var largest float64
			for _, x := range inputs(a) {
				p, m := bitLaw(x, a, eps0)
				if math.Abs(p+m-1) > 1e-15 {
					t.Fatalf("law sums to %v", p+m)
				}
				for _, y := range inputs(a) {
					q, n := bitLaw(y, a, eps0)
					largest = math.Max(largest, math.Max(p/q, m/n))
				}
			}
			if got := math.Log(largest); math.Abs(got-eps0) > 1e-14*math.Max(1, eps0) {
				t.Errorf("a = %v, eps0 = %v: largest log-ratio %.17g", a, eps0, got)
			}
		}
	}
}

// The bits of one report together spend no more than ε₀, in real arithmetic.
func TestRRSplitsEps0Safely(t *testing.T) {
	for dim := 1; dim < 300; dim++ {
		for _, eps0 := range []float64{.1, 1, math.Pi, 49.99} {
			m := as[*rr](newRR(Config{Dim: dim, Radius: 1, Eps0: eps0}))
			// float64(dim)·each rounded towards −∞ is checked by the remainder
			// of a fused multiply-add, which is exact in sign.
			if math.FMA(float64(dim), m.each, -eps0) > 0 {
				t.Errorf("%d bits of %v exceed %v", dim, m.each, eps0)
			}
			if m.each < eps0/float64(dim)*(1-1e-15) {
				t.Errorf("%d bits of %v waste some of %v", dim, m.each, eps0)
			}
		}
	}
}

// The sampled frequencies are those of the law just checked.
func TestBitFrequencies(t *testing.T) {
	t.Parallel()
	n := longtest.Pick[int64](100_000, 400_000)
	if testing.Short() {
		n = 50_000
	}
	for i, eps0 := range []float64{.2, 1.5, 6} {
		for j, x := range []float64{-1, -.3, 0, .77, 1, 5} {
			src := source(20, uint64(i), uint64(j))
			var hits int64
			for range n {
				if randomizedBit(src, x, 1, eps0) == 1 {
					hits++
				}
			}
			plus, _ := bitLaw(x, 1, eps0)
			proportion(t, fmt.Sprintf("eps0 = %v, x = %v", eps0, x), hits, n, plus)
		}
	}
}

// Whole reports of R_∞: every (coordinate, bit) with the probability 1/d times
// the bit's.
func TestRInfLaw(t *testing.T) {
	const dim = 7
	n := 600_000
	if testing.Short() {
		n /= 8
	}
	m := must(newRInf(Config{Dim: dim, Radius: 1, Eps0: 1.2}))
	x := []float32{-1, -.5, 0, .25, 1, 9, float32(math.NaN())}
	counts, probs := make([]int64, 2*dim), make([]float64, 2*dim)
	r, src := m.NewReport(), source(21)
	for range n {
		m.Randomize(src, x, r)
		counts[2*r.Index[0]+uint32(r.Value[0]+1)/2]++
	}
	for j, v := range x {
		plus, minus := bitLaw(float64(v), 1, 1.2)
		probs[2*j], probs[2*j+1] = minus/dim, plus/dim
	}
	chiSquare(t, "R_inf", counts, probs)
}

// variation is the total variation of m bits that all differ, by summing over all outcomes.
func variation(m int, eps0 float64) float64 {
	var sum float64
	for bits := range 1 << m {
		p, q := 1., 1.
		for i := range m {
			right, wrong := 1/(1+math.Exp(-eps0)), 1/(1+math.Exp(eps0))
			if bits>>i&1 == 1 {
				right, wrong = wrong, right
			}
			p, q = p*right, q*wrong
		}
		sum += math.Max(0, p-q)
	}
	return sum
}

func TestExactRandomizersHaveNoSlack(t *testing.T) {
	less := math.Expm1(1.25)
	for _, c := range []struct {
		m    Randomizer
		want dp.Report
	}{
		{must(newRR(Config{Dim: 1, Radius: 1, Eps0: 1.25})), dp.Report{Class: dp.BinaryRR, Eps0: 1.25}},
		{must(newRR(Config{Dim: 2, Radius: 1, Eps0: 1.25})), dp.Report{Class: dp.Generic, Eps0: 1.25, TV: variation(2, 1.25/2) / less}},
		{must(newRR(Config{Dim: 3, Radius: 1, Eps0: 1.25})), dp.Report{Class: dp.Generic, Eps0: 1.25, TV: variation(3, 1.25/3) / less}},
		{must(newRInf(Config{Dim: 1, Radius: 1, Eps0: 1.25})), dp.Report{Class: dp.Generic, Eps0: 1.25}},
		{must(newRInf(Config{Dim: 9, Radius: 1, Eps0: 1.25})), dp.Report{Class: dp.Generic, Eps0: 1.25}},
		{must(newRInf(Config{Dim: 9, Radius: 1, Eps0: 1.25, Bits: 2})), dp.Report{Class: dp.Generic, Eps0: 1.25, TV: math.Tanh(1.25/4) / less}},
		{must(newRInf(Config{Dim: 9, Radius: 1, Eps0: 1.25, Bits: 7})), dp.Report{Class: dp.Generic, Eps0: 1.25, TV: variation(7, 1.25/7) / less}},
		{must(newR1(Config{Dim: 9, Radius: 1, Eps0: 1.25, Bits: 7})), dp.Report{Class: dp.Generic, Eps0: 1.25, TV: variation(7, 1.25/7) / less}},
		{must(newLaplace(Config{Dim: 9, Radius: 1, Eps0: 1.25})), dp.Report{Class: dp.LaplaceL1, Eps0: 1.25}},
		{must(newKRR(Config{Dim: 2, Eps0: 1.25})), dp.Report{Class: dp.BinaryRR, Eps0: 1.25}},
		{must(newKRR(Config{Dim: 9, Eps0: 1.25})), dp.Report{Class: dp.KRR, Eps0: 1.25, Symbols: 9}},
	} {
		got := c.m.Event()
		// A total variation is rounded up.
		if rest := got.TV - c.want.TV; rest >= 0 && rest <= 1e-11 {
			got.TV = c.want.TV
		}
		if got != c.want {
			t.Errorf("%s promises %+v, want %+v", label(c.m), got, c.want)
		}
	}
}

// Of inputs that are not at the ends of the cube, and of many bits, the total variation is at
// most what is promised.
func TestBitsTotalVariation(t *testing.T) {
	for _, eps0 := range []float64{1e-5, .4, 3, 12} {
		last := 0.
		for _, dim := range []int{2, 3, 10, 101, 5000, 1 << 20} {
			tv := must(newRR(Config{Dim: dim, Radius: 1, Eps0: eps0})).Event().TV * math.Expm1(eps0)
			if tv == 0 {
				t.Errorf("eps0 = %v, d = %d: no total variation", eps0, dim)
			}
			// Of many bits it is that of normal laws whose means differ by √d·tanh(ε₀/2d)·2.
			if want := math.Erf(math.Sqrt(float64(dim)/2) * math.Tanh(eps0/float64(2*dim))); dim > 100 && eps0 < 5 && math.Abs(tv/want-1) > 3e-3 {
				t.Errorf("eps0 = %v, d = %d: total variation %v, about %v", eps0, dim, tv, want)
			}
			if dim > 10 && tv > last {
				t.Errorf("eps0 = %v, d = %d: total variation %v rises from %v", eps0, dim, tv, last)
			}
			last = tv
		}
	}
}

func TestBits(t *testing.T) {
	for _, c := range []struct {
		m    Mechanism
		want int
	}{
		{must(newRInf(Config{Dim: 1, Radius: 1, Eps0: 1})), 1},
		{must(newRInf(Config{Dim: 2, Radius: 1, Eps0: 1})), 2},
		{must(newRInf(Config{Dim: 1024, Radius: 1, Eps0: 1})), 11},
		{must(newRInf(Config{Dim: 1025, Radius: 1, Eps0: 1})), 12},
		{must(newRInf(Config{Dim: 1025, Radius: 1, Eps0: 6, Bits: 3})), 36},
		{must(newR1(Config{Dim: 1, Radius: 1, Eps0: 1})), 1},
		{must(newR1(Config{Dim: 1024, Radius: 1, Eps0: 1})), 11},
		{must(newR1(Config{Dim: 1025, Radius: 1, Eps0: 6, Bits: 3})), 36},
		{must(newKRR(Config{Dim: 2, Eps0: 1})), 1},
		{must(newKRR(Config{Dim: 9, Eps0: 1})), 4},
		{must(newR2(Config{Dim: 100, Radius: 1, Eps0: 1})), 1800},
		{must(newLaplace(Config{Dim: 10, Radius: 1, Eps0: 1})), 10 * 25}, // 2^16 + 127·2^17 and a sign
		{must(newRR(Config{Dim: 9, Radius: 1, Eps0: 1})), 9},
		{must(newPrivUnit(Config{Dim: 100, Radius: 1, Eps0: 1})), 1800},
		{must(NewDiscreteGaussian(DiscreteGaussianConfig{10, 1, 1})), 10 * 23}, // 2^16 + 1 + 40·2^16 and a sign
		{must(newSignedKRR(Config{Dim: 1, Radius: 1, Eps0: 1})), 1},
		{must(newSignedKRR(Config{Dim: 1025, Radius: 1, Eps0: 1})), 12},
	} {
		if got := c.m.Facts().Bits; got != c.want {
			t.Errorf("%s: %d bits, want %d", label(c.m), got, c.want)
		}
	}
}

// Which report belongs to which randomness is part of every recorded run.
func TestReportSequences(t *testing.T) {
	x := []float32{.9, -.2, .05, 0, -.3}
	for _, c := range []struct {
		m    Mechanism
		want string
	}{
		{must(newRInf(Config{Dim: 5, Radius: 1, Eps0: 1})), "[2] [1] [3] [-1] [3] [1] "},
		{must(newRR(Config{Dim: 5, Radius: 1, Eps0: 5})), "[] [1 1 1 -1 1] [] [1 -1 -1 -1 -1] [] [1 1 1 -1 1] "},
		{must(newRInf(Config{Dim: 5, Radius: 1, Eps0: 6, Bits: 3})), "[0 1 4] [1 -1 -1] [1 2 3] [-1 -1 1] [0 1 2] [1 -1 1] "},
		{must(newR1(Config{Dim: 5, Radius: 1, Eps0: 1})), "[3] [1] [5] [-1] [5] [1] "},
		{must(newR1(Config{Dim: 5, Radius: 1, Eps0: 6, Bits: 3})), "[0 1 2] [1 -1 -1] [2 3 4] [-1 -1 1] [1 2 4] [-1 1 1] "},
		{must(newKRR(Config{Dim: 5, Eps0: 1})), "[0] [1] [2] [1] [0] [1] "},
		{must(newSignedKRR(Config{Dim: 5, Radius: 1, Eps0: 3})), "[1] [-1] [1] [-1] [2] [1] "},
		{must(newR2(Config{Dim: 5, Radius: 1, Eps0: 3})), "[] [2663 -18673 17346 -29896 -52377] [] [-3837 -56091 21621 -20767 15283] [] [36099 9174 30973 -12152 -42454] "},
		{must(newLaplace(Config{Dim: 5, Radius: 1, Eps0: 3})), "[] [46623 -61292 -3567 -11548 6021] [] [45761 15991 16910 52022 -38439] [] [117786 6713 -15138 -29238 -159814] "},
		{must(newPrivUnit(Config{Dim: 5, Radius: 1, Eps0: 3})), "[] [2663 -18673 17346 -29896 -52377] [] [45437 -42558 14971 -11838 -7163] [] [41626 5840 27733 -10664 -40571] "},
		{must(NewDiscreteGaussian(DiscreteGaussianConfig{5, 1, .5})), "[] [47434 -1719 -13171 44175 -72219] [] [98716 -33891 10810 -69997 27174] [] [37936 -17132 16196 19278 -53367] "},
	} {
		var got string
		for k := range uint64(3) {
			r := c.m.NewReport()
			c.m.Randomize(source(22, k), x, r)
			got += fmt.Sprint(r.Index, r.Value, " ")
		}
		if got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.m.Facts().Name, got, c.want)
		}
	}
}
