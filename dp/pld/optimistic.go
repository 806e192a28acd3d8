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

// floor is a pair of laws on a grid of losses that leaks at most as much as the outcomes it
// was made from; it serves lower bounds. mass[i] is mass under P at loss (low + i)·step; the
// masses may add up to less than 1.
type floor struct {
	step float64
	low  int64
	mass []float64
}

// newFloor merges outcomes, with losses of either sign, into grid losses. A grid point takes
// the outcomes between its left neighbour and itself, and as much of the next outcomes above
// as brings the ratio of the masses to its own. Merging outcomes, or parts of them, is
// post-processing; an outcome that cannot be brought to a grid ratio gives up mass under P.
// See optimistic.md.
func newFloor(outcomes []dp.Atom, step float64) (floor, error) {
	if !(step > 0) || math.IsInf(step, 1) {
		return floor{}, fmt.Errorf("pld: step = %v must be above 0 and finite", step)
	}
	atoms := make([]dp.Atom, 0, len(outcomes))
	var total float64
	for _, a := range outcomes {
		if !(a.Q >= 0) || math.IsNaN(a.Loss) || math.IsInf(a.Loss, 0) {
			return floor{}, fmt.Errorf("pld: outcome of mass %v and loss %v", a.Q, a.Loss)
		}
		if a.Q > 0 {
			atoms = append(atoms, a)
			total += a.Q
		}
	}
	if len(atoms) == 0 {
		return floor{}, errors.New("pld: no outcomes")
	}
	if !(total < 1+1e-6) {
		return floor{}, fmt.Errorf("pld: outcomes have mass %v, above 1", total)
	}
	sort.SliceStable(atoms, func(i, j int) bool { return atoms[i].Loss < atoms[j].Loss })
	// Numbers of grid points are compared as floats, because an int64 may not hold them.
	first, last := math.Ceil(atoms[0].Loss/step), math.Ceil(atoms[len(atoms)-1].Loss/step)
	if !(math.Max(math.Abs(first), math.Abs(last)) < maxIndex && last-first+1 < maxPoints) {
		return floor{}, fmt.Errorf("pld: losses from %v to %v need more than %d grid points of step %v: %w",
			atoms[0].Loss, atoms[len(atoms)-1].Loss, maxPoints, step, dp.ErrNoBound)
	}
	node := func(loss float64) int64 { return int64(math.Ceil(loss / step)) }
	f := floor{step: step, low: int64(first) - 1}
	f.mass = make([]float64, int64(last)-f.low+2)
	for i := 0; i < len(atoms); {
		j := max(f.low+1, node(atoms[i].Loss))
		x := float64(j) * step
		if x < atoms[i].Loss { // the quotient may have been rounded
			j++
			x = float64(j) * step
		}
		// q is the Q-mass, and lack is Σ(P − e^x Q)/e^x, which must become 0.
		var q, lack float64
		for ; i < len(atoms) && atoms[i].Loss <= x; i++ {
			q += atoms[i].Q
			lack += atoms[i].Q * math.Expm1(atoms[i].Loss-x)
		}
		for ; i < len(atoms) && lack < 0; i++ {
			s := atoms[i].Q * math.Expm1(atoms[i].Loss-x)
			if s > -lack {
				share := -lack / s
				q += atoms[i].Q * share
				atoms[i].Q *= 1 - share
				lack = 0
				break
			}
			q += atoms[i].Q
			lack += s
		}
		if lack < -1e-13*q { // more than composeFloor allows for rounding
			// No outcomes are left: go down to the grid and give up mass under P.
			j = max(f.low, int64(math.Floor((x+math.Log1p(lack/q))/step)))
			x = float64(j) * step
		}
		f.mass[j-f.low] += q * math.Exp(x)
	}
	return f, nil
}

