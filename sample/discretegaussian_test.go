package sample

import (
	"fmt"
	"math"
	"math/big"
	"testing"
)

func TestDiscreteGaussianLaw(t *testing.T) {
	n := draws(t, 400_000)
	for i, v := range []Ratio{{1, 6}, {1, 3}, {1, 1}, {9, 4}, {4, 1}, {250, 1}, {1 << 56, 1 << 50}} {
		g, err := NewDiscreteGaussian(v)
		if err != nil {
			t.Fatal(err)
		}
		variance := float64(v.Num) / float64(v.Den)
		src := source(30, uint64(i))
		const half = 600
		counts, probs := make([]int64, 2*half+1), make([]float64, 2*half+1)
		for range n {
			if k := g.Draw(src); k >= -half && k <= half {
				counts[k+half]++
			}
		}
		var total float64
		for k := range probs {
			probs[k] = math.Exp(-float64((k-half)*(k-half)) / (2 * variance))
			total += probs[k]
		}
		for k := range probs {
			probs[k] /= total
		}
		chiSquare(t, fmt.Sprintf("discrete Gaussian %v", v), counts, probs, n)
		// The ratio of neighbours beyond σ, what privacy rests on.
		k := int64(math.Sqrt(variance)) + 1
		a, b := counts[half+k]+counts[half-k], counts[half+k+1]+counts[half-k-1]
		if a+b > 0 {
			r := math.Exp(-float64(2*k+1) / (2 * variance))
			proportion(t, fmt.Sprintf("discrete Gaussian %v, ratio at %d", v, k), b, a+b, r/(1+r))
		}
	}
}

// A wide law against the continuous one, in 64 cells; at σ ≈ 1.6e8 they agree
// to 1e-8 in every cell. The denominators here need all 128 bits.
func TestWideDiscreteGaussian(t *testing.T) {
	n := draws(t, 200_000)
	for i, v := range []Ratio{{1 << 56, 1}, {1<<56 - 1, 3}, {1 << 55, 1<<20 - 1}} {
		g, err := NewDiscreteGaussian(v)
		if err != nil {
			t.Fatal(err)
		}
		sigma := math.Sqrt(float64(v.Num) / float64(v.Den))
		src := source(31, uint64(i))
		counts, probs := make([]int64, 66), make([]float64, 66)
		cell := func(x float64) int { return int(math.Max(0, math.Min(65, math.Floor(8*x)+33))) }
		for range n {
			counts[cell((float64(g.Draw(src))+.5)/sigma)]++
		}
		cdf := func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
		for c := range probs {
			lo, hi := float64(c-33)/8, float64(c-32)/8
			if c == 0 {
				lo = math.Inf(-1)
			}
			if c == 65 {
				hi = math.Inf(1)
			}
			probs[c] = cdf(hi) - cdf(lo)
		}
		chiSquare(t, fmt.Sprintf("wide discrete Gaussian %v", v), counts, probs, n)
	}
}

func TestDiscreteGaussianRefuses(t *testing.T) {
	for _, v := range []Ratio{{}, {0, 1}, {1, 0}, {1<<56 + 1, 1}, {1, 1<<56 + 1}} {
		if _, err := NewDiscreteGaussian(v); err == nil {
			t.Errorf("sigma^2 = %v was accepted", v)
		}
	}
}

// A proposal so far out that its exponent does not fit is refused, not wrapped.
func TestDiscreteGaussianRefusesFarProposals(t *testing.T) {
	g, err := NewDiscreteGaussian(Ratio{1 << 56, 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []uint64{1 << 62, 1 << 63, 1<<64 - 1, 1 << 36} {
		if g.accept(source(32), a) {
			t.Errorf("proposal %d at sigma 2^28 was accepted", a)
		}
	}
}

// The exponent's denominator 2·num·den·t² to the last bit: a few percent there
// would hide in the noise of the tests above.
func TestDiscreteGaussianExponent(t *testing.T) {
	for _, v := range []Ratio{{1, 6}, {9, 4}, {17, 1}, {1<<32 + 5, 1}, {1 << 56, 1}, {1<<56 - 1, 3}, {1 << 55, 1<<20 - 1}, {3, 1 << 56}} {
		g, err := NewDiscreteGaussian(v)
		if err != nil {
			t.Fatal(err)
		}
		whole := func(n uint64) *big.Int { return new(big.Int).SetUint64(n) }
		want := new(big.Int).Mul(whole(2*v.Num), whole(v.Den))
		want.Mul(want, whole(g.t)).Mul(want, whole(g.t))
		got := new(big.Int).Lsh(whole(g.dhi), 64)
		if got.Add(got, whole(g.dlo)).Cmp(want) != 0 {
			t.Errorf("%v: denominator %v, want %v", v, got, want)
		}
		if g.td != g.t*v.Den || g.num != v.Num || g.t != uint64(math.Sqrt(float64(v.Num/v.Den)))+1 {
			t.Errorf("%v: scale %d, times denominator %d", v, g.t, g.td)
		}
	}
}

func TestIsqrt(t *testing.T) {
	for _, r := range []uint64{1, 2, 3, 1000, 1<<28 - 1, 1 << 28, 1<<31 - 1} {
		if isqrt(r*r) != r || isqrt(r*r-1) != r-1 || isqrt(r*r+2*r) != r {
			t.Errorf("isqrt fails around %d²", r)
		}
	}
	if isqrt(0) != 0 {
		t.Error("isqrt(0)")
	}
}

// The comparison with a 128-bit fraction, to its last bit and with refusals.
func TestBelowIsExact(t *testing.T) {
	g := &DiscreteGaussian{dhi: 5, dlo: 100}
	for _, c := range []struct {
		words  []uint64
		hi, lo uint64
		want   bool
	}{
		{[]uint64{2, 7}, 2, 8, true},
		{[]uint64{2, 8}, 2, 8, false},
		{[]uint64{1, 1 << 63}, 2, 8, true},
		{[]uint64{3, 0}, 2, 8, false},
		{[]uint64{1<<3 | 2, 7}, 2, 8, true}, // bits above the denominator's are ignored
		{[]uint64{5, 99}, 5, 99, false},
		{[]uint64{5, 98}, 5, 99, true},
		{[]uint64{5, 100, 0, 0}, 0, 1, true},
		{[]uint64{6, 0, 7, 1, 0, 1}, 0, 1, false},
	} {
		s := &script{t, c.words}
		if got := g.below(s, c.hi, c.lo); got != c.want || len(s.words) != 0 {
			t.Errorf("%v below (%d,%d): %v with %d words left", c.words, c.hi, c.lo, got, len(s.words))
		}
	}
}
