package randomizer

import (
	"math"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// plainBits are the fractional bits of a Plain report: a coordinate of the
// radius is 2^24 units, as fine as float32.
const plainBits = 24

// PlainConfig configures NewPlain. Both fields are required.
type PlainConfig struct {
	Dim    int
	Radius float64 // largest size of a coordinate, in the units of x
}

// Plain is not a randomizer: its report is the input, rounded to fixed point. It is the
// baseline without privacy. It has no Event, so no accountant accepts it. Inputs beyond the
// radius are cut off coordinate by coordinate.
type Plain struct {
	config PlainConfig
	unit   float64 // what one unit of a report stands for, in the units of x
}

var _ Mechanism = (*Plain)(nil)

// NewPlain checks the configuration.
func NewPlain(c PlainConfig) (*Plain, error) {
	if err := checkDim(c.Dim); err != nil {
		return nil, err
	}
	if err := checkRadius(c.Radius); err != nil {
		return nil, err
	}
	return &Plain{config: c, unit: c.Radius / (1 << plainBits)}, nil
}

// PlainName is Plain's name, which New does not know.
const PlainName = "none"

// Name returns PlainName.
func (m *Plain) Name() string { return PlainName }

// Dim returns the length of the input vector.
func (m *Plain) Dim() int { return m.config.Dim }

// NewReport returns a dense report.
func (m *Plain) NewReport() *Report { return &Report{Value: make([]int32, m.config.Dim)} }

// Randomize rounds x to the nearest report, deterministically; NaN counts as 0.
func (m *Plain) Randomize(_ rng.Source, x []float32, r *Report) {
	checkInput(m.config.Dim, x)
	checkReport(r, 0, m.config.Dim)
	for i, v := range x {
		w := float64(v)
		if math.IsNaN(w) {
			w = 0
		}
		w = max(-m.config.Radius, min(m.config.Radius, w))
		r.Value[i] = int32(math.RoundToEven(w / m.unit))
	}
}

// Check validates shape and range.
func (m *Plain) Check(r *Report) error {
	return checkDense(r, m.config.Dim, 1<<plainBits)
}

// Add adds a report to the sum.
func (m *Plain) Add(sum []int64, r *Report) { addDense(sum, r) }

// Estimate stores the mean of the inputs, within half a unit a coordinate.
func (m *Plain) Estimate(mean []float64, sum []int64, n int64) { estimate(mean, sum, n, m.unit) }

// MSE bounds the rounding: a quarter of a squared unit a coordinate.
func (m *Plain) MSE() float64 { return float64(m.config.Dim) * m.unit * m.unit / 4 }

// Bits is 25 bits and a sign per coordinate.
func (m *Plain) Bits() int { return m.config.Dim * (plainBits + 2) }
