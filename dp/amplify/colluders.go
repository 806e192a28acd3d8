package amplify

import (
	"math"
	"slices"

	"github.com/riffle-dp/riffle/internal/tail"
)

// honestReports covers the number of honest reports when k of n clients are drawn uniformly
// and c of the n collude: k − M, M hypergeometric. Given M, which the observer knows, the
// honest clients in the round are a uniform subset of the n − c. See colluders.md.
func honestReports(n, k, c int64, width func(mean, deviation, z float64) int64) []spanned {
	if k == n {
		return []spanned{{n - c, n - c, 1}}
	}
	share, rest := float64(n-c)/float64(n), float64(c)/float64(n)
	mean := float64(k) * share
	least, most := max(0, k-c), min(k, n-c)
	out := drawnBulk(n, k, c, 1e-17, width)
	lo, hi := out[0].First, out[len(out)-1].Last
	for i := range out {
		out[i].Weight *= 1 + drawnError
	}
	for end := lo; end > least; { // the tail h < end
		first := max(least, min(end-1, int64(mean-(mean-float64(end))*1.15)))
		w := math.Min(tail.UpperTail(k, k-end+1, rest, share), tail.UpperTail(n-k, n-c-end+1, share, rest))
		if w < 1e-290 {
			first, w = least, 1e-290
		}
		out = append(out, spanned{first, end - 1, w})
		end = first
	}
	for end := hi; end < most; { // the tail h > end
		last := min(most, max(end+1, int64(mean+(float64(end)-mean)*1.15)))
		w := math.Min(tail.UpperTail(k, end+1, share, rest), tail.UpperTail(n-k, c-k+end+1, rest, share))
		if w < 1e-290 {
			last, w = most, 1e-290
		}
		out = append(out, spanned{end + 1, last, w})
		end = last
	}
	return out
}

// drawnError bounds the relative error of the weights of drawnBulk: logarithms of up to 1e3
// cancel there; LogPMF errs by 1e-13 and by 4e-16 of each.
const drawnError = 1e-9

// drawnBulk is honestReports but for its tails, of mass up to left on each side, and for the
// rounding of its weights. k must be below n.
func drawnBulk(n, k, c int64, left float64, width func(mean, deviation, z float64) int64) []spanned {
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
	// n−k clients are drawn to stay away: n−c−h honest ones.
	lo, hi := tail.Window(k, share, rest, left, left)
	least, most := tail.Window(n-k, share, rest, left, left)
	lo, hi = max(lo, n-c-most, 0, k-c), min(hi, n-c-least, k, n-c)
	mean := float64(k) * share
	deviation := math.Sqrt(mean * rest)
	// The law itself is narrower than Bin(k, (n−c)/n). smooth is how long a block may be for sumSmooth.
	own := mean * rest * q
	smooth := func(from, to int64) int64 {
		away := math.Max(math.Abs(float64(from)-mean), math.Abs(float64(to)-mean))
		return int64(math.Min(math.Sqrt(own)/4, 2.25*own/away))
	}
	var out []spanned
	for from := lo; from <= hi; {
		w := max(1, width(mean, deviation, math.Abs(float64(from)-mean)/math.Max(1, deviation))/2)
		if from == 0 {
			w = 1 // no honest report: loss 0
		}
		to := min(hi, from+w-1)
		parts := int64(1)
		if near := smooth(from, to); to-from >= longBlock && near >= longBlock {
			parts = 32
			to = from + min(to-from, near)/parts*parts
		}
		out = append(out, spanned{from, to, sumSmooth(from, to, parts, pmf)})
		from = to + 1
	}
	return out
}

// longBlock is the length from which blocks are not summed term by term.
const longBlock = 1 << 14

// sumSmooth returns the sum of f from first to last, both included. If parts is 32, which divides
// last − first, it adds up the ends of so many parts only: the sum in steps of h, half of it at the ends,
// is a series in h² (Euler and Maclaurin), taken from four steps to h = 1.
// Relative error then: 1e-10 for a law of deviation s, if the block is no longer than s/4 and, z > 9
// deviations from the mean, than s·9/(4z).
func sumSmooth(first, last, parts int64, f func(int64) float64) (sum float64) {
	if parts == 1 {
		for h := first; h <= last; h++ {
			sum += f(h)
		}
		return sum
	}
	ends := (f(first) + f(last)) / 2
	var step, value []float64   // squares of steps, and the sums
	inner, every := 0., parts/4 // parts a step
	for h := every; h < parts; h += every {
		inner += f(first + h*((last-first)/parts))
	}
	for {
		width := float64((last - first) / parts * every)
		step, value = append(step, width*width), append(value, width*(ends+inner))
		if every == 1 {
			break
		}
		for h := every / 2; h < parts; h += every {
			inner += f(first + h*((last-first)/parts))
		}
		every /= 2
	}
	for order := 1; order < len(value); order++ { // Neville
		for i := range len(value) - order {
			value[i] = value[i+1] + (value[i+1]-value[i])*(1-step[i+order])/(step[i+order]-step[i])
		}
	}
	return value[0] + ends
}

// thinned covers the number of honest reports that arrive, if their number before drop-outs is
// covered by drawn, and that of the arrivals among n of them by arrivals(n). mean is the mean.
// Any part of the two laws gives a part of the law.
func thinned(drawn []spanned, mean float64, width func(mean, deviation, z float64) int64, arrivals func(n int64) []spanned) []spanned {
	// Spans whose ends lie in the same two cells are joined.
	var cells []int64 // where cells begin; 0 has a cell of its own
	deviation := math.Max(1, math.Sqrt(mean))
	step := func(k int64) int64 {
		away := math.Abs(float64(k) - mean)
		return max(width(mean, deviation, away/deviation), int64(away/32)) // far away few cells will do
	}
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
	var out []spanned
	for _, h := range drawn {
		arrived := []spanned{{0, 0, 1}}
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
			out[i] = spanned{min(out[i].First, s.First), max(out[i].Last, s.Last), out[i].Weight + s.Weight}
		}
	}
	slices.SortFunc(out, func(a, b spanned) int {
		if a.First != b.First {
			return int(a.First - b.First)
		}
		return int(a.Last - b.Last)
	})
	return out
}
