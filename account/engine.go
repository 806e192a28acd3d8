package account

import (
	"fmt"
	"math"
	"sync"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/pld"
	"github.com/riffle-dp/riffle/dp/rdp"
	"github.com/riffle-dp/riffle/internal/monotone"
)

// part is a shape and the number of times that it occurred.
type part struct {
	shape shape
	times int64
}

// engine answers questions about parts and caches what it computed.
type engine struct {
	mu      sync.Mutex
	pairs   map[pairKey]dp.Pair
	kept    map[keptKey]*kept
	filters map[filterKey]filtered
}

type pairKey struct {
	shape  shape
	clones string
}

// cacheLimit bounds the number of cached pairs, of some 30 kB each.
const cacheLimit = 4096

func (e *engine) pair(s shape, c clones) (dp.Pair, error) {
	k := pairKey{s, c.key()}
	if p, ok := e.pairs[k]; ok {
		return p, nil
	}
	p, err := s.pair(c)
	if err != nil {
		return dp.Pair{}, err
	}
	for _, a := range p.Atoms {
		// The condition is negated so that it refuses a NaN.
		if !(a.Q >= 0 && a.Q <= 2 && a.Loss > 0 && a.Loss <= math.MaxFloat64) {
			return dp.Pair{}, fmt.Errorf("account: %s pair has an outcome of mass %v and loss %v: %w", c.name, a.Q, a.Loss, dp.ErrNoBound)
		}
	}
	if e.pairs == nil || len(e.pairs) >= cacheLimit {
		e.pairs = map[pairKey]dp.Pair{}
	}
	e.pairs[k] = p
	return p, nil
}

// rounds returns the number of rounds in the parts.
func rounds(parts []part) float64 {
	var n float64
	for _, p := range parts {
		n += float64(p.times)
	}
	return n
}

// basic returns the composition of pure guarantees: ε at δ = 0.
func basic(parts []part) float64 {
	var eps float64
	for _, p := range parts {
		eps += float64(p.times) * p.shape.maxLoss()
	}
	// This covers one rounding for each part, and some for each maxLoss.
	return eps * (1 + 1e-14*float64(len(parts)+8))
}

// renyi returns the composed Rényi curve of the parts without their largest losses, and the
// mass of these over all rounds, dropped. dropped must be taken off δ before converting, or
// added to a δ after. These losses have almost no mass, but would decide the divergence at
// high orders.
func (e *engine) renyi(parts []part, c clones, delta float64) (curve rdp.Curve, dropped float64, err error) {
	cut := math.Min(1e-250, dropShare*delta) / rounds(parts)
	if delta < 1 && anyGaussian(parts) {
		// Gaussian reports' losses have no maximum: if k depends on chance, rounds of few
		// reports would decide the divergence at every useful order.
		cut = dropShare * delta / rounds(parts)
	}
	pairs := make([]dp.Pair, len(parts))
	for i, p := range parts {
		pair, err := e.pair(p.shape, c)
		if err != nil {
			return nil, 0, err
		}
		pair = pld.Truncate(pair, cut)
		dropped += float64(p.times) * pair.Dropped() * (1 + 1e-9)
		pairs[i] = dp.Pair{Atoms: pair.Atoms}
	}
	return func(order float64) float64 {
		var sum float64
		for i, p := range parts {
			sum += float64(p.times) * rdp.Divergence(pairs[i], order)
		}
		return sum
	}, dropped, nil
}

// rdpEps bounds ε at delta by Rényi divergences.
func (e *engine) rdpEps(parts []part, c clones, delta float64) (eps, order float64, err error) {
	curve, dropped, err := e.renyi(parts, c, delta)
	if err != nil {
		return 0, 0, err
	}
	eps, order = rdp.Minimize(curve, delta-dropped)
	if math.IsInf(eps, 1) || math.IsNaN(eps) {
		return 0, 0, fmt.Errorf("account: no order gives a finite epsilon: %w", dp.ErrNoBound)
	}
	return eps, order, nil
}

// rdpDelta bounds δ at eps by Rényi divergences.
func (e *engine) rdpDelta(parts []part, c clones, eps float64) (float64, error) {
	curve, dropped, err := e.renyi(parts, c, 1)
	if err != nil {
		return 0, err
	}
	delta := math.Min(1, rdp.Delta(curve, eps)+dropped)
	if delta < 1 && delta > 0 && anyGaussian(parts) {
		// Now that δ is roughly known, drop in proportion to it.
		if curve, dropped, err = e.renyi(parts, c, delta); err != nil {
			return 0, err
		}
		delta = math.Min(delta, rdp.Delta(curve, eps)+dropped)
	}
	return delta, nil
}

// dropShare is the share of δ for which all largest losses together may count as infinite; a
// ten-thousandth of δ moves ε by far less than a ten-thousandth.
const dropShare = 1e-4