// logMoment returns log Σ mass·e^{tL}.
func (f floor) logMoment(t float64) float64 {
	top := math.Max(t*float64(f.low)*f.step, t*float64(f.low+int64(len(f.mass)))*f.step)
	var sum float64
	for i, m := range f.mass {
		if m > 0 {
			sum += m * math.Exp(t*float64(f.low+int64(i))*f.step-top)
		}
	}
	return top + math.Log(sum)
}

func (f floor) tilted(t float64) (mean, variance float64) {
	norm := f.logMoment(t)
	var m1, m2 float64
	for i, m := range f.mass {
		if m > 0 {
			x := float64(f.low+int64(i)) * f.step
			w := m * math.Exp(t*x-norm)
			m1 += w * x
			m2 += w * x * x
		}
	}
	return m1, math.Max(0, m2-m1*m1)
}

// Lower is a lower bound on δ(ε) of a composition. Make one with ComposeOutcomes.
type Lower struct {
	step, tilt float64
	low        int64
	tail, gain []float64 // see Composed
	logNorm    float64
	wrong      float64 // bound on the ℓ1 error of the tilted masses, including wrapped mass
	keep       float64 // factor that covers the rounding of masses
}

// ComposeOutcomes bounds from below the composition of equal rounds, times of them. outcomes,
// with losses of either sign, are a part of a round's pair of laws: their masses under Q, which
// may add up to less than 1, and their losses. They are merged to a grid of the step, which
// leaks at most as much. The tilt chooses where the result is sharp. It returns ErrNoBound if
// the window needs too many points of that step. One round's masses may err by 4e-12 relative.
// See optimistic.md.
func ComposeOutcomes(outcomes []dp.Atom, step float64, times int64, tilt float64) (*Lower, error) {
	f, err := newFloor(outcomes, step)
	if err != nil {
		return nil, err
	}
	return composeFloor(f, times, tilt)
}

// composeFloor composes a floor with itself, times rounds in all. The tilt chooses where the
// result is sharp. One round's masses may err by 4e-12 relative.
func composeFloor(f floor, times int64, tilt float64) (*Lower, error) {
	if times < 1 {
		return nil, fmt.Errorf("pld: %d repetitions must be at least 1", times)
	}
	if !(tilt >= 0) || math.IsInf(tilt, 1) {
		return nil, fmt.Errorf("pld: tilt = %v must be at least 0 and finite", tilt)
	}
	n := float64(times)
	norm := f.logMoment(tilt)
	mean, variance := f.tilted(tilt)
	if math.IsNaN(norm) || math.IsInf(norm, 0) || math.IsNaN(variance) {
		return nil, fmt.Errorf("pld: tilt %v overflows: %w", tilt, dp.ErrNoBound)
	}
	variance = math.Max(variance, f.step*f.step*1e-6) // a single loss has a narrow window
	l := &Lower{step: f.step, tilt: tilt, logNorm: n * norm, keep: (1 - 1e-8) * math.Exp(-4e-12*n)}
	// Mass beyond either end wraps around; Chernoff's bound limits it.
	const beyond = 1e-11
	edge := func(side float64) float64 {
		best := n * float64(f.low+int64(len(f.mass)))
		if side < 0 {
			best = n * float64(f.low)
		}
		best = side * (best*f.step - n*mean)
		guess := math.Sqrt(-2*math.Log(beyond)) / math.Sqrt(n*variance)
		for _, factor := range []float64{.15, .3, .5, .7, .85, 1, 1.2} {
			s := side * guess * factor
			k := n * (f.logMoment(tilt+s) - norm)
			if w := (k - s*n*mean - math.Log(beyond)) / math.Abs(s); w < best {
				best = w
			}
		}
		return math.Max(best, 0) + 2*f.step
	}
	up, down := edge(1), edge(-1)
	size := 1 << 10
	for !(float64(size) >= (up+down)/f.step+4) { // true for NaN too
		if size *= 2; size > maxFFT {
			return nil, fmt.Errorf("pld: a window of %v needs more than %d points of step %v: %w", up+down, maxFFT, f.step, dp.ErrNoBound)
		}
	}
	var err error
	if l.low, err = index(n*mean-down, f.step); err != nil {
		return nil, err
	}

	seq := make([]float64, size)
	wrap := func(j int64) int { return int((j%int64(size) + int64(size)) % int64(size)) }
	for i, m := range f.mass {
		if m > 0 {
			j := f.low + int64(i)
			seq[wrap(j)] += m * math.Exp(tilt*float64(j)*f.step-norm)
		}
	}
	var square float64
	for _, m := range seq {
		square += m * m
	}
	fft := fourier.NewFFT(size)
	z := fft.Coefficients(nil, seq)
	offset := float64(wrap(l.low))
	var powers float64
	for k, v := range z {
		magnitude := n * math.Log(cmplx.Abs(v))
		if !(magnitude > -745) {
			z[k] = 0
			continue
		}
		phase := math.Mod(n*cmplx.Phase(v), 2*math.Pi) + 2*math.Pi*math.Mod(offset*float64(k), float64(size))/float64(size)
		z[k] = cmplx.Rect(math.Exp(magnitude), phase)
		powers += 2 * math.Exp(2*magnitude)
	}
	mass := fft.Sequence(nil, z)
	logSize, root := math.Log2(float64(size)), math.Sqrt(float64(size))
	l.wrong = 2*beyond + 16*unit*(logSize*root*n*math.Sqrt(square)+(8*n+logSize)*math.Sqrt(powers))
	l.fill(mass, size)
	return l, nil
}

