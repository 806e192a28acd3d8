package randomizer

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// DiscreteGaussianConfig describes a [DiscreteGaussian]. All fields are required.
type DiscreteGaussianConfig struct {
	Dim    int     // length of the input
	Radius float64 // C, the bound on ‖x‖₂, between 1e-30 and 1e30
	// Sigma is the standard deviation of the noise on each coordinate, in units
	// of Radius: between 2^-10 and 2^10.
	Sigma float64
}

// DiscreteGaussian adds exact discrete Gaussian noise to every coordinate of a vector of the
// ball ‖x‖₂ ≤ C, on a grid of steps C·2^−16 to which the coordinates are first rounded at
// random, without bias.
//
// It is not ε₀-LDP for any ε₀. So it has no Event and is no [Randomizer], and the compiler
// refuses it where a pure guarantee is needed. Its guarantee is zcdp.
//
// Inputs outside the ball are scaled onto the sphere; NaN counts as 0 and ±Inf as the largest
// float32. The estimate is unbiased, but for the cut at gaussianTail standard deviations;
// every input attains MSE, up to the share of the rounding. discretegaussian.md derives the
// cut and the limits of Check.
//
// Source: Canonne, Kamath, Steinke, arXiv 2004.00010v5, Theorem 4.
type DiscreteGaussian struct {
	base
	dense
	variance uint64  // of the noise, in squared grid steps
	longest  float64 // largest length that Check accepts, in grid steps
	noise    *sample.Table
}

// gaussianUnit is the number of grid steps in the radius.
const gaussianUnit = 1 << 16

// gaussianTail is the number of standard deviations of noise at which a coordinate of a
// report is cut, or 31.9 where more would not fit. Cutting is post-processing; it moves less
// than e^−500 of mass and a mean by less than e^−500 σ.
const gaussianTail = 40

// NewDiscreteGaussian validates c.
func NewDiscreteGaussian(c DiscreteGaussianConfig) (*DiscreteGaussian, error) {
	if err := checkBall(c.Dim, c.Radius); err != nil {
		return nil, err
	}
	if !(c.Sigma >= 0x1p-10 && c.Sigma <= 0x1p10) {
		return nil, fmt.Errorf("randomizer: sigma = %v must lie between 2^-10 and 2^10 radii", c.Sigma)
	}
	m := &DiscreteGaussian{}
	// The variance is rounded up to an integer; it is at least 2^12 squared steps.
	m.variance = uint64(math.Ceil(c.Sigma * gaussianUnit * (c.Sigma * gaussianUnit)))
	sigma := math.Sqrt(float64(m.variance))
	limit := min(math.MaxInt32, gaussianUnit+1+int64(math.Ceil(gaussianTail*sigma)))
	m.dense = dense{values: c.Dim, limit: int32(limit), whole: m.checkLength}
	m.longest = gaussianUnit + 1 + math.Sqrt(float64(c.Dim)) + sigma*tail.Length(c.Dim, checkTail)
	step := c.Radius / gaussianUnit
	m.base = base{
		facts: m.dense.sized(Facts{
			Name: "discrete-gaussian",
			Dim:  c.Dim,
			// The noise's variance and at most 1/4 of a squared step for the rounding.
			MSE:     float64(c.Dim) * (float64(m.variance) + .25) * step * step,
			Largest: m.longest / gaussianUnit, // with the largest noise that Check accepts
		}),
		radius: c.Radius, scale: step,
		input: c.Radius, report: m.longest * step,
	}
	var err error
	m.noise, err = sample.NewDiscreteGaussian(sample.Ratio{Num: m.variance, Den: 1})
	if err != nil {
		return nil, fmt.Errorf("randomizer: sigma = %v: %w", c.Sigma, err)
	}
	return m, nil
}

// Randomize overwrites r with a randomized report of x; see [DiscreteGaussian] for inputs
// outside the domain.
func (m *DiscreteGaussian) Randomize(src rng.Source, x []float32, r *Report) {
	checkInput(m.facts.Dim, x)
	checkReport(r, 0, m.facts.Dim)
	size := norm(x, 2)
	if !(size <= math.MaxFloat64) {
		clean := make([]float32, len(x))
		sanitize(clean, x)
		x, size = clean, norm(clean, 2)
	}
	steps := gaussianUnit / math.Max(size, m.radius)
	for i, v := range x {
		y := steps * float64(v)
		low := math.Floor(y)
		k := int64(low)
		if sample.Bernoulli(src, y-low) {
			k++
		}
		r.Value[i] = int32(k) // at most 2^16 + 1
	}
	addNoise(src, m.noise, r.Value, int64(m.limit))
}

// checkLength refuses a report that is too long: an honest one with probability e^−100 at most.
func (m *DiscreteGaussian) checkLength(values []int32) error {
	var square float64
	for _, v := range values {
		square += float64(float64(v) * float64(v))
	}
	// The sum of 2^30 squares errs by less than 2^−22.
	if square > m.longest*m.longest*(1+0x1p-20) {
		return fmt.Errorf("randomizer: report of length %.6g must be at most %.6g", math.Sqrt(square), m.longest)
	}
	return nil
}

// zcdp returns ρ such that one report is ρ-zero-concentrated private between any two inputs
// (replace-one, nats, rounded up): ρ = Δ²/(2σ²). Δ = 2(2^16+1)+√d steps bounds the distance
// of two rounded inputs. It is the distance of the ends of a diameter, each lengthened by the
// rounding of the scaling, plus less than one step on each coordinate for two roundings with
// the same coins. The one step added to each radius covers the scaling, which lengthens a
// vector by less than 2^−8 steps at d = 2^30, and the errors of the sums and roots here,
// below 2^−20.
func (m *DiscreteGaussian) zcdp() float64 {
	delta := 2*(gaussianUnit+1) + math.Sqrt(float64(m.facts.Dim))
	return roundUp(roundUp(delta*delta) / (2 * float64(m.variance)))
}
