package gdp

import (
	"math"

	"github.com/riffle-dp/riffle/internal/tail"
)

// unit is the rounding unit of float64.
const unit = 0x1p-53

// small is the largest μ for which differences of Mills ratios are integrated.
const small = 0.5

// logDensity is the logarithm of the normal density.
func logDensity(x float64) float64 { return -x*x/2 - 0.91893853320467274178 }

// mills returns Φ(−x)/φ(x), relative error 4e-15, for x ≥ −1. It falls.
func mills(x float64) float64 {
	if x < 5 {
		return tail.UpperNormal(x) * math.Exp(-logDensity(x))
	}
	// Laplace's continued fraction 1/(x + 1/(x + 2/(x + …))): at x ≥ 5 fifty
	// terms leave less than a unit.
	t := x
	for j := 50; j > 0; j-- {
		t = x + float64(j)/t
	}
	return 1 / t
}

// slope returns 1 − x·mills(x) = −mills′(x) > 0, relative error 1e-13 for
// x ≥ −1.
func slope(x float64) float64 {
	if x < 5 {
		return 1 - x*mills(x)
	}
	// With mills = 1/(x + r), r = 1/(x + 2/(x + …)): 1 − x/(x+r) = r/(x+r).
	t := x
	for j := 50; j > 1; j-- {
		t = x + float64(j)/t
	}
	r := 1 / t
	return r / (x + r)
}

// millsDifference returns mills(a) − mills(a + μ) > 0, relative error 1e-13, for
// a ≥ 0, or a ≥ −μ/2 where μ ≤ small.
func millsDifference(a, mu float64) float64 {
	if mu > small && mu > a/8 {
		return mills(a) - mills(a+mu)
	}
	// The integrand is smooth and positive; its scale is max(1, a).
	panels := math.Ceil(2 * mu / math.Max(1, a))
	h := mu / (2 * panels)
	var sum float64
	for i := range int(panels) {
		mid := a + float64(2*i+1)*h
		for _, g := range tail.Gauss6 {
			sum += g[1] * (slope(mid-g[0]*h) + slope(mid+g[0]*h))
		}
	}
	return sum * h
}

// logTail returns log Φ(−x).
func logTail(x float64) float64 {
	if x < 0 {
		return math.Log1p(-tail.UpperNormal(-x))
	}
	return logDensity(x) + math.Log(mills(x))
}

// upperQuantile returns an x with Φ(−x) ≥ alpha, at most 1e-14·(1 + |x|) or so
// below the exact one, for alpha in (0, 1]; −Inf for 1.
func upperQuantile(alpha float64) float64 {
	if alpha > .5 {
		// Computes the quantile of the other tail and rounds it outwards; 1 − α is exact here.
		rest := 1 - alpha
		if rest == 0 {
			return math.Inf(-1)
		}
		x := quantile(rest)
		return -x - 1e-14*(1+x)
	}
	x := quantile(alpha)
	return x - 1e-14*(1+x)
}

// quantile solves log Φ(−x) = log alpha for alpha ≤ ½ by Newton steps: the
// left side is concave, so they close in from below.
func quantile(alpha float64) float64 {
	want := math.Log(alpha)
	x := math.Sqrt(math.Max(0, -2*want-1.8379)) // a start below the solution, by Φ(−x) ≥ φ(x)·mills(x)
	if want > -2 {
		x = 0
	}
	for range 60 {
		step := (logTail(x) - want) * mills(x)
		x = math.Max(0, x+step)
		if math.Abs(step) <= 2e-16*(1+x) {
			break
		}
	}
	return x
}
