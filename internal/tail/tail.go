// Package tail computes binomial probabilities and tails, accurate in relative
// terms far into the tails and for up to 2^53 trials.
//
// Probabilities come from Loader's saddle-point form, which never subtracts
// large logarithms of factorials: lgamma would err by 2e-3 in the log at
// n = 1e12. Tails are sums of one-sided terms or geometric bounds; nothing is
// computed as 1 − (1 − small).
//
// Error: LogPMF is within 1e-13 + 4e-16·|result| + 3e-16·z² of the truth, z the
// distance from the mean in standard deviations, compared with 60-digit
// arithmetic in the tests.
//
// Source: C. Loader, "Fast and accurate computation of binomial
// probabilities", 2000.
package tail

import "math"

// stirling returns log n! − log(√(2πn)(n/e)^n), Stirling's error.
func stirling(n float64) float64 {
	if n < float64(len(stirlingTable)) {
		return stirlingTable[int(n)]
	}
	m := 1 / (n * n)
	// The first omitted term is 691/360360/n^11 < 1e-16 for n ≥ 16.
	return (1./12 - m*(1./360-m*(1./1260-m*(1./1680-m*(1./1188))))) / n
}

// stirlingTable holds stirling(n) for n = 0 … 15; n = 0 is never used in a result.
var stirlingTable = [16]float64{
	0, 0.081061466795327258, 0.041340695955409294, 0.027677925684998339,
	0.020790672103765093, 0.016644691189821192, 0.013876128823070747, 0.011896709945891770,
	0.010411265261972096, 0.0092554621827127329, 0.0083305634333631251, 0.0075736754879518407,
	0.0069428401072095850, 0.0064089941880042070, 0.0059513701127588475, 0.0055547335519628013,
}

// distance returns x − np with all its digits. It uses the smaller of p and q = 1 − p, whose
// last digit counts less, and both the high and the low half of the product. Without the low
// half the log would err by 1e-9 at n = 1e12.
func distance(n, x int64, p, q float64) float64 {
	N := float64(n)
	if p <= q {
		m := N * p
		return (float64(x) - m) - math.FMA(N, p, -m)
	}
	m := N * q
	return math.FMA(N, q, -m) - (float64(n-x) - m)
}

// deviance returns x·log(x/m) + m − x ≥ 0 for x ≥ 0, m > 0, given d = x − m.
func deviance(x, m, d float64) float64 {
	if x == 0 {
		return m
	}
	if math.Abs(d) < 0.1*(x+m) {
		// With v = (x−m)/(x+m), x log(x/m) = 2x(v + v³/3 + …), so the sum is (x−m)v + 2x(v³/3
		// + v⁵/5 + …).
		v := d / (x + m)
		s := d * v
		term := 2 * x * v
		for j := 3.0; ; j += 2 {
			term *= v * v
			next := s + term/j
			if next == s {
				return s
			}
			s = next
		}
	}
	return x*math.Log(x/m) - d
}

// LogPMF returns log Pr[Bin(n, p) = k] for integers 0 ≤ k ≤ n < 2^53. p and q = 1 − p are two
// arguments so that neither loses digits; both lie in [0, 1].
func LogPMF(n, k int64, p, q float64) float64 {
	switch {
	case k < 0 || k > n:
		return math.Inf(-1)
	case p == 0 || q == 0:
		if (p == 0 && k == 0) || (q == 0 && k == n) {
			return 0
		}
		return math.Inf(-1)
	case k == 0:
		return float64(n) * logOf(q, p)
	case k == n:
		return float64(n) * logOf(p, q)
	}
	N, x := float64(n), float64(k)
	y, d := float64(n-k), distance(n, k, p, q)
	return stirling(N) - stirling(x) - stirling(y) - deviance(x, N*p, d) - deviance(y, N*q, -d) +
		0.5*(math.Log(N)-math.Log(2*math.Pi)-math.Log(x)-math.Log(y))
}

// logOf returns log a, where a = 1 − b, by whichever form keeps more digits.
func logOf(a, b float64) float64 {
	if a > 0.5 {
		return math.Log1p(-b)
	}
	return math.Log(a)
}

// Window returns lo ≤ hi such that Pr[X < lo] ≤ below and Pr[X > hi] ≤ above
// for X ~ Bin(n, p), each about the narrowest. It uses Chernoff's bound
// Pr[X ≥ x] ≤ exp(−D(x)), D the deviance, which is proved for every x.
func Window(n int64, p, q, below, above float64) (lo, hi int64) {
	N := float64(n)
	mean := N * p
	divergence := func(x int64) float64 { return exponent(n, x, p, q) }
	if p == 0 || q == 0 {
		x := int64(0)
		if q == 0 {
			x = n
		}
		return x, x
	}
	// lo is the largest x at or below the mean with Pr[X ≤ x−1] ≤ below.
	lo = largest(0, int64(math.Floor(mean)), func(x int64) bool { return x == 0 || -divergence(x-1) <= math.Log(below) })
	top := min(n, int64(math.Ceil(mean)))
	hi = n - largest(0, n-top, func(y int64) bool { return y == 0 || -divergence(n-y+1) <= math.Log(above) })
	return lo, hi
}

// largest returns the largest x in [a, b] with ok(x). ok(a) must hold, and once ok fails it
// must fail for all larger x.
func largest(a, b int64, ok func(int64) bool) int64 {
	for a < b {
		mid := a + (b-a+1)/2
		if ok(mid) {
			a = mid
		} else {
			b = mid - 1
		}
	}
	return a
}

// PMF calls yield with k and Pr[Bin(n, p) = k] for k = lo … hi. It starts from
// LogPMF near the mean and follows the ratio of neighbours, so each value
// carries a relative error of at most 3e-16 a step besides LogPMF's; every
// 4096 steps it starts afresh.
func PMF(n int64, p, q float64, lo, hi int64, yield func(k int64, mass float64)) {
	const fresh = 4096
	var mass float64
	for k := lo; k <= hi; k++ {
		if (k-lo)%fresh == 0 || mass < 1e-290 {
			mass = math.Exp(LogPMF(n, k, p, q))
		} else {
			mass *= float64(n-k+1) / float64(k) * (p / q)
		}
		yield(k, mass)
	}
}

// UpperTail returns Chernoff's bound on Pr[Bin(n, p) ≥ x]: 1 at or below the
// mean, exp(−D(x)) above, 0 beyond n.
func UpperTail(n, x int64, p, q float64) float64 {
	switch {
	case x > n:
		return 0
	case float64(x) <= float64(n)*p:
		return 1
	case q == 0:
		return 1
	}
	return math.Exp(-exponent(n, x, p, q))
}

// exponent is D(x) of Chernoff's bound.
func exponent(n, x int64, p, q float64) float64 {
	d := distance(n, x, p, q)
	return deviance(float64(x), float64(n)*p, d) + deviance(float64(n-x), float64(n)*q, -d)
}
