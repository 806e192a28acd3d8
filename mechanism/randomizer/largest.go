package randomizer

import (
	"math"

	"github.com/riffle-dp/riffle/internal/tail"
)

// Sized is a Mechanism that says how far reports can move a mean.
type Sized interface {
	Mechanism
	// Largest returns the largest norm, over all reports that Check accepts, of the vector
	// that a report stands for, divided by the radius of the ball and in the ball's own norm.
	// One report can move the mean of n reports by Largest clip norms over n, whatever its
	// client's data is.
	Largest() float64
	// MeanBound returns a bound, in the units of the inputs, that the ℓ₂ norm of the mean of
	// n honest reports exceeds with probability at most MeanChance, whatever the inputs. A
	// longer mean may be shortened to it: shortening uses reports only, and so costs no
	// privacy. Derived in largest.md.
	MeanBound(n int64) float64
}

// MeanChance is the probability with which a mean of honest reports may exceed MeanBound.
const MeanChance = 1e-9

// logChance is ln(parts/MeanChance): each of parts events may fail with an equal share of
// MeanChance.
func logChance(parts float64) float64 { return math.Log(parts / MeanChance) }

// sized is a mechanism whose reports have a largest length.
type sized struct {
	facts
	largest float64 // see Largest
	// input and report are the largest ℓ₂ lengths of an input and of the vector that a report
	// stands for, in the units of x.
	input, report float64
}

// Largest bounds the norm of a report over the radius; see [Sized].
func (m *sized) Largest() float64 { return m.largest }

// MeanBound bounds the mean of n honest reports; see [Sized]. It holds for all mechanisms:
// largest.md, section 2.
func (m *sized) MeanBound(n int64) float64 {
	if n < 1 {
		return 0
	}
	k := float64(n)
	return m.input + tail.Bernstein(k*m.mse, m.report+m.input, logChance(2))/k
}

// MeanBound uses that the summed noise of n reports is sub-Gaussian with n times the
// variance, and that rounded inputs are at most √d steps longer than the ball.
func (m *DiscreteGaussian) MeanBound(n int64) float64 {
	if n < 1 {
		return 0
	}
	noise := math.Sqrt(float64(m.variance)/float64(n)) * tail.Length(m.dim, logChance(1))
	return m.scale * (gaussianUnit + 1 + math.Sqrt(float64(m.dim)) + noise)
}

// MeanBound uses that reports point in nearly all directions: their sum is hardly longer than
// the root of the sum of their squares. See largest.md, section 3.
func (m *privUnit) MeanBound(n int64) float64 {
	any := m.pure.MeanBound(n)
	if n < 1 || m.dim < 2 {
		return any
	}
	k, d := float64(n), float64(m.dim)
	// Each of four events gets an equal share of MeanChance: an R is long, the sum is long across
	// the inputs, one report goes far along its input, the sum is long along the inputs.
	stretch := math.Exp((math.Log(k) + logChance(4)) / lengthRate)
	report := m.scale * privUnitUnit * stretch // the length of a report if no R is long
	across := report / math.Sqrt(k*(d-1)) * tail.Length(m.dim, logChance(4))
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
