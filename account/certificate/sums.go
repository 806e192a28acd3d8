package certificate

import (
	"math"
	"math/big"
	"math/bits"
)

// sums bounds, for reports with the given rays and a ratio G, the divergence
//
//	D_G = E(X_1 + … + X_k)₊ / k,  X_i independent: p − Gq on each ray, else 0,
//
// from above. The law of a sum is kept on a grid of multiples of step·2^level, by the
// operations of composer, with losses replaced by values: masses are rounded up, the smallest
// values are raised, a mass between grid points is split so that its mean is kept, and a sum
// that is too large counts as k times the largest X. All of these raise E(S)₊.
type sums struct {
	composer
	cells   int
	largest *big.Float // largest X
	// Values and sums below it are raised to it: it outweighs all that can well be above 0, so they
	// would make the whole sum negative, and hardly add to E(S)₊ now. The grid need not reach below.
	least  *big.Float
	double []summed // the sum of 2^j reports
}

// summed is the law of a sum on the multiples of step·2^level.
type summed struct {
	law
	level int
}

// sumCells is the size from which the law of a sum is put on a grid of twice the step. Few
// reports have few values, which a coarse grid would blur; fewReports have four times as many
// cells.
const (
	sumCells   = 1 << 11
	fewReports = 64
)

// newSums returns the sums of up to most reports; nil if no X is above 0. Errors of tiny
// matter little.
func newSums(rays []ray, ratio *big.Float, most int64, tiny *big.Float) *sums {
	low, high, rest, above := real(0), real(0), real(1), real(0)
	var values []*big.Float
	for _, r := range rays {
		x := sub(r.p, mul(ratio, r.q))
		values = append(values, x)
		if x.Cmp(low) < 0 {
			low = x
		}
		if x.Cmp(high) > 0 {
			high = x
		}
		if x.Sign() > 0 {
			above = add(above, r.mass)
		}
		rest = sub(rest, r.mass)
	}
	if high.Sign() == 0 {
		return nil
	}
	expected, _ := mul(above, whole(most)).Float64()
	least := mul(high, real(-beyond(expected, math.Ln2*float64(1-tiny.MantExp(nil)))))
	if low.Cmp(least) < 0 {
		low = least
		for i, x := range values {
			if x.Cmp(low) < 0 {
				values[i] = low
			}
		}
	}
	s := &sums{largest: high, least: least}
	s.linear, s.times, s.cells = true, most, sumCells
	if most <= fewReports {
		s.cells *= 4
	}
	s.step = quo(sub(high, low), whole(int64(s.cells/2)))
	s.top = quo(mul(tiny, two(-20)), add(high, real(1)))
	// Rounding adds one unit per cell and product, with values of up to high for each report.
	need := quo(mul(whole(most), add(high, real(1))), tiny).MantExp(nil) + 36
	s.bits = uint((need+9+31)/32*32 - 9) // a product's digits then fill whole words
	index := func(x *big.Float) (int64, *big.Float) {
		at := quo(x, s.step)
		j, _ := at.Int64()
		if at.Sign() < 0 {
			j--
		}
		return j, sub(at, whole(j)) // a share from 0 to 1
	}
	first, _ := index(low)
	last, _ := index(high)
	base := summed{law: law{low: first, lost: new(big.Int), rounds: 1}}
	sorted := make([]*big.Float, last-first+2)
	put := func(x, mass *big.Float) {
		j, up := index(x)
		for at, m := range []*big.Float{mul(mass, sub(real(1), up)), mul(mass, up)} {
			if cell := &sorted[j-first+int64(at)]; *cell == nil {
				*cell = m
			} else {
				*cell = add(*cell, m)
			}
		}
	}
	put(real(0), rest)
	for i, r := range rays {
		put(values[i], r.mass)
	}
	for _, m := range sorted {
		if m == nil {
			base.mass = append(base.mass, new(big.Int))
		} else {
			base.mass = append(base.mass, s.fixed(m))
		}
	}
	s.double = []summed{base}
	return s
}

// beyond returns a number that more successes of independent trials, of which so many are expected, exceed
// with probability e^−exponent at most (Chernoff).
func beyond(expected, exponent float64) float64 {
	n := expected + 1
	for n*math.Log(n/expected)-n+expected < exponent {
		n += math.Max(1, n/32)
	}
	return n
}

// coarser puts a law on the grid of the given level.
func (s *sums) coarser(l summed, level int) summed {
	for ; l.level < level; l.level++ {
		l.law = s.coarsen(l.law)
	}
	return l
}

