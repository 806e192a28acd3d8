package amplify

import (
	"math"
	"math/bits"

	"github.com/riffle-dp/riffle/internal/tail"
)

// risingCrowd is the crowd of reports whose density rises with a score. Few reports are
// counted outcome by outcome; for many, the law of U is the pair whose δ is above the
// divergence at every node. See rising.md.
type risingCrowd struct {
	outcomes
	law *risingLaw
	// few is the largest number of reports that are counted outcome by outcome.
	few   int64
	table [][]float64     // law of (A, B), the sums of the steps i and j, after len(rows) reports of the common part
	rows  [][]float64     // rows[m] are the one-sided masses of U for m of them
	lines map[int][]*line // for each octave of k a line for each node; nil: δ is below farMass
	fixed bool            // whether k is always the same
}

// enumerated bounds the number of terms that are added for few reports.
const enumerated = 2e7

// newRising returns a crowd for numbers of reports near k. fixed says that it will be asked for
// k itself only.
func newRising(law *risingLaw, k int64, fixed bool) *risingCrowd {
	c := &risingCrowd{law: law, lines: map[int][]*line{}, fixed: fixed}
	// U has about the variance χ/4kt² under the pair, t = (E−1)/(E+1).
	chi := 0.
	for _, r := range law.rays {
		chi += r.mass * (r.p - r.q) * (r.p - r.q)
	}
	t := math.Tanh(law.eps0 / 2)
	// Half as many nodes a deviation add 1e-4 of ε, and serve many k four times as fast.
	size, core := 4*float64(k)*t*t/chi, float64(wideDeviations)
	if !fixed {
		size, core = size/4, core/2
	}
	c.outcomes = outcomes{law.eps0, newAxis(math.Max(1, size), core, fine)}
	c.axis.refine(fine.losses, func(u float64) float64 { return c.loss(u, 1) },
		func(loss float64) float64 { return math.Min(1, math.Tanh(loss/2)/math.Tanh(law.eps0/2)) })
	steps := float64(len(law.joint) - 1)
	c.few = int64(math.Cbrt(enumerated * 6 / (steps * steps * float64(len(law.rays)))))
	return c
}

// given returns the one-sided masses of U for k reports.
func (c *risingCrowd) given(k int64) []float64 {
	if k <= c.few {
		return c.enumerate(k)
	}
	return c.inverted(k)
}

// enumerate mixes the laws of U over the number m of reports of the common part, given which
// (P+Q)/2 has the weight (m + w(A+B)/2)/k.
func (c *risingCrowd) enumerate(k int64) []float64 {
	mass := make([]float64, len(c.axis.u))
	c.grow(k)
	for m := int64(1); m <= k; m++ {
		w := math.Exp(tail.LogPMF(k, m, c.law.common, c.law.useless)) / float64(k) * (1 + 1e-11)
		for i, x := range c.rows[m] {
			mass[i] += w * x
		}
	}
	mass[len(mass)-1] += farMass // what underflowed
	return mass
}

// grow computes rows up to m = k.
func (c *risingCrowd) grow(k int64) {
	steps := len(c.law.joint) - 1
	if c.rows == nil {
		c.rows, c.table = make([][]float64, 1), [][]float64{{1}}
	}
	w := c.law.height
	shrink := math.Exp(-c.eps0)
	t, gap := -math.Expm1(-c.eps0)/(1+shrink), 2*shrink/(1+shrink) // gap is 1 − t
	for m := len(c.rows); m <= int(k); m++ {
		// Add one report to A and B.
		next := make([][]float64, m*steps+1)
		for a := range next {
			next[a] = make([]float64, m*steps+1)
		}
		for a, row := range c.table {
			for b, x := range row {
				if x == 0 {
					continue
				}
				for i, joint := range c.law.joint {
					for j, p := range joint {
						if p > 0 {
							next[a+i][b+j] += x * p
						}
					}
				}
			}
		}
		c.table = next
		row := make([]float64, len(c.axis.u))
		for a, line := range next {
			for b := range min(a, len(line)) {
				if x := line[b]; x > 0 {
					both := 2*float64(m) + w*float64(a+b)
					under := 2 * (float64(m) + w*float64(b)) / both // 1 − tU
					c.axis.splitAbove(row, w*float64(a-b)/both/t, (under*(1-roundingOfU)-gap)/t, x*both/2)
				}
			}
		}
		c.rows = append(c.rows, row)
	}
}

// roundingOfU is the relative error of U, and of 1 − tU, that splitAbove allows for.
const roundingOfU = 4e-15

// splitAbove is split for an outcome u that is known up to rounding. Where u is near 1 the loss
// depends on 1 − u, of which u itself has lost the digits: less is 1 − u, and not too large.
func (a *axis) splitAbove(mass []float64, u, less, w float64) {
	if u < .5 {
		a.split(mass, u*(1+roundingOfU), w)
		return
	}
	less = math.Max(0, less)
	i := a.after(math.Min(1, 1-less))
	for i < len(a.u)-1 && 1-a.u[i] > less {
		i++
	}
	from, to := 1-a.u[i-1], 1-a.u[i]
	share := math.Min(1, (from-less)/(from-to))
	mass[i-1] += w * (1 - share)
	mass[i] += w * share
}

// inverted returns the masses of the pair whose δ at the nodes is at least the divergence.
func (c *risingCrowd) inverted(k int64) []float64 {
	u := c.axis.u
	lines := c.linesFor(k)
	over, delta := make([]float64, len(u)), make([]float64, len(u))
	for i, x := range u {
		over[i] = math.Expm1(c.loss(x, 1))
		if delta[i] = farMass; lines[i] != nil {
			delta[i] += lines[i].above(k)
		}
	}
	delta[len(u)-1] = 0 // no loss exceeds that of the largest level
	// δ(g) = 1 − g + g·δ(1/g) and convexity give δ(g) ≥ δ(1) − (1 − δ(1))(g − 1)/2. So the
	// masses of the pair add up to at most 1.
	for i, x := range over {
		delta[0] = math.Min(delta[0], (delta[i]+x/2)/(1+x/2))
	}
	mass := hull(over, delta)
	for i := range mass {
		mass[i] *= 1 + over[i]/2 // (P+Q)/2 from Q
	}
	return mass
}

// linesFor returns the integrals that serve k, one for each node.
func (c *risingCrowd) linesFor(k int64) []*line {
	octave, least, most, smooth := bits.Len64(uint64(k)), k, k, fineSmoothing
	if !c.fixed {
		smooth = coarseSmoothing
		least = int64(1) << (octave - 1)
		most = 2*least - 1
	}
	lines, ok := c.lines[octave]
	if !ok {
		lines = make([]*line, len(c.axis.u))
		for i, u := range c.axis.u[:len(c.axis.u)-1] {
			lines[i] = newLine(c.law.rays, math.Expm1(c.loss(u, 1)), float64(least), float64(most), smooth)
			if lines[i] == nil && c.loss(u, 1) > 0 {
				break // δ falls
			}
		}
		c.lines[octave] = lines
	}
	return lines
}
