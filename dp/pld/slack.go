package pld

import "math"

// Slack has the terms that Delta adds up at one ε, and the window that it used.
type Slack struct {
	Low       int64   // the window starts at loss Low·step
	Points    int     // and has this many grid points
	Tilt      float64 // t of e^{tL}
	Beyond    float64 // bound on the tilted mass above the window
	Inflation float64 // factor for the rounding of masses and sums

	Window     float64 // δ read off the window
	Truncation float64 // mass of infinite loss
	WrapAround float64 // charge for the mass above the window
	RoundOff   float64 // charge for the round-off of the transforms
	Total      float64 // the sum of these four: an upper bound on δ, as Delta is
}

// Slack splits Delta(eps) into its terms, for an eps ≥ 0 that is not below the window. See
// compose.md.
func (c *Composed) Slack(eps float64) Slack {
	untilt := math.Exp(c.logNorm-c.tilt*eps) * c.inflate
	s := Slack{Low: c.low, Points: len(c.tail) - 1, Tilt: c.tilt, Beyond: c.above, Inflation: c.inflate,
		Window: c.shown(eps), Truncation: c.infinite, WrapAround: c.above * untilt, RoundOff: c.Roundoff * untilt}
	s.Total = s.Window + s.Truncation + s.WrapAround + s.RoundOff
	return s
}