func (l *Lower) fill(mass []float64, size int) {
	shrink, rest := math.Exp(-l.step), -math.Expm1(-l.step)
	l.tail, l.gain = make([]float64, len(mass)+1), make([]float64, len(mass)+1)
	for i := len(mass) - 1; i >= 0; i-- {
		x := float64(l.low+int64(i)) * l.step
		l.gain[i] = rest*l.tail[i+1] + shrink*l.gain[i+1]
		l.tail[i] = l.tail[i+1] + math.Max(0, mass[i]/float64(size))*math.Exp(l.logNorm-l.tilt*x)
	}
}

// Delta returns a lower bound on δ at ε ≥ 0.
func (l *Lower) Delta(eps float64) float64 {
	if !(eps >= 0) {
		return 0
	}
	at := math.Max(0, math.Ceil(eps/l.step)-float64(l.low))
	if !(at < float64(len(l.tail))) {
		return 0
	}
	i := int(at)
	x := float64(l.low+int64(i)) * l.step
	if x < eps { // the division may have been rounded
		if i++; i >= len(l.tail) {
			return 0
		}
		x = float64(l.low+int64(i)) * l.step
	}
	y := x - eps
	d := (-math.Expm1(-y)*l.tail[i]+math.Exp(-y)*l.gain[i])*l.keep - l.wrong*math.Exp(l.logNorm-l.tilt*eps)*(1+1e-6)
	if math.IsNaN(d) {
		return 0
	}
	return math.Max(0, d)
}

// Epsilon returns an ε ≥ 0 with Delta(ε) > delta, so that no smaller ε holds at delta; 0 if
// there is none. Far below the tilted mean the error exceeds the sum, so the search comes
// from above.
func (l *Lower) Epsilon(delta float64) float64 {
	for i := len(l.tail) - 1; i >= 0; i-- {
		x := float64(l.low+int64(i)) * l.step
		if x < 0 {
			break
		}
		if l.Delta(x) > delta {
			return l.refine(delta, x, x+l.step)
		}
	}
	if l.Delta(0) > delta {
		return l.refine(delta, 0, l.step)
	}
	return 0
}

// refine moves lo, at which Delta is above delta, up towards hi.
func (l *Lower) refine(delta, lo, hi float64) float64 {
	for range 40 {
		if mid := lo + (hi-lo)/2; l.Delta(mid) > delta {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}
