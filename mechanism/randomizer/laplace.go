package randomizer

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// LaplaceConfig describes a [Laplace]. All fields are required.
type LaplaceConfig struct {
	Dim    int     // length of the input
	Radius float64 // C, the bound on ‖x‖₁, between 1e-30 and 1e30
	Eps0   float64 // ε₀ in nats, between 2^-20 and dp.MaxEps0
}

// Laplace adds exact discrete Laplace noise of scale 2C/ε₀ to every coordinate of a vector of
// the ball ‖x‖₁ ≤ C, in which any two vectors are at most 2C apart. It is the mechanism of
// EAB's Algorithm 1, where x is a block's clipped gradient.
//
// The coordinates are first rounded to a grid of steps C·2^−16 (coarser for ε₀ < 1/128, where
// the noise would not fit), at random and without bias, by one random shift of the running
// sum Σ|x_i|. Each coordinate goes to one of its two neighbours, and the rounded vector is
// never longer than 2^16 steps, so the grid adds nothing to the sensitivity.
//
// Longer inputs are scaled into the ball; NaN counts as 0 and ±Inf as the largest float32.
// Laplace is exactly ε₀-LDP, without slack: it works on integers, and the scale is a rational
// rounded up. The estimate is unbiased; the mean squared error is about 8d(C/ε₀)² for every
// input.
//
// Source: EAB Proposition 3 and Algorithm 1; the discrete law Ghosh, Roughgarden,
// Sundararajan, STOC 2009; sampled by [sample.NewLaplace].
type Laplace struct {
	pure
	config  LaplaceConfig
	unit    int64        // grid steps in the radius
	ratio   sample.Ratio // scale of the noise, in grid steps
	noise   *sample.Table
	limit   int64 // largest absolute value in a report
	longest int64 // largest sum of absolute values in a report
}

var _ Randomizer = (*Laplace)(nil)

const (
	// laplaceShift is the number of fraction bits of the running sum that is rounded.
	laplaceShift = 40
	// laplaceDen is the denominator of the noise's scale, below 2^24 steps.
	laplaceDen = 1 << 27
	// laplaceTail is the number of scales of noise at which a report is cut. Cutting is
	// post-processing and moves less than e^−126 of mass.
	laplaceTail = 127
)

// NewLaplace validates c.
func NewLaplace(c LaplaceConfig) (*Laplace, error) {
	if err := checkAll(c.Dim, c.Radius, c.Eps0); err != nil {
		return nil, err
	}
	m := &Laplace{config: c}
	fraction := min(16, 23+math.Ilogb(c.Eps0))
	m.unit = 1 << fraction
	// Rounded up by more than the division's error, which costs less than 1e-11 of ε₀.
	scale := float64(2*m.unit) / c.Eps0 * (1 + 0x1p-51)
	m.ratio = sample.Ratio{Num: uint64(math.Ceil(scale * laplaceDen)), Den: laplaceDen}
	m.limit = min(math.MaxInt32, m.unit+int64(math.Ceil(laplaceTail*scale)))
	var err error
	if m.noise, err = sample.NewLaplace(m.ratio); err != nil {
		return nil, fmt.Errorf("randomizer: eps0 = %v: %w", c.Eps0, err)
	}
	m.longest = m.unit + int64(math.Ceil(scale*laplaceSize(c.Dim, checkTail)*(1+0x1p-40)))
	// The noise is 1/(2·sinh²(1/2t)) squared steps at scale t, the rounding at most 1/4.
	half := math.Sinh(float64(m.ratio.Den) / (2 * float64(m.ratio.Num)))
	step := c.Radius / float64(m.unit)
	m.shape = shape{
		name: "laplace", dim: c.Dim, values: c.Dim, scale: step,
		mse:  float64(c.Dim) * (1/(2*half*half) + .25) * step * step,
		size: c.Dim * (bits.Len64(uint64(m.limit)) + 1), // the largest value and a sign
	}
	// The largest includes the largest noise that Check accepts, in ℓ₁.
	m.largest = float64(m.longest) / float64(m.unit)
	m.inputs, m.reports = c.Radius, m.largest*c.Radius
	m.event = dp.Report{Class: dp.LaplaceL1, Eps0: c.Eps0}
	return m, nil
}

// laplaceSize returns a bound, in scales, that the sum of the absolute values of dim discrete
// Laplace variables exceeds with probability at most e^−x; see laplace.md.
func laplaceSize(dim int, x float64) float64 {
	d := float64(dim)
	return d + math.Sqrt(2*d*x) + x
}

// Randomize overwrites r with a randomized report of x; see the type for inputs
// outside the domain.
func (m *Laplace) Randomize(src rng.Source, x []float32, r *Report) {
	checkInput(m.config.Dim, x)
	checkReport(r, 0, m.config.Dim)
	m.round(src, x, r.Value)
	addNoise(src, m.noise, r.Value, m.limit)
}

// round stores x in grid steps. Σ|k_i| ≤ unit holds whatever rounding the floats do, because
// k_i is the growth of an integer part that never exceeds unit.
func (m *Laplace) round(src rng.Source, x []float32, k []int32) {
	size := norm(x, 1)
	if !(size <= math.MaxFloat64) {
		clean := make([]float32, len(x))
		sanitize(clean, x)
		x, size = clean, norm(clean, 1)
	}
	steps := float64(m.unit) * (1 << laplaceShift) / math.Max(size, m.config.Radius)
	top := uint64(m.unit) << laplaceShift
	shift := src.Uint64() >> (64 - laplaceShift)
	var sum, whole uint64
	for i, v := range x {
		sum = min(top, sum+uint64(steps*math.Abs(float64(v))))
		next := (sum + shift) >> laplaceShift
		k[i] = int32(next - whole)
		if v < 0 {
			k[i] = -k[i]
		}
		whole = next
	}
}

// Check validates shape, range and size; see [Mechanism]. It refuses an honest
// report with probability e^−100 at most.
func (m *Laplace) Check(r *Report) error {
	if err := checkDense(r, m.config.Dim, int32(m.limit)); err != nil {
		return err
	}
	var size int64
	for _, v := range r.Value {
		size += max(int64(v), -int64(v))
	}
	if size > m.longest {
		return fmt.Errorf("randomizer: report of size %d must be at most %d", size, m.longest)
	}
	return nil
}
