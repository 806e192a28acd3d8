package pld

import (
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/monotone"
)

// Part is a round, composed Times times.
type Part struct {
	Loss     Loss // for Compose
	Times    int64
	Spectrum *Spectrum // for Combine, which does not look at Loss
}

// Composed is the composition of parts on one grid, tilted by e^{tL}. It is accurate for
// losses near the tilted mean, and an upper bound everywhere.
type Composed struct {
	step, tilt float64
	low        int64     // the first point is loss low·step
	tail, gain []float64 // untilted sums over the points from i on; see fill
	logNorm    float64   // log of the moment by which they were normalised
	Roundoff   float64   // bound on the ℓ1 error of the tilted masses
	above      float64   // bound on the tilted mass of losses above the window
	infinite   float64   // untilted mass of infinite loss
	inflate    float64   // factor that covers the rounding of masses and sums
}

// maxFFT bounds the grid of a composition.
const maxFFT = 1 << 22

// unit is the rounding unit of float64.
const unit = 0x1p-53

// Compose composes the parts, which must share one step. tilt ≥ 0 chooses where the result is
// sharp; the result is valid for any tilt. See compose.md.
func Compose(parts []Part, tilt float64) (*Composed, error) {
	if len(parts) == 0 {
		return nil, errors.New("pld: nothing to compose")
	}
	if !(tilt >= 0) || math.IsInf(tilt, 1) {
		return nil, fmt.Errorf("pld: tilt = %v must be at least 0 and finite", tilt)
	}
	step := parts[0].Loss.Step
	c := &Composed{step: step, tilt: tilt}
	var mean, variance, base float64
	for _, p := range parts {
		if p.Loss.Step != step {
			return nil, fmt.Errorf("pld: steps %v and %v on one grid", step, p.Loss.Step)
		}
		l, m, v := p.Loss.Tilted(tilt)
		mean += float64(p.Times) * m
		variance += float64(p.Times) * v
		base += float64(p.Times) * l
	}
	if math.IsNaN(mean) || math.IsNaN(variance) {
		return nil, fmt.Errorf("pld: tilt %v overflows: %w", tilt, dp.ErrNoBound)
	}

	// The window must reach so far on both sides that Chernoff's bound on the tilted mass
	// beyond it is at most this.
	const beyond = 1e-9
	up := c.reach(parts, base, mean, variance, beyond, +1)
	down := c.reach(parts, base, mean, variance, beyond, -1)
	size := 1 << 10
	for !(float64(size) >= (up+down)/step+4) { // true for NaN too
		size *= 2
		if size > maxFFT {
			return nil, fmt.Errorf("pld: a window of %v needs more than %d points of step %v: %w", up+down, maxFFT, step, dp.ErrNoBound)
		}
	}
	low, err := index(mean-down, step)
	if err != nil {
		return nil, err
	}
	spectra := make([]Part, len(parts))
	for i, p := range parts {
		s, err := NewSpectrum(p.Loss, tilt, size, size)
		if err != nil {
			return nil, err
		}
		spectra[i] = Part{Spectrum: s, Times: p.Times}
	}
	return Combine(spectra, low, beyond)
}

// reach returns the distance above (side +1) or below (−1) the tilted mean beyond which the
// tilted mass is at most the given bound. It uses Chernoff's bound at a few parameters around
// the Gaussian one.
func (c *Composed) reach(parts []Part, base, mean, variance, beyond, side float64) float64 {
	logBeyond := math.Log(beyond)
	sd := math.Sqrt(variance)
	if sd == 0 {
		sd = c.step
	}
	// No composition leaves ±Σ times·top.
	best := -side * mean
	for _, p := range parts {
		best += float64(p.Times) * p.Loss.Top()
	}
	guess := math.Sqrt(-2*logBeyond) / sd
	factors := []float64{.1, .2, .35, .5, .7, .85, 1, 1.2, 1.5}
	if len(parts) > 4 { // nearly Gaussian
		factors = factors[4:8]
	}
	for _, factor := range factors {
		s := side * guess * factor
		k := -base
		for _, p := range parts {
			k += float64(p.Times) * p.Loss.logMoment(c.tilt+s)
		}
		// Pr_t[side·(S − mean) ≥ w] ≤ exp(k − s·mean − |s|w) ≤ beyond.
		if w := (k - s*mean - logBeyond) / math.Abs(s); w < best {
			best = w
		}
	}
	return math.Max(best, 4*c.step)
}

// charge returns what Delta adds to the window's δ(ε): infinite losses, round-off and losses
// above the window, at the weight e^{logNorm − t·x} that untilting gives to losses x ≥ ε.
func (c *Composed) charge(eps float64) float64 {
	return c.infinite + (c.Roundoff+c.above)*math.Exp(c.logNorm-c.tilt*eps)*c.inflate
}

// fill turns tilted masses into the sums that Delta needs. With w_j = mass_j·e^{K − t·x_j}
// the untilted masses, tail_i = Σ_{j≥i} w_j, and gain_i = Σ_{j≥i} w_j(1 − e^{x_i − x_j}) is
// the δ at x_i. A recursion of positive terms computes them.
func (c *Composed) fill(mass []float64) {
	shrink, rest := math.Exp(-c.step), -math.Expm1(-c.step)
	c.tail, c.gain = make([]float64, len(mass)+1), make([]float64, len(mass)+1)
	for i := len(mass) - 1; i >= 0; i-- {
		x := float64(c.low+int64(i)) * c.step
		c.gain[i] = rest*c.tail[i+1] + shrink*c.gain[i+1]
		c.tail[i] = c.tail[i+1]
		if mass[i] > 0 {
			c.tail[i] += mass[i] * math.Exp(c.logNorm-c.tilt*x)
		}
	}
}

// Delta returns an upper bound on δ at ε ≥ 0. Below the window, where nothing is known, it is
// 1.
func (c *Composed) Delta(eps float64) float64 {
	if !(eps >= 0) || eps < float64(c.low)*c.step {
		return 1
	}
	d := c.shown(eps) + c.charge(eps)
	if math.IsNaN(d) {
		return 1
	}
	return math.Min(1, d)
}

// shown returns the δ in the window at an ε not below it.
func (c *Composed) shown(eps float64) float64 {
	sum := 0.
	// i is the first point at or above eps; y is its distance above.
	if at := math.Ceil(eps/c.step) - float64(c.low); at < float64(len(c.tail)) {
		i := int(at)
		y := math.Max(0, float64(c.low+int64(i))*c.step-eps)
		sum = -math.Expm1(-y)*c.tail[i] + math.Exp(-y)*c.gain[i]
	}
	// Untilted masses below 1e-300 may have been rounded to 0.
	return sum*c.inflate + 1e-300
}

// Epsilon returns an ε ≥ 0 with Delta(ε) ≤ delta, within 1e-9 relative of the smallest and
// never below it; +Inf if there is none in the window.
func (c *Composed) Epsilon(delta float64) float64 {
	top := float64(c.low+int64(len(c.tail))) * c.step
	bottom := math.Max(0, float64(c.low)*c.step)
	if !(top > bottom) {
		return math.Inf(1)
	}
	return monotone.Falling(c.Delta, delta, bottom, top, 1e-9)
}
