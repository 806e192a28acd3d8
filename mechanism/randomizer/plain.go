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
	shape
	radius float64
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
	unit := c.Radius / (1 << plainBits)
	return &Plain{radius: c.Radius, shape: shape{
		name: PlainName, dim: c.Dim, values: c.Dim, scale: unit,
		mse:  float64(c.Dim) * unit * unit / 4, // of the rounding: a quarter of a squared unit a coordinate
		size: c.Dim * (plainBits + 2),          // 25 bits and a sign a coordinate
	}}, nil
}

// PlainName is Plain's name, which New does not know.
const PlainName = "none"

// Randomize rounds x to the nearest report, deterministically; NaN counts as 0.
func (m *Plain) Randomize(_ rng.Source, x []float32, r *Report) {
	checkInput(m.dim, x)
	checkReport(r, 0, m.dim)
	for i, v := range x {
		w := float64(v)
		if math.IsNaN(w) {
			w = 0
		}
		w = max(-m.radius, min(m.radius, w))
		r.Value[i] = int32(math.RoundToEven(w / m.scale))
	}
}

// Check validates shape and range.
func (m *Plain) Check(r *Report) error {
	return checkDense(r, m.dim, 1<<plainBits)
}
