package amplify

import (
	"maps"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/dp"
)

// counted is a number of reports with its probability.
type counted struct {
	k      int64
	weight float64
}

// A mixer is a crowd that mixes the laws of many k faster than it computes each.
type mixer interface {
	crowd
	mixed(of []counted) []float64
	inclusions() float64 // relative step between inclusions that a mixture distinguishes
}

// mixtureOf is arrivalOf for a mixer. P of an outcome is linear in the inclusion, so a block's inclusion may
// be split between two nodes around it, whose relative distance is step: threepart.md.
func mixtureOf(c mixer, blocks []spanned, n int64, step float64) []dp.Atom {
	least, most := int64(math.MaxInt64), int64(0)
	for _, b := range blocks {
		if b.Last > 0 {
			least, most = min(least, b.Last), max(most, b.Last)
		}
	}
	if most == 0 {
		return nil
	}
	var ends []int64 // nodes of k, for the inclusion
	for end := least; end < most; end = max(end+1, int64(float64(end)*(1+step))) {
		ends = append(ends, end)
	}
	ends = append(ends, most)
	at := make([][]counted, len(ends))
	for _, b := range blocks {
		if b.Last == 0 {
			continue // no reports: loss 0
		}
		i, exact := slices.BinarySearch(ends, b.Last)
		k := max(1, b.First)
		if exact {
			at[i] = append(at[i], counted{k, b.Weight})
			continue
		}
		up := math.Min(1, float64(b.Last-ends[i-1])/float64(ends[i]-ends[i-1])+1e-15)
		at[i] = append(at[i], counted{k, b.Weight * up})
		at[i-1] = append(at[i-1], counted{k, b.Weight * (1 - up)})
	}
	var atoms []dp.Atom
	for i, of := range at {
		if len(of) > 0 {
			atoms = c.on().atoms(atoms, c.mixed(of), 1, float64(ends[i])/float64(n))
		}
	}
	return atoms
}

// tally is a weight of a row: its place in threePart.all.
type tally struct {
	row    int
	weight float64
}

// mixed returns the one-sided masses of U for a random k. Given the number s of the other reports that are on
// one of the three symbols, U does not depend on k; and the larger s is, the more is hidden. So s is
// mixed over k first, and a block of s counts as its smallest. See threepart.md.
func (t *threePart) mixed(of []counted) []float64 {
	weights := map[int64]float64{}
	width := func(_, _, _ float64) int64 { return t.whole }
	for _, c := range of {
		for _, b := range spansGrowing(c.k-1, math.Min(1, t.pair+t.other), t.nothing, width, t.grain.tails) {
			w := c.weight * b.Weight
			weights[coarser(b.First, t.whole, w)] += w
		}
	}
	clear(t.all.mass)
	for _, s := range slices.Sorted(maps.Keys(weights)) {
		w := weights[s]
		law, ok := t.laws[s]
		if !ok {
			law = t.seen(s)
			t.laws[s] = law
		}
		for _, row := range law {
			t.all.mass[row.row] += w * row.weight
		}
	}
	return t.sum(t.all)
}

// coarser rounds a number of reports down: to a multiple of unit or, if its probability is next to nothing, to
// few bits.
func coarser(n, unit int64, probability float64) int64 {
	if probability <= unlikely {
		for n>>6 >= unit {
			unit *= 2
		}
	}
	return n / unit * unit
}

// unlikely is the probability from which on rows are rounded to few bits.
const unlikely = 1e-17

func (t *threePart) inclusions() float64 { return t.grain.inclusions }

// seen returns the law of U, as weights of rows, if s of the others' reports are on the three symbols.
func (t *threePart) seen(s int64) (law []tally) {
	at := 0
	put := func(m, last, b int64, w float64) {
		if last == 0 || w == 0 {
			return // nothing distinguishes the neighbours: loss 0
		}
		r := t.rho(last, float64(b))
		at = t.node(at, r)
		share := t.share(at, r)
		m = t.sized(m)
		law = append(law, tally{t.all.index(rowKey{m, at}), w * share}, tally{t.all.index(rowKey{m, at + 1}), w * (1 - share)})
	}
	all := t.pair + t.other
	width := func(_, _, _ float64) int64 { return t.width }
	for _, b := range spansGrowing(s, math.Min(1, t.pair/all), math.Min(1, t.other/all), width, t.grain.tails) {
		// As n′ grows, U given n′ falls in convex order and ρ grows.
		put(b.First+1, b.Last+1, s-b.Last, b.Weight*t.victim)
		put(b.First, b.Last, s-b.Last+1, b.Weight*t.beside)
	}
	return law
}

// roughBuilder is the crowd of clones for rough mixtures over k.
type roughBuilder struct{ *builder }

func (b roughBuilder) inclusions() float64 { return rough.inclusions }

// mixed rounds numbers of reports down to a few bits and mixes their numbers of clones.
func (b roughBuilder) mixed(of []counted) []float64 {
	reports := map[int64]float64{}
	for _, c := range of {
		reports[bitsOf(c.k, rough.bits)] += c.weight
	}
	mass := make([]float64, len(b.axis.u))
	for _, k := range slices.Sorted(maps.Keys(reports)) {
		for i, w := range b.given(k) {
			mass[i] += reports[k] * w
		}
	}
	return mass
}

// bitsOf rounds k down to so many bits.
func bitsOf(k int64, bits int) int64 {
	unit := int64(1)
	for k/unit >= 1<<bits {
		unit *= 2
	}
	return k / unit * unit
}
