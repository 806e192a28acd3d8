package pld

import (
	"errors"
	"fmt"
	"math"
	"math/cmplx"

	"gonum.org/v1/gonum/dsp/fourier"

	"github.com/riffle-dp/riffle/dp"
)

// Part is a round's loss, composed Times times.
type Part struct {
	Loss  Loss
	Times int64
}

// Composed is the composition of parts on one grid, tilted by e^{tL}: accurate
// where losses are about the tilted mean, and an upper bound everywhere.
type Composed struct {
	step, tilt float64
	low        int64     // the first point is loss low·step
	mass       []float64 // tilted masses, clipped at 0
	logNorm    float64   // log of the moment that normalised them
	roundoff   float64   // bound on the ℓ1 error of mass
	above      float64   // bound on the tilted mass of losses above the window
	infinite   float64   // untilted mass of infinite loss
	inflate    float64   // factor that covers the rounding of masses and sums
}

// maxFFT bounds the grid of a composition.
const maxFFT = 1 << 22

// unit is the rounding unit of float64.
const unit = 0x1p-53

// Compose composes the parts, which must share one step. tilt ≥ 0 chooses
// where the result is sharp; it is valid for any. See compose.md.
func Compose(parts []Part, tilt float64) (*Composed, error) {
	if len(parts) == 0 {
		return nil, errors.New("pld: nothing to compose")
	}
	if !(tilt >= 0) || math.IsInf(tilt, 1) {
		return nil, fmt.Errorf("pld: tilt = %v must be at least 0 and finite", tilt)
	}
	step := parts[0].Loss.Step
	c := &Composed{step: step, tilt: tilt}
	var mean, variance, survive float64
	var times float64
	var widest int
	for _, p := range parts {
		widest = max(widest, len(p.Loss.Upper))
		if p.Loss.Step != step {
			return nil, fmt.Errorf("pld: steps %v and %v on one grid", step, p.Loss.Step)
		}
		if p.Times < 1 {
			return nil, fmt.Errorf("pld: %d repetitions must be at least 1", p.Times)
		}
		n := float64(p.Times)
		m, v := p.Loss.tilted(tilt)
		mean += n * m
		variance += n * v
		c.logNorm += n * p.Loss.LogMoment(tilt)
		if p.Loss.Infinite >= 1 {
			return nil, fmt.Errorf("pld: infinite loss with mass %v: %w", p.Loss.Infinite, dp.ErrNoBound)
		}
		survive += n * math.Log1p(-p.Loss.Infinite)
		times += n
	}
	c.infinite = -math.Expm1(survive) * (1 + 1e-9)
	// The mass on loss 0 is what is left of 1, so it errs by a rounding a grid
	// point a round.
	c.inflate = 1 + 1e-8 + 8*unit*times*float64(widest)
	if math.IsNaN(c.logNorm) || math.IsInf(c.logNorm, 0) || math.IsNaN(variance) {
		return nil, fmt.Errorf("pld: tilt %v overflows: %w", tilt, dp.ErrNoBound)
	}

	// The window reaches on both sides as far as Chernoff's bound on the tilted
	// mass beyond it needs.
	const beyond = 1e-9
	up := c.reach(parts, mean, variance, beyond, +1)
	down := c.reach(parts, mean, variance, beyond, -1)
	size := 1 << 10
	for float64(size) < (up+down)/step+4 {
		size *= 2
		if size > maxFFT {
			return nil, fmt.Errorf("pld: a window of %v needs more than %d points of step %v: %w", up+down, maxFFT, step, dp.ErrNoBound)
		}
	}
	c.low = int64(math.Floor((mean - down) / step))
	c.above = beyond

	fft := fourier.NewFFT(size)
	var product []complex128
	var norms float64 // Σ times · ‖tilted part‖₂
	for _, p := range parts {
		seq := make([]float64, size)
		norm := p.Loss.LogMoment(tilt)
		var square float64
		for j, m := range p.Loss.Upper {
			x := float64(j) * step
			a := m * math.Exp(tilt*x-norm)
			seq[j%size] += a
			square += a * a
			if j > 0 {
				b := m * math.Exp(-x-tilt*x-norm)
				seq[(size-j%size)%size] += b
				square += b * b
			}
		}
		norms += float64(p.Times) * math.Sqrt(square)
		z := fft.Coefficients(nil, seq)
		if product == nil {
			product = make([]complex128, len(z))
			for i := range product {
				product[i] = 1
			}
		}
		for i, v := range z {
			product[i] *= power(v, p.Times)
		}
	}
	// Shift the window to start at low: multiply by e^{2πi·low·k/size}.
	offset := float64(((c.low % int64(size)) + int64(size)) % int64(size))
	for k := range product {
		angle := 2 * math.Pi * math.Mod(offset*float64(k), float64(size)) / float64(size)
		product[k] *= cmplx.Rect(1, angle)
	}
	var square float64
	for _, v := range product {
		square += 2 * (real(v)*real(v) + imag(v)*imag(v))
	}
	c.mass = fft.Sequence(nil, product)
	for i := range c.mass {
		c.mass[i] = math.Max(0, c.mass[i]/float64(size))
	}
	logSize := math.Log2(float64(size))
	// ‖Δ‖₁ ≤ √size·‖Δ‖₂ in each of: transforms of the parts (raised to their
	// powers), the powers and the shift, the transform back. compose.md.
	root := math.Sqrt(float64(size))
	c.roundoff = 16 * unit * (logSize*root*norms + (8*times+logSize)*math.Sqrt(square))
	return c, nil
}

