package seed

import (
	"math"

	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// What expand.md shows of the table; expand_test.go checks each.
const (
	// tableError bounds the distance of a value from the normal one with the same word, for
	// words of upper tail above 2^−32.
	tableError = 7e-9
	// tailMass is the probability of the other words, both signs.
	tailMass = 0x1p-31
	// tailError bounds the mean distance on the other words, times their probability.
	tailError = 0x1p-38
	// generator is how far a share may be off because words come from AES and coins are rounded.
	generator = 0x1p-32
)

// Eta bounds how far the law of the scores is from normal: for every direction and every edge,
// the share of seeds that score above the edge lies within q(1 ± Eta), q the normal law's
// share. It contains the table's and the arithmetic's errors and is rounded up. It assumes that
// nobody can find an input for which AES moves a share by more than 2^−32 (THREATS.md). Source: expand.md.
func (m *Mechanism) Eta() float64 {
	const s = 7.5 // the sum of the table's errors exceeds s·tableError with probability at most e^(−s²/2)
	shift := s*tableError + sumError(m.Dim)
	var worst float64
	for _, z := range m.Edges {
		share := shift*tail.NormalDensity(math.Max(0, z-shift)) + math.Exp(-s*s/2) +
			2*tailMass + .57*math.Sqrt(float64(m.Dim))*tailError + generator
		worst = math.Max(worst, share/tail.UpperNormal(z))
	}
	return worst * (1 + 1e-9)
}

// sumError bounds the error of a score's arithmetic, in units of the score: each product goes
// through at most chain additions, and values are below 8.
func sumError(dim int) float64 {
	d := float64(dim)
	chain := block/8 + 3 + math.Ceil(d/block)
	return 1.01 * (chain + 6) * 0x1p-53 * 8 * (math.Sqrt(d) + 1)
}

// weight returns E[h] under the normal law.
func (m *Mechanism) weight() float64 {
	sum := 1.
	for _, z := range m.Edges {
		sum += m.Height * tail.UpperNormal(z)
	}
	return sum
}

// SimulateScore draws a score directly from the law that Draw's seeds have with an input of
// norm Radius: density h(z)/E[h] against the standard normal one. Across x a report is standard
// normal. The law is that of [Mechanism.Draw] up to Eta.
func (m *Mechanism) SimulateScore(src rng.Source) float64 {
	// h is a mixture: 1 with weight 1, and each edge's step with weight Height·q.
	u := m.mean * float64(src.Uint64()>>11) * 0x1p-53
	for i, share := range m.steps {
		if u < share {
			return normalAbove(src, m.Edges[i])
		}
		u -= share
	}
	return sample.Normal(src)
}

// normalAbove draws a standard normal value above edge ≥ 0.
func normalAbove(src rng.Source, edge float64) float64 {
	for edge < .5 {
		if z := sample.Normal(src); z > edge {
			return z
		}
	}
	// A shifted exponential value of rate edge is accepted with probability e^(−(z−edge)²/2).
	for {
		over := sample.Exponential(src) / edge
		if 2*sample.Exponential(src) > over*over {
			return edge + over
		}
	}
}
