package account

import (
	"fmt"
	"math"
	"sync"

	"github.com/riffle-dp/riffle/amplify"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/pld"
	"github.com/riffle-dp/riffle/rdp"
)

// shape is what a round's dominating pair depends on. Either reports is known,
// or reports arrive from asked clients at a rate each.
type shape struct {
	trust      dp.Trust
	eps0       float64
	population int64 // n
	reports    int64 // k that shuffle together
	included   int64 // of n, a uniform subset, k or more
	asked      int64
	rate       float64
}

// shapeOf describes a validated round.
func shapeOf(r dp.Round) shape {
	s := shape{trust: r.Trust, eps0: r.Report.Eps0, population: r.Population, reports: r.Reports, included: r.Reports}
	switch {
	case r.Trust == dp.Local:
		// Every report stands with its sender's name: nothing else matters.
		return shape{trust: dp.Local, eps0: s.eps0, population: 1, reports: 1, included: 1}
	case r.Participation == dp.All:
		s.reports, s.included = r.Population, r.Population
	case r.Participation == dp.Once:
		s.population = s.reports // who is in which batch is public
	case r.Participation == dp.CheckIn && !r.Realised:
		s.reports, s.included, s.asked, s.rate = 0, 0, r.Population, r.Rate
	}
	return s
}

// coarse rounds a realised k to ten significant bits, the shuffle's size down
// and the inclusion up: both only lose, about .1 % of ε, and rounds whose k
// differ a little share one pair.
func (s shape) coarse() shape {
	if s.rate > 0 || s.reports < 1<<11 || s.included == s.population {
		return s
	}
	unit := int64(1)
	for s.reports/unit >= 1<<11 {
		unit *= 2
	}
	s.included = min(s.population, (s.included+unit-1)/unit*unit)
	s.reports = s.reports / unit * unit
	return s
}

// clones names a proved rate of clones.
type clones struct {
	name   string
	rate   func(eps0 float64) float64
	source string
}

var (
	blanket = clones{"blanket", amplify.Blanket, "riffle blanket theorem (amplify/blanket.md), r = 2/(e^eps0+1)"}
	fmt22   = clones{"clones", amplify.Clones, "Feldman, McMillan, Talwar 2022, Theorem 3.1, r = e^-eps0"}
)

// pair returns the dominating pair of one round, dropping at most tail.
func (s shape) pair(c clones, tail float64) (dp.Pair, error) {
	if s.rate > 0 {
		return amplify.CheckIn(amplify.CheckInConfig{Eps0: s.eps0, Population: s.population, Asked: s.asked,
			Gamma: s.rate, Rate: c.rate(s.eps0), Tail: tail})
	}
	blocks := 0
	if s.reports > 1e5 {
		blocks = 256
	}
	p, err := amplify.Shuffle(amplify.ShuffleConfig{Eps0: s.eps0, Reports: s.reports, Rate: c.rate(s.eps0), Tail: tail, Blocks: blocks})
	if err != nil {
		return dp.Pair{}, err
	}
	return amplify.Subsample(p, float64(s.included)/float64(s.population))
}

// maxLoss is the largest loss a round can have: a pure bound.
func (s shape) maxLoss() float64 {
	included := s.included
	if s.rate > 0 {
		included = s.asked
	}
	g := float64(included) / float64(s.population)
	if g >= 1 || s.trust == dp.Local {
		return s.eps0
	}
	return math.Log(g+(1-g)*math.Exp(-s.eps0)) + s.eps0
}

// part is a shape that happened times times.
type part struct {
	shape shape
	times int64
}

// engine answers about parts and keeps what it computed: a cache only.
type engine struct {
	mu     sync.Mutex
	pairs  map[pairKey]dp.Pair
	losses map[lossKey]pld.Loss
}

type pairKey struct {
	shape  shape
	clones string
	tail   int // power of ten
}

type lossKey struct {
	pair pairKey
	step float64
}

func newEngine() *engine {
	return &engine{pairs: map[pairKey]dp.Pair{}, losses: map[lossKey]pld.Loss{}}
}

// cacheLimit bounds the number of cached pairs and losses.
const cacheLimit = 512

func (e *engine) pair(k pairKey, c clones) (dp.Pair, error) {
	if p, ok := e.pairs[k]; ok {
		return p, nil
	}
	p, err := k.shape.pair(c, math.Pow(10, float64(k.tail)))
	if err != nil {
		return dp.Pair{}, err
	}
	if p, err = compact(p); err != nil {
		return dp.Pair{}, err
	}
	if len(e.pairs) >= cacheLimit {
		clear(e.pairs)
	}
	e.pairs[k] = p
	return p, nil
}

func (e *engine) loss(k lossKey, c clones) (pld.Loss, error) {
	if l, ok := e.losses[k]; ok {
		return l, nil
	}
	p, err := e.pair(k.pair, c)
	if err != nil {
		return pld.Loss{}, err
	}
	l, err := pld.Discretize(p, k.step)
	if err != nil {
		return pld.Loss{}, err
	}
	if len(e.losses) >= cacheLimit {
		clear(e.losses)
	}
	e.losses[k] = l
	return l, nil
}

