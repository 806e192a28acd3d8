package certificate

import (
	"maps"
	"math"
	"math/big"
	"slices"

	"github.com/riffle-dp/riffle/dp"
)

// reporters describes which honest clients report in a round: of n of them a uniform subset
// of size asked, and each of their reports arrives with probability chance. If colluders are
// among the clients that are drawn, asked is the largest number of honest ones.
type reporters struct {
	n, asked int64
	chance   *big.Float
	// With colluders, drawn of the n + colluders clients are drawn.
	drawn, colluders int64
}

func (q Query) reporters() reporters {
	honest := q.N - q.Colluders
	r := reporters{n: honest, asked: honest, chance: real(1)}
	switch {
	case q.Trust.Is(dp.Alone): // every report stands alone
		return reporters{n: 1, asked: 1, chance: real(1)}
	case q.Participation == dp.Sampled:
		r.asked = min(q.K, honest)
		if q.Colluders > 0 && q.K < q.N {
			r.drawn, r.colluders = q.K, q.Colluders
		}
	case q.Participation == dp.Once: // it is public who is in which batch; all colluders may be in it
		r.asked = max(1, q.K-q.Colluders)
		r.n = r.asked
	case q.Participation == dp.CheckIn:
		r.chance = real(q.Gamma)
	}
	r.chance = mul(r.chance, sub(real(1), real(q.Dropout)))
	return r
}

// fixed says whether asked is the number of honest reports.
func (r reporters) fixed() bool { return r.colluders == 0 && r.chance.Cmp(real(1)) >= 0 }

// number returns the law of the number of honest reports, as binomial does; with colluders, of
// the honest clients who are drawn.
func (r reporters) number(ctx *work, tiny *big.Float, block func(k int64) int64) ([]share, error) {
	if r.colluders == 0 {
		return binomial(ctx, r.asked, r.chance, tiny, block)
	}
	// h of drawn are honest. The next h has (n−h)(drawn−h)/((h+1)(colluders−drawn+h+1) of its probability.
	least := max(0, r.drawn-r.colluders)
	mode, _ := quo(mul(whole(r.drawn+1), whole(r.n+1)), whole(r.n+r.colluders+2)).Int64()
	share, rest := float64(r.n)/float64(r.n+r.colluders), float64(r.n+r.colluders-r.drawn)/float64(r.n+r.colluders)
	deviation := math.Sqrt(float64(r.drawn) * share * (1 - share) * rest)
	return unimodal(ctx, least, r.asked, min(max(mode, least), r.asked), deviation, tiny, block, func(h int64) *big.Float {
		return quo(mul(whole(r.n-h), whole(r.drawn-h)), mul(whole(h+1), whole(r.colluders-r.drawn+h+1)))
	})
}

// share is a block of values with its probability.
type share struct {
	block  int64
	weight *big.Float
}

// binomial returns an upper bound on the probability of each block of values of Bin(n, p), in
// pieces; at most 2·tiny of the mass is left out.
func binomial(ctx *work, n int64, p, tiny *big.Float, block func(x int64) int64) ([]share, error) {
	if p.Cmp(real(1)) >= 0 {
		return []share{{block(n), real(1)}}, nil
	}
	odds := quo(p, sub(real(1), p))
	mode, _ := mul(whole(n+1), p).Int64()
	chance, _ := p.Float64()
	return unimodal(ctx, 0, n, min(mode, n), math.Sqrt(float64(n)*chance*(1-chance)), tiny, block, func(x int64) *big.Float { return quo(mul(odds, whole(n-x)), whole(x+1)) })
}

