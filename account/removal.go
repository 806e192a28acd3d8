package account

import (
	"errors"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/pld"
	"github.com/riffle-dp/riffle/dp/rdp"
)

// Methods for a client who is there or not.
const (
	removalMethod    = "sci-thm4-remove"
	removalPLDMethod = "gauss-remove-pld"
)

// removeMethod computes sci-thm4-remove.
func removeMethod(_ *engine, q Query, parts []part) (answer, error) {
	if len(parts) != 1 {
		return answer{}, refuse("for rounds that are alike")
	}
	s, times := parts[0].shape, float64(parts[0].times)
	at := func(spare float64) (rdp.Curve, float64, error) {
		curve, dropped, err := amplify.Removal(s.gaussianArrival(), math.Max(1e-290, spare/times))
		if err != nil {
			return nil, 0, err
		}
		return func(order float64) float64 { return times * curve(order) }, times * dropped * (1 + 1e-9), nil
	}
	if !q.AskDelta {
		curve, dropped, err := at(dropShare * q.Delta / 4)
		if err != nil {
			return answer{}, err
		}
		eps, order := rdp.Minimize(curve, q.Delta-dropped)
		if math.IsInf(eps, 1) || math.IsNaN(eps) {
			return answer{}, refuse("no order gives a finite epsilon; mass %.3g is left out", dropped)
		}
		return answer{eps: eps, delta: q.Delta, order: order}, nil
	}
	// For a smaller δ, less mass may be left out.
	best := 1.
	for _, spare := range []float64{1e-6, 1e-10, 1e-16, 1e-30} {
		curve, dropped, err := at(spare)
		if err != nil {
			return answer{}, err
		}
		best = math.Min(best, rdp.Delta(curve, q.Eps)+dropped)
	}
	return answer{eps: q.Eps, delta: best}, nil
}

// removePLDMethod computes gauss-remove-pld.
func removePLDMethod(e *engine, q Query, parts []part) (answer, error) {
	rough, err := removeMethod(e, q, parts)
	if len(parts) != 1 {
		return answer{}, err
	}
	if !q.AskDelta {
		eps, pldErr := removalEps(parts[0], q.Delta)
		switch {
		case err != nil && pldErr != nil:
			return answer{}, pldErr
		case err != nil || pldErr == nil && eps <= rough.eps:
			return answer{eps: eps, delta: q.Delta}, nil
		}
		return answer{eps: rough.eps, delta: q.Delta, note: "by Rényi divergences"}, nil
	}
	if err != nil {
		return answer{}, err
	}
	// The δ by Rényi divergences tells how small a tail matters. It may be far too large, so the composition is
	// repeated while that helps.
	delta := rough.delta
	for range 12 {
		if !(delta > 1e-280) {
			break
		}
		now, err := removalDelta(parts[0], q.Eps, delta)
		if err != nil {
			break
		}
		last := delta
		if delta = math.Min(delta, now); delta > last/2 {
			break
		}
	}
	return answer{eps: q.Eps, delta: delta}, nil
}

// removalEps bounds ε at delta, in both orders of the neighbours.
func removalEps(p part, delta float64) (eps float64, err error) {
	if p.times == 1 {
		curve, err := removalCurve(p, delta)
		if err != nil {
			return 0, err
		}
		return curve.epsilon(delta)
	}
	err = eachRemoval(p, delta, func(c ordered) { eps = math.Max(eps, c.epsilonAt(delta)) })
	if err == nil && (math.IsInf(eps, 1) || math.IsNaN(eps)) {
		err = refuse("composition shows no epsilon for delta = %v", delta)
	}
	return eps, err
}

// removalDelta bounds δ at eps, in both orders of the neighbours, by compositions that are sharp where δ is
// about guess.
func removalDelta(p part, eps, guess float64) (delta float64, err error) {
	if p.times == 1 {
		curve, err := removalCurve(p, guess)
		if err != nil {
			return 0, err
		}
		return math.Min(1, curve.delta(eps)), nil
	}
	err = eachRemoval(p, guess, func(c ordered) { delta = math.Max(delta, c.deltaAt(eps)) })
	return delta, err
}

// removalCurve is the curve of one round, without a grid: the larger of both orders'.
func removalCurve(p part, delta float64) (*curve, error) {
	present, absent, err := amplify.RemovalPairs(p.shape.gaussianArrival(), math.Max(1e-290, dropShare*delta/4))
	if err != nil {
		return nil, err
	}
	a, b := atomCurve(present.Atoms, present.Dropped), atomCurve(absent.Atoms, absent.Dropped)
	return &curve{
		func(eps float64) float64 { return math.Max(a.delta(eps), b.delta(eps)) },
		func(delta float64) (float64, error) {
			x, err := a.epsilon(delta)
			y, otherErr := b.epsilon(delta)
			return math.Max(x, y), errors.Join(err, otherErr)
		},
	}, nil
}

