package pld

import (
	"errors"
	"fmt"
	"math"
	"math/cmplx"
	"sort"

	"gonum.org/v1/gonum/dsp/fourier"

	"github.com/riffle-dp/riffle/dp"
)

// Truncate moves the atoms of largest loss into a remainder, as long as their mass under P is
// at most mass in total. A few large losses would need a grid far wider than the rest; as
// infinite losses they cost their mass in every round.
func Truncate(p dp.Pair, mass float64) dp.Pair {
	atoms, _, cut, most := withoutLargest(p.Atoms, mass)
	if len(atoms) == len(p.Atoms) {
		return p
	}
	out := dp.Pair{Atoms: atoms, Remainders: append([]dp.Remainder(nil), p.Remainders...)}
	out.Remainders = append(out.Remainders, dp.Remainder{Mass: cut, MaxLoss: most})
	return out
}

// TruncateDirected is Truncate for a directed pair. Very negative losses count as infinite ones, too: they
// have next to no mass, and would widen the grid as much.
func TruncateDirected(p dp.Directed, mass float64) dp.Directed {
	atoms, left, cut, _ := withoutLargest(p.Atoms, mass)
	out := dp.Directed{Atoms: atoms, Dropped: p.Dropped + cut, Missing: p.Missing}
	for _, a := range left {
		out.Missing += a.Q * (1 + 1e-9)
	}
	return out
}

// withoutLargest returns the atoms in order of |loss| but the last, as many as have at most mass under P in
// total; those left out; their mass, rounded up; and the largest |loss| of all.
func withoutLargest(all []dp.Atom, mass float64) (atoms, left []dp.Atom, cut, most float64) {
	atoms = append([]dp.Atom(nil), all...)
	sort.SliceStable(atoms, func(i, j int) bool { return math.Abs(atoms[i].Loss) < math.Abs(atoms[j].Loss) })
	if n := len(atoms); n > 0 {
		most = math.Abs(atoms[n-1].Loss)
	}
	end := len(atoms)
	for end > 0 {
		next := cut + atoms[end-1].Q*math.Exp(atoms[end-1].Loss)
		if !(next <= mass) {
			break
		}
		cut = next
		end--
	}
	return atoms[:end:end], atoms[end:], cut * (1 + 1e-9), most
}

// Spectrum is the discrete Fourier transform of a round's loss, tilted by e^{tL} and
// normalised, stored as logarithms so that composing is adding. It is the part of a
// composition that is worth caching between questions.
type Spectrum struct {
	step, tilt float64
	size       int
	magnitude  []float64 // log|z| for the first frequencies
	phase      []float64
	rest       float64 // bound on |z| at all higher frequencies
	logMoment  float64
	infinite   float64
	points     int
}

// NewSpectrum transforms a loss on a cyclic grid of size points, a power of two. It stores the
// first frequencies, keep of them, and of all others the largest modulus only.
func NewSpectrum(l Loss, tilt float64, size, keep int) (*Spectrum, error) {
	if !(tilt >= 0) || math.IsInf(tilt, 1) {
		return nil, fmt.Errorf("pld: tilt = %v must be at least 0 and finite", tilt)
	}
	if size < 2 || size&(size-1) != 0 || size > maxFFT {
		return nil, fmt.Errorf("pld: %d points must be a power of two up to %d: %w", size, maxFFT, dp.ErrNoBound)
	}
	if !(l.Infinite < 1) {
		return nil, fmt.Errorf("pld: infinite loss with mass %v: %w", l.Infinite, dp.ErrNoBound)
	}
	s := &Spectrum{step: l.Step, tilt: tilt, size: size, infinite: l.Infinite, points: len(l.Upper)}
	s.logMoment = l.logMoment(tilt)
	if math.IsNaN(s.logMoment) || math.IsInf(s.logMoment, 0) {
		return nil, fmt.Errorf("pld: tilt %v overflows: %w", tilt, dp.ErrNoBound)
	}
	seq := make([]float64, size)
	for j, m := range l.Upper {
		x := float64(j) * l.Step
		if m > 0 {
			seq[j%size] += m * math.Exp(tilt*x-s.logMoment)
		}
		down := 0.
		switch {
		case j == 0:
		case l.Lower != nil:
			down = l.Lower[j] * math.Exp(-tilt*x-s.logMoment)
		case m > 0:
			down = m * math.Exp(-x-tilt*x-s.logMoment)
		}
		if down > 0 {
			seq[(size-j%size)%size] += down
		}
	}
	z := fourier.NewFFT(size).Coefficients(nil, seq)
	keep = min(max(keep, 1), len(z))
	s.magnitude, s.phase = make([]float64, keep), make([]float64, keep)
	for k, v := range z[:keep] {
		s.magnitude[k] = math.Max(-1e6, math.Log(cmplx.Abs(v)))
		s.phase[k] = cmplx.Phase(v)
	}
	for _, v := range z[keep:] {
		s.rest = math.Max(s.rest, cmplx.Abs(v))
	}
	s.rest += slip(size)
	return s, nil
}