// compose returns the composition of the parts. tiltOf chooses where it is sharp, given the
// composition's cumulant t ↦ log E e^{tL}. If dropping the largest losses, of mass dropShare
// of delta, leaves no loss, it returns nil and the dropped mass.
func (e *engine) compose(parts []part, c clones, delta float64, tiltOf func(cumulant func(t float64) float64) float64) (*pld.Composed, float64, error) {
	if len(parts) >= manyShapes {
		return e.composeMany(parts, c, delta, tiltOf)
	}
	total := rounds(parts)
	pairs := make([]dp.Pair, len(parts))
	var top, dropped float64
	for i, p := range parts {
		pair, err := e.pair(p.shape, c)
		if err != nil {
			return nil, 0, err
		}
		pairs[i] = pld.Truncate(pair, dropShare*delta/total)
		dropped += float64(p.times) * pairs[i].Dropped()
		for _, a := range pairs[i].Atoms {
			top = math.Max(top, a.Loss)
		}
	}
	if top == 0 {
		return nil, math.Min(1, dropped*(1+1e-9)), nil
	}
	tilt := tiltOf(func(t float64) float64 {
		var k float64
		for i, p := range parts {
			k += float64(p.times) * t * rdp.Divergence(dp.Pair{Atoms: pairs[i].Atoms}, 1+t)
		}
		return k
	})
	// If only the largest losses reach δ the best tilt has no limit. This one keeps
	// e^{tilt·loss} finite and is as good as any larger one.
	tilt = math.Min(tilt, 200/top)
	var variance float64
	for i, p := range parts {
		variance += float64(p.times) * tiltedVariance(pairs[i], tilt)
	}
	step := gridStep(c.coarser(chooseStep(top, total, variance), top, total))
	switch {
	case len(parts) == 1 && len(pairs[0].Atoms) == 1:
		step = top // one loss and its mirror image: the grid is exact
	case len(parts) == 1:
		step = top / math.Ceil(top/step) // if only the largest losses matter, they are exact on this grid
	}
	composed := make([]pld.Part, len(parts))
	for i, p := range parts {
		l, err := pld.Discretize(pairs[i], step)
		if err != nil {
			return nil, 0, err
		}
		composed[i] = pld.Part{Loss: l, Times: p.times}
	}
	out, err := pld.Compose(composed, tilt)
	return out, 0, err
}

// chooseStep returns a grid step for a composition of rounds. top is the largest loss of a
// round, and variance is the sum of the rounds' tilted variances.
func chooseStep(top, rounds, variance float64) float64 {
	// Splitting adds about step²/6 to a round's variance. A step of a fraction f of a round's
	// deviation costs f²/12 of ε, and points in proportion to √rounds/f.
	fraction := 0.03
	if rounds > 1e4 {
		fraction = 0.08
	}
	step := math.Min(top/16, fraction*math.Sqrt(variance/rounds))
	// A law tilted onto its largest losses has almost no variance. Its window is then
	// 2·rounds·top and need not have more than 2^17 points.
	least := top / (1 << 14)
	if rounds <= 64 {
		least = math.Max(least, rounds*top/(1<<16))
	}
	return math.Max(step, least)
}

// coarser returns the step of a composition, which is a larger one if c is rough; this costs about 1 % of ε.
func (c clones) coarser(step, top, rounds float64) float64 {
	factor := 10.
	switch {
	case !c.rough:
		return step
	case rounds > 1e4:
		factor = 5
	}
	return math.Max(step, math.Min(top/16, factor*step))
}

// tiltedVariance returns the variance of a pair's loss under P tilted by e^{tL}.
func tiltedVariance(p dp.Pair, t float64) float64 {
	mass, m1, m2 := 1., 0., 0.
	for _, a := range p.Atoms {
		up, down := a.Q*math.Exp((1+t)*a.Loss), a.Q*math.Exp(-t*a.Loss)
		mass += a.Q * math.Expm1((1+t)*a.Loss) * -math.Expm1(-t*a.Loss)
		m1 += a.Loss * (up - down)
		m2 += a.Loss * a.Loss * (up + down)
	}
	m1, m2 = m1/mass, m2/mass
	return math.Max(0, m2-m1*m1)
}

// gridStep rounds a step down to a quarter of an octave, so that slightly different questions
// share a grid.
func gridStep(x float64) float64 { return math.Exp2(math.Floor(4*math.Log2(x)) / 4) }

// tiltFor makes the composition sharp at δ: the tilt is the order of the best Rényi
// conversion, less 1.
func tiltFor(delta float64) func(cumulant func(float64) float64) float64 {
	return func(cumulant func(float64) float64) float64 {
		_, order := rdp.Minimize(func(order float64) float64 { return cumulant(order-1) / (order - 1) }, delta)
		return math.Max(0, order-1)
	}
}

