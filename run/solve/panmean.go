package solve

import (
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// panMeanConfig configures newPanMean.
type panMeanConfig struct {
	Dim   int   // Required.
	Batch int64 // B, the clients of a batch. Required, at most 2³².
	// Clip is L, the ℓ2 norm that a gradient is clipped to. Required.
	Clip float64
	// Sigma is ζ, the standard deviation of one draw of noise in each
	// coordinate of the mean. Required; optimize.Plan.Deviation gives it.
	Sigma float64
}

// panMean is the state of pan-private AC-SA within a batch: a running sum of clipped
// gradients that never exists without noise. One draw of noise is in it from the start, a
// second one is added before the mean is used. An observer of the state at one moment, and of
// the output, sees every client's gradient behind at least one draw (convex.md, section 6).
//
// All numbers are integers: a gradient is clipped, divided by Unit and cut off towards 0, so
// that its norm is at most shift/2 steps exactly, and the noise is exactly discrete Gaussian
// with parameter at least (ζB/Unit)². So the claim is that of the discrete Gaussian mechanism
// for integer vectors one of which is replaced: ‖shift‖₂ ≤ shift. A mean errs by less than
// Unit in each coordinate, on top of the noise; cutting off biases it towards 0.
//
// There is no State: the promise allows one look at an open batch, and a copy would be a
// look. If a batch is interrupted, its clients must not be asked again. Between batches only
// released means exist, so the optimiser's own State may be stored freely.
//
// Source: Cheu, Joseph, Mao, Peng (ICLR 2022), Algorithm 6, on integers.
type panMean struct {
	config panMeanConfig
	grid   int64 // steps that a gradient of norm Clip has
	noise  *sample.Table
	param  uint64 // σ² of one draw, in squared steps

	open  bool
	count int64
	sum   []int64
	steps []int64
}

// panGrid is the finest grid: 2²⁰ steps for a gradient's norm.
const panGrid = 1 << 20

// newPanMean returns an empty accumulator; begin opens a batch.
func newPanMean(c panMeanConfig) (*panMean, error) {
	if c.Dim < 1 || c.Dim > 1<<22 || c.Batch < 1 || c.Batch > 1<<32 {
		return nil, fmt.Errorf("solve: pan-private mean of %d clients in dimension %d: both at least 1, clients at most 2^32, dimension at most 2^22", c.Batch, c.Dim)
	}
	if !(c.Clip > 0) || math.IsInf(c.Clip, 1) || !(c.Sigma > 0) || math.IsInf(c.Sigma, 1) {
		return nil, fmt.Errorf("solve: pan-private mean: clip = %v, sigma = %v, both must be above 0 and finite", c.Clip, c.Sigma)
	}
	m := &panMean{config: c, sum: make([]int64, c.Dim), steps: make([]int64, c.Dim)}
	for m.grid = panGrid; ; m.grid /= 2 {
		s := c.Sigma * float64(c.Batch) / c.Clip * float64(m.grid)
		if s <= 1<<27 && s > 0 {
			// The parameter is rounded up, by more than floating point may have lost.
			m.param = uint64(math.Ceil(s*s*(1+1e-12))) + 1
			break
		}
		if m.grid == 1<<8 {
			return nil, fmt.Errorf("solve: pan-private mean: noise of %v clip radii in the sum, at most 2^19 are supported", c.Sigma*float64(c.Batch)/c.Clip)
		}
	}
	var err error
	m.noise, err = sample.NewDiscreteGaussian(sample.Ratio{Num: m.param, Den: 1})
	return m, err
}

// unit is the length of a step in units of a gradient.
func (m *panMean) unit() float64 { return m.config.Clip / float64(m.grid) }

// shift returns a bound on the ℓ2 norm, in steps, of what replacing one client
// does to the sum, and the parameter σ² of one draw of noise, in squared steps.
func (m *panMean) shift() (shift int64, variance uint64) { return 2 * m.grid, m.param }

// begin draws the first noise and opens a batch.
func (m *panMean) begin(src rng.Source) error {
	if m.open {
		return errors.New("solve: pan-private mean: the last batch is still open")
	}
	m.noise.Fill(src, m.sum)
	m.open, m.count = true, 0
	return nil
}

// add clips one client's gradient and adds it. NaN counts as 0, infinity as the largest
// float32.
func (m *panMean) add(_ rng.Source, grad []float32) error {
	if !m.open || m.count == m.config.Batch {
		return fmt.Errorf("solve: pan-private mean: no batch of %d takes another client", m.config.Batch)
	}
	if len(grad) != m.config.Dim {
		return fmt.Errorf("solve: gradient has %d values, the model %d", len(grad), m.config.Dim)
	}
	m.quantise(grad)
	for j, k := range m.steps {
		m.sum[j] += k
	}
	clear(m.steps) // the steps reveal one client's gradient
	m.count++
	return nil
}

// quantise fills steps with the clipped gradient, cut off towards 0; the norm
// is checked on the integers.
func (m *panMean) quantise(grad []float32) {
	value := func(g float32) float64 {
		if g != g {
			return 0
		}
		return math.Max(-math.MaxFloat32, math.Min(math.MaxFloat32, float64(g)))
	}
	square := 0.0
	for _, g := range grad {
		v := value(g)
		square += v * v
	}
	scale := float64(m.grid) / m.config.Clip
	if n := math.Sqrt(square); n > m.config.Clip {
		scale = float64(m.grid) / n
	}
	for j, g := range grad {
		v := math.Trunc(value(g) * scale)
		m.steps[j] = int64(math.Max(-float64(m.grid), math.Min(float64(m.grid), v)))
	}
	for {
		var sum uint64
		for _, k := range m.steps {
			sum += uint64(k * k)
		}
		if sum <= uint64(m.grid)*uint64(m.grid) {
			return
		}
		// Rounding made the norm a little too large: move every coordinate one step towards
		// 0.
		for j, k := range m.steps {
			switch {
			case k > 0:
				m.steps[j]--
			case k < 0:
				m.steps[j]++
			}
		}
	}
}

// end adds the second noise, writes the mean of the batch and closes it. A
// batch that is not full is refused: the mean is over B.
func (m *panMean) end(src rng.Source, mean []float64) error {
	if !m.open || m.count != m.config.Batch {
		return fmt.Errorf("solve: pan-private mean: %d of %d clients have been added", m.count, m.config.Batch)
	}
	if len(mean) != m.config.Dim {
		return fmt.Errorf("solve: mean has %d values, the model %d", len(mean), m.config.Dim)
	}
	unit := m.unit() / float64(m.config.Batch)
	for j := range mean {
		m.sum[j] += m.noise.Draw(src)
		mean[j] = float64(m.sum[j]) * unit
		m.sum[j] = 0
	}
	m.open, m.count = false, 0
	return nil
}

func (m *panMean) merge(sum) error { return errors.New("solve: a pan-private sum has one part") }
