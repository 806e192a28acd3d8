package audit

import (
	"math"

	"github.com/riffle-dp/riffle/internal/tail"
)

// lowerBound returns a lower confidence bound on log(P[event under x] / P[event under y])
// from a and b hits among n reports each; 0 if it would be negative. It uses Clopper and
// Pearson's limits, each of which fails with probability at most alpha/2.
func lowerBound(a, b, n int64, alpha float64) float64 { return lowerBoundAt(0, a, b, n, alpha) }

// lowerBoundAt is lowerBound for log((P[event under x] − delta)/P[event under y]): no smaller
// ε is private at delta.
func lowerBoundAt(delta float64, a, b, n int64, alpha float64) float64 {
	low, high := lowerLimit(a, n, alpha/2), upperLimit(b, n, alpha/2)
	if delta > 0 {
		low = (low - delta) * (1 - 1e-15)
	}
	if low <= high {
		return 0
	}
	return math.Log(low / high)
}

// lowerLimit returns the p with Pr[Bin(n, p) ≥ k] = alpha, rounded down: the true
// p is below it with probability at most alpha. 0 for k = 0.
func lowerLimit(k, n int64, alpha float64) float64 {
	if k == 0 {
		return 0
	}
	lo, _ := bisect(func(p float64) bool { return tail.Survival(n, k, p, 1-p) <= alpha })
	return lo
}

// upperLimit returns the p with Pr[Bin(n, p) ≤ k] = alpha, rounded up. 1 for
// k = n.
func upperLimit(k, n int64, alpha float64) float64 {
	if k == n {
		return 1
	}
	// Pr[X ≤ k] = Pr[n−X ≥ n−k].
	_, hi := bisect(func(p float64) bool { return tail.Survival(n, n-k, 1-p, p) > alpha })
	return hi
}

// bisect returns neighbours lo < hi of the point where below turns from true to false, to a
// relative 1e-9 of p, which exceeds the tails' errors.
func bisect(below func(p float64) bool) (lo, hi float64) {
	lo, hi = 1e-18, 1 // far below 1/n for any possible n
	if !below(lo) {
		return 0, lo
	}
	for hi-lo > 1e-9*lo {
		mid := math.Sqrt(lo * hi)
		if below(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo * (1 - 1e-9), math.Min(1, hi*(1+1e-9))
}
