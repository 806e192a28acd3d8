package randomizer

import (
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// RR names binary randomized response: each coordinate of the cube |x_i| ≤ a is rounded
// to a random bit with mean x_i/a, and every bit is flipped with probability 1/(1+e^(ε₀/d)).
// An input of ±a is the classical bit.
//
// Inputs outside the cube are projected on it coordinate by coordinate; NaN counts as 0. RR is
// exactly ε₀-LDP, without slack: bits are drawn exactly, and ε₀/d is rounded down. With d = 1
// the report is of class dp.BinaryRR. The estimate is unbiased; the mean squared error
// d·a²/tanh(ε₀/2d)² − ‖x‖² is largest at x = 0.
const RR = "rr"

func newRR(c Config) (Randomizer, error) {
	if err := c.check(false); err != nil {
		return nil, err
	}
	each := splitEps0(c.Eps0, c.Dim)
	scale, root := c.Radius*flipScale(each), math.Sqrt(float64(c.Dim))
	event := bitsEvent(c.Eps0, c.Dim, each)
	if c.Dim == 1 {
		event.Class = dp.BinaryRR
	}
	d := dense{values: c.Dim, limit: 1, signs: true}
	return &rr{
		pure: pure{base{
			facts: d.sized(Facts{
				Name:    RR,
				Dim:     c.Dim,
				MSE:     float64(c.Dim) * scale * scale,
				Largest: scale / c.Radius, // attained by every report: all coordinates have the same size
			}),
			radius: c.Radius, scale: scale,
			input: root * c.Radius, report: root * scale,
		}, event},
		dense: d,
		each:  each,
	}, nil
}

type rr struct {
	pure
	dense
	each float64 // ε₀ of one bit
}

// splitEps0 returns ε₀/parts, rounded down.
func splitEps0(eps0 float64, parts int) float64 {
	if parts == 1 {
		return eps0
	}
	// A division by a power of two is exact. For all other divisors, one step below the
	// rounded quotient is below the true one.
	return roundDown(eps0 / float64(parts))
}

// Randomize overwrites r with a randomized report of x; see [RR] for inputs
// outside the domain.
func (m *rr) Randomize(src rng.Source, x []float32, r *Report) {
	checkInput(m.facts.Dim, x)
	checkReport(r, 0, m.facts.Dim)
	for i, v := range x {
		r.Value[i] = randomizedBit(src, float64(v), m.radius, m.each)
	}
}
