package amplify

import (
	"math"

	"github.com/riffle-dp/riffle/internal/tail"
)

// threePart is the crowd of a pair with a third part that does not distinguish the
// neighbours. The victim's report is on the first, second or third symbol with probability
// Ea, a, w under P and a, Ea, w under Q, w = 1 − a(E+1). Every other report is on one of
// these symbols with probability a, a, w/c; otherwise it is recognised as something else. c =
// 1 is the blanket of k-ary randomized response, c = E that of a randomizer of known total
// variation. See threepart.md.
//
// Let n′ reports be on the first two symbols with difference d, and b on the third. Then U =
// d/(n′ + κb), κ = 2c/(E+1). Given n′, U has the law of clones, shrunk by ρ = n′/(n′ + κb).
type threePart struct {
	outcomes
	kappa          float64
	pair, single   float64 // 2a, and the probability 1 − 2a of any other symbol
	other          float64 // w/c
	victim, beside float64 // a(E+1) and w
	third, useless float64 // (w/c)/(1 − 2a), and 1 less it with its own digits
	nothing        float64 // the probability of something else
	width          int64   // width of blocks of n′
	grain          grain
	rows           map[rowKey]row
	// scales are the falling values of ρ that are distinguished, and lacks 1 less them, with
	// their own digits: near ρ = 1 the loss depends on 1 − ρ.
	scales, lacks []float64
	// These are for mixtures over k; see mixed.
	whole int64 // width of blocks of n′ + b
	laws  map[int64][]tally
	all   *tallied
}

type rowKey struct {
	m     int64
	scale int
}

// row is a law on nodes: the masses from a node on or, if node is not nil, those of the nodes that
// have mass, which are few if m is small.
type row struct {
	from int
	node []int32
	mass []float64
}

func sparse(law []float64) row {
	from, end, count := len(law), 0, 0
	for i, w := range law {
		if w > 0 {
			from, end, count = min(from, i), i+1, count+1
		}
	}
	if 2*count > end-from {
		return row{from: from, mass: law[from:end]}
	}
	r := row{node: make([]int32, 0, count), mass: make([]float64, 0, count)}
	for i, w := range law {
		if w > 0 {
			r.node, r.mass = append(r.node, int32(i)), append(r.mass, w)
		}
	}
	return r
}

// add adds w times the row to masses.
func (r row) add(to []float64, w float64) {
	if r.node == nil {
		to = to[r.from : r.from+len(r.mass)]
		for i, x := range r.mass {
			to[i] += w * x
		}
		return
	}
	for i, node := range r.node {
		to[node] += w * r.mass[i]
	}
}

// newThreePart returns a crowd for numbers of reports near k; err is the relative error of ε
// that blocks may cause.
func newThreePart(f Family, k int64, err float64) *threePart {
	g := f.grain()
	t := &threePart{grain: g, kappa: f.kappa, pair: f.pair, single: f.single, victim: f.victim, beside: f.beside, other: f.other, nothing: f.useless,
		third: math.Min(1, f.other/f.single), useless: math.Min(1, f.useless/f.single), rows: map[rowKey]row{},
		laws: map[int64][]tally{}, all: &tallied{at: map[int64][]int32{}}}
	n := float64(k-1)*f.pair + f.victim
	crowd := math.Max(1, n) + f.kappa*(float64(k-1)*f.other+f.beside)
	step := g.scales
	if crowd < 40 {
		step = g.losses // the values are few and far apart
	}
	// The steps are equal relative steps of the loss; near ρ = 1 these are small steps of ρ. They
	// add at most a quarter of their square to the variance of U, and an eighth to ε.
	at := func(loss float64) float64 { return math.Min(1, math.Tanh(loss/2)/math.Tanh(f.eps0/2)) }
	for x := 0.; x == 0 || t.scales[len(t.scales)-1] > 1e-18; x++ {
		loss := f.eps0 * math.Exp(-step*x)
		scale := at(loss)
		lack := 1 - scale
		if scale > .5 { // tanh a − tanh b = sinh(a − b)/(cosh a·cosh b)
			lack = math.Sinh(-math.Expm1(-step*x)*f.eps0/2) / (math.Sinh(f.eps0/2) * math.Cosh(loss/2))
			scale = 1 - lack
		}
		t.scales, t.lacks = append(t.scales, scale), append(t.lacks, lack)
	}
	t.outcomes = outcomes{f.eps0, newAxis(crowd*crowd/math.Max(1, n), wideDeviations, g)}
	if crowd < 1e4 {
		t.axis.refine(g.losses, func(u float64) float64 { return t.loss(u, 1) }, at)
	}
	t.width = max(1, int64(2*err*g.blocks*n))
	t.whole = max(1, int64(.5*err*g.blocks*float64(k-1)*(f.pair+f.other)))
	return t
}

