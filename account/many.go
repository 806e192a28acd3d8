package account

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/pld"
	"github.com/riffle-dp/riffle/dp/rdp"
)

// A ledger of many tasks, whose rounds differ, asks about nearly the
// same composition every round. Here every grid, tilt and window is rounded to a coarse
// scale, so that what was computed for a shape serves the next question: a new round then
// costs one transform or none. The answer depends on the question alone; the stored values
// are a cache.

// manyShapes is the number of shapes from which compose uses composeMany.
const manyShapes = 5

// keptLimit bounds the number of cached shapes, of some 100 kB each.
const keptLimit = 1 << 10

// tiltAt lists the tilts, a quarter of an octave apart. ε then lies within half a deviation
// of the tilted mean, which is as sharp as the best tilt.
func tiltAt(j int) float64 { return math.Exp2(float64(j) / 4) }

// nearestTilt inverts tiltAt.
func nearestTilt(t float64) int {
	return int(math.Round(4 * math.Log2(math.Max(1e-6, math.Min(t, 1e8)))))
}

type keptKey struct {
	pair pairKey
	cut  int // a power of ten: the mass cut from the largest losses
}

// kept holds the values computed from a shape.
type kept struct {
	pair     dp.Pair
	top      float64
	cumulant map[int]float64 // log E e^{tL} of the pair at tiltAt(j)
	variance map[int]float64
	// These are for one grid at a time.
	loss    pld.Loss
	moments map[int][3]float64 // log moment, mean, variance at tiltAt(j)
	// These are for one window at a time.
	spectrum         *pld.Spectrum
	tilt, size, keep int
}

func (e *engine) keep(s shape, c clones, cut int) (*kept, error) {
	key := keptKey{pairKey{s, c.key()}, cut}
	if k, ok := e.kept[key]; ok {
		return k, nil
	}
	pair, err := e.pair(s, c)
	if err != nil {
		return nil, err
	}
	k := &kept{pair: pld.Truncate(pair, math.Pow(10, float64(cut))), cumulant: map[int]float64{}, variance: map[int]float64{}}
	for _, a := range k.pair.Atoms {
		k.top = math.Max(k.top, a.Loss)
	}
	if e.kept == nil || len(e.kept) >= keptLimit {
		e.kept = map[keptKey]*kept{}
	}
	e.kept[key] = k
	return k, nil
}

func (k *kept) cumulantAt(j int) float64 {
	v, ok := k.cumulant[j]
	if !ok {
		v = tiltAt(j) * rdp.Divergence(dp.Pair{Atoms: k.pair.Atoms}, 1+tiltAt(j))
		k.cumulant[j] = v
	}
	return v
}

func (k *kept) varianceAt(j int) float64 {
	v, ok := k.variance[j]
	if !ok {
		v = tiltedVariance(k.pair, tiltAt(j))
		k.variance[j] = v
	}
	return v
}

// onGrid computes the loss on the grid of a step.
func (k *kept) onGrid(step float64) error {
	if k.loss.Step == step {
		return nil
	}
	l, err := pld.Discretize(k.pair, step)
	if err != nil {
		return err
	}
	k.loss, k.moments, k.spectrum = l, map[int][3]float64{}, nil
	return nil
}

func (k *kept) momentsAt(j int) [3]float64 {
	v, ok := k.moments[j]
	if !ok {
		v[0], v[1], v[2] = k.loss.Tilted(tiltAt(j))
		k.moments[j] = v
	}
	return v
}

func (k *kept) transform(tilt, size, keep int) (*pld.Spectrum, error) {
	if k.spectrum == nil || k.tilt != tilt || k.size != size || k.keep != keep {
		s, err := pld.NewSpectrum(k.loss, tiltAt(tilt), size, keep)
		if err != nil {
			return nil, err
		}
		k.spectrum, k.tilt, k.size, k.keep = s, tilt, size, keep
	}
	return k.spectrum, nil
}

