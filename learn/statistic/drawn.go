package statistic

import (
	"math"
)

// drawn is the law of a measured count: of n clients m are drawn, uniformly without replacement,
// those of the drawn who have a property are counted, and noise is added. With m = n all are
// counted.
type drawn struct {
	clients, reports int64 // n and m, 1 ≤ m ≤ n
	noise            errorLaw
}

// errorLaw is the law of an error that is added to a count.
type errorLaw interface {
	// below returns P(η < x) and P(η ≤ x).
	below(x float64) (less, most float64)
	// variance of η.
	variance() float64
}

// farthest is how many standard deviations of the number of drawn clients, beyond a margin of
// fixed size, are looked at: what lies beyond has a chance below 1e-15.
const farthest = 9

// below returns P(Y < y) and P(Y ≤ y) of the measured count Y if the property has the given
// number of clients.
func (d drawn) below(have int64, y float64) (less, most float64) {
	for _, h := range d.sample(have) {
		l, m := d.noise.below(y - float64(h.count))
		less += h.chance * l
		most += h.chance * m
	}
	return min(1, less), min(1, most)
}

// mass is the chance of a count.
type mass struct {
	count  int64
	chance float64
}

// sample returns the hypergeometric law of the number of drawn clients with a property that the
// given number of clients have, in some order; together all but 1e-15. The chances come from the
// ratios of neighbours, starting at the mode, so no large numbers are subtracted. Where the law is
// wider than some ten thousand counts, neighbours are put together: each mass then is that of a
// stretch of a hundredth of a deviation.
func (d drawn) sample(have int64) []mass {
	n, m := d.clients, d.reports
	have = max(0, min(have, n))
	low, high := max(0, m-(n-have)), min(m, have)
	if low == high {
		return []mass{{low, 1}}
	}
	share := float64(have) / float64(n)
	deviation := math.Sqrt(float64(m) * share * (1 - share) * float64(n-m) / math.Max(1, float64(n-1)))
	reach := int64(math.Ceil(farthest*deviation)) + 40
	mode := int64(math.Round(float64(m) * share))
	mode = max(low, min(mode, high))
	from, to := max(low, mode-reach), min(high, mode+reach)
	var out []mass
	total := 0.
	add := func(h int64, w float64) {
		out = append(out, mass{h, w})
		total += w
	}
	if stride := int64(deviation / 200); stride > 1 { // the normal curve; see the comment above
		for h := mode - reach/stride*stride; h <= to; h += stride {
			if h >= from {
				z := (float64(h) - float64(m)*share) / deviation
				add(h, math.Exp(-z*z/2))
			}
		}
	} else {
		// P(h+1)/P(h) = (N−h)(m−h) / ((h+1)(n−N−m+h+1)).
		ratio := func(h int64) float64 {
			return float64(have-h) / float64(h+1) * float64(m-h) / float64(n-have-m+h+1)
		}
		add(mode, 1)
		for h, w := mode, 1.; h < to && w > 1e-20; h++ {
			w *= ratio(h)
			add(h+1, w)
		}
		for h, w := mode, 1.; h > from && w > 1e-20; h-- {
			w /= ratio(h - 1)
			add(h-1, w)
		}
	}
	for i := range out {
		out[i].chance /= total
	}
	return out
}

// clientsFor returns the largest number of clients with a property for which chance, which does not
// fall in that number, is at most p; −1 if it is above p for 0.
func (d drawn) clientsFor(p float64, chance func(have int64) float64) int64 {
	if chance(0) > p {
		return -1
	}
	// chance(low) ≤ p and, as if for clients+1, chance(high) > p. Small numbers are tried first: they
	// are quick.
	low, high := int64(0), int64(1)
	for high <= d.clients && chance(high) <= p {
		low, high = high, 2*high
	}
	high = min(high, d.clients+1)
	for high-low > 1 {
		if mid := low + (high-low)/2; chance(mid) <= p {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// between returns the equal-tailed confidence interval for the number of clients who have a
// property whose measured count is y. Each end has the given chance outside. The law is discrete, so
// of the chance of y itself one half is counted (mid-p): the coverage is that of the ends on average,
// and not always above it. With atLeast all of it is counted.
func (d drawn) between(y, outside float64, atLeast bool) (low, high float64) {
	tails := func(have int64) (below, above float64) {
		less, most := d.below(have, y)
		if atLeast {
			return most, 1 - less
		}
		return (less + most) / 2, 1 - (less+most)/2
	}
	// Numbers with too small a chance of so large a count end before low.
	least := d.clientsFor(outside, func(have int64) float64 { _, above := tails(have); return above }) + 1
	// The chance of so small a count falls, so it is above the limit up to high.
	most := d.clientsFor(-outside, func(have int64) float64 { below, _ := tails(have); return -below })
	return float64(min(least, d.clients)), float64(max(0, most))
}

// cut returns a count below which the measured count lies with chance p at most if the given number
// of clients have the property. It is the largest such count but for a thousandth of a deviation.
func (d drawn) cut(have int64, p float64) float64 {
	mean := float64(have) / float64(d.clients) * float64(d.reports)
	deviation := math.Sqrt(mean+d.noise.variance()) + 1
	low, high := mean-deviation, mean+deviation
	chance := func(y float64) float64 { less, _ := d.below(have, y); return less }
	for step := deviation; chance(low) > p; step *= 2 {
		low -= step
	}
	for step := deviation; chance(high) <= p; step *= 2 {
		high += step
	}
	for high-low > deviation/1000 {
		if mid := (low + high) / 2; chance(mid) <= p {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// above returns a count that the measured count reaches with chance p at most if no client has the
// property: the noise alone.
func (d drawn) above(p float64) float64 {
	deviation := math.Sqrt(d.noise.variance()) + 1
	chance := func(y float64) float64 { less, _ := d.noise.below(y); return 1 - less }
	low, high := 0., deviation
	for chance(high) > p {
		high *= 2
	}
	for high-low > deviation/1000 {
		if mid := (low + high) / 2; chance(mid) <= p {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}
