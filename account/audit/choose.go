package audit

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// choice is an event: that a report's value of a feature lies in one of cells. These are the
// first cells of an order, which order names.
type choice struct {
	study   *study
	feature int
	cells   []int
	order   string
	swapped bool    // the event is likelier under y
	bound   float64 // a guess of the bound that a test would show
}

// describe says in words what the event is.
func (c choice) describe() string {
	likelier, other := "first", "second"
	if c.swapped {
		likelier, other = other, likelier
	}
	return fmt.Sprintf("%s: %d cells of %s, %s, likelier for the %s than for the %s",
		c.study.pair.Name, len(c.cells), featureNames[c.feature], c.order, likelier, other)
}

// hits counts the reports of one input in the event.
func (c choice) hits(t tally, side int) int64 {
	var n int64
	for _, k := range c.cells {
		n += t[side][c.feature][k]
	}
	return n
}

// best returns the event with the largest guess, judged by the counts of n reports of each
// input. test is the number of reports of each input in the test to come. The orders of cells
// come from st.ranks: by the ratio of the two counts, and for a number also from either end of
// the line.
func (st *study) best(counts tally, n, test int64, alpha float64) choice {
	found := choice{study: st, bound: math.Inf(-1)}
	z := math.Sqrt(2 * math.Log(2/alpha))
	scale := float64(test) / float64(n)
	try := func(feature int, order string, cells []int) {
		for _, swapped := range []bool{false, true} {
			likelier, other := 0, 1
			if swapped {
				likelier, other = 1, 0
			}
			var a, b int64
			size, bound := 0, math.Inf(-1)
			for k, at := range cells {
				a += counts[likelier][feature][at]
				b += counts[other][feature][at]
				if g := guess(float64(a), float64(b), scale, z); g > bound {
					size, bound = k+1, g
				}
			}
			if bound > found.bound {
				found = choice{st, feature, slices.Clone(cells[:size]), order, swapped, bound}
			}
			slices.Reverse(cells)
		}
	}
	for f := range features {
		x, y := st.ranks[0][f], st.ranks[1][f]
		cells := make([]int, len(x))
		for k := range cells {
			cells[k] = k
		}
		if f != identity {
			try(f, "from one end", cells)
			slices.Reverse(cells)
			try(f, "from one end", cells)
			slices.Reverse(cells)
		}
		ratio := func(k int) float64 { return math.Log((float64(x[k]) + .5) / (float64(y[k]) + .5)) }
		slices.SortStableFunc(cells, func(i, j int) int { return cmp.Compare(ratio(j), ratio(i)) })
		try(f, "by ratio", cells)
	}
	return found
}

// guess returns the log-ratio that a test would show, from the counts a and b of a sample. The
// test is larger than the sample by the factor scale. As these counts were picked as the best
// of many, it assumes that they were lucky by two standard errors. It only has to rank events,
// so Wilson's limits are good enough.
func guess(a, b, scale, z float64) float64 {
	a, b = (a-2*math.Sqrt(a))*scale, (b+2*math.Sqrt(b)+.5)*scale
	if a <= 0 {
		return math.Inf(-1)
	}
	low := a + z*z/2 - z*math.Sqrt(a+z*z/4)
	high := b + z*z/2 + z*math.Sqrt(b+z*z/4)
	return math.Log(low / high)
}

// top returns the k most promising studies.
func top(studies []*study, k int) []*study {
	sorted := slices.Clone(studies)
	slices.SortStableFunc(sorted, func(a, b *study) int { return cmp.Compare(b.promise, a.promise) })
	return sorted[:k]
}