// refine inserts nodes beyond the uniform ones, and between those of large losses, so that
// neighbours' losses differ by about the given relative step.
func (a *axis) refine(step float64, loss, at func(float64) float64) {
	for a.uniform > 1 && loss(a.u[a.uniform])-loss(a.u[a.uniform-1]) > step*loss(a.u[a.uniform]) {
		a.uniform--
	}
	a.u = a.u[:a.uniform+1]
	for top := loss(1); a.u[len(a.u)-1] < 1; {
		next := loss(a.u[len(a.u)-1]) * (1 + step)
		if next >= top*(1-1e-9) {
			a.u = append(a.u, 1)
			break
		}
		a.u = append(a.u, math.Min(1, math.Max(at(next), a.u[len(a.u)-1]*(1+1e-12))))
	}
}

// given returns the one-sided masses of U for k reports.
func (t *threePart) given(k int64) []float64 {
	weights := &tallied{at: map[int64][]int32{}}
	width := func(_, _, _ float64) int64 { return t.width }
	for _, b := range spans(k-1, t.pair, t.single, width) {
		t.sizes(weights, b.Weight*t.victim, b.First+1, b.Last+1, k-1-b.Last, 0)
		if t.beside > 0 {
			t.sizes(weights, b.Weight*t.beside, b.First, b.Last, k-1-b.Last, 1)
		}
	}
	return t.sum(weights)
}

// sum adds up rows with their weights.
func (t *threePart) sum(weights *tallied) []float64 {
	// In mixtures unlikely rows are joined: fewer reports, and a larger ρ.
	for n := range weights.keys {
		if w := weights.mass[n]; w > 0 && w <= unlikely && weights == t.all {
			weights.mass[n] = 0
			far := weights.coarse(n) // may move weights.mass
			weights.mass[far] += w
		}
	}
	mass := make([]float64, len(t.axis.u))
	for n, w := range weights.mass {
		if w > 0 {
			t.row(weights.keys[n]).add(mass, w*(1+1e-11))
		}
	}
	return mass
}

func (t *threePart) row(key rowKey) row {
	r, ok := t.rows[key]
	if !ok {
		r = sparse(t.axis.scaled(key.m, t.scales[key.scale], t.lacks[key.scale]))
		t.rows[key] = r
	}
	return r
}

// part is a value of ρ, and 1 less it with its own digits.
type part struct{ whole, less float64 }

// reaches says whether a node is at least r.
func (t *threePart) reaches(node int, r part) bool {
	if r.less < .5 {
		return t.lacks[node] <= r.less
	}
	return t.scales[node] >= r.whole
}

// sized is the number of reports on the first two symbols as which n are counted. Sizes are whole blocks, so
// that rows are shared.
func (t *threePart) sized(n int64) int64 { return max(1, n/t.width*t.width) }

// rho is ρ for n reports on the first two symbols and b on the third.
func (t *threePart) rho(n int64, b float64) part {
	whole, beside := float64(n), t.kappa*b
	return part{whole / (whole + beside), beside / (whole + beside)}
}

// node is the first of the two nodes around r; the search begins at one of them.
func (t *threePart) node(i int, r part) int {
	for i > 0 && !t.reaches(i, r) {
		i--
	}
	for i+2 < len(t.scales) && t.reaches(i+1, r) {
		i++
	}
	return i
}

// share is the share of r's mass that goes to node i, and the rest to the next one, so that the mean is
// kept.
func (t *threePart) share(i int, r part) float64 {
	share := (r.whole - t.scales[i+1]) / (t.scales[i] - t.scales[i+1])
	if r.less < .5 {
		share = (t.lacks[i+1] - r.less) / (t.lacks[i+1] - t.lacks[i])
	}
	return math.Min(1, math.Max(0, share)+1e-12)
}

// tallied sums masses by row, in order of appearance.
type tallied struct {
	at   map[int64][]int32 // by m and scale: the place, plus 1
	keys []rowKey
	mass []float64
	far  []int // the places of coarser rows, plus 1
}

func (t *tallied) add(key rowKey, w float64) {
	i := t.index(key) // may move t.mass
	t.mass[i] += w
}

func (t *tallied) index(key rowKey) int {
	at := t.at[key.m]
	for len(at) <= key.scale {
		at = append(at, make([]int32, key.scale/2+16)...)
		t.at[key.m] = at
	}
	if at[key.scale] == 0 {
		t.keys, t.mass, t.far = append(t.keys, key), append(t.mass, 0), append(t.far, 0)
		at[key.scale] = int32(len(t.keys))
	}
	return int(at[key.scale]) - 1
}

