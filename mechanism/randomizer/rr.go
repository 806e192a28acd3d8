package randomizer

import (
	"fmt"
	"math"

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
	pure
	config RRConfig
	each   float64 // ε₀ of one bit
}

var _ Randomizer = (*RR)(nil)

// NewRR validates c.
func NewRR(c RRConfig) (*RR, error) {
	if err := checkAll(c.Dim, c.Radius, c.Eps0); err != nil {
		return nil, err
	}
	each := splitEps0(c.Eps0, c.Dim)
	scale, d := c.Radius*flipScale(each), float64(c.Dim)
	m := &RR{config: c, each: each}
	m.shape = shape{name: "rr", dim: c.Dim, values: c.Dim, scale: scale, mse: d * scale * scale, size: c.Dim}
	// Every report attains the largest: all coordinates have the same size.
	m.largest, m.inputs, m.reports = scale/c.Radius, math.Sqrt(d)*c.Radius, math.Sqrt(d)*scale
	m.event = dp.Report{Class: dp.Generic, Eps0: c.Eps0}
	if c.Dim == 1 {
		m.event.Class = dp.BinaryRR
	}
	return m, nil
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