// compact merges a pair's atoms on a fine grid of 2^15 losses. The grid splits
// atoms so that both masses are kept, which only loses: about 1e-6 of ε.
func compact(p dp.Pair) (dp.Pair, error) {
	const points = 1 << 15
	if len(p.Atoms) <= 2*points {
		return p, nil
	}
	var top float64
	for _, a := range p.Atoms {
		top = math.Max(top, a.Loss)
	}
	l, err := pld.Discretize(p, top/points)
	if err != nil {
		return dp.Pair{}, err
	}
	return l.Pair(p.Remainders), nil
}

// rounds returns how many rounds the parts are.
func rounds(parts []part) float64 {
	var n float64
	for _, p := range parts {
		n += float64(p.times)
	}
	return n
}

// basic is composition of pure guarantees: ε at δ = 0.
func basic(parts []part) float64 {
	var eps float64
	for _, p := range parts {
		eps += float64(p.times) * p.shape.maxLoss()
	}
	return eps * (1 + 1e-12)
}

// rdpCurve is the composed Rényi curve of the parts.
func (e *engine) rdpCurve(parts []part, c clones) (rdp.Curve, error) {
	// Remainders are charged at their largest loss at orders up to thousands,
	// so next to nothing may be left to them.
	const tail = -250
	pairs := make([]dp.Pair, len(parts))
	for i, p := range parts {
		var err error
		if pairs[i], err = e.pair(pairKey{p.shape, c.name, tail}, c); err != nil {
			return nil, err
		}
	}
	return func(order float64) float64 {
		var sum float64
		for i, p := range parts {
			sum += float64(p.times) * rdp.Divergence(pairs[i], order)
		}
		return sum
	}, nil
}

// compose returns the composition of the parts, sharp where curve's tilt says.
// Round-off apart, the tail is chosen so that all rounds together drop no more
// than a ten-thousandth of delta.
func (e *engine) compose(parts []part, c clones, delta float64, tiltOf func(cumulant func(t float64) float64) float64) (*pld.Composed, error) {
	total := rounds(parts)
	tail := int(math.Floor(math.Log10(delta * 1e-4 / total)))
	tail = max(-290, min(-4, tail))
	keys := make([]pairKey, len(parts))
	first := make([]pld.Loss, len(parts))
	var top float64
	for i, p := range parts {
		keys[i] = pairKey{p.shape, c.name, tail}
		pair, err := e.pair(keys[i], c)
		if err != nil {
			return nil, err
		}
		for _, a := range pair.Atoms {
			top = math.Max(top, a.Loss)
		}
	}
	if top == 0 {
		return nil, fmt.Errorf("account: no losses: %w", dp.ErrNoBound)
	}
	// A first, coarser grid tells where the composition lies.
	coarse := gridStep(top / 4096)
	for i := range parts {
		var err error
		if first[i], err = e.loss(lossKey{keys[i], coarse}, c); err != nil {
			return nil, err
		}
	}
	tilt := tiltOf(func(t float64) float64 {
		var k float64
		for i, p := range parts {
			k += float64(p.times) * first[i].LogMoment(t)
		}
		return k
	})
	// Where only the largest losses reach δ the best tilt has no limit; this one
	// keeps e^{tilt·loss} finite and is as good as any beyond.
	tilt = math.Min(tilt, 200/top)
	var variance float64
	for i, p := range parts {
		variance += float64(p.times) * first[i].Variance(tilt)
	}
	// Splitting adds about step²/6 to a round's variance. A fraction f of a
	// round's deviation costs f²/12 of ε, and points in proportion to √T/f.
	fraction := 0.03
	if total > 1e4 {
		fraction = 0.08
	}
	step := gridStep(math.Max(top/(1<<19), math.Min(top/16, fraction*math.Sqrt(variance/total))))
	if len(parts) == 1 && parts[0].shape.trust == dp.Local {
		step = top / math.Ceil(top/step) // one loss: put it on the grid
	}
	composed := make([]pld.Part, len(parts))
	for i, p := range parts {
		l, err := e.loss(lossKey{keys[i], step}, c)
		if err != nil {
			return nil, err
		}
		composed[i] = pld.Part{Loss: l, Times: p.times}
	}
	return pld.Compose(composed, tilt)
}

// gridStep rounds a step down to a quarter of an octave, so that questions
// that differ a little share a grid.
func gridStep(x float64) float64 { return math.Exp2(math.Floor(4*math.Log2(x)) / 4) }

// pldEps bounds ε at delta.
func (e *engine) pldEps(parts []part, c clones, delta float64) (float64, error) {
	if len(parts) == 0 {
		return 0, nil
	}
	composed, err := e.compose(parts, c, delta, func(cumulant func(float64) float64) float64 {
		_, order := rdp.Minimize(func(order float64) float64 { return cumulant(order-1) / (order - 1) }, delta)
		return math.Max(0, order-1)
	})
	if err != nil {
		return 0, err
	}
	eps := composed.Epsilon(delta)
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
	// Chernoff's δ tells how small a tail matters.
	curve, err := e.rdpCurve(parts, c)
	if err != nil {
		return 0, err
	}
	guess := rdp.Delta(curve, eps)
	composed, err := e.compose(parts, c, math.Max(1e-280, guess), func(cumulant func(float64) float64) float64 {
		t, _ := rdp.Chernoff(cumulant, eps)
		return t
	})
	if err != nil {
		return 0, err
	}
	return composed.Delta(eps), nil
}
