package randomizer

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/rng"
	"github.com/riffle-dp/riffle/sample"
)

// RInfConfig describes an [RInf]. All fields are required.
type RInfConfig struct {
	Dim    int     // length of the input
	Radius float64 // a, the bound on |x_i|, between 1e-30 and 1e30
	Eps0   float64 // ε₀ in nats, above 0 and at most dp.MaxEps0
}

// RInf is the mechanism R_∞ for the cube |x_i| ≤ a: one uniformly random
// coordinate j and one bit of it, passed through binary randomized response.
// The report stands for the vector ±a·d·(E+1)/(E−1) at j.
//
// Inputs outside the cube are projected on it coordinate by coordinate, NaN
// counts as 0. Exactly ε₀-LDP, without slack: the coordinate, the bit (to the
// 53 bits of x_j/a) and the flip are drawn exactly. Unbiased; the mean squared
// error a²d²((E+1)/(E−1))² − ‖x‖² is largest at x = 0.
//
// Source: Girgis, Data, Diggavi, Kairouz, Suresh, "Shuffled Model of
// Differential Privacy in Federated Learning", AISTATS 2021; used in G21 §4.
type RInf struct {
	config RInfConfig
	scale  float64 // a·d·(E+1)/(E−1)
}

var _ Randomizer = (*RInf)(nil)

// NewRInf validates c.
func NewRInf(c RInfConfig) (*RInf, error) {
	if err := checkAll(c.Dim, c.Radius, c.Eps0); err != nil {
		return nil, err
	}
	m := &RInf{config: c, scale: c.Radius * float64(c.Dim) * flipScale(c.Eps0)}
	if err := checkError(m.MSE(), c.Eps0); err != nil {
		return nil, err
	}
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

// checkError refuses an eps0 so small that the error is no number any more.
func checkError(mse, eps0 float64) error {
	if !(mse <= math.MaxFloat64) {
		return fmt.Errorf("randomizer: eps0 = %v is too small: the mean squared error overflows", eps0)
	}
	return nil
}

// flipScale returns (E+1)/(E−1) = 1/tanh(ε₀/2), by which binary randomized
// response shrinks a mean.
func flipScale(eps0 float64) float64 { return 1 / math.Tanh(eps0/2) }

// Name returns "rinf".
func (m *RInf) Name() string { return "rinf" }

// Dim returns the length of the input.
func (m *RInf) Dim() int { return m.config.Dim }

// NewReport returns a sparse one-value report.
func (m *RInf) NewReport() *Report {
	return &Report{Index: make([]uint32, 1), Value: make([]int32, 1)}
}

// Randomize overwrites r with a randomized report of x; see the type for inputs
// outside the domain.
func (m *RInf) Randomize(src rng.Source, x []float32, r *Report) {
	checkInput(m.config.Dim, x)
	j := sample.Uniform(src, uint64(m.config.Dim))
	r.Index[0] = uint32(j)
	r.Value[0] = randomizedBit(src, float64(x[j]), m.config.Radius, m.config.Eps0)
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
func (m *RInf) Check(r *Report) error {
	if len(r.Index) != 1 || len(r.Value) != 1 {
		return fmt.Errorf("randomizer: report with %d indices and %d values must have one of each", len(r.Index), len(r.Value))
	}
	if int64(r.Index[0]) >= int64(m.config.Dim) {
		return fmt.Errorf("randomizer: report index %d must be below the dimension %d", r.Index[0], m.config.Dim)
	}
	if v := r.Value[0]; v != 1 && v != -1 {
		return fmt.Errorf("randomizer: report value %d must be 1 or -1", v)
	}
	return nil
}

// Add adds a checked report to sum.
func (m *RInf) Add(sum []int64, r *Report) { sum[r.Index[0]] += int64(r.Value[0]) }

// Estimate stores the unbiased mean of n inputs, in the units of x.
func (m *RInf) Estimate(mean []float64, sum []int64, n int64) { estimate(mean, sum, n, m.scale) }

// MSE is attained at x = 0.
func (m *RInf) MSE() float64 { return m.scale * m.scale }

// Bits is ⌈log₂ d⌉ for the coordinate and one for the sign.
func (m *RInf) Bits() int { return bits.Len64(uint64(m.config.Dim-1)) + 1 }

// Event is ε₀ exactly, of the generic class.
func (m *RInf) Event() dp.Report { return dp.Report{Class: dp.Generic, Eps0: m.config.Eps0} }