// sum returns the law of the sum of two independent sums.
func (s *sums) sum(ctx *work, a, b summed) (summed, error) {
	if err := ctx.step(s.steps(len(a.mass), len(b.mass))); err != nil {
		return summed{}, err
	}
	level := max(a.level, b.level)
	l, err := s.product(s.coarser(a, level).law, s.coarser(b, level).law)
	if err != nil {
		return summed{}, err
	}
	out := summed{s.raised(l, level), level}
	for len(out.mass) > s.cells {
		out = s.coarser(out, out.level+1)
	}
	return out, nil
}

// raised returns a law without values below the least.
func (s *sums) raised(l law, level int) law {
	from, _ := quo(s.least, new(big.Float).SetMantExp(s.step, level)).Int64() // rounded up, as it is below 0
	if from <= l.low {
		return l
	}
	below := min(from-l.low, int64(len(l.mass)-1))
	l.mass[below].Add(l.mass[below], total(l.mass[:below]))
	l.mass, l.low = l.mass[below:], max(from, l.low+below)
	return l
}

// doubled returns the law of the sum of 2^j reports.
func (s *sums) doubled(ctx *work, j int) (summed, error) {
	for len(s.double) <= j {
		last := &s.double[len(s.double)-1]
		next, err := s.sum(ctx, *last, *last)
		if err != nil {
			return summed{}, err
		}
		s.double = append(s.double, next)
	}
	return s.double[j], nil
}

// plus returns the law of the sum of l, which may be nil, and of k more reports.
func (s *sums) plus(ctx *work, l *summed, k int64) (*summed, error) {
	for j := 0; k>>j > 0; j++ {
		if k>>j&1 == 0 {
			continue
		}
		more, err := s.doubled(ctx, j)
		if err == nil && l != nil {
			more, err = s.sum(ctx, *l, more)
		}
		if err != nil {
			return nil, err
		}
		l = &more
	}
	return l, nil
}

// positive returns E(A + B)₊ of two independent sums, rounded up, divided by their number of
// reports.
func (s *sums) positive(a, b summed) *big.Float {
	level := max(a.level, b.level)
	a, b = s.coarser(a, level), s.coarser(b, level)
	// Over the j-th and all larger cells of b, with x = b.low + j: Σ f and Σ f·x.
	count, value := new(big.Int), new(big.Int)
	all, product := new(big.Int), new(big.Int)
	j := int64(len(b.mass)) - 1
	for i, f := range a.mass {
		x := a.low + int64(i)
		for ; j >= 0 && b.low+j+x > 0; j-- {
			count.Add(count, b.mass[j])
			value.Add(value, product.Mul(b.mass[j], big.NewInt(b.low+j)))
		}
		product.Mul(count, big.NewInt(x))
		product.Add(product, value)
		all.Add(all, product.Mul(product, f))
	}
	n := a.rounds + b.rounds
	sum := new(big.Float).SetPrec(precision).SetInt(all)
	sum = quo(mul(sum, new(big.Float).SetMantExp(s.step, level)), whole(n))
	sum.SetMantExp(sum, -2*int(s.bits))
	// With a lost part the sum is at most n times the largest X.
	known, lost := add(s.real(total(a.mass)), s.real(a.lost)), s.real(b.lost)
	lost = add(mul(known, lost), mul(s.real(a.lost), s.real(total(b.mass))))
	return mul(add(sum, mul(lost, s.largest)), add(real(1), two(-200)))
}

// real converts a mass.
func (c *composer) real(mass *big.Int) *big.Float {
	x := new(big.Float).SetPrec(precision).SetInt(mass)
	return x.SetMantExp(x, -int(c.bits))
}

// divergences bounds D_G for each of the rising numbers of reports.
func divergences(ctx *work, rays []ray, ratio *big.Float, sizes []int64, tiny *big.Float) ([]*big.Float, error) {
	out := make([]*big.Float, len(sizes))
	most := sizes[len(sizes)-1]
	s := newSums(rays, ratio, most, tiny)
	if s == nil {
		for i := range out {
			out[i] = real(0)
		}
		return out, nil
	}
	nothing := summed{law: law{mass: []*big.Int{s.fixed(real(1))}, lost: new(big.Int)}}
	var l *summed // of all reports but the last power of two
	for i, k := range sizes {
		if err := ctx.step(int64(s.cells)); err != nil {
			return nil, err
		}
		if i > 0 {
			k -= sizes[i-1]
		}
		last := bits.Len64(uint64(k)) - 1
		if l == nil && last > 0 && k == 1<<last {
			last--
		}
		var err error
		if l, err = s.plus(ctx, l, k-1<<last); err != nil {
			return nil, err
		}
		more, err := s.doubled(ctx, last)
		if err != nil {
			return nil, err
		}
		if l == nil {
			l = &nothing
		}
		out[i] = s.positive(*l, more)
		if i == len(sizes)-1 {
			break
		}
		whole, err := s.sum(ctx, *l, more)
		if err != nil {
			return nil, err
		}
		l = &whole
	}
	return out, nil
}