// coarse returns the place of a row with a few bits of a row's m, and one of every fourth scale: a larger
// loss.
func (t *tallied) coarse(n int) int {
	if t.far[n] == 0 {
		key := t.keys[n]
		far := 1 + t.index(rowKey{max(1, coarser(key.m, 1, 0)), key.scale / 4 * 4})
		t.far[n] = far
	}
	return t.far[n] - 1
}

// sizes adds the contribution of rounds in which between first and last reports are on the
// first two symbols, and j + extra on the third with j ~ Bin(others, third). As n′ grows, U
// given n′ falls in convex order and ρ grows. So the pair of the smallest n′ and the largest ρ
// dominates.
func (t *threePart) sizes(weights *tallied, weight float64, first, last, others, extra int64) {
	if last == 0 {
		return // nothing distinguishes the neighbours: loss 0
	}
	m := t.sized(first)
	rho := func(j float64) part { return t.rho(last, j+float64(extra)) }
	// hi and lo collect the mass on the node with index at and on the next one. As j comes in
	// order, they are flushed when ρ leaves these two nodes.
	at, hi, lo := -1, 0., 0.
	flush := func() {
		if at >= 0 {
			weights.add(rowKey{m, at}, weight*hi)
			weights.add(rowKey{m, at + 1}, weight*lo)
		}
	}
	put := func(r part, w float64) {
		i := t.node(max(at, 0), r)
		if i != at {
			flush()
			at, hi, lo = i, 0, 0
		}
		share := t.share(i, r)
		hi += w * share
		lo += w * (1 - share)
	}
	defer func() { flush() }()
	if others == 0 || t.third == 0 || t.kappa == 0 {
		put(rho(0), 1)
		return
	}
	t.thirds(others, last+extra, rho, put)
}

// thirds covers j ~ Bin(n, third) by values of ρ, which is convex and falling in j. If j has
// many values, the law of ρ in a block is replaced by one on its two ends.
func (t *threePart) thirds(n, base int64, rho func(float64) part, put func(r part, w float64)) {
	p, q := t.third, t.useless
	lo, hi := tail.Window(n, p, q, 1e-17, 1e-17)
	mean := float64(n) * p
	width := max(1, int64(t.grain.chord*float64(base+lo)))
	switch {
	case hi-lo <= t.grain.each:
		tail.PMF(n, p, q, lo, hi, func(j int64, w float64) { put(rho(float64(j)), w*(1+1e-11)) })
	case hi-lo <= t.grain.listed:
		from, to := lo, min(lo+width, hi+1)
		var sum, moment float64
		tail.PMF(n, p, q, lo, hi, func(j int64, w float64) {
			sum += w
			moment += w * float64(j-from)
			if j+1 == to {
				at := 0.
				if sum > 0 {
					at = math.Max(0, moment/(sum*float64(to-from))-1e-11)
				}
				sum *= 1 + 1e-11
				put(rho(float64(to)), sum*at)
				put(rho(float64(from)), sum*(1-at))
				sum, moment = 0, 0
				from, to = to, min(to+width, hi+1)
			}
		})
	default:
		width = max(1, int64(t.grain.chord*(float64(base)/math.Max(t.kappa, 1e-3)+mean)))
		// E[j − mean; j ≥ x] = x·q·Pr[j = x].
		moment := func(x int64) float64 {
			if x > n {
				return 0
			}
			return float64(x) * q * math.Exp(tail.LogPMF(n, x, p, q))
		}
		m0 := moment(lo)
		for from := lo; from <= hi; {
			to := min(from+width, hi+1)
			m1 := moment(to)
			w, at := between(n, p, q, from, to), 0.
			if w > 0 {
				at = (mean + (m0-m1)/w - float64(from)) / float64(to-from)
			}
			// The differences lose digits, so shift a little mass to the smaller j, where ρ is larger.
			at = math.Min(1, math.Max(0, at-1e-8))
			w = math.Max(0, w) * (1 + 1e-9)
			put(rho(float64(to)), w*at)
			put(rho(float64(from)), w*(1-at))
			from, m0 = to, m1
		}
	}
	if hi < n {
		put(rho(float64(hi)), 1e-17) // the mass that the window may leave out
	}
	for end := lo; end > 0; { // the tail j < end
		next := max(0, min(end-1, int64(mean-(mean-float64(end))*1.4)))
		w := tail.UpperTail(n, n-end+1, q, p)
		if w < 1e-290 {
			next, w = 0, 1e-290
		}
		put(rho(float64(next)), w)
		end = next
	}
}