// power returns z^n by the polar form.
func power(z complex128, n int64) complex128 {
	if n == 1 {
		return z
	}
	r := cmplx.Abs(z)
	if r == 0 {
		return 0
	}
	angle := math.Mod(float64(n)*cmplx.Phase(z), 2*math.Pi)
	return cmplx.Rect(math.Exp(float64(n)*math.Log(r)), angle)
}

// reach returns how far above (side +1) or below (−1) the tilted mean the
// tilted mass beyond is at most the given bound, by Chernoff at a few
// parameters around the Gaussian one.
func (c *Composed) reach(parts []Part, mean, variance, beyond float64, side float64) float64 {
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
	for _, factor := range []float64{.1, .2, .35, .5, .7, .85, 1, 1.2, 1.5} {
		s := side * guess * factor
		var k float64
		for _, p := range parts {
			k += float64(p.Times) * (p.Loss.LogMoment(c.tilt+s) - p.Loss.LogMoment(c.tilt))
		}
		// Pr_t[side·(S − mean) ≥ w] ≤ exp(k − s·mean − |s|w) ≤ beyond.
		if w := (k - s*mean - logBeyond) / math.Abs(s); w < best {
			best = w
		}
	}
	return math.Max(best, 4*c.step)
}

// charge is what is added to δ(ε) whatever the window shows: infinite losses,
// round-off and losses above the window, at the weight e^{logNorm − t·x} that
// untilting gives to losses x ≥ ε.
func (c *Composed) charge(eps float64) float64 {
	return c.infinite + (c.roundoff+c.above)*math.Exp(c.logNorm-c.tilt*eps)*(1+1e-9)
}

// Delta returns an upper bound on δ at ε ≥ 0.
func (c *Composed) Delta(eps float64) float64 {
	if !(eps >= 0) {
		return 1
	}
	first := max(0, int(math.Floor(eps/c.step)-float64(c.low)))
	var sum float64
	for i := len(c.mass) - 1; i >= first; i-- {
		if x := float64(c.low+int64(i)) * c.step; x > eps {
			sum += c.mass[i] * math.Exp(c.logNorm-c.tilt*x) * -math.Expm1(eps-x)
		}
	}
	d := sum*c.inflate + c.charge(eps)
	if math.IsNaN(d) {
		return 1
	}
	return math.Min(1, d)
}

// Epsilon returns an ε ≥ 0 with Delta(ε) ≤ delta, within 1e-9 relative of the
// smallest and never below it; +Inf if the window shows none.
func (c *Composed) Epsilon(delta float64) float64 {
	if c.Delta(0) <= delta {
		return 0
	}
	top := float64(c.low+int64(len(c.mass))) * c.step
	if !(top > 0 && c.Delta(top) <= delta) {
		return math.Inf(1)
	}
	// Delta falls in ε: find the grid cell, then the place in it. a and b are
	// grid points, Delta(a) > delta ≥ Delta(b).
	a, b := int64(0), c.low+int64(len(c.mass))
	for b-a > 1 {
		mid := a + (b-a)/2
		if c.Delta(float64(mid)*c.step) <= delta {
			b = mid
		} else {
			a = mid
		}
	}
	lo, hi := float64(a)*c.step, float64(b)*c.step
	for hi-lo > 1e-9*hi {
		mid := lo + (hi-lo)/2
		if c.Delta(mid) <= delta {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}