// eachRemoval composes the pairs of both orders, sharp at delta.
func eachRemoval(p part, delta float64, use func(ordered)) error {
	pairs, err := removalPairs(p, math.Max(1e-290, dropShare*delta/4/float64(p.times)))
	if err != nil {
		return err
	}
	for _, pair := range pairs {
		c, err := composeDirected(pair, p.times, delta)
		if err != nil {
			return err
		}
		use(c)
	}
	return nil
}

// removalPairs returns the pairs of a round in both orders, without the largest losses: some times the mass spare
// counts as infinite loss.
func removalPairs(p part, spare float64) (pairs [2]dp.Directed, err error) {
	present, absent, err := amplify.RemovalPairs(p.shape.gaussianArrival(), spare)
	if err != nil {
		return pairs, err
	}
	return [2]dp.Directed{pld.TruncateDirected(present, spare), pld.TruncateDirected(absent, spare)}, nil
}

// ordered is the composition of one order of the neighbours. Its losses may be so small that no δ is reached where the
// composition tells them apart: but none exceeds most.
type ordered struct {
	*pld.Composed
	most    float64 // the largest finite loss of all rounds together
	dropped float64 // probability of an infinite loss, at most
}

func (o ordered) epsilonAt(delta float64) float64 {
	eps := o.Composed.Epsilon(delta)
	if o.dropped <= delta {
		eps = math.Min(eps, o.most)
	}
	return eps
}

func (o ordered) deltaAt(eps float64) float64 {
	delta := o.Composed.Delta(eps)
	if eps >= o.most {
		delta = math.Min(delta, o.dropped)
	}
	return delta
}

// inOrder makes a composition one of an order: of so many rounds, with the largest finite loss and the probability of an
// infinite one in each.
func inOrder(c *pld.Composed, rounds int64, high, dropped float64) ordered {
	times := float64(rounds) * (1 + 1e-12)
	return ordered{c, times * high, math.Min(1, times*dropped)}
}

// composeDirected composes a directed pair, sharp at delta.
func composeDirected(pair dp.Directed, rounds int64, delta float64) (c ordered, err error) {
	// Few rounds have no normal law that would smooth a coarse grid.
	fraction := .01
	if rounds > 1e4 {
		fraction = .05
	}
	step, tilt, err := directedGrid(pair, rounds, delta, fraction)
	if err != nil {
		return c, err
	}
	for top := topLoss(pair); ; step *= 2 {
		loss, err := pld.Direct(pair, step)
		if err != nil {
			return c, err
		}
		composed, err := pld.Compose([]pld.Part{{Loss: loss, Times: rounds}}, tilt)
		if err == nil {
			return inOrder(composed, rounds, highLoss(pair), pair.Dropped), nil
		} else if step > top/16 {
			return c, err
		}
	}
}

// topLoss returns the largest |loss| of a pair.
func topLoss(pair dp.Directed) (top float64) {
	for _, a := range pair.Atoms {
		top = math.Max(top, math.Abs(a.Loss))
	}
	return top
}

// highLoss returns the largest loss of a pair, at least 0.
func highLoss(pair dp.Directed) (high float64) {
	for _, a := range pair.Atoms {
		high = math.Max(high, a.Loss)
	}
	return high
}

// directedGrid chooses a grid and a tilt for a composition that is sharp at delta. The step is about that
// fraction of the deviation of a round's tilted loss: splitting adds step²/6 to its variance.
func directedGrid(pair dp.Directed, rounds int64, delta, fraction float64) (step, tilt float64, err error) {
	times, top := float64(rounds), topLoss(pair)
	if top == 0 {
		return 0, 0, refuse("losses of mass %v are not resolved", pair.Dropped)
	}
	// log E e^{tL} of a round, and mean and variance of L under the law tilted by e^{tL}.
	tilted := func(t float64) (cumulant, variance float64) {
		var excess, m1, m2 float64
		for _, a := range pair.Atoms {
			mass := a.Q * math.Exp(a.Loss)
			excess += mass * math.Expm1(t*a.Loss)
			at := mass * math.Exp(t*a.Loss)
			m1 += a.Loss * at
			m2 += a.Loss * a.Loss * at
		}
		m1, m2 = m1/(1+excess), m2/(1+excess)
		return math.Log1p(excess), math.Max(0, m2-m1*m1)
	}
	tilt = tiltFor(delta)(func(t float64) float64 {
		k, _ := tilted(t)
		return times * math.Max(0, k)
	})
	// e^{tL} must stay in range where L is large, and next to nothing where −L is.
	tilt = math.Min(tilt, math.Min(200/highLoss(pair), 800/top))
	_, variance := tilted(tilt)
	return gridStep(math.Max(math.Min(top/16, fraction*math.Sqrt(variance)), top/(1<<20))), tilt, nil
}