// composeMany is compose for many shapes.
func (e *engine) composeMany(parts []part, c clones, delta float64, tiltOf func(cumulant func(t float64) float64) float64) (*pld.Composed, float64, error) {
	total := rounds(parts)
	cut := max(-300, int(math.Floor(math.Log10(dropShare*delta/total))))
	shapes := make([]*kept, len(parts))
	var top, dropped float64
	for i, p := range parts {
		k, err := e.keep(p.shape, c, cut)
		if err != nil {
			return nil, 0, err
		}
		shapes[i] = k
		top = math.Max(top, k.top)
		dropped += float64(p.times) * k.pair.Dropped()
	}
	if top == 0 {
		return nil, math.Min(1, dropped*(1+1e-9)), nil
	}
	sum := func(of func(*kept) float64) float64 {
		var s float64
		for i, p := range parts {
			s += float64(p.times) * of(shapes[i])
		}
		return s
	}
	// Any tilt is sound, so the cumulant may be taken at the nearest listed tilt.
	tilt := nearestTilt(tiltOf(func(t float64) float64 {
		j := nearestTilt(t)
		return sum(func(k *kept) float64 { return k.cumulantAt(j) }) * t / tiltAt(j)
	}))
	tilt = min(tilt, nearestTilt(150/top)) // keeps e^{tilt·loss} finite
	step := gridStep(chooseStep(top, total, sum(func(k *kept) float64 { return k.varianceAt(tilt) })))
	for _, k := range shapes {
		if err := k.onGrid(step); err != nil {
			return nil, 0, err
		}
	}
	moment := sum(func(k *kept) float64 { return k.momentsAt(tilt)[0] })
	mean := sum(func(k *kept) float64 { return k.momentsAt(tilt)[1] })
	deviation := math.Sqrt(sum(func(k *kept) float64 { return k.momentsAt(tilt)[2] }))
	reach := sum(func(k *kept) float64 { return k.loss.Top() })
	// Chernoff: the tilted mass of losses ≥ x is at most e^{K(t′) − K(t) − (t′ − t)x}.
	const beyond = 1e-9
	end := reach + step
	for j := tilt + 1; j <= tilt+12; j++ {
		k := sum(func(k *kept) float64 { return k.momentsAt(j)[0] })
		if x := (k - moment - math.Log(beyond)) / (tiltAt(j) - tiltAt(tilt)); x < end {
			end = x
		}
	}
	end += 2 * step
	// Mass below the window wraps to larger losses, which can only raise δ.
	first := math.Floor(math.Max(-reach, mean-8*deviation)/step) - 1
	if !(math.Abs(first) < 1<<52) { // beyond the numbers that a grid can tell apart, or NaN
		return nil, 0, fmt.Errorf("account: losses down to %v need a grid of step %v: %w", first*step, step, dp.ErrNoBound)
	}
	low := int64(first)
	size := 1 << 10
	for !(float64(size) >= end/step-first) {
		if size *= 2; size > 1<<22 {
			return nil, 0, fmt.Errorf("account: %g rounds need more than 2^22 grid points: %w", total, dp.ErrNoBound)
		}
	}
	composed, err := combine(parts, shapes, tilt, size, min(size/2+1, 1<<12), low, beyond)
	if err == nil && size/2+1 > 1<<12 && composed.Roundoff > 1e-7 && len(parts)*size <= 1<<24 {
		// The higher frequencies may matter if there are few rounds of irregular losses.
		composed, err = combine(parts, shapes, tilt, size, size/2+1, low, beyond)
	}
	return composed, 0, err
}

func combine(parts []part, shapes []*kept, tilt, size, keep int, low int64, beyond float64) (*pld.Composed, error) {
	spectra := make([]pld.Part, len(parts))
	for i, p := range parts {
		s, err := shapes[i].transform(tilt, size, keep)
		if err != nil {
			return nil, err
		}
		spectra[i] = pld.Part{Spectrum: s, Times: p.times}
	}
	return pld.Combine(spectra, low, beyond)
}