// unimodal is binomial for a law on least … most with the given mode and standard deviation, of which ratio(x) is the
// probability of x+1 over that of x. Weights run from the mode, which has weight 1, to both
// sides, so that their sum normalises them. They are log-concave: after a weight w with ratio ρ
// to the next, all further weights add up to at most wρ/(1−ρ).
func unimodal(ctx *work, least, most, mode int64, deviation float64, tiny *big.Float, block func(x int64) int64, ratio func(x int64) *big.Float) ([]share, error) {
	count, end, err := ctx.weights(deviation, mode-least, most-mode, tiny)
	if err != nil {
		return nil, err
	}
	defer end()
	var out []share
	sum := new(big.Float).SetPrec(precision)
	bits := tiny.MantExp(nil)
	for _, up := range []bool{true, false} {
		x, w := mode, real(1)
		for first := true; ; first = false {
			if err := count(); err != nil {
				return nil, err
			}
			if len(out) > maxPieces {
				return nil, tooFine()
			}
			if first == up || !first { // the mode counts once
				if b := block(x); len(out) == 0 || out[len(out)-1].block != b {
					out = append(out, share{b, real(0)})
				}
				last := out[len(out)-1].weight
				last.Add(last, w)
				sum.Add(sum, w)
			}
			if up && x == most || !up && x == least {
				break
			}
			var next *big.Float
			if up {
				next = ratio(x)
				x++
			} else {
				x--
				next = quo(real(1), ratio(x))
			}
			if w.MantExp(nil) < bits && mul(w, next).Cmp(mul(tiny, sub(real(1), next))) <= 0 {
				break
			}
			w.Mul(w, next)
		}
	}
	for _, s := range out {
		s.weight.Quo(s.weight, sum)
	}
	return out, nil
}

// maxPieces bounds what a document can make the checker hold at once: the pieces of a law, and
// the pairs of a block of reports and a grid loss. Writers need some hundred thousand.
const maxPieces = 1 << 21

func tooFine() error {
	return reject("blocks of clones or reports are too fine for the checker, which holds %d numbers", maxPieces)
}

// coin returns, for rising thresholds a > n/2, an upper bound on Pr[B = a−1] and
// a lower bound on Pr[B ≥ a] for B ~ Bin(n, ½), each within tiny.
func coin(ctx *work, n int64, thresholds []int64, tiny *big.Float) (point, tail []*big.Float, err error) {
	x := (n + 1) / 2
	count, end, err := ctx.weights(math.Sqrt(float64(n))/2, 0, n-x, tiny)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	w, upto := real(1), real(1) // weight of x, and of everything from the middle to x
	bits := tiny.MantExp(nil)
	ratio := new(big.Float).SetPrec(precision)
	for {
		if err := count(); err != nil {
			return nil, nil, err
		}
		for len(point) < len(thresholds) && thresholds[len(point)] <= x+1 {
			point, tail = append(point, new(big.Float).Set(w)), append(tail, new(big.Float).Set(upto))
		}
		if x == n {
			break
		}
		ratio.Quo(whole(n-x), whole(x+1))
		if w.MantExp(nil) < bits && mul(w, ratio).Cmp(mul(tiny, sub(real(1), ratio))) <= 0 {
			break
		}
		w.Mul(w, ratio)
		upto.Add(upto, w)
		x++
	}
	least := add(upto, upto) // weight of both sides up to here
	if n%2 == 0 {
		least = sub(least, real(1))
	}
	most := mul(least, add(real(1), mul(tiny, real(4)))) // plus a bound on the rest
	for i := range point {
		point[i], tail[i] = quo(point[i], least), quo(sub(upto, tail[i]), most)
	}
	for len(point) < len(thresholds) {
		point, tail = append(point, tiny), append(tail, real(0))
	}
	return point, tail, nil
}