// pldEps bounds ε at delta.
func (e *engine) pldEps(parts []part, c clones, delta float64) (float64, error) {
	if len(parts) == 0 {
		return 0, nil
	}
	if exact := gaussianExact(parts); exact != nil {
		eps, err := exact.epsilon(delta)
		if err != nil || math.IsInf(eps, 1) {
			return 0, fmt.Errorf("account: no finite epsilon at delta = %v: %w", delta, dp.ErrNoBound)
		}
		return eps, nil
	}
	composed, dropped, err := e.compose(parts, c, delta, tiltFor(delta))
	if err != nil {
		return 0, err
	}
	if composed == nil {
		// All losses above 0 were dropped. The condition is negated so that it refuses a NaN.
		if !(dropped <= delta) {
			return 0, fmt.Errorf("account: losses of mass %v are not resolved at delta = %v: %w", dropped, delta, dp.ErrNoBound)
		}
		return 0, nil
	}
	eps := composed.Epsilon(delta)
	if curve := e.single(parts, c); curve != nil {
		if direct, err := curve.epsilon(delta); err == nil {
			eps = math.Min(eps, direct)
		}
	}
	if math.IsInf(eps, 1) || math.IsNaN(eps) {
		return 0, fmt.Errorf("account: composition shows no epsilon for delta = %v: %w", delta, dp.ErrNoBound)
	}
	return eps, nil
}

// pldDelta bounds δ at eps.
func (e *engine) pldDelta(parts []part, c clones, eps float64) (float64, error) {
	if len(parts) == 0 {
		return 0, nil
	}
	if exact := gaussianExact(parts); exact != nil {
		return exact.delta(eps), nil
	}
	// The Rényi δ tells how small a tail matters.
	guess, err := e.rdpDelta(parts, c, eps)
	if err != nil {
		return 0, err
	}
	composed, dropped, err := e.compose(parts, c, math.Max(1e-280, guess), func(cumulant func(float64) float64) float64 {
		t, _ := rdp.Chernoff(cumulant, eps)
		return t
	})
	if err != nil {
		return 0, err
	}
	delta := dropped
	if composed != nil {
		delta = composed.Delta(eps)
	}
	// Now that δ is roughly known, compose once more with less dropped, and again while that
	// helps: the Rényi δ may be far too large.
	for range 8 {
		if !(delta > 0 && delta < 1) {
			break
		}
		again, now, err := e.compose(parts, c, delta, tiltFor(delta))
		if err != nil {
			break
		}
		if again != nil {
			now = again.Delta(eps)
		}
		last := delta
		if delta = math.Min(delta, now); delta > last/100 {
			break
		}
	}
	if curve := e.single(parts, c); curve != nil {
		delta = math.Min(delta, curve.delta(eps))
	}
	return delta, nil
}

// curve is δ(ε) in closed form.
type curve struct {
	delta   func(eps float64) float64
	epsilon func(delta float64) (float64, error)
}

// single returns the curve of a single round without a grid, nil if there is none.
func (e *engine) single(parts []part, c clones) *curve {
	if len(parts) != 1 || parts[0].times != 1 || parts[0].shape.sigma > 0 {
		return nil
	}
	s := parts[0].shape
	if s.gamma > 0 || s.least > 0 || c.rate == nil {
		p, err := e.pair(s, c)
		if err != nil {
			return nil
		}
		return atomCurve(p.Atoms, p.Dropped())
	}
	f, err := amplify.ClonesFamily(s.eps0, c.rate(s))
	if err != nil {
		return nil
	}
	exact, err := f.Curve(s.round())
	if err != nil {
		return nil
	}
	return &curve{exact.Delta, exact.Epsilon}
}

// atomCurve returns the curve of a pair, or of one order of neighbours: a sum over its atoms.
func atomCurve(atoms []dp.Atom, dropped float64) *curve {
	at := func(eps float64) float64 { return above(atoms, dropped, eps) * (1 + 1e-9) }
	return &curve{at, func(delta float64) (float64, error) {
		top := 0.
		for _, a := range atoms {
			top = math.Max(top, a.Loss)
		}
		eps := monotone.Falling(at, delta, 0, top, 1e-9)
		if eps > top*(1-0x1p-48) && eps <= top {
			eps = top * (1 + 0x1p-50) // the largest loss is off by a few units in the last place
		}
		if math.IsInf(eps, 1) {
			return 0, fmt.Errorf("account: mass %v has no finite loss: %w", dropped, dp.ErrNoBound)
		}
		return eps, nil
	}}
}

// above adds to d what atoms of loss above eps add to δ(eps).
func above(atoms []dp.Atom, d, eps float64) float64 {
	for _, a := range atoms {
		if a.Loss > eps {
			d += a.Q * math.Exp(eps) * math.Expm1(a.Loss-eps)
		}
	}
	return d
}
