package account

import (
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/pld"
	"github.com/riffle-dp/riffle/dp/rdp"
)

// orthogonalMethod is the lower bound in which everybody else holds one orthogonal input.
const orthogonalMethod = "lower-orthogonal"

// maxLowerEps0 caps ε₀ of the mechanisms of lower bounds: a mechanism with a smaller ε₀ is
// also one with the larger, and e^±ε₀ keeps its digits.
const maxLowerEps0 = 12

// response is a mechanism that a query admits as its randomizer: a randomized response, or one
// whose density rises in steps.
type response struct {
	symbols int
	eps0    float64
	steps   amplify.Steps // set if symbols is 0
	apart   bool          // see amplify.StepOutcomes
}

// concrete returns the outcomes of a mechanism in rounds of this shape, under one
// or both orders of the neighbours.
func (s shape) concrete(m response) ([][]dp.Atom, error) {
	c := amplify.ConcreteConfig{Eps0: math.Min(m.eps0, maxLowerEps0), Population: s.population, Asked: s.reports, Gamma: 1, Symbols: m.symbols, Colluders: s.colluders}
	if s.gamma > 0 {
		c.Asked, c.Gamma = s.asked, s.gamma
	}
	if m.symbols == 0 {
		a, err := amplify.StepOutcomes(c, m.steps, m.apart)
		return [][]dp.Atom{a}, err // both orders are the same
	}
	if m.symbols > 2 {
		a, err := amplify.Response(c)
		return [][]dp.Atom{a}, err // both orders are the same
	}
	var a []dp.Atom
	var err error
	if s.sigma > 0 {
		a, err = amplify.GaussianOutcomes(amplify.GaussianArrivalConfig{Sigma: s.sigma, Population: c.Population, Asked: c.Asked, Gamma: c.Gamma, Colluders: c.Colluders})
	} else {
		a, err = amplify.Response(c)
	}
	swapped := make([]dp.Atom, len(a))
	for i, o := range a {
		swapped[len(a)-1-i] = dp.Atom{Q: o.Q * math.Exp(o.Loss), Loss: -o.Loss}
	}
	return [][]dp.Atom{a, swapped}, err
}

// lowerBound returns the lower bound that one concrete mechanism gives: no smaller ε holds at
// δ, or no smaller δ at ε.
func lowerBound(q Query, p part, m response) (eps, delta float64, err error) {
	orders, err := p.shape.concrete(m)
	if err != nil {
		return 0, 0, err
	}
	for _, outcomes := range orders {
		at, err := lowerCurve(q, p, outcomes)
		if err != nil {
			return 0, 0, err
		}
		if q.AskDelta {
			delta = math.Max(delta, at.delta(q.Eps))
		} else {
			eps = math.Max(eps, at.epsilon(q.Delta))
		}
	}
	if q.AskDelta {
		return q.Eps, delta, nil
	}
	return eps, q.Delta, nil
}

// under is a lower bound on δ(ε), and an ε whose δ is above a given one.
type under struct {
	delta   func(eps float64) float64
	epsilon func(delta float64) float64
}

func lowerCurve(q Query, p part, outcomes []dp.Atom) (under, error) {
	if p.times == 1 {
		return onceOnly(outcomes), nil
	}
	n := float64(p.times)
	// Search for the sharpest tilt as for upper bounds.
	best, tilt := math.Inf(1), 0.
	var variance float64
	at := 0
	try := func(j int) {
		t := math.Exp2(float64(j) / 2)
		if t*outcomes[len(outcomes)-1].Loss > 300 {
			return // this tilt is as good as any larger one
		}
		k, v := moments(outcomes, t)
		objective := n*k - t*q.Eps
		if !q.AskDelta {
			objective = (n*k-math.Log(q.Delta)-math.Log(t+1))/t + math.Log1p(-1/(t+1))
		}
		if objective < best && v > 0 {
			best, at, tilt, variance = objective, j, t, v
		}
	}
	for j := -30; j <= 60; j += 6 {
		try(j)
	}
	for _, step := range []int{3, 2, 1} {
		j := at
		try(j - step)
		try(j + step)
	}
	if math.IsInf(best, 1) {
		return under{}, fmt.Errorf("account: no tilt for the lower bound: %w", dp.ErrNoBound)
	}
	span := outcomes[len(outcomes)-1].Loss - outcomes[0].Loss
	const fraction, maxPoints = 0.02, 1 << 18
	step := math.Min(span/32, fraction*math.Sqrt(variance))
	// Outcomes span about twenty deviations, so the last term matters only if the tilt leaves
	// almost no variance.
	step = math.Max(step, math.Max(16*math.Sqrt(n*variance)/maxPoints, span/(1<<13)))
	top := outcomes[len(outcomes)-1].Loss
	for {
		// A grid that contains the largest loss gives up little at the end.
		grid := step
		if top > step {
			grid = top / math.Ceil(top/step)
		}
		l, err := pld.ComposeOutcomes(outcomes, grid, p.times, tilt)
		// If the window grows too wide, a coarser grid still gives a lower bound.
		if step *= 2; errors.Is(err, dp.ErrNoBound) && step < span {
			continue
		}
		if err != nil {
			return under{}, err
		}
		return under{l.Delta, l.Epsilon}, nil
	}
}

// moments returns log E_P e^{tL} and the tilted variance. They guide the search and bound
// nothing.
func moments(outcomes []dp.Atom, t float64) (k, variance float64) {
	shift := (t + 1) * outcomes[len(outcomes)-1].Loss
	var m0, m1, m2 float64
	for _, o := range outcomes {
		w := o.Q * math.Exp((t+1)*o.Loss-shift)
		m0 += w
		m1 += w * o.Loss
		m2 += w * o.Loss * o.Loss
	}
	return shift + math.Log(m0), m2/m0 - m1/m0*(m1/m0)
}