// slip bounds the error of each frequency of a transform of masses that add up to 1: log₂ size
// levels of sums, each with an error of a few rounding units of numbers of at most 1.
func slip(size int) float64 { return 16 * unit * math.Log2(float64(size)) }

// Combine composes the parts by their spectra, which must have the same step, tilt, size and number
// of frequencies. The window of losses starts at low·step; above must bound the tilted mass of
// losses at or beyond its end, (low + size)·step. See compose.md.
func Combine(parts []Part, low int64, above float64) (*Composed, error) {
	if len(parts) == 0 {
		return nil, errors.New("pld: nothing to compose")
	}
	first := parts[0].Spectrum
	c := &Composed{step: first.step, tilt: first.tilt, low: low, above: above}
	keep, widest := len(first.magnitude), 0
	var survive, times, logRest float64
	for _, p := range parts {
		s, n := p.Spectrum, float64(p.Times)
		if s.step != first.step || s.tilt != first.tilt || s.size != first.size || len(s.magnitude) != len(first.magnitude) {
			return nil, errors.New("pld: spectra of different grids")
		}
		if p.Times < 1 {
			return nil, fmt.Errorf("pld: %d repetitions must be at least 1", p.Times)
		}
		widest = max(widest, s.points)
		c.logNorm += n * s.logMoment
		survive += n * math.Log1p(-s.infinite)
		times += n
		logRest += n * math.Log(math.Min(1, s.rest))
	}
	c.infinite = -math.Expm1(survive) * (1 + 1e-9)
	// The mass on loss 0 is 1 minus all others, so it errs by one rounding per grid point and
	// round; the normalising moments err as much.
	c.inflate = (1 + 1e-8) * math.Exp(8*unit*times*float64(widest))

	size := first.size
	product := make([]complex128, size/2+1)
	offset := float64(((low % int64(size)) + int64(size)) % int64(size))
	var square, carried, skipped float64
	for k := range keep {
		var magnitude, phase, least float64
		for _, p := range parts {
			magnitude += float64(p.Times) * p.Spectrum.magnitude[k]
			least = math.Min(least, p.Spectrum.magnitude[k])
		}
		// The error of one factor is multiplied by all other factors.
		carried += 2 * math.Exp(2*math.Min(0, magnitude-least))
		if magnitude < -80 {
			skipped += 2 * math.Exp(2*magnitude)
			continue
		}
		for _, p := range parts {
			phase += math.Mod(float64(p.Times)*p.Spectrum.phase[k], 2*math.Pi)
		}
		// The window starts at low, so multiply by e^{2πi·low·k/size}.
		phase += 2 * math.Pi * math.Mod(offset*float64(k), float64(size)) / float64(size)
		product[k] = cmplx.Rect(math.Exp(magnitude), phase)
		square += 2 * math.Exp(2*magnitude)
	}
	mass := fourier.NewFFT(size).Sequence(nil, product)
	for i := range mass {
		mass[i] = math.Max(0, mass[i]/float64(size))
	}
	// ‖Δ‖₁ ≤ √size·‖Δ‖₂ holds for each of these errors: of the parts' transforms (carried
	// through their powers), of the powers and the shift, of the transform back, and of the
	// frequencies left out. See compose.md.
	root := math.Sqrt(float64(size))
	c.Roundoff = times*slip(size)*math.Sqrt(carried) + (128*unit*times+slip(size))*math.Sqrt(square) + math.Sqrt(skipped)
	if keep < len(product) {
		c.Roundoff += root * math.Exp(logRest)
	}
	c.fill(mass)
	return c, nil
}
