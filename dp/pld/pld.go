// Package pld is accounting by privacy-loss distributions. It puts dominating pairs on a grid
// of losses, composes them by FFT, and reads off δ(ε) and ε(δ).
//
// Everything is an upper bound. Discretising keeps the mass of every outcome under both laws,
// which can only raise the loss; wrap-around, FFT round-off, truncation and infinite losses
// are added to δ. compose.md has the derivations.
package pld

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// Loss is a discretised pair: the losses j·Step, j = −(len−1) … len−1. Upper[j]
// is the mass of loss j·Step under P, and Upper[0] holds all mass of loss 0. The mass of
// loss −j·Step is Upper[j]·e^{−j·Step}, by symmetry, or of a directed pair Lower[j].
type Loss struct {
	Step  float64
	Upper []float64
	Lower []float64 // as long as Upper, Lower[0] = 0; nil: the pair is symmetric
	// Infinite is the mass of infinite loss: the mass that the pair dropped.
	Infinite float64
}

// maxPoints bounds the grid of one round.
const maxPoints = 1 << 22

// maxIndex bounds grid indices, so that float64 holds them exactly.
const maxIndex = 1 << 52

// index returns ⌊x/step⌋, or an error if it is not a number or too large for a grid.
func index(x, step float64) (int64, error) {
	// The float is compared before it is converted, because an int64 may not hold it. The
	// condition is negated so that it refuses a NaN.
	i := math.Floor(x / step)
	if !(math.Abs(i) < maxIndex) {
		return 0, fmt.Errorf("pld: loss %v is beyond the grid of step %v: %w", x, step, dp.ErrNoBound)
	}
	return int64(i), nil
}

// Discretize puts a pair on the grid of the given step. An atom between two
// grid losses is split so that its mass is kept under P and under Q; the split
// pair dominates the atom, by convexity of (p − e^ε q)₊ along the chord.
func Discretize(p dp.Pair, step float64) (Loss, error) {
	if !(step > 0) || math.IsInf(step, 1) {
		return Loss{}, fmt.Errorf("pld: step = %v must be above 0 and finite", step)
	}
	var top float64
	for _, a := range p.Atoms {
		top = math.Max(top, a.Loss)
	}
	if !(top/step < maxPoints-2) {
		return Loss{}, fmt.Errorf("pld: losses up to %v need more than %d grid points of step %v: %w", top, maxPoints, step, dp.ErrNoBound)
	}
	l := Loss{Step: step, Upper: make([]float64, int(top/step)+2), Infinite: p.Dropped()}
	var sum float64
	for _, a := range p.Atoms {
		mass := a.Q * math.Exp(a.Loss)
		j, share := split(a.Loss, step)
		above := mass * share
		l.Upper[j] += mass - above
		l.Upper[j+1] += above
		sum += mass + a.Q
	}
	// An atom with j = 0 puts part of itself, and of its mirror image, on loss 0; all
	// remaining mass is there as well.
	var placed float64
	for j, m := range l.Upper[1:] {
		placed += m * (1 + math.Exp(-float64(j+1)*step))
	}
	if !(sum < 1+1e-6) || math.IsNaN(placed) {
		return Loss{}, fmt.Errorf("pld: the pair has mass %v, above 1", sum)
	}
	l.Upper[0] = math.Max(0, 1-placed)
	return l, nil
}

// split returns j with j·step ≤ loss < (j+1)·step, and the share of an outcome's mass under P that goes to the
// upper of these so that the mass under Q is kept, too: (1 − e^{−x})/(1 − e^{−step}), with x the distance from
// j·step.
func split(loss, step float64) (j int, share float64) {
	at := math.Floor(loss / step)
	x := math.Max(0, math.Min(step, loss-at*step))
	return int(at), math.Min(1, math.Expm1(-x)/math.Expm1(-step))
}

// Direct puts a directed pair on the grid of the given step, as Discretize does: each atom is split so
// that its mass is kept under P and under Q.
func Direct(p dp.Directed, step float64) (Loss, error) {
	if !(step > 0) || math.IsInf(step, 1) {
		return Loss{}, fmt.Errorf("pld: step = %v must be above 0 and finite", step)
	}
	var top float64
	for _, a := range p.Atoms {
		top = math.Max(top, math.Abs(a.Loss))
	}
	if !(top/step < maxPoints-2) {
		return Loss{}, fmt.Errorf("pld: losses up to %v need more than %d grid points of step %v: %w", top, maxPoints, step, dp.ErrNoBound)
	}
	points := int(top/step) + 2
	l := Loss{Step: step, Upper: make([]float64, points), Lower: make([]float64, points), Infinite: p.Dropped}
	put := func(j int, mass float64) {
		switch {
		case j > 0:
			l.Upper[j] += mass
		case j < 0:
			l.Lower[-j] += mass
		}
	}
	var sum float64
	for _, a := range p.Atoms {
		mass := a.Q * math.Exp(a.Loss)
		j, share := split(a.Loss, step)
		above := mass * share
		put(j, mass-above)
		put(j+1, above)
		sum += mass
	}
	var placed float64
	for j := range l.Upper {
		placed += l.Upper[j] + l.Lower[j]
	}
	if !(sum < 1+1e-6) || math.IsNaN(placed) {
		return Loss{}, fmt.Errorf("pld: the pair has mass %v, above 1", sum)
	}
	// What lies on loss 0, and what was dropped; and if the masses are a little more than 1, they stay so.
	l.Upper[0] = math.Max(0, 1-placed)
	return l, nil
}

// logMoment returns log E_P e^{tL} over the finite losses, for any real t; +Inf
// or NaN where it overflows.
func (l Loss) logMoment(t float64) float64 {
	// E e^{tL} − 1 = Σ_j Upper[j](e^{tjh} − 1) + Lower[j](e^{−tjh} − 1). Subtracting loss 0
	// avoids losing digits near 1. Of a symmetric pair the terms of j and −j have positive factors, as in rdp.
	var excess float64
	for j, m := range l.Upper {
		x := float64(j) * l.Step
		switch {
		case j == 0:
		case l.Lower != nil:
			if m > 0 {
				excess += m * math.Expm1(t*x)
			}
			if l.Lower[j] > 0 {
				excess += l.Lower[j] * math.Expm1(-t*x)
			}
		case m > 0:
			excess += m * math.Exp(-x) * math.Expm1((t+1)*x) * -math.Expm1(-t*x)
		}
	}
	return math.Log1p(excess)
}

// Top returns the largest finite loss.
func (l Loss) Top() float64 { return float64(len(l.Upper)-1) * l.Step }

// Tilted returns log E_P e^{tL} over the finite losses, for any real t, and the mean and
// variance of L under the law tilted by e^{tL}; +Inf or NaN where they overflow.
func (l Loss) Tilted(t float64) (logMoment, mean, variance float64) {
	norm := l.logMoment(t)
	var m1, m2 float64
	for j, m := range l.Upper {
		if j == 0 || m == 0 && (l.Lower == nil || l.Lower[j] == 0) {
			continue
		}
		x := float64(j) * l.Step
		up, down := 0., m*math.Exp(-x-t*x-norm)
		if m > 0 {
			up = m * math.Exp(t*x-norm)
		}
		if l.Lower != nil {
			down = l.Lower[j] * math.Exp(-t*x-norm)
		}
		m1 += x * (up - down)
		m2 += x * x * (up + down)
	}
	return norm, m1, math.Max(0, m2-m1*m1)
}
