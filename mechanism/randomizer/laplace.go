package randomizer

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// Laplace names the mechanism that adds exact discrete Laplace noise of scale 2C/ε₀ to every
// coordinate of a vector of the ball ‖x‖₁ ≤ C, in which any two vectors are at most 2C apart.
// It is the mechanism of Chen, Cao, Ge 2024 (EAB), Algorithm 1, where x is a block's clipped
// gradient.
//
// The coordinates are first rounded to a grid of steps C·2^−16 (coarser for ε₀ < 1/128, where
// the noise would not fit), at random and without bias, by one random shift of the running sum
// Σ|x_i|. Each coordinate goes to one of its two neighbours, and the rounded vector is never
// longer than 2^16 steps, so the grid adds nothing to the sensitivity.
//
// Longer inputs are scaled into the ball; NaN counts as 0 and ±Inf as the largest float32. The
// mechanism is exactly ε₀-LDP, without slack: it works on integers, and the scale is a
// rational rounded up. The estimate is unbiased; the mean squared error is about 8d(C/ε₀)² for
// every input.
//
// Source: EAB Proposition 3 and Algorithm 1; the discrete law is that of Ghosh, Roughgarden,
// Sundararajan, STOC 2009; sampled by [sample.NewLaplace].
const Laplace = "laplace"

func newLaplace(c Config) (Randomizer, error) {
	if err := c.check(false); err != nil {
		return nil, err
	}
	fraction := min(16, 23+math.Ilogb(c.Eps0))
	m := &laplace{unit: 1 << fraction}
	// Rounded up by more than the division's error, which costs less than 1e-11 of ε₀.
	spread := float64(2*m.unit) / c.Eps0 * (1 + 0x1p-51)
	m.spread = sample.Ratio{Num: uint64(math.Ceil(spread * laplaceDen)), Den: laplaceDen}
	limit := min(math.MaxInt32, m.unit+int64(math.Ceil(laplaceTail*spread)))
	m.dense = dense{values: c.Dim, limit: int32(limit), whole: m.checkSum}
	var err error
	if m.noise, err = sample.NewLaplace(m.spread); err != nil {
		return nil, fmt.Errorf("randomizer: eps0 = %v: %w", c.Eps0, err)
	}
	m.size = m.unit + int64(math.Ceil(spread*laplaceSize(c.Dim, checkTail)*(1+0x1p-40)))
	// The noise has the variance 1/(2·sinh²(1/2t)) squared steps at spread t, and the rounding
	// at most 1/4.
	s := math.Sinh(float64(m.spread.Den) / (2 * float64(m.spread.Num)))
	step := c.Radius / float64(m.unit)
	largest := float64(m.size) / float64(m.unit) // in ℓ₁, with the largest noise that Check accepts
	m.pure = pure{base{
		facts:  m.dense.sized(Facts{Name: Laplace, Dim: c.Dim, MSE: float64(c.Dim) * (1/(2*s*s) + .25) * step * step, Largest: largest}),
		radius: c.Radius, scale: step,
		input: c.Radius, report: largest * c.Radius,
	}, dp.Report{Class: dp.LaplaceL1, Eps0: c.Eps0}}
	return m, nil
}

type laplace struct {
	pure
	dense
	unit   int64        // grid steps in the radius
	spread sample.Ratio // the scale of the noise, in grid steps
	noise  *sample.Table
	size   int64 // largest sum of absolute values in a report
}

const (
	// laplaceShift is the number of fraction bits of the running sum that is rounded.
	laplaceShift = 40
	// laplaceDen is the denominator of the noise's scale. The scale itself is below 2^24 steps.
	laplaceDen = 1 << 27
	// laplaceTail is the number of scales of noise at which a report is cut. Cutting is
	// post-processing and moves less than e^−126 of mass.
	laplaceTail = 127
)

// laplaceSize returns a bound, in scales, that the sum of the absolute values of dim discrete
// Laplace variables exceeds with probability at most e^−x; see laplace.md.
func laplaceSize(dim int, x float64) float64 {
	d := float64(dim)
	return d + math.Sqrt(2*d*x) + x
}

// Randomize overwrites r with a randomized report of x; see [Laplace] for inputs
// outside the domain.
func (m *laplace) Randomize(src rng.Source, x []float32, r *Report) {
	checkInput(m.facts.Dim, x)
	checkReport(r, 0, m.facts.Dim)
	m.round(src, x, r.Value)
	addNoise(src, m.noise, r.Value, int64(m.limit))
}

// round stores x in grid steps. Σ|k_i| ≤ unit holds whatever rounding the floats do, because
// k_i is the growth of an integer part that never exceeds unit.
func (m *laplace) round(src rng.Source, x []float32, k []int32) {
	size := norm(x, 1)
	if !(size <= math.MaxFloat64) {
		clean := make([]float32, len(x))
		sanitize(clean, x)
		x, size = clean, norm(clean, 1)
	}
	steps := float64(m.unit) * (1 << laplaceShift) / math.Max(size, m.radius)
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

// checkSum refuses a report with too large a sum of absolute values: an honest one with
// probability e^−100 at most.
func (m *laplace) checkSum(values []int32) error {
	var size int64
	for _, v := range values {
		size += max(int64(v), -int64(v))
	}
	if size > m.size {
		return fmt.Errorf("randomizer: report of size %d must be at most %d", size, m.size)
	}
	return nil
}