// curve bounds the hockey-stick divergence D_g of one round from above at each g ≥ 1 of a
// rising list, within 2^-40·infinite.
//
// Given C clones (reports that equally likely look like the client's under either dataset), m =
// C+1 reports hide each other. E is e^ε₀. The first count is 1+B or B with B ~ Bin(m−1, ½), and
// under P it is 1+B with odds of E to 1. With a the smallest first count whose likelihood ratio
// exceeds G,
//
//	D_G = (E − G)/(E+1)·Pr[B = a−1] − (G − 1)·Pr[B ≥ a],
//
// and k of n sampled reports give γ·D_G at G = 1 + (g−1)/γ, γ = k/n.
func (d Document) curve(ctx *work, g []*big.Float) ([]*big.Float, error) {
	if rays, err := d.rays(); rays != nil || err != nil {
		return d.curveOf(ctx, g, rays, err)
	}
	one, bigE := real(1), exp(real(d.Query.Eps0))
	rate := quo(real(2), add(bigE, one))
	if d.Claim.Method == ClonesPLD {
		rate = quo(one, bigE)
	}
	tiny := mul(real(d.Round.Infinite), two(-40))
	blocks, sizes, skipped, err := d.blocks(ctx, g, rate, tiny)
	if err != nil {
		return nil, err
	}
	product := new(big.Float).SetPrec(precision)
	defer ctx.begins("one round", int64(len(sizes)))()
	for _, m := range slices.Sorted(maps.Keys(sizes)) {
		ctx.advance(1)
		var thresholds []int64
		size := whole(m)
		for _, u := range sizes[m] {
			if err := ctx.step(int64(1 + len(u.of.part))); err != nil {
				return nil, err
			}
			for _, p := range u.of.part {
				a, _ := product.Mul(p, size).Int64()
				thresholds = append(thresholds, max(a, m/2)+1)
			}
		}
		distinct := slices.Compact(slices.Sorted(slices.Values(thresholds)))
		point, tail, err := coin(ctx, m-1, distinct, tiny)
		if err != nil {
			return nil, err
		}
		next := 0
		for _, u := range sizes[m] {
			for i := range u.of.part {
				at, _ := slices.BinarySearch(distinct, thresholds[next])
				u.of.point[i].Add(u.of.point[i], product.Mul(u.weight, point[at]))
				u.of.tail[i].Add(u.of.tail[i], product.Mul(u.weight, tail[at]))
				next++
			}
		}
	}
	out := make([]*big.Float, len(g))
	for i := range out {
		// Adds D ≤ 1 for the k or C that were left out, the mass beyond coin's reach, and
		// rounding.
		out[i] = add(skipped, add(mul(tiny, real(8)), two(-200)))
		for _, b := range blocks {
			if i < len(b.part) {
				divergence := sub(mul(b.gain[i], b.point[i]), mul(b.cost[i], b.tail[i]))
				out[i] = add(out[i], mul(mul(b.weight, b.gamma), divergence))
			}
		}
	}
	return out, nil
}

// reports is a block of values of k. At the i-th g, with G = 1 + (g−1)/γ, gain and cost are
// the factors of D_G, a is the threshold of part·m, and point and tail collect the
// probabilities over C.
type reports struct {
	weight, gamma                 *big.Float
	gain, cost, part, point, tail []*big.Float
}

// use is a case of a block, with its weight: m = C+1 reports hide each other.
type use struct {
	of     *reports
	weight *big.Float
}

// group is a block of numbers of reports, not 0, with its probability: size hide each other,
// and a client is in the round with probability gamma.
type group struct {
	weight, gamma *big.Float
	size          int64
}

// groups lists the blocks of k, for so many losses, of which at most 2·tiny is left out. In a block the smallest k
// gives the fewest reports that hide each other, and the largest k the largest inclusion.
func (d Document) groups(ctx *work, points int, tiny *big.Float) (out []group, err error) {
	who, starts := d.Query.reporters(), d.Round.Reports
	numbers, err := d.numbers(ctx, tiny)
	if err != nil {
		return nil, err
	}
	if len(numbers)*points > maxPieces {
		return nil, tooFine()
	}
	for _, k := range numbers {
		if k.to < 0 {
			continue // no reports
		}
		size, included := int64(1), who.asked
		if k.from > 0 {
			size = starts[k.from-1]
		}
		if int(k.to) < len(starts) {
			included = min(included, starts[k.to]-1)
		}
		if who.fixed() {
			size, included = who.asked, who.asked
		}
		out = append(out, group{k.weight, quo(whole(included), whole(who.n)), size})
	}
	return out, nil
}

// blocksOf are blocks of numbers of reports that follow each other, with their probability. Block
// −1 is 0, block 0 what comes before the first start.
type blocksOf struct {
	from, to int64
	weight   *big.Float
}

