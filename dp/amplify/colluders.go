package amplify

import (
	"math"
	"slices"

	"github.com/riffle-dp/riffle/internal/tail"
)

// honestReports covers the number of honest reports when k of n clients are drawn uniformly
// and c of the n collude: k − M, M hypergeometric. Given M, which the observer knows, the
// honest clients in the round are a uniform subset of the n − c. See colluders.md.
func honestReports(n, k, c int64) []Span {
	if k == n {
		return []Span{{n - c, n - c, 1}}
	}
	share, rest := float64(n-c)/float64(n), float64(c)/float64(n)
	mean := float64(k) * share
	least, most := max(0, k-c), min(k, n-c)
	out := drawnBulk(n, k, c, 1e-17)
	lo, hi := out[0].First, out[len(out)-1].Last
	for i := range out {
		out[i].Weight *= 1 + drawnError
	}
	for end := lo; end > least; { // the tail h < end
		first := max(least, min(end-1, int64(mean-(mean-float64(end))*1.15)))
		w := tail.UpperTail(k, k-end+1, rest, share)
		if w < 1e-290 {
			first, w = least, 1e-290
		}
		out = append(out, Span{first, end - 1, w})
		end = first
	}
	for end := hi; end < most; { // the tail h > end
		last := min(most, max(end+1, int64(mean+(float64(end)-mean)*1.15)))
		w := tail.UpperTail(k, end+1, share, rest)
		if w < 1e-290 {
			last, w = most, 1e-290
		}
		out = append(out, Span{end + 1, last, w})
		end = last
	}
	return out
}

// drawnError bounds the relative error of the weights of drawnBulk: logarithms of up to 1e3
// cancel there; LogPMF errs by 1e-13 and by 4e-16 of each.
const drawnError = 1e-9

// drawnBulk is honestReports but for its tails, of mass up to left on each side, and for the
// rounding of its weights. k must be below n.
func drawnBulk(n, k, c int64, left float64) []Span {
	p := float64(k) / float64(n)
	q := float64(n-k) / float64(n)
	// This is Pr[h of the honest clients and k − h of the others], given k in total.
	all := tail.LogPMF(n, k, p, q)
	pmf := func(h int64) float64 {
		return math.Exp(tail.LogPMF(n-c, h, p, q) + tail.LogPMF(c, k-h, p, q) - all)
	}
	// For sampling without replacement Chernoff's bounds of Bin(k, (n−c)/n) hold (Hoeffding
	// 1963, Theorem 4).
	share, rest := float64(n-c)/float64(n), float64(c)/float64(n)
	lo, hi := tail.Window(k, share, rest, left, left)
	lo, hi = max(lo, 0, k-c), min(hi, k, n-c)
	mean := float64(k) * share
	width := blockWidth(arrivalError)
	deviation := math.Sqrt(mean * rest)
	var out []Span
	for from := lo; from <= hi; {
		w := max(1, width(mean, deviation, math.Abs(float64(from)-mean)/math.Max(1, deviation))/2)
		if from == 0 {
			w = 1 // no honest report: loss 0
		}
		to := min(hi, from+w-1)
		var mass float64
		for h := from; h <= to; h++ {
			mass += pmf(h)
		}
		out = append(out, Span{from, to, mass})
		from = to + 1
	}
	return out
}

// thinned covers the number of honest reports that arrive, if their number before drop-outs is
// covered by drawn, and that of the arrivals among n of them by arrivals(n). mean is the mean.
// Any part of the two laws gives a part of the law.
func thinned(drawn []Span, mean float64, width func(mean, deviation, z float64) int64, arrivals func(n int64) []Span) []Span {
	// Spans whose ends lie in the same two cells are joined.
	var cells []int64 // where cells begin; 0 has a cell of its own
	deviation := math.Max(1, math.Sqrt(mean))
	step := func(k int64) int64 { return width(mean, deviation, math.Abs(float64(k)-mean)/deviation) }
	most := drawn[0].Last
	for _, h := range drawn {
		most = max(most, h.Last)
	}
	for k := int64(mean); k > 1; k -= step(k) {
		cells = append(cells, k)
	}
	for k := int64(mean) + 1; k <= most; k += step(k) {
		cells = append(cells, k)
	}
	cells = append(cells, 0, 1)
	slices.Sort(cells)
	cell := func(k int64) int {
		i, found := slices.BinarySearch(cells, k)
		if !found {
			i--
		}
		return i
	}
	at := map[[2]int]int{}
	var out []Span
	for _, h := range drawn {
		arrived := []Span{{0, 0, 1}}
		if h.First > 0 {
			arrived = arrivals(h.First)
		}
		for _, s := range arrived {
			// Of h.Last at most h.Last − h.First more arrive than of h.First.
			s.Last += h.Last - h.First
			s.Weight *= h.Weight
			key := [2]int{cell(s.First), cell(s.Last)}
			i, known := at[key]
			if !known {
				at[key] = len(out)
				out = append(out, s)
				continue
			}
			out[i] = Span{min(out[i].First, s.First), max(out[i].Last, s.Last), out[i].Weight + s.Weight}
		}
	}
	slices.SortFunc(out, func(a, b Span) int {
		if a.First != b.First {
			return int(a.First - b.First)
		}
		return int(a.Last - b.Last)
	})
	return out
}
