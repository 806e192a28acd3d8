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

// eighths compares values with a continuous law's distribution function, in cells of
// an eighth of its width up to reach widths on both sides, and what lies beyond.
func eighths(t *testing.T, name string, values []int64, width float64, reach int, cdf func(float64) float64) {
	t.Helper()
	half := 8 * reach
	counts, probs := make([]int64, 2*half+2), make([]float64, 2*half+2)
	for _, k := range values {
		cell := math.Floor(8*(float64(k)+.5)/width) + float64(half+1)
		counts[int(math.Max(0, math.Min(float64(2*half+1), cell)))]++
	}
	below := 0.
	for c := range probs {
		up := 1.
		if c <= 2*half {
			up = cdf(float64(c-half) / 8)
		}
		probs[c], below = up-below, up
	}
	chiSquare(t, name, counts, probs, int64(len(values)))
}

// Wide laws against the continuous ones; at σ ≈ 1.6e8 they agree to 1e-8 in every
// cell.
func TestWideDiscreteGaussian(t *testing.T) {
	values := make([]int64, draws(t, 200_000))
	for i, v := range []Ratio{{1 << 56, 1}, {1<<56 - 1, 3}, {1 << 55, 1<<20 - 1}} {
		g, err := NewDiscreteGaussian(v)
		if err != nil {
			t.Fatal(err)
		}
		g.Fill(source(31, uint64(i)), values)
		eighths(t, fmt.Sprintf("wide discrete Gaussian %v", v), values, math.Sqrt(float64(v.Num)/float64(v.Den)), 4,
			func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 })
	}
}

func TestWideLaplace(t *testing.T) {
	values := make([]int64, draws(t, 400_000))
	for i, v := range []Ratio{{1 << 20, 1}, {1<<56 - 1, 1 << 27}, {1 << 30 * 3, 7}} {
		l, err := NewLaplace(v)
		if err != nil {
			t.Fatal(err)
		}
		l.Fill(source(33, uint64(i)), values)
		eighths(t, fmt.Sprintf("wide Laplace %v", v), values, float64(v.Num)/float64(v.Den), 10, func(x float64) float64 {
			if x < 0 {
				return math.Exp(x) / 2
			}
			return 1 - math.Exp(-x)/2
		})
	}
}

func TestDiscreteGaussianRefuses(t *testing.T) {
	for _, v := range []Ratio{{}, {0, 1}, {1, 0}, {1<<56 + 1, 1}, {1, 1<<56 + 1}} {
		if _, err := NewDiscreteGaussian(v); err == nil {
			t.Errorf("sigma^2 = %v was accepted", v)
		}
	}
}

func TestLaplaceRefuses(t *testing.T) {
	for _, v := range []Ratio{{}, {0, 1}, {1, 0}, {1<<56 + 1, 1 << 30}, {1, 1<<56 + 1}, {1 << 30, 1}} {
		if _, err := NewLaplace(v); err == nil {
			t.Errorf("scale %v was accepted", v)
		}
	}
}

// The exponential that decides last: e^−1 to 60 digits, and e^−(x+y) = e^−x·e^−y
// to all that are promised.
func TestExpRatio(t *testing.T) {
	whole := func(n int64) *big.Int { return big.NewInt(n) }
	if got := expRatio(whole(1), whole(1), 220).Text('g', 60); got != "0.367879441171442321595523770161460867445811131031767834507837" {
		t.Errorf("e^-1 = %s", got)
	}
	if got, _ := expRatio(whole(0), whole(7), 100).Float64(); got != 1 {
		t.Errorf("e^0 = %v", got)
	}
	for _, prec := range []uint{100, 192, 1000} {
		for _, c := range [][4]int64{{1, 3, 2, 7}, {40, 1, 1, 1 << 50}, {1 << 40, 3, 9, 10}, {4000, 1, 300, 1}, {1, 1 << 60, 1, 1 << 59}} {
			sum := new(big.Int).Add(new(big.Int).Mul(whole(c[0]), whole(c[3])), new(big.Int).Mul(whole(c[2]), whole(c[1])))
			want := expRatio(sum, new(big.Int).Mul(whole(c[1]), whole(c[3])), prec)
			got := newFloat(2*prec).Mul(expRatio(whole(c[0]), whole(c[1]), prec), expRatio(whole(c[2]), whole(c[3]), prec))
			off := newFloat(prec).Sub(got, want)
			if off.Abs(off).Cmp(newFloat(prec).SetMantExp(want, 2-int(prec))) > 0 {
				t.Errorf("%v at %d bits: off by %g of %g", c, prec, off, want)
			}
		}
	}
}
