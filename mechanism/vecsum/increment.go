package vecsum

import (
	"math"
)

// slackIncrement covers the rounding of probabilities, tails and quantiles in
// an increment: tables of up to 2^23 products err by 2e-9 relative.
const slackIncrement = 4e-9

// leastTail is the smallest tail whose quantile is used. Below it float64 loses digits, and
// increments were up to .7 % too small.
const leastTail = 1e-300

// maxIncrement bounds T(u) − T(u−1), where T is Φ^−1 of the distribution function, over the
// half's part of the window: u from the mean to hi+shift, with hi the first value with Pr[X >
// hi] ≤ tau. It returns +Inf if the window leaves the support, or reaches tails below
// leastTail.
func (h half) maxIncrement(tau float64, shift int64) float64 {
	// A window for a slightly smaller tau is slightly too wide, which is safe.
	strict := tau * (1 - 1e-6)
	reach := shift
	if h.mirrored { // u > lo − shift, where the other half has u ≤ hi + shift
		reach--
	}
	hi := h.find(strict)
	if hi > h.top-1-reach { // written without hi+reach, which might overflow
		return math.Inf(1)
	}
	last := hi + reach
	if !(h.above(last+1) >= leastTail) {
		return math.Inf(1)
	}
	var m float64
	if h.sd <= scanSD || h.skewed {
		m = h.scan(last)
	} else {
		m = h.bound(last)
	}
	if !(m > 0) {
		return math.Inf(1)
	}
	return m * (1 + slackIncrement)
}

// find returns the smallest i ≥ 0 with above(i+1) ≤ tau.
func (h half) find(tau float64) int64 {
	lo, hi := int64(-1), int64(1)
	for h.above(hi+1) > tau {
		if hi > h.top {
			return h.top
		}
		lo, hi = hi, 2*hi
	}
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; h.above(mid+1) > tau {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// scan returns the largest increment by computing every one.
func (h half) scan(last int64) float64 {
	var worst float64
	before := upperQuantile(h.above(0), 0)
	for i := int64(0); i <= last; i++ {
		q := h.above(i + 1)
		if !(q > 0) {
			return math.Inf(1)
		}
		t := upperQuantile(q, before)
		worst = math.Max(worst, t-before)
		before = t
	}
	// Adds the error of two quantiles, which slackIncrement does not cover where increments
	// are tiny.
	return worst + 2e-15*(1+math.Abs(before))
}

// bound bounds the increments block by block. It splits blocks until the bound is within 2e-5
// of an increment that nearly attains it (2e-4 for tau as small as 1e-250); vecsum.md,
// section 3.
func (h half) bound(last int64) float64 {
	type point struct {
		i    int64
		t, f float64 // T and log Pr at i
	}
	at := func(i int64) point { return point{i, upperQuantile(h.above(i+1), 0), h.log(i)} }
	first, end := at(0), at(last)
	// found is nearly the true increment at some point; it only guides the splitting.
	found := 0.
	seen := func(p point) {
		x := math.Exp(p.f + p.t*p.t/2 + logRootTwoPi)
		found = math.Max(found, x/(1+p.t*x/2))
	}
	seen(first)
	seen(end)
	// worst starts with the increment at the mean.
	worst := math.Exp(first.f + first.t*first.t/2 + logRootTwoPi)
	blocks := [][2]point{{first, end}}
	for len(blocks) > 0 {
		a, b := blocks[len(blocks)-1][0], blocks[len(blocks)-1][1]
		blocks = blocks[:len(blocks)-1]
		if b.i <= a.i {
			continue
		}
		width := float64(b.i - a.i)
		least := math.Exp(b.f + math.Max(a.t, 0)*math.Max(a.t, 0)/2 + logRootTwoPi)
		slope := h.slope(a.i)
		start, stop := b.t-(width-1)*least, b.t
		g := math.Max(a.f+slope+start*start/2, a.f+width*slope+stop*stop/2) + logRootTwoPi
		x := math.Exp(g)
		if a.t >= .01 && x <= .01 {
			x /= 1 + math.Max(0, a.t*least/2-least*least/6)
		}
		if x <= found*(1+2e-5) || b.i-a.i == 1 || math.IsNaN(x) {
			if math.IsNaN(x) {
				return math.Inf(1)
			}
			worst = math.Max(worst, x)
			continue
		}
		mid := at(a.i + (b.i-a.i)/2)
		seen(mid)
		blocks = append(blocks, [2]point{a, mid}, [2]point{mid, b})
	}
	return worst
}

// logRootTwoPi is log √(2π).
const logRootTwoPi = 0.918938533204672741780329736405617639861397473637783412817
