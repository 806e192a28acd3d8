package randomizer

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// plainBits are the fractional bits of a Plain report: a coordinate of the
// radius is 2^24 units, as fine as float32.
const plainBits = 24

// NewPlain returns a mechanism that randomizes nothing: its report is the input, rounded to
// fixed point. It is the baseline without privacy: it takes c.Dim and c.Radius only, and has no
// Event, so no accountant accepts it. Inputs beyond the radius are cut off coordinate by
// coordinate. MSE bounds the rounding: a quarter of a squared unit a coordinate.
func NewPlain(c Config) (Mechanism, error) {
	if err := checkBall(c.Dim, c.Radius); err != nil {
		return nil, err
	}
	if c.Eps0 != 0 || c.Bits != 0 {
		return nil, fmt.Errorf("randomizer: eps0 = %v and %d bits given to a mechanism without privacy", c.Eps0, c.Bits)
	}
	unit := c.Radius / (1 << plainBits)
	d := dense{values: c.Dim, limit: 1 << plainBits}
	return &plain{base{
		facts:  d.sized(Facts{Name: PlainName, Dim: c.Dim, MSE: float64(c.Dim) * unit * unit / 4}),
		radius: c.Radius,
		scale:  unit,
	}, d}, nil
}

type plain struct {
	base
	dense
}

// PlainName is the name of the mechanism that NewPlain makes; New does not accept it.
const PlainName = "none"

// MeanBound is +Inf: means of plain reports are not shortened.
func (m *plain) MeanBound(int64) float64 { return math.Inf(1) }

// Randomize rounds x to the nearest report, deterministically; NaN counts as 0.
func (m *plain) Randomize(_ rng.Source, x []float32, r *Report) {
	checkInput(m.facts.Dim, x)
	checkReport(r, 0, m.facts.Dim)
	for i, v := range x {
		w := float64(v)
		if math.IsNaN(w) {
			w = 0
		}
		w = max(-m.radius, min(m.radius, w))
		r.Value[i] = int32(math.RoundToEven(w / m.scale))
	}
}
