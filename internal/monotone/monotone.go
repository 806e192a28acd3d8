// Package monotone inverts falling functions towards the safe side.
package monotone

import "math"

// Falling returns an x in [lo, hi] with f(x) ≤ target, for a falling f. The x is at most
// tol·x above the smallest such x, and f was evaluated there. It returns lo if f(lo) meets
// the target and +Inf if f(hi) does not; NaN never meets it.
//
// The search is regula falsi on log f, which is nearly straight for tails. It takes a
// bisection step whenever regula falsi fails to halve the bracket in three steps.
func Falling(f func(x float64) float64, target, lo, hi, tol float64) float64 {
	flo := f(lo)
	if flo <= target {
		return lo
	}
	fhi := f(hi)
	if !(fhi <= target) {
		return math.Inf(1)
	}
	score := func(v float64) float64 { return math.Log(v) - math.Log(target) }
	a, b := score(flo), score(fhi)
	width, stuck := hi-lo, 0
	for range 400 {
		if !(hi-lo > tol*hi) {
			break
		}
		mid := lo + (hi-lo)/2
		if stuck < 3 && !math.IsInf(a, 0) && !math.IsInf(b, 0) && a > b {
			// Stay a little away from the ends, so that both of them move.
			edge := math.Min((hi-lo)/8, tol*hi/4)
			mid = math.Max(lo+edge, math.Min(hi-edge, lo+(hi-lo)*a/(a-b)+edge))
		} else {
			stuck, width = 0, hi-lo
		}
		if !(mid > lo && mid < hi) {
			break
		}
		v := f(mid)
		s := score(v)
		if v <= target {
			if b <= 0 && s <= 0 && stuck > 0 {
				a /= 2 // Illinois rule: the other end has not moved
			}
			hi, b = mid, s
		} else {
			if stuck > 0 {
				b /= 2
			}
			lo, a = mid, s
		}
		if stuck++; hi-lo < width/2 {
			stuck, width = 0, hi-lo
		}
	}
	return hi
}
