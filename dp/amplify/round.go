package amplify

import (
	"math"
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// arrivalError is the relative width of a block of k at the mean. A block of relative width w
// costs up to ¾w of ε: the size of its shuffle is off by up to w, which moves ε by w/2, and
// its inclusion by up to w, which moves ε by w. On average over the block it is half of that.
const arrivalError = 5e-4

// blockWidth returns the width of a block of k at z deviations from the mean that costs err
// of ε there. For a given number of blocks, widths proportional to density^(−½) cost least.
func blockWidth(err float64) func(mean, deviation, z float64) int64 {
	return func(mean, deviation, z float64) int64 {
		w := err * mean * math.Exp(z*z/4)
		return max(1, int64(math.Min(w, deviation/2)))
	}
}

// A crowd describes how shuffled reports hide each other. For each number k of reports, given
// returns the law of a number U in [−1, 1], from which a round's losses follow (see law.go).
// The law is symmetric, so it is given by the masses on the nodes u > 0 of an axis. More
// reports hide more.
type crowd interface {
	given(k int64) []float64
	on() outcomes
}

// roundOf returns the pair of a round with k reports and inclusion gamma.
func roundOf(c crowd, k int64, gamma float64) dp.Pair {
	return dp.Pair{Atoms: c.on().atoms(nil, c.given(k), 1, gamma)}
}

// arrivalOf returns the mixture over blocks of k, which is public, of rounds of n clients, of
// whom about mean report.
func arrivalOf(c crowd, blocks []spanned, n int64, mean float64) dp.Pair {
	b := c.on()
	var atoms []dp.Atom
	mix, ok := c.(mixer)
	if ok {
		atoms = mixtureOf(mix, blocks, n, mix.inclusions())
	}
	for _, k := range blocks {
		if k.Last > 0 && !ok { // no reports: loss 0
			atoms = b.atoms(atoms, c.given(max(1, k.First)), k.Weight, float64(k.Last)/float64(n))
		}
	}
	// All k share one set of nodes: the losses at the middle inclusion, and larger ones.
	nodes := []float64{0}
	for _, u := range b.axis.u[1:] {
		nodes = append(nodes, b.loss(u, mean/float64(n)))
	}
	for _, k := range blocks {
		if l := b.loss(1, float64(k.Last)/float64(n)); l > nodes[len(nodes)-1] {
			nodes = append(nodes, l)
		}
	}
	return dp.Pair{Atoms: merge(atoms, nodes)}
}

// spanned is a block of values of k with its probability.
type spanned struct {
	First, Last int64
	Weight      float64
}

// Arrivals covers k ~ Bin(n, p) by blocks whose weights add up to at least 1.
func Arrivals(n int64, p float64) []spanned { return spans(n, p, 1-p, blockWidth(arrivalError)) }

// spans covers Bin(n, p). The bulk is in blocks whose widths depend on the distance from the
// mean. The tails are in faster growing blocks, each with the weight of the whole tail from
// there on.
func spans(n int64, p, q float64, widthAt func(mean, deviation, z float64) int64) []spanned {
	return spansGrowing(n, p, q, widthAt, nodeGrowth)
}

// spansGrowing is spans with blocks of the tails that grow by a factor.
func spansGrowing(n int64, p, q float64, widthAt func(mean, deviation, z float64) int64, growth float64) []spanned {
	lo, hi := tail.Window(n, p, q, 1e-17, 1e-17)
	var out []spanned
	mean := float64(n) * p
	deviation := math.Sqrt(mean * q)
	above := remembered(func(x int64) float64 { return tail.Survival(n, x, p, q) })
	below := remembered(func(x int64) float64 { return tail.Survival(n, n-x+1, q, p) })
	from := lo
	if lo == 0 { // k = 0 must have a block of its own
		out, from = append(out, spanned{0, 0, math.Exp(tail.LogPMF(n, 0, p, q))}), 1
	}
	for from <= hi {
		width := widthAt(mean, deviation, math.Abs(float64(from)-mean)/math.Max(1, deviation))
		if float64(from) < mean {
			// Towards the mean, a block's width is the width computed at its far end.
			far := widthAt(mean, deviation, math.Max(0, mean-float64(from+width))/math.Max(1, deviation))
			width = min(width, far)
		}
		to := min(hi, from+width-1)
		var w float64
		switch {
		case width <= 64:
			tail.PMF(n, p, q, from, to, func(_ int64, mass float64) { w += mass })
		case float64(from) > mean: // from whichever tails are small
			w = above(from) - above(to+1)
		default:
			w = below(to+1) - below(from)
		}
		// Rounding of the weights must not lose mass.
		out = append(out, spanned{from, to, w * (1 + 1e-10)})
		from = to + 1
	}
	// grow returns the end of the next block, away from the mean, in a tail.
	grow := func(end int64) int64 { return int64(mean + (float64(end)-mean)*growth) }
	for end := lo; end > 0; { // the tail k < end
		first := max(0, min(end-1, grow(end)))
		w := tail.Survival(n, n-end+1, q, p)
		if w < 1e-290 {
			first, w = 0, 1e-290
		}
		out = append(out, spanned{first, end - 1, w})
		end = first
	}
	for end := hi; end < n; { // the tail k > end
		last := min(n, max(end+1, grow(end)))
		w := tail.Survival(n, end+1, p, q)
		if w < 1e-290 {
			last, w = n, 1e-290
		}
		out = append(out, spanned{end + 1, last, w})
		end = last
	}
	return out
}

// remembered returns f with a memory of its last two values: neighbouring blocks share an end.
func remembered(f func(int64) float64) func(int64) float64 {
	at, value := [2]int64{-1, -1}, [2]float64{}
	return func(x int64) float64 {
		if x == at[0] {
			return value[0]
		}
		if x != at[1] {
			at[1], value[1] = x, f(x)
		}
		at[0], at[1], value[0], value[1] = at[1], at[0], value[1], value[0]
		return value[0]
	}
}

// SampledLoss is log(1 + γ(e^L − 1)), also where e^L would overflow.
func SampledLoss(loss, gamma float64) float64 {
	if loss > 500 {
		return loss + math.Log(gamma+(1-gamma)*math.Exp(-loss))
	}
	return math.Log1p(gamma * math.Expm1(loss))
}

// outcomes converts the values u of U to losses.
type outcomes struct {
	eps0 float64
	axis *axis
}

func (o outcomes) on() outcomes { return o }

// builder is the crowd of clones. Its axis suits numbers of reports near the one it is made
// for.
type builder struct {
	outcomes
	rate  float64
	width int64 // the number of clones plus one is rounded down to multiples of width
	rows  map[int64][]float64
}

// cloneError is the relative error of ε that blocks of clones may cause: ε moves by a quarter
// of a block's relative width.
const cloneError = 1e-5

func newBuilder(eps0, rate float64, reports int64, core, err float64, g grain) *builder {
	mean := 1 + rate*float64(reports-1)
	return &builder{outcomes: outcomes{eps0, newAxis(mean, core, g)}, rate: rate,
		width: max(1, int64(4*err*g.blocks*mean)), rows: map[int64][]float64{}}
}

// given returns the one-sided masses of U for k reports.
func (b *builder) given(k int64) []float64 {
	mass := make([]float64, len(b.axis.u))
	for _, block := range cloneBlocks(k-1, b.rate, b.width) {
		// Sizes are rounded down to whole blocks, so that several k share rows.
		m := max(1, (block.clones+1)/b.width*b.width)
		row, ok := b.rows[m]
		if !ok {
			row = b.axis.law(m)
			b.rows[m] = row
		}
		for i, w := range row {
			mass[i] += block.weight * w
		}
	}
	return mass
}

// loss is log(1 + γ(P/Q − 1)) at u, with P/Q − 1 = 2tu/(1 − tu).
func (b outcomes) loss(u, gamma float64) float64 {
	shrink := math.Exp(-b.eps0)
	t := -math.Expm1(-b.eps0) / (1 + shrink)
	under := (1 - u) + u*2*shrink/(1+shrink) // 1 − tu, exact even if t rounds to 1
	return math.Log1p(gamma * 2 * t * u / under)
}

// atoms appends to a list the outcomes of a round with the given inclusion gamma, from the
// masses of U on the nodes; weight is the round's probability.
func (b outcomes) atoms(to []dp.Atom, mass []float64, weight, gamma float64) []dp.Atom {
	shrink := math.Exp(-b.eps0)
	for i, w := range mass {
		if u := b.axis.u[i]; i > 0 && w > 0 {
			under := (1 - u) + u*2*shrink/(1+shrink)
			to = append(to, dp.Atom{Q: weight * w * under, Loss: b.loss(u, gamma)})
		}
	}
	return to
}

// merge splits each atom between the two nodes around it so that its mass is kept under both
// laws. Nodes rise from 0 and reach beyond every loss.
func merge(atoms []dp.Atom, nodes []float64) []dp.Atom {
	mass := make([]float64, len(nodes))
	for _, a := range atoms {
		i, found := slices.BinarySearch(nodes, a.Loss)
		if found || i == 0 {
			mass[i] += a.Q
			continue
		}
		// The Q-masses x and y satisfy x + y = q and x e^lo + y e^hi = q e^L.
		lo := nodes[i-1]
		up := math.Min(1, math.Expm1(a.Loss-lo)/math.Expm1(nodes[i]-lo))
		mass[i] += a.Q * up
		mass[i-1] += a.Q * (1 - up)
	}
	var out []dp.Atom
	for i, q := range mass {
		if i > 0 && q > 0 {
			out = append(out, dp.Atom{Q: q, Loss: nodes[i]})
		}
	}
	return out
}
