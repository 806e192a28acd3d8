package randomizer

import (
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// RInfConfig describes an [RInf].
type RInfConfig struct {
	Dim    int     // Required: length of the input
	Radius float64 // Required: a, the bound on |x_i|, between 1e-30 and 1e30
	Eps0   float64 // Required: ε₀ in nats, between 2^-20 and dp.MaxEps0
	// Coordinates is m, the number of coordinates in a report, at most Dim and
	// 1024; 0 means 1, the mechanism as published. [BestBits] returns the best.
	Coordinates int
}

// RInf is the mechanism R_∞ for the cube |x_i| ≤ a. A report has m uniformly random
// coordinates, drawn without replacement, and one bit of each, passed through binary
// randomized response of ε₀/m. Each stands for ±a·(d/m)/tanh(ε₀/2m) at its coordinate; for m
// = 1 that is ±a·d·(E+1)/(E−1).
//
// Inputs outside the cube are projected on it coordinate by coordinate; NaN counts as 0. RInf
// is exactly ε₀-LDP, without slack: the coordinates, the bits (to the 53 bits of x_j/a) and
// the flips are drawn exactly, and ε₀/m is rounded down. The estimate is unbiased; the mean
// squared error a²d²/(m·tanh²(ε₀/2m)) − ‖x‖² is largest at x = 0. With m = d it is [RR].
//
// Source: Girgis, Data, Diggavi, Kairouz, Suresh, "Shuffled Model of Differential Privacy in
// Federated Learning", AISTATS 2021; used in G21 §4.
// Several coordinates: the m bits are independent given the coordinates, which do not depend
// on the input, so their losses add; the error follows from E‖R‖² = m·(value)² and E[R] = x.
type RInf struct {
	pure
	config RInfConfig
	bits   sparseBits
}

var (
	_ Randomizer = (*RInf)(nil)
	_ Sparse     = (*RInf)(nil)
)

// NewRInf validates c.
func NewRInf(c RInfConfig) (*RInf, error) {
	if err := checkAll(c.Dim, c.Radius, c.Eps0); err != nil {
		return nil, err
	}
	m := &RInf{config: c}
	var err error
	if m.bits, err = newBits(c.Dim, c.Dim, c.Coordinates, c.Eps0); err != nil {
		return nil, err
	}
	d, count := float64(c.Dim), float64(m.bits.count)
	scale := c.Radius * (d / count) * flipScale(m.bits.each)
	m.shape = shape{
		name: "rinf", dim: c.Dim, values: m.bits.count, sparse: true,
		scale: scale, mse: count * scale * scale, size: m.bits.size(),
	}
	// Every report attains the largest: each of its coordinates has the same size.
	m.largest, m.inputs, m.reports = scale/c.Radius, math.Sqrt(d)*c.Radius, math.Sqrt(count)*scale
	m.event = dp.Report{Class: dp.Generic, Eps0: c.Eps0}
	return m, nil
}

func checkAll(dim int, radius, eps0 float64) error {
	if err := checkDim(dim); err != nil {
		return err
	}
	if err := checkRadius(radius); err != nil {
		return err
	}
	return checkEps0(eps0)
}

// flipScale returns (E+1)/(E−1) = 1/tanh(ε₀/2), the factor by which binary randomized
// response shrinks a mean.
func flipScale(eps0 float64) float64 { return 1 / math.Tanh(eps0/2) }

// Randomize overwrites r with a randomized report of x; see the type for inputs
// outside the domain.
func (m *RInf) Randomize(src rng.Source, x []float32, r *Report) {
	checkInput(m.config.Dim, x)
	m.RandomizeAt(src, func(j int) float32 { return x[j] }, r)
}

// Coordinates returns m, the number of coordinates in a report.
func (m *RInf) Coordinates() int { return m.bits.count }

// RandomizeAt is Randomize for an input given by its coordinates; see [Sparse].
func (m *RInf) RandomizeAt(src rng.Source, at func(j int) float32, r *Report) {
	checkReport(r, m.bits.count, m.bits.count)
	m.bits.draw(src, r.Index)
	for i, j := range r.Index {
		r.Value[i] = randomizedBit(src, float64(at(int(j))), m.config.Radius, m.bits.each)
	}
}

// randomizedBit returns +1 with probability 1/2 + (x/a)(E−1)/(2(E+1)), else −1:
// a bit with mean x/a, flipped with probability 1/(E+1).
func randomizedBit(src rng.Source, x, a, eps0 float64) int32 {
	plus := sample.Bernoulli(src, bitProbability(x, a))
	if sample.Flip(src, eps0) {
		plus = !plus
	}
	if plus {
		return 1
	}
	return -1
}

// bitProbability returns (1+x/a)/2 with x brought into [−a, a] and NaN to 0.
func bitProbability(x, a float64) float64 {
	switch {
	case x >= a:
		return 1
	case x <= -a:
		return 0
	case x != x:
		return .5
	}
	return (1 + x/a) / 2
}

// Check validates shape and range; see [Mechanism].
func (m *RInf) Check(r *Report) error { return m.bits.check(r) }
