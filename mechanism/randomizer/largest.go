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
	// The density of v is at most dense times that of the uniform law, and E⟨v,u⟩² is at most
	// square.
	inside, outside := m.rare, 1-m.rare
	if !m.rareCap {
		inside, outside = outside, inside
	}
	dense := math.Max(inside/m.cap.mass, outside/(1-m.cap.mass))
	height := math.Exp(m.cap.logFirst - m.cap.logMass) // E⟨v,u⟩ in the cap
	square := inside*((d-1)*m.cap.cos*height+1)/d + outside/(d*(1-m.cap.mass))
	far := math.Min(1, math.Sqrt(2/d*(math.Log(2*k*dense)+logChance(4))))
	along := report * (tail.Bernstein(k*math.Min(1, square)*(1+MeanChance), 2*far, logChance(8))/k + MeanChance)
	rounding := m.scale * math.Sqrt(d) / 2
	return math.Min(any, stretch*m.radius+across+along+rounding)
}
