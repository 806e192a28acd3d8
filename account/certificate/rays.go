package certificate

import (
	"math/big"
	"slices"
)

// ray is an outcome that every client's report has with the same probability, whatever the
// input, together with the densities of the victim's report there, relative to that
// probability, for the victim's two inputs.
type ray struct{ mass, p, q *big.Float }

// rays returns the pair of one report for the claim's method; nil for clones.
func (d Document) rays() ([]ray, error) {
	q := d.Query
	one, bigE := real(1), exp(real(q.Eps0))
	blanket := quo(one, add(bigE, one))
	most := func(a *big.Float) *big.Float {
		if a.Cmp(blanket) > 0 {
			return blanket
		}
		return a
	}
	switch d.Claim.Method {
	case KRRPLD:
		return threeParts(bigE, quo(one, add(bigE, whole(int64(max(2, q.Symbols))-1))), one), nil
	case CapPLD:
		return threeParts(bigE, most(real(q.TV)), one), nil
	case TVPLD:
		return threeParts(bigE, most(real(q.TV)), bigE), nil
	case LaplacePLD:
		// The total variation, with what steps of the class's size add.
		eps0 := real(q.Eps0)
		steps := mul(eps0, two(-20))
		if least := two(-26); steps.Cmp(least) < 0 {
			steps = least
		}
		exponent := add(quo(eps0, real(2)), mul(eps0, steps))
		apart := sub(one, exp(exponent.Neg(exponent)))
		return threeParts(bigE, most(quo(apart, sub(bigE, one))), bigE), nil
	case RisingPLD:
		return d.steps()
	}
	return nil, nil
}

// threeParts returns the pair of three parts: two of mass a, on which the densities are E and 1,
// and one of mass (1 − a(E+1))/c, on which both are c.
func threeParts(bigE, a, c *big.Float) []ray {
	one := real(1)
	out := []ray{{a, bigE, one}, {a, one, bigE}}
	if rest := sub(one, mul(a, add(bigE, one))); rest.Sign() > 0 {
		out = append(out, ray{quo(rest, c), c, c})
	}
	return out
}

// steps returns the pair of reports whose density rises in steps with a score. M− and M+ bound
// the mean of the levels 1 + wj under the common law for every input. H* has level 1 below the
// first edge and ρ(1 + wj) above edge j; the pair's inputs have opposite scores.
func (d Document) steps() ([]ray, error) {
	q := d.Query
	one, w, eta := real(1), real(q.Height), real(q.Eta)
	low, high := sub(one, eta), add(one, eta)
	sum := real(0)
	for _, share := range q.Shares {
		sum = add(sum, real(share))
	}
	least, most := add(one, mul(mul(w, sum), low)), add(one, mul(mul(w, sum), high))
	if err := q.fitsSteps(); err != nil {
		return nil, err
	}
	below := sub(one, mul(real(q.Shares[0]), high))
	gap := sub(most, least)
	if gap.Cmp(below) >= 0 {
		return nil, reject("eta = %v is too large for these steps", q.Eta)
	}
	rho := quo(below, sub(below, gap))
	common := quo(one, mul(rho, least))
	level, mass := []*big.Float{one}, []*big.Float{below}
	for j, share := range q.Shares {
		m := real(share)
		if j+1 < len(q.Shares) {
			m = sub(m, real(q.Shares[j+1]))
		}
		level = append(level, mul(rho, add(one, mul(w, whole(int64(j+1))))))
		mass = append(mass, mul(m, high))
	}
	// The largest levels of one input meet the smallest of the other.
	var out []ray
	up, down := slices.Clone(mass), slices.Clone(mass)
	for i, j := len(up)-1, 0; i >= 0 && j < len(down); {
		m := up[i]
		if down[j].Cmp(m) < 0 {
			m = down[j]
		}
		if m.Sign() > 0 {
			out = append(out, ray{mul(common, m), level[i], level[j]})
		}
		if up[i], down[j] = sub(up[i], m), sub(down[j], m); up[i].Sign() <= 0 {
			i--
		} else {
			j++
		}
	}
	return out, nil
}

