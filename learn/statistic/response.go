package statistic

import (
	"math"

	"github.com/riffle-dp/riffle/internal/tail"
)

// response is the law of a number of reports. Of n clients each sends one report, independently. A
// report is counted with probability truth if its client is one of those that are asked about, and
// with probability lie < truth if not. messages.md has what is derived here.
type response struct {
	n          int64
	truth, lie float64
	// untruth = 1 − truth and unlie = 1 − lie are fields of their own, so that they keep their
	// digits.
	untruth, unlie float64
	// atLeast says that intervals hold with their chance at least.
	atLeast bool
}

// estimate returns the unbiased estimate of how many clients are asked about, if so many reports
// were counted. It may lie below 0 or above n.
func (r response) estimate(counted int64) float64 {
	return (float64(counted) - float64(r.n)*r.lie) / (r.truth - r.lie)
}

// countVariance returns the variance of the number of reports counted if t clients are asked about.
func (r response) countVariance(t float64) float64 {
	return t*r.truth*r.untruth + (float64(r.n)-t)*r.lie*r.unlie
}

// exactUpTo is the standard deviation from which on below uses an expansion of the law: two
// terms beyond the normal law leave an error of about 1e-10 there.
const exactUpTo = 2000

// below returns P[C < counted] + own·P[C = counted] for the count C if t clients are asked about, with
// an absolute error below 1e-9 for own = ½, and below 1e-8 otherwise. It falls with t.
func (r response) below(t, counted int64, own float64) float64 {
	v := r.countVariance(float64(t))
	if v > exactUpTo*exactUpTo {
		return r.expansion(float64(t), v, float64(counted)+own-.5)
	}
	const cut = 1e-16
	xlo, xhi := tail.Window(t, r.truth, r.untruth, cut, cut)
	ylo, yhi := tail.Window(r.n-t, r.lie, r.unlie, cut, cut)
	switch {
	case counted > xhi+yhi:
		return 1
	case counted < xlo+ylo:
		return 0
	}
	// part[i] is P[Y < ylo+i] + own·P[Y = ylo+i].
	part := make([]float64, 0, yhi-ylo+1)
	var total float64
	tail.PMF(r.n-t, r.lie, r.unlie, ylo, yhi, func(_ int64, mass float64) {
		part = append(part, total+own*mass)
		total += mass
	})
	var sum float64
	tail.PMF(t, r.truth, r.untruth, xlo, xhi, func(x int64, mass float64) {
		switch y := counted - x; {
		case y > yhi:
			sum += mass
		case y >= ylo:
			sum += mass * part[y-ylo]
		}
	})
	return math.Min(1, sum)
}

// expansion is below by Edgeworth's expansion with the third and fourth cumulants, where t clients
// give the count the variance v.
func (r response) expansion(t, v, counted float64) float64 {
	other := float64(r.n) - t
	a, b := r.truth*r.untruth, r.lie*r.unlie
	third := t*a*(r.untruth-r.truth) + other*b*(r.unlie-r.lie)
	fourth := t*a*(1-6*a) + other*b*(1-6*b)
	s := math.Sqrt(v)
	z := (counted - t*r.truth - other*r.lie) / s
	skew, kurtosis := third/(v*s), fourth/(v*v)
	correction := skew/6*(z*z-1) + kurtosis/24*z*(z*z-3) + skew*skew/72*z*(z*z*z*z-10*z*z+15) -
		z/(24*v) // the counts are whole
	return math.Max(0, math.Min(1, tail.UpperNormal(-z)-tail.NormalDensity(z)*correction))
}

// interval, variance, independent and sources make a response the [Law] of its estimate.

func (r response) interval(sum, chance float64) (low, high float64) {
	a, b := r.countInterval(r.counted(sum), 1-chance)
	return float64(a), float64(b)
}

// counted returns the number of reports counted, of its estimate.
func (r response) counted(estimate float64) int64 {
	return int64(math.Round(estimate*(r.truth-r.lie) + float64(r.n)*r.lie))
}

func (r response) variance(sum float64) float64 {
	t := math.Max(0, math.Min(float64(r.n), sum))
	return r.countVariance(t) / ((r.truth - r.lie) * (r.truth - r.lie))
}

// independent: a report that names one symbol does not name another.
func (r response) independent() bool { return false }

func (r response) surely() Law {
	r.atLeast = true
	return r
}

func (r response) sources() []string { return []string{"noise"} }

// countInterval returns the equal-tailed interval of the numbers of clients for which the count counted
// is not among the alpha/2 smallest nor the alpha/2 largest ones. By mid-p values it holds the
// truth with probability about 1 − alpha, since the law of C moves in steps; atLeast counts the
// whole chance of the count itself. A count so small, or so large, that no number of clients fits gives [0, 0], or
// [n, n].
func (r response) countInterval(counted int64, alpha float64) (low, high int64) {
	center := r.estimate(counted)
	z := normalQuantile(1 - alpha/2)
	near := func(sign float64) float64 {
		c := math.Max(0, math.Min(float64(r.n), center))
		for range 3 { // the variance at the end of the interval, not at its middle
			c = math.Max(0, math.Min(float64(r.n), center+sign*z*math.Sqrt(r.countVariance(c))/(r.truth-r.lie)))
		}
		return c
	}
	own := .5
	if r.atLeast {
		own = 1
	}
	high = r.last(near(1), func(t int64) bool { return r.below(t, counted, own) >= alpha/2 })
	low = r.n - r.last(float64(r.n)-near(-1), func(u int64) bool { return 1-r.below(r.n-u, counted, 1-own) >= alpha/2 })
	return low, high
}

// last returns the largest t in [0, n] with ok(t), or 0 if there is none: once ok fails it fails for
// all larger ones. The search starts at guess.
func (r response) last(guess float64, ok func(int64) bool) int64 {
	start := max(0, min(r.n, int64(math.Round(guess))))
	step := int64(1)
	lo, hi := int64(-1), r.n+1 // ok(lo), not ok(hi)
	if ok(start) {
		lo = start
		for t := start; lo < r.n; step *= 2 {
			t = min(r.n, t+step)
			if !ok(t) {
				hi = t
				break
			}
			lo = t
		}
	} else {
		hi = start
		for t := start; hi > 0; step *= 2 {
			t = max(0, t-step)
			if ok(t) {
				lo = t
				break
			}
			hi = t
		}
	}
	for lo+1 < hi {
		mid := lo + (hi-lo)/2
		if ok(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return max(0, lo)
}