// numbers returns the law of the number of honest reports by blocks, of which at most 2·tiny is
// left out. Where colluders are drawn and others drop out it is by blocks of those drawn: of h to h′
// honest clients as many arrive as of h, and up to h′ − h more.
func (d Document) numbers(ctx *work, tiny *big.Float) (out []blocksOf, err error) {
	who := d.Query.reporters()
	starts := d.Round.Reports
	block := func(k int64) int64 {
		after, _ := slices.BinarySearch(starts, k+1)
		return int64(after) - int64(max(0, 1-k)) // k = 0: block −1
	}
	if !d.Query.thinned() || who.colluders == 0 {
		shares, err := who.number(ctx, tiny, block)
		for _, s := range shares {
			out = append(out, blocksOf{s.block, s.block, s.weight})
		}
		return out, err
	}
	tiny = mul(tiny, two(-1))
	begins := d.Round.Drawn
	drawn, err := who.number(ctx, tiny, func(h int64) int64 {
		after, _ := slices.BinarySearch(begins, h+1)
		return int64(after)
	})
	if err != nil {
		return nil, err
	}
	weights := map[[2]int64]*big.Float{}
	for _, h := range drawn {
		least, most := max(0, who.drawn-who.colluders), who.asked
		if h.block > 0 {
			least = max(least, begins[h.block-1])
		}
		if int(h.block) < len(begins) {
			most = min(most, begins[h.block]-1)
		}
		more := most - least
		// The block is of both ends, as one number.
		arrived, err := binomial(ctx, least, who.chance, tiny, func(k int64) int64 { return (block(k)+1)<<32 | (block(k+more) + 1) })
		if err != nil {
			return nil, err
		}
		for _, k := range arrived {
			ends := [2]int64{k.block>>32 - 1, k.block&(1<<32-1) - 1}
			if weights[ends] == nil {
				weights[ends] = real(0)
				out = append(out, blocksOf{ends[0], ends[1], weights[ends]})
			}
			weights[ends].Add(weights[ends], mul(h.weight, k.weight))
		}
		if len(out) > maxPieces {
			return nil, tooFine()
		}
	}
	return out, nil
}

// blocks lists the blocks of k and, for each m, the blocks that use it. It skips combinations
// of negligible weight and adds up their weights.
func (d Document) blocks(ctx *work, g []*big.Float, rate, tiny *big.Float) (blocks []*reports, sizes map[int64][]use, skipped *big.Float, err error) {
	one, bigE := real(1), exp(real(d.Query.Eps0))
	sizes, skipped = map[int64][]use{}, real(0)
	little := mul(tiny, two(-20))
	groups, err := d.groups(ctx, len(g), tiny)
	if err != nil {
		return nil, nil, nil, err
	}
	uses := 0
	for _, k := range groups {
		if err := ctx.step(int64(3 * len(g))); err != nil {
			return nil, nil, nil, err
		}
		b := &reports{weight: k.weight, gamma: k.gamma}
		for _, g := range g {
			G := add(one, quo(sub(g, one), b.gamma))
			if G.Cmp(bigE) >= 0 {
				break // no larger ratio exists
			}
			b.gain = append(b.gain, quo(sub(bigE, G), add(bigE, one)))
			b.cost = append(b.cost, sub(G, one))
			b.part = append(b.part, quo(sub(mul(G, bigE), one), mul(sub(bigE, one), add(G, one))))
			b.point, b.tail = append(b.point, real(0)), append(b.tail, real(0))
		}
		blocks = append(blocks, b)
		clones, err := binomial(ctx, k.size-1, rate, tiny, func(c int64) int64 {
			return max(1, (c+1)/d.Round.Clones*d.Round.Clones)
		})
		if err != nil {
			return nil, nil, nil, err
		}
		if uses += len(clones); uses > maxPieces {
			return nil, nil, nil, tooFine()
		}
		for _, c := range clones {
			if w := mul(k.weight, c.weight); w.Cmp(little) < 0 {
				skipped.Add(skipped, w)
			} else {
				sizes[c.block] = append(sizes[c.block], use{b, c.weight})
			}
		}
	}
	return blocks, sizes, skipped, nil
}