// fitsSteps returns an error if the steps of a query contradict its eps0, which some methods
// use and others do not.
func (q Query) fitsSteps() error {
	top := add(real(1), mul(real(q.Height), whole(int64(len(q.Shares)))))
	if exp(add(real(q.Eps0), real(1e-9))).Cmp(top) < 0 {
		return reject("reports with these steps are not %v-LDP", q.Eps0)
	}
	return nil
}

// curveOf is curve for a pair that is given by its rays. The numbers of reports share the
// ratios at which divergences are computed. As D_G is convex in G, it is at most the chord
// between two of them.
func (d Document) curveOf(ctx *work, g []*big.Float, rays []ray, err error) ([]*big.Float, error) {
	if err != nil {
		return nil, err
	}
	one, tiny := real(1), mul(real(d.Round.Infinite), two(-40))
	skipped, little := real(0), mul(tiny, two(-20))
	var groups []group
	var sizes []int64
	likely := group{weight: real(0), gamma: one}
	all, err := d.groups(ctx, len(g), tiny)
	if err != nil {
		return nil, err
	}
	for _, k := range all {
		if k.weight.Cmp(little) < 0 {
			skipped.Add(skipped, k.weight)
			continue
		}
		groups, sizes = append(groups, k), append(sizes, k.size)
		if k.weight.Cmp(likely.weight) > 0 {
			likely = k
		}
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	end := one // no ratio is larger
	for _, r := range rays {
		if x := quo(r.p, r.q); x.Cmp(end) > 0 {
			end = x
		}
	}
	sampled := func(g, gamma *big.Float) *big.Float { return add(one, quo(sub(g, one), gamma)) }
	var ratios []*big.Float
	for _, g := range g {
		if ratio := sampled(g, likely.gamma); ratio.Cmp(end) < 0 {
			ratios = append(ratios, ratio)
		}
	}
	table := make([][]*big.Float, len(ratios))
	if len(sizes) > 0 {
		defer ctx.begins("one round", int64(len(ratios)))()
		if err := together(len(ratios), func(i int) (err error) {
			defer ctx.advance(1)
			table[i], err = divergences(ctx, rays, ratios[i], sizes, tiny)
			return err
		}); err != nil {
			return nil, err
		}
	}
	none := make([]*big.Float, len(sizes))
	for i := range none {
		none[i] = real(0)
	}
	ratios, table = append(ratios, end), append(table, none)
	out := make([]*big.Float, len(g))
	for i, g := range g {
		if err := ctx.step(int64(len(groups))); err != nil {
			return nil, err
		}
		// Adds D ≤ 1 for the k that were left out, and rounding.
		out[i] = add(skipped, add(mul(tiny, real(8)), two(-200)))
		for _, k := range groups {
			ratio := sampled(g, k.gamma)
			at, exact := slices.BinarySearchFunc(ratios, ratio, (*big.Float).Cmp)
			if at == len(ratios) {
				continue // no larger ratio exists
			}
			size, _ := slices.BinarySearch(sizes, k.size)
			divergence := table[at][size]
			if !exact {
				up := quo(sub(ratio, ratios[at-1]), sub(ratios[at], ratios[at-1]))
				divergence = add(mul(up, divergence), mul(sub(one, up), table[at-1][size]))
			}
			out[i] = add(out[i], mul(mul(k.weight, k.gamma), divergence))
		}
	}
	return out, nil
}

// together calls f for 0 … n−1, several at a time, and returns an error of one of them.
func together(n int, f func(i int) error) error {
	const workers = 8
	failed := make(chan error, workers)
	for w := range workers {
		go func() {
			for i := w; i < n; i += workers {
				if err := f(i); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	var err error
	for range workers {
		if e := <-failed; e != nil {
			err = e
		}
	}
	return err
}
