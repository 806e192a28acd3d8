package randomizer

import (
	"fmt"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// RRConfig describes an [RR]. All fields are required.
type RRConfig struct {
	Dim    int     // length of the input
	Radius float64 // a, the bound on |x_i|, between 1e-30 and 1e30
	Eps0   float64 // ε₀ in nats of the whole report, between 2^-20 and dp.MaxEps0
}

// RR is binary randomized response: each coordinate of the cube |x_i| ≤ a is rounded to a
// random bit with mean x_i/a, and every bit is flipped with probability 1/(1+e^(ε₀/d)). An
// input of ±a is the classical bit.
//
// Inputs outside the cube are projected on it coordinate by coordinate; NaN counts as 0. RR
// is exactly ε₀-LDP, without slack: bits are drawn exactly, and ε₀/d is rounded down. With d
// = 1 the report is of class dp.BinaryRR. The estimate is unbiased; the mean squared error
// d·a²/tanh(ε₀/2d)² − ‖x‖² is largest at x = 0.
type RR struct {
	config RRConfig
	each   float64 // ε₀ of one bit
	scale  float64
}

var _ Randomizer = (*RR)(nil)

// NewRR validates c.
func NewRR(c RRConfig) (*RR, error) {
	if err := checkAll(c.Dim, c.Radius, c.Eps0); err != nil {
		return nil, err
	}
	each := splitEps0(c.Eps0, c.Dim)
	return &RR{config: c, each: each, scale: c.Radius * flipScale(each)}, nil
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

// Name returns "rr".
func (m *RR) Name() string { return "rr" }

// Dim returns the length of the input.
func (m *RR) Dim() int { return m.config.Dim }

// NewReport returns a dense report.
func (m *RR) NewReport() *Report { return &Report{Value: make([]int32, m.config.Dim)} }

// Randomize overwrites r with a randomized report of x; see the type for inputs
// outside the domain.
func (m *RR) Randomize(src rng.Source, x []float32, r *Report) {
	checkInput(m.config.Dim, x)
	checkReport(r, 0, m.config.Dim)
	for i, v := range x {
		r.Value[i] = randomizedBit(src, float64(v), m.config.Radius, m.each)
	}
}

// Check validates shape and range; see [Mechanism].
func (m *RR) Check(r *Report) error {
	if err := checkDense(r, m.config.Dim, 1); err != nil {
		return err
	}
	for _, v := range r.Value {
		if v == 0 {
			return fmt.Errorf("randomizer: report value 0 must be 1 or -1")
		}
	}
	return nil
}

// Add adds a checked report to sum.
func (m *RR) Add(sum []int64, r *Report) { addDense(sum, r) }

// Estimate stores the unbiased mean of n inputs, in the units of x.
func (m *RR) Estimate(mean []float64, sum []int64, n int64) { estimate(mean, sum, n, m.scale) }

// MSE is attained at x = 0.
func (m *RR) MSE() float64 { return float64(m.config.Dim) * m.scale * m.scale }

// Bits is one per coordinate.
func (m *RR) Bits() int { return m.config.Dim }

// Event has exactly ε₀; the class is BinaryRR for a single bit, otherwise Generic.
func (m *RR) Event() dp.Report {
	class := dp.Generic
	if m.config.Dim == 1 {
		class = dp.BinaryRR
	}
	return dp.Report{Class: class, Eps0: m.config.Eps0}
}
