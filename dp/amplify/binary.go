package amplify

import (
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// RR2 is the family of binary randomized response. Its symmetric pair has, at each ε and for
// both orders of the neighbours, the largest hockey-stick divergence over all inputs of the
// other clients. The worst inputs change with ε; "all others equal" is not always the worst
// (by 13 % in δ at k = 3, ε₀ = 1).
//
// Result: upper bound, proved, replace-one, not adaptive inside the round. Source: binary.md.
// Slack: at most .1 % of ε up to about 1e6 reports, growing to .4 % at 1e7·(E+1)²/E; from there on
// the share z/(3√V) at z deviations, V = kE/(E+1)².
func RR2(eps0 float64) (Family, error) {
	if err := dp.CheckEps0(eps0); err != nil {
		return Family{}, err
	}
	return Family{kind: binaryKind, eps0: eps0}, nil
}

// binary is the crowd of binary randomized response. Of the k − 1 other clients j hold 1. S
// counts the ones that they report; T_{j+1} is S plus the report of a victim who holds 1, and
// T_j is S plus that of a victim who holds 0.
type binary struct {
	outcomes
	high, low float64 // E/(E+1) and 1/(E+1)
	work      float64 // number of outcomes that may be visited for each k
	least     int     // least and largest number of blocks of j
	most      int
}

// farMass is the largest mass of high counts that are not visited. The pair's δ at every
// loss below ε₀ includes it.
const farMass = 1e-100

func newBinary(eps0 float64, k int64, work float64, most int) *binary {
	return newGrainedBinary(eps0, k, work, 64, most, fine)
}

func newGrainedBinary(eps0 float64, k int64, work float64, least, most int, g grain) *binary {
	s := math.Exp(-eps0)
	b := &binary{high: 1 / (1 + s), low: s / (1 + s), work: work, least: least, most: most}
	b.outcomes = outcomes{eps0, newAxis(math.Max(1, 4*float64(k)*b.high*b.low), wideDeviations, g)}
	b.axis.refine(g.losses, func(u float64) float64 { return b.loss(u, 1) },
		func(loss float64) float64 { return math.Min(1, math.Tanh(loss/2)/math.Tanh(eps0/2)) })
	return b
}

// given returns the one-sided masses of U: the pair whose curve in e^ε is the
// convex hull of the suprema at the nodes.
func (b *binary) given(k int64) []float64 { return b.hulled(k, maxSummed) }

// hulled is given, where beyond the variance summed of S raiseAll is used.
func (b *binary) hulled(k int64, summed float64) []float64 {
	u := b.axis.u
	// over is g − 1 = e^ε − 1, and delta a bound on the supremum of δ there.
	over, delta := make([]float64, len(u)), make([]float64, len(u))
	for i, x := range u {
		over[i], delta[i] = math.Expm1(b.loss(x, 1)), farMass
	}
	if others := k - 1; float64(others)*b.high*b.low > summed {
		b.raiseAll(delta, over, others)
	} else {
		b.raiseEach(delta, over, others)
	}
	// No loss exceeds ε₀.
	delta[len(u)-1] = 0
	mass := hull(over, delta)
	for i := range mass {
		mass[i] *= 1 + over[i]/2 // (P+Q)/2 from Q
	}
	return mass
}

// raiseEach raises delta to a bound on the divergence for every choice of the inputs of so many
// others, block by block of the number of them that hold 1.
func (b *binary) raiseEach(delta, over []float64, others int64) {
	width := b.blockOf(others)
	for from := int64(0); from <= others; from += width {
		to := min(others, from+width-1)
		b.raise(delta, over, from, others-to)
	}
}

// blockOf returns the width of blocks of j. The clients inside a block count as absent, so a
// block of relative width w costs w/2 of ε.
func (b *binary) blockOf(others int64) int64 {
	window := 40*math.Sqrt(float64(others)*b.high*b.low) + 100
	blocks := int64(math.Max(float64(b.least), math.Min(float64(b.most), b.work/window)))
	return max(1, (others+blocks)/blocks)
}

// raise raises delta where the divergence for one choice of the other clients' inputs is
// larger: ones is the number of clients that hold 1, and zeros the number that hold 0. With S
// the number of their reports that are 1,
//
//	δ(ε) = max over x of (E − e^ε)/(E+1)·Pr[S = x−1] − (e^ε − 1)·Pr[S ≥ x].
func (b *binary) raise(delta, over []float64, ones, zeros int64) {
	mass := b.count(ones, zeros)
	// above[i] is the mass from the i-th value upwards.
	above := make([]float64, len(mass)+1)
	for i := len(mass) - 1; i >= 0; i-- {
		above[i] = above[i+1] + mass[i]
	}
	shrink := math.Exp(-b.eps0)
	slack := 1e-11 + 4e-15*float64(len(mass))
	x := 0 // Pr[S = x−1] is mass[x]
	for i := range delta {
		gain := -math.Expm1(math.Log1p(over[i])-b.eps0) / (1 + shrink)
		if gain <= 0 {
			break
		}
		value := func(x int) float64 {
			g, l := gain*mass[x], over[i]*above[x+1]
			return g - l + slack*(g+l)
		}
		// The likelihood ratio rises with the count, so there is one maximum, which rises
		// with ε.
		best := value(x)
		for x+1 < len(mass) {
			next := value(x + 1)
			if next < best {
				break
			}
			x, best = x+1, next
		}
		delta[i] = math.Max(delta[i], best)
	}
}

// hull returns the masses under Q, at loss log(1 + over), of the pair whose δ is the lower
// convex hull of the points as a function of over. The hull lies above every convex function
// that lies below the points. Its kinks are the masses.
func hull(over, delta []float64) []float64 {
	var keep []int
	slope := func(i, j int) float64 { return (delta[j] - delta[i]) / (over[j] - over[i]) }
	for i := range over {
		for len(keep) > 1 && slope(keep[len(keep)-2], keep[len(keep)-1]) >= slope(keep[len(keep)-1], i) {
			keep = keep[:len(keep)-1]
		}
		keep = append(keep, i)
	}
	mass := make([]float64, len(over))
	for n := 1; n < len(keep); n++ {
		after := 0.
		if n+1 < len(keep) {
			after = slope(keep[n], keep[n+1])
		}
		mass[keep[n]] = math.Max(0, after-slope(keep[n-1], keep[n]))
	}
	return mass
}

// count returns the law of the number of reports of 1, where ones is the number of clients that
// hold 1 and zeros the number that hold 0. It leaves out at most farMass above and 2e-17 below;
// the listed masses add up to 1. Relative error: a few units per value away from the mode.
//
// The generating function (q₁+p₁z)^a(q₂+p₂z)^b gives a recurrence over three values. Going
// down above n*, and up below n*, none of its terms is subtracted.
func (b *binary) count(ones, zeros int64) []float64 {
	lo1, hi1 := tail.Window(ones, b.high, b.low, 1e-17, farMass/2)
	lo0, hi0 := tail.Window(zeros, b.low, b.high, 1e-17, farMass/2)
	from, to := lo1+lo0, hi1+hi0
	// ratio[i] = Pr[from+i] / Pr[from+i−1].
	ratio := make([]float64, to-from+1)
	star := b.star(ones, zeros)
	start := max(from+1, int64(math.Ceil(star)))
	for i, r := range b.down(ones, zeros, start, to) {
		ratio[start+int64(i)-from] = r
	}
	// Below n*, zeros and ones change places: Pr[n] is Pr[N−n] of the mirror image.
	n := ones + zeros
	if end := min(to, start-1); end > from {
		for i, r := range b.down(zeros, ones, n-end+1, n-from) {
			// r = Pr'[m]/Pr'[m−1] at m = n−end+1+i is Pr[n−m]/Pr[n−m+1].
			ratio[end-int64(i)-from] = 1 / r
		}
	}
	mode := int64(0)
	for mode+1 < int64(len(ratio)) && ratio[mode+1] > 1 {
		mode++
	}
	mass := make([]float64, len(ratio))
	mass[mode] = 1
	sum := 1.
	for i := mode + 1; i < int64(len(ratio)); i++ {
		mass[i] = mass[i-1] * ratio[i]
		sum += mass[i]
	}
	for i := mode - 1; i >= 0; i-- {
		mass[i] = mass[i+1] / ratio[i+1]
		sum += mass[i]
	}
	for i := range mass {
		mass[i] /= sum
	}
	return mass
}

// star returns n*, above which the downward recurrence only adds.
func (b *binary) star(ones, zeros int64) float64 {
	h, l := b.high*b.high, b.low*b.low
	return (float64(ones)*h + float64(zeros)*l) / (h + l)
}

// down returns Pr[n]/Pr[n−1] for n = first … last, first ≥ n*. With y_n = Pr[n−1]/Pr[n],
//
//	y_n = (pq(n+1)/y_{n+1} + (p²+q²)(n − n*)) / (pq(N−n+1)),
//
// falls in y_{n+1}. From two starts that enclose the truth the values keep enclosing it and
// converge. If they have not converged at n = last, the start moves out, at most to N, where y
// is known.
func (b *binary) down(ones, zeros, first, last int64) []float64 {
	if last < first {
		return nil
	}
	n := ones + zeros
	pq := b.high * b.low
	step := func(i int64, y float64) float64 {
		// This is (p²+q²)(i−n*), computed from differences of integers: n* itself is rounded
		// to about 1e-16·N, which pq may be smaller than.
		beyond := float64(float64(i-ones)*b.high*b.high) + float64(float64(i-zeros)*b.low*b.low)
		return (pq*float64(i+1)/y + beyond) / (pq * float64(n-i+1))
	}
	var y float64 // y_last
	for ahead := int64(64); ; ahead *= 2 {
		if last+ahead >= n {
			y = step(n, math.Inf(1)) // Pr[N+1] = 0
			for i := n - 1; i >= last; i-- {
				y = step(i, y)
			}
			break
		}
		top := last + ahead
		under := step(top, math.Inf(1))
		y = step(top, step(top+1, math.Inf(1)))
		for i := top - 1; i >= last; i-- {
			y, under = step(i, y), step(i, under)
		}
		if math.Abs(y-under) <= 1e-14*y {
			break
		}
	}
	out := make([]float64, last-first+1)
	for i := last; i >= first; i-- {
		out[i-first] = 1 / y
		if i > first {
			y = step(i-1, y)
		}
	}
	return out
}
