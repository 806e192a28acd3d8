package randomizer

import (
	"math"

	"github.com/riffle-dp/riffle/internal/tail"
)

// MeanChance is the probability with which a mean of honest reports may exceed MeanBound.
const MeanChance = 1e-9

// logChance is ln(parts/MeanChance), where parts is the number of events that share MeanChance
// equally.
func logChance(parts float64) float64 { return math.Log(parts / MeanChance) }

// MeanBound uses that the summed noise of n reports is sub-Gaussian with n times the
// variance, and that rounded inputs are at most √d steps longer than the ball.
func (m *DiscreteGaussian) MeanBound(n int64) float64 {
	if n < 1 {
		return 0
	}
	noise := math.Sqrt(float64(m.variance)/float64(n)) * tail.Length(m.facts.Dim, logChance(1))
	return m.scale * (gaussianUnit + 1 + math.Sqrt(float64(m.facts.Dim)) + noise)
}

// MeanBound uses that reports point in nearly all directions: their sum is hardly longer than
// the root of the sum of their squares. See largest.md, section 3.
func (m *privUnit) MeanBound(n int64) float64 {
	d := float64(m.facts.Dim)
	inside, outside := m.rare, 1-m.rare
	if !m.rareCap {
		inside, outside = outside, inside
	}
	dense := math.Max(inside/m.cap.mass, outside/(1-m.cap.mass))
	square := inside*m.cap.reach()/d + outside/(d*(1-m.cap.mass))
	return m.meanBound(n, dense, square)
}

// reach returns d·E⟨v,u⟩² of a vector that is uniform in the cap.
func (c *sphereCap) reach() float64 {
	height := math.Exp(c.logFirst - c.logMass) // E⟨v,u⟩ in the cap
	return float64(c.dim-1)*c.cos*height + 1
}

// meanBound is MeanBound, where the density of v is at most dense times that of the uniform law
// and E⟨v,u⟩² is at most square.
func (m *sphere) meanBound(n int64, dense, square float64) float64 {
	any := m.pure.MeanBound(n)
	if n < 1 || m.facts.Dim < 2 {
		return any
	}
	k, d := float64(n), float64(m.facts.Dim)
	// Each of four events gets an equal share of MeanChance: an R is long, the sum is long across
	// the inputs, one report goes far along its input, the sum is long along the inputs.
	stretch := math.Exp((math.Log(k) + logChance(4)) / lengthRate)
	report := m.scale * privUnitUnit * stretch // the length of a report if no R is long
	across := report / math.Sqrt(k*(d-1)) * tail.Length(m.facts.Dim, logChance(4))
	far := math.Min(1, math.Sqrt(2/d*(math.Log(2*k*dense)+logChance(4))))
	along := report * (tail.Bernstein(k*math.Min(1, square)*(1+MeanChance), 2*far, logChance(8))/k + MeanChance)
	rounding := m.scale * math.Sqrt(d) / 2
	return math.Min(any, stretch*m.radius+across+along+rounding)
}

// longestSeed is the argument x of tail.Length that bounds the vectors of all 2^128 seeds at
// once: with probability 1 − e^−20 none of so many random vectors is longer.
const longestSeed = 128*math.Ln2 + 20

// MeanBound uses that the values of a report are normal across the input, and that their score
// has a density that is known. See largest.md, section 3a.
func (m *seeded) MeanBound(n int64) float64 {
	any := m.pure.MeanBound(n)
	if n < 1 {
		return any
	}
	k, d := float64(n), float64(m.facts.Dim)
	unit := m.scale * seedUnit
	// Each of four events gets an equal share of MeanChance: the sum is long across the inputs,
	// one score is high, the sum is long along the inputs, many values come from rare words.
	across := math.Sqrt(1/k) * tail.Length(m.facts.Dim, logChance(4))
	far := math.Sqrt(2 * (math.Log(k*m.top) + logChance(4)))
	along := tail.Bernstein(k*m.square*(1+MeanChance), 2*far, logChance(8))/k + MeanChance
	odd := 8 * rareWords(k, d, m.top) / k
	return math.Min(any, m.radius+unit*(across+along+odd+seedNear*math.Sqrt(d)))
}

// rareWords bounds the number of rare words of k accepted seeds with d words each, but for a
// quarter of MeanChance. Accepting a seed makes a word at most top times as likely. At the order
// of Bernstein's inequality, at most 3, several rare words in one seed count as 8 % more.
func rareWords(k, d, top float64) float64 {
	mean := 1.08 * top * k * d * seedRare
	return mean + tail.Bernstein(mean, 1, logChance(4))
}

const (
	// seedNear bounds the distance of a value from a normal one, and seedRare the probability of
	// the words for which it does not: expand.md, section 1.
	seedNear, seedRare = 1e-8, 0x1p-31
)