// onceOnly is the curve of one round: its δ(ε) is a sum over outcomes.
func onceOnly(outcomes []dp.Atom) under {
	at := func(eps float64) float64 { return above(outcomes, 0, eps) * (1 - 1e-9) }
	return under{at, func(delta float64) float64 {
		lo, hi := 0., outcomes[len(outcomes)-1].Loss
		if !(at(lo) > delta) {
			return 0
		}
		for range 100 {
			if mid := lo + (hi-lo)/2; at(mid) > delta {
				lo = mid
			} else {
				hi = mid
			}
		}
		return lo
	}}
}

// lowest returns the cost of the mechanism that a query admits, with a note if that is not
// obvious.
func lowest(admitted func(q Query) (m response, note string, ok bool)) computation {
	return func(_ *engine, q Query, parts []part) (answer, error) {
		q = q.withDefaults()
		m, note, ok := admitted(q)
		if !ok || !(m.eps0 > 0) {
			return answer{}, refuse("not a mechanism of class %s", q.Class)
		}
		if m.symbols > 0 && m.eps0 > maxLowerEps0 {
			note = fmt.Sprintf("mechanism of eps0 = %d", maxLowerEps0)
		}
		eps, delta, err := lowerBound(q, parts[0], m)
		return answer{eps: eps, delta: delta, note: note}, err
	}
}

// lowestGaussian computes the method lower-gauss: a lower bound for Gaussian reports.
func lowestGaussian(_ *engine, q Query, parts []part) (answer, error) {
	eps, delta, err := lowerBound(q, parts[0], response{symbols: 2})
	return answer{eps: eps, delta: delta}, err
}

// ternaryDivergence returns the divergence of the mechanism of lower-rr3. Each outcome and
// its mirror image add at least 0, so leaving some out only lowers it. What rdp.Divergence
// adds for rounding is subtracted again.
func ternaryDivergence(_ *engine, p part) (func(float64) (float64, error), error) {
	orders, err := p.shape.concrete(response{symbols: 3, eps0: p.shape.eps0})
	if err != nil {
		return nil, err
	}
	var pair dp.Pair
	for _, a := range orders[0] {
		if a.Loss > 0 {
			pair.Atoms = append(pair.Atoms, a)
		}
	}
	return func(order float64) (float64, error) { return rdp.Divergence(pair, order) * (1 - 1e-6), nil }, nil
}

// slightly returns a little less than x, to allow for rounding in x.
func slightly(x float64) float64 { return x * (1 - 1e-9) }

func ternaryOf(q Query) (response, string, bool) {
	m := response{symbols: 3, eps0: q.Eps0}
	if tv := q.TV * math.Expm1(q.Eps0); q.TV > 0 && tv < 1 {
		// The mechanism's total variation is (E−1)/(E+2).
		if e := slightly(math.Log1p(3 * tv / (1 - tv))); e < m.eps0 {
			return response{symbols: 3, eps0: e}, "mechanism of that total variation", true
		}
	}
	return m, "", q.Class == dp.Generic || q.Class == dp.KRR && q.Symbols == 3
}

func symbolsOnly(q Query) (response, string, bool) {
	if q.Class == dp.Cap {
		// All inputs of the mechanism have at least as much in common: K/(E+K−1) for K symbols.
		k := math.Ceil((1/q.TV - math.Expm1(q.Eps0)) * (1 + 1e-9))
		return response{symbols: int(k), eps0: q.Eps0}, fmt.Sprintf("randomized response on %.0f symbols", k), k > 3 && k < 1<<30
	}
	return response{symbols: q.Symbols, eps0: q.Eps0}, "", q.Class == dp.KRR && q.Symbols > 3
}

func binaryOf(q Query) (response, string, bool) {
	m := response{symbols: 2, eps0: q.Eps0}
	switch q.Class {
	case dp.KRR:
		return m, "", q.Symbols == 2
	case dp.LaplaceL1:
		// The mechanism takes the sign of a report for inputs ±C: it is wrong with
		// probability e^(−ε₀/2)/2.
		return response{symbols: 2, eps0: slightly(math.Log1p(2 * math.Expm1(q.Eps0/2)))}, "signs of the reports", true
	}
	if tv := q.TV * math.Expm1(q.Eps0); q.TV > 0 && tv < 1 {
		// The mechanism's total variation is tanh(ε₀/2).
		if e := slightly(2 * math.Atanh(tv)); e < m.eps0 {
			return response{symbols: 2, eps0: e}, "mechanism of that total variation", true
		}
	}
	return m, "", q.Class == dp.Generic || q.Class == dp.BinaryRR
}

// stepsOf admits the steps of class rising, and of class cap the one step of its share.
func stepsOf(apart bool) func(q Query) (response, string, bool) {
	return func(q Query) (response, string, bool) {
		m := response{eps0: q.Eps0, apart: apart}
		switch q.Class {
		case dp.Rising:
			m.steps = amplify.Steps{Height: q.Steps.Height, Tails: q.Steps.Each()}
		case dp.Cap:
			// The common part is rounded up, so that the share is rounded down.
			less := slightly(math.Expm1(q.Eps0))
			share := slightly(q.TV / (1 - slightly(q.TV*less)))
			m.steps = amplify.Steps{Height: less, Tails: []float64{math.Min(share, .5)}}
		default:
			return m, "", false
		}
		return m, "", true
	}
}
