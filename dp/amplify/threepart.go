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
	victim, beside float64 // a(E+1) and w
	third, useless float64 // (w/c)/(1 − 2a), and 1 less it with its own digits
	width          int64   // width of blocks of n′
	rows           map[rowKey]row
	// scales are the falling values of ρ that are distinguished, and lacks 1 less them, with
	// their own digits: near ρ = 1 the loss depends on 1 − ρ.
	scales, lacks []float64
}

type rowKey struct {
	m     int64
	scale int
}

// row lists the nodes of a law that have mass: few if m is small.
type row struct {
	node []int32
	mass []float64
}

func sparse(law []float64) row {
	var r row
	for i, w := range law {
		if w > 0 {
			r.node, r.mass = append(r.node, int32(i)), append(r.mass, w)
		}
	}
	return r
}

// newThreePart returns a crowd for numbers of reports near k; err is the relative error of ε
// that blocks may cause.
func newThreePart(f Family, k int64, err float64) *threePart {
	t := &threePart{kappa: f.kappa, pair: f.pair, single: f.single, victim: f.victim, beside: f.beside,
		third: math.Min(1, f.other/f.single), useless: math.Min(1, f.useless/f.single), rows: map[rowKey]row{}}
	n := float64(k-1)*f.pair + f.victim
	crowd := math.Max(1, n) + f.kappa*(float64(k-1)*f.other+f.beside)
	step := wideStep
	if crowd < 40 {
		step = narrowStep
	}
	// The steps are equal relative steps of the loss; near ρ = 1 these are small steps of ρ.
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
	t.outcomes = outcomes{f.eps0, newAxis(crowd*crowd/math.Max(1, n), wideDeviations)}
	if crowd < 1e4 {
		t.axis.refine(func(u float64) float64 { return t.loss(u, 1) }, at)
	}
	t.width = max(1, int64(4*err*n))
	return t
}

// Relative steps between values of ρ. They add at most a quarter of their square to the
// variance of U, and an eighth to ε. In a small crowd the values are few and far apart.
const (
	wideStep   = 0.03
	narrowStep = 0.01
	// chordStep is the relative width of blocks of the number of reports on the third symbol.
	chordStep = 0.01
)

// refine inserts nodes beyond the uniform ones, and between those of large losses, so that
// neighbours' losses differ by about a hundredth.
func (a *axis) refine(loss, at func(float64) float64) {
	for a.uniform > 1 && loss(a.u[a.uniform])-loss(a.u[a.uniform-1]) > narrowStep*loss(a.u[a.uniform]) {
		a.uniform--
	}
	a.u = a.u[:a.uniform+1]
	for top := loss(1); a.u[len(a.u)-1] < 1; {
		next := loss(a.u[len(a.u)-1]) * (1 + narrowStep)
		if next >= top*(1-1e-9) {
			a.u = append(a.u, 1)
			break
		}
		a.u = append(a.u, math.Min(1, math.Max(at(next), a.u[len(a.u)-1]*(1+1e-12))))
	}
}

// given returns the one-sided masses of U for k reports.
func (t *threePart) given(k int64) []float64 {
	mass := make([]float64, len(t.axis.u))
	weights := &tallied{at: map[rowKey]int{}}
	width := func(_, _, _ float64) int64 { return t.width }
	for _, b := range spans(k-1, t.pair, t.single, width) {
		t.sizes(weights, b.Weight*t.victim, b.First+1, b.Last+1, k-1-b.Last, 0)
		if t.beside > 0 {
			t.sizes(weights, b.Weight*t.beside, b.First, b.Last, k-1-b.Last, 1)
		}
	}
	for n, key := range weights.keys {
		r, ok := t.rows[key]
		if !ok {
			r = sparse(t.axis.scaled(key.m, t.scales[key.scale], t.lacks[key.scale]))
			t.rows[key] = r
		}
		w := weights.mass[n] * (1 + 1e-11)
		for i, node := range r.node {
			mass[node] += w * r.mass[i]
		}
	}
	return mass
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

// tallied sums masses by row, in order of appearance.
type tallied struct {
	at   map[rowKey]int
	keys []rowKey
	mass []float64
}

func (t *tallied) add(key rowKey, w float64) {
	i, ok := t.at[key]
	if !ok {
		i = len(t.keys)
		t.at[key], t.keys, t.mass = i, append(t.keys, key), append(t.mass, 0)
	}
	t.mass[i] += w
}

// sizes adds the contribution of rounds in which between first and last reports are on the
// first two symbols, and j + extra on the third with j ~ Bin(others, third). As n′ grows, U
// given n′ falls in convex order and ρ grows. So the pair of the smallest n′ and the largest ρ
// dominates.
func (t *threePart) sizes(weights *tallied, weight float64, first, last, others, extra int64) {
	if last == 0 {
		return // nothing distinguishes the neighbours: loss 0
	}
	// Sizes are whole blocks, so that several k share rows.
	m := max(1, first/t.width*t.width)
	rho := func(j float64) part {
		n, beside := float64(last), t.kappa*(j+float64(extra))
		return part{n / (n + beside), beside / (n + beside)}
	}
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
		i := max(at, 0)
		for i > 0 && !t.reaches(i, r) {
			i--
		}
		for i+2 < len(t.scales) && t.reaches(i+1, r) {
			i++
		}
		if i != at {
			flush()
			at, hi, lo = i, 0, 0
		}
		// Split the mass between the two nodes so that the mean is kept.
		share := (r.whole - t.scales[i+1]) / (t.scales[i] - t.scales[i+1])
		if r.less < .5 {
			share = (t.lacks[i+1] - r.less) / (t.lacks[i+1] - t.lacks[i])
		}
		share = math.Min(1, math.Max(0, share)+1e-12)
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
	if hi-lo <= 1024 {
		tail.PMF(n, p, q, lo, hi, func(j int64, w float64) { put(rho(float64(j)), w*(1+1e-11)) })
	} else {
		width := max(1, int64(chordStep*(float64(base)/math.Max(t.kappa, 1e-3)+mean)))
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
