package statistic

import (
	"math"
	"sort"
)

// below holds estimates of how many values lie below each edge of the leaves of a range: at 0,
// the lowest edge, none and at the last all.
type below struct {
	left []float64
	// monotone is left made monotone, between 0 and all.
	monotone []float64
	// variance returns the variance of left[j] − rank·total.
	variance func(j int, rank float64) float64
	// smoothed is the part of variance that the monotone values do not have. It comes from differences
	// between parts of the range with fewer values than their noise, which monotony evens out. nil:
	// there is no such part.
	smoothed []float64
	// finite is Release.finite.
	finite float64
	edge   func(j int) float64
}

func (b *below) total() float64 { return b.left[len(b.left)-1] }

// consistent returns the best linear unbiased estimates from the counts of a binary tree's nodes with
// errors of one variance: those that agree at every node with the sum of its children, with the
// least variance. known is the number of all values, or NaN if it is not known. statistic.md,
// section 5.
func consistent(counts []float64, levels int, known, noise float64) *below {
	// Upwards: of a node from itself and what lies below. All nodes of a level are equally
	// good: spread is the variance.
	z := append([]float64(nil), counts...)
	spread := make([]float64, levels+1)
	spread[levels] = 1
	for l := levels - 1; l >= 1; l-- {
		children := 2 * spread[l+1]
		own := children / (1 + children) // the weight of the node itself
		for i := range 1 << l {
			at, child := 1<<l-2+i, 2<<l-2+2*i
			z[at] = own*z[at] + (1-own)*(z[child]+z[child+1])
		}
		spread[l] = children / (1 + children)
	}
	all, allSpread := known, 0.
	if math.IsNaN(known) {
		all, allSpread = z[0]+z[1], 2*spread[1]
	}
	// Downwards: what a node has beside its children's is divided equally.
	h := []float64{all}
	for l := range levels {
		next := make([]float64, 2<<l)
		for i, v := range h {
			at := 2<<l - 2 + 2*i
			gap := (v - z[at] - z[at+1]) / 2
			next[2*i], next[2*i+1] = z[at]+gap, z[at+1]+gap
		}
		h = next
	}
	b := &below{left: make([]float64, len(h)+1)}
	for i, v := range h {
		b.left[i+1] = b.left[i] + v
	}
	if !math.IsNaN(known) {
		b.left[len(h)] = known
	}
	b.monotone, b.smoothed = monotone(b.left), make([]float64, len(b.left))
	// The differences of siblings, before the downward pass, are independent of one another and
	// of the number of all. An edge's count is a combination of those on its way.
	within := make([]float64, len(b.left))
	for j := range len(h) {
		f := float64(j) / float64(len(h))
		for l := range levels {
			weight, gap := math.Min(f, 1-f), 2*spread[l+1]*noise
			within[j] += weight * weight * gap
			node := j >> (levels - l) << (levels - l)
			if b.monotone[node+len(h)>>l]-b.monotone[node] < unsettled*math.Sqrt(gap) {
				b.smoothed[j] += weight * weight * gap
			}
			if f *= 2; f > 1 {
				f--
			}
		}
	}
	b.variance = func(j int, rank float64) float64 {
		f := float64(j)/float64(len(h)) - rank
		return noise*f*f*allSpread + within[j]
	}
	return b
}

// unsettled is the number of values, in standard deviations of the difference of two halves of a
// part of the range, below which monotony evens the difference out; statistic.md, section 5.
const unsettled = .5

// monotone returns the nearest ascending values, by squared distance, between 0 and the last.
func monotone(x []float64) []float64 {
	// Pool what descends.
	type block struct {
		sum float64
		n   int
	}
	var blocks []block
	for _, v := range x[1 : len(x)-1] {
		b := block{v, 1}
		for len(blocks) > 0 {
			last := blocks[len(blocks)-1]
			if last.sum*float64(b.n) <= b.sum*float64(last.n) {
				break
			}
			b = block{b.sum + last.sum, b.n + last.n}
			blocks = blocks[:len(blocks)-1]
		}
		blocks = append(blocks, b)
	}
	all := math.Max(0, x[len(x)-1])
	out := make([]float64, 1, len(x))
	for _, b := range blocks {
		for range b.n {
			out = append(out, math.Min(all, math.Max(0, b.sum/float64(b.n))))
		}
	}
	return append(out, all)
}

// quantile returns the value at a rank: the lower edge of the leaf in which the share of values
// below reaches it, or the end of the range in the last leaf, where values above it count.
func (b *below) quantile(rank, joint float64) Quantile {
	last := len(b.left) - 1
	target := rank * b.monotone[last]
	leaf := max(0, sort.Search(last, func(j int) bool { return b.monotone[j] > target })-1)
	q := Quantile{Rank: rank, Value: b.edge(leaf)}
	if leaf == last-1 {
		q.Value = b.edge(last)
	}
	q.Low95, q.High95 = b.values(rank, single)
	q.JointLow95, q.JointHigh95 = b.values(rank, joint)
	q.RankLow95, _ = b.ranks(leaf, single)
	_, q.RankHigh95 = b.ranks(leaf+1, single)
	return q
}

// error2 is the variance of monotone[j] − rank·total, noise and sampling.
func (b *below) error2(j int, rank float64) float64 {
	v := b.variance(j, rank) + b.finite*math.Max(0, b.total())*rank*(1-rank)
	if b.smoothed != nil {
		v -= b.smoothed[j]
	}
	return v
}

// values returns the interval of the value at a rank: the edges between which left − rank·total
// may be 0.
func (b *below) values(rank, chance float64) (low, high float64) {
	z := normalQuantile((1 + chance) / 2)
	n := len(b.left)
	if !(b.total() > z*math.Sqrt(b.variance(n-1, 0))) {
		return b.edge(0), b.edge(n - 1)
	}
	off := func(j int) float64 { return b.monotone[j] - rank*b.total() }
	from, to := 0, n-1
	for from+1 < n && off(from+1) < -z*math.Sqrt(b.error2(from+1, rank)) {
		from++
	}
	for to > from && off(to-1) > z*math.Sqrt(b.error2(to-1, rank)) {
		to--
	}
	return b.edge(from), b.edge(to)
}

// ranks returns the interval of the rank of an edge: the ranks ρ for which left − ρ·total may be
// 0, and 0 … 1 where the total may be.
func (b *below) ranks(j int, chance float64) (low, high float64) {
	z := normalQuantile((1 + chance) / 2)
	zz, left, all := z*z, b.left[j], b.total()
	// The variance of left − ρ·total is a polynomial in ρ.
	ofLeft, ofAll := b.variance(j, 0), b.variance(len(b.left)-1, 0)
	both := (ofLeft + ofAll - b.variance(j, 1)) / 2
	if !(all > z*math.Sqrt(ofAll)) {
		return 0, 1
	}
	draw := b.finite * all // times ρ(1−ρ)
	low, high = roots(all*all-zz*(ofAll-draw), 2*(left*all-zz*(both-draw/2)), left*left-zz*ofLeft)
	if math.IsNaN(low) || math.IsNaN(high) {
		return 0, 1
	}
	return math.Max(0, math.Min(1, low)), math.Min(1, math.Max(0, high))
}
