package account

import (
	"errors"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/amplify/literature"
	"github.com/riffle-dp/riffle/dp/rdp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// These bounds of the literature are listed so that they can be compared and reproduced. None
// is tighter than blanket-pld. If a precondition is missing they refuse.

// fixed returns an error unless the part is a shuffle of a fixed number of reports.
func fixed(p part) error {
	switch {
	case !p.shape.trust.Is(dp.Shuffled):
		return refuse("stated for shuffled reports")
	case p.shape.gamma > 0:
		return refuse("stated for a fixed number k of reports, here it is up to chance")
	}
	return nil
}

// unsampled returns an error like fixed does, and also if some client is not in every round.
func unsampled(p part) error {
	if err := fixed(p); err != nil {
		return err
	}
	if p.shape.included < p.shape.population {
		return refuse("stated without sampling, here k = %d of n = %d", p.shape.reports, p.shape.population)
	}
	return nil
}

// chance describes a round whose reports arrive by chance (self check-in or drop-outs). It
// returns an error for any other round.
func chance(p part) (literature.Round, error) {
	s := p.shape
	c := literature.Round{Eps0: s.eps0, Population: s.population, Reports: s.asked, Gamma: s.gamma}
	switch {
	case !s.trust.Is(dp.Shuffled):
		return c, refuse("stated for shuffled reports")
	case !(s.gamma > 0):
		return c, refuse("stated for clients who flip coins, here k is fixed")
	}
	return c, nil
}

// oneShuffle returns δ of one shuffle as a function of ε, or why there is none.
type oneShuffle func(q Query, s shape) (delta func(eps float64) float64, err error)

// closed makes a oneShuffle of a closed form for δ, which always exists.
func closed(delta func(eps0 float64, reports int64, eps float64) float64) oneShuffle {
	return func(_ Query, s shape) (func(float64) float64, error) {
		return func(eps float64) float64 { return delta(s.eps0, s.reports, eps) }, nil
	}
}

func clonesNumeric(_ Query, s shape) (func(float64) float64, error) {
	return unsampledCurve(s.eps0, amplify.Clones(s.eps0), s.reports)
}

// unsampledCurve returns δ(ε) of one shuffle without sampling, by the pair of clones at a rate.
func unsampledCurve(eps0, rate float64, reports int64) (func(float64) float64, error) {
	f, err := amplify.ClonesFamily(eps0, rate)
	if err != nil {
		return nil, err
	}
	c, err := f.Curve(amplify.FamilyRound{Population: reports, Reports: reports})
	if err != nil {
		return nil, err
	}
	return c.Delta, nil
}

// symbolsOf returns K of a query's randomizer, or 0 if the query admits any randomizer.
func symbolsOf(q Query) int {
	switch q.withDefaults().Class {
	case dp.BinaryRR:
		return 2
	case dp.KRR:
		return q.Symbols
	}
	return 0
}

func balle(bennett bool) oneShuffle {
	return func(q Query, s shape) (func(float64) float64, error) {
		b, err := literature.NewBlanketed(s.eps0, s.reports, symbolsOf(q))
		if err != nil {
			return nil, err
		}
		return func(eps float64) float64 { return b.Delta(eps, bennett) }, nil
	}
}

// balleReports is the number of reports up to which the blanket of K > 2 symbols can be
// summed in some ten milliseconds.
const balleReports = 256

func balleExact(q Query, s shape) (func(float64) float64, error) {
	symbols := symbolsOf(q)
	switch {
	case symbols == 0:
		return nil, refuse("needs a given randomizer: K-ary randomized response")
	case symbols == 2:
		// The blanket of two symbols is the clones pair of rate 2/(E+1).
		return unsampledCurve(s.eps0, amplify.Blanket(s.eps0), s.reports)
	case s.reports > balleReports:
		return nil, refuse("a sum over the outcomes of k = %d reports, above %d, takes too long", s.reports, balleReports)
	}
	b, err := literature.NewBlanketed(s.eps0, s.reports, symbols)
	if err != nil {
		return nil, err
	}
	return func(eps float64) float64 {
		d, err := b.ExactDelta(eps)
		if err != nil {
			return 1
		}
		return d
	}, nil
}

func erlingsson(_ Query, s shape) (func(float64) float64, error) {
	if _, err := literature.Erlingsson2019(s.eps0, s.reports, 0); err != nil {
		return nil, err
	}
	return func(eps float64) float64 {
		d, err := literature.Erlingsson2019(s.eps0, s.reports, eps)
		if err != nil {
			return 1
		}
		return d
	}, nil
}

// strong composes one shuffle's (ε, δ) guarantees, after sampling.
func strong(one oneShuffle, exact bool) computation {
	return func(_ *engine, q Query, parts []part) (answer, error) {
		p := parts[0]
		if err := fixed(p); err != nil {
			return answer{}, err
		}
		delta, err := one(q, p.shape)
		if err != nil {
			return answer{}, err
		}
		return compose(q, literature.Strong{Eps0: p.shape.eps0, Delta: delta,
			Gamma: float64(p.shape.included) / float64(p.shape.population), Rounds: p.times, Exact: exact})
	}
}

// compose answers a query by strong composition.
func compose(q Query, c literature.Strong) (answer, error) {
	if q.AskDelta {
		delta := c.DeltaAt(q.Eps)
		if !(delta < 1) {
			return answer{}, refuse("composition shows no delta below 1 at epsilon = %v", q.Eps)
		}
		return answer{eps: q.Eps, delta: delta}, nil
	}
	eps, err := c.Epsilon(q.Delta)
	return answer{eps: eps, delta: q.Delta}, err
}

// eitherStrong is strong for a fixed k and checkInStrong where k is up to chance.
func eitherStrong(one oneShuffle, exact bool) computation {
	return func(e *engine, q Query, parts []part) (answer, error) {
		if parts[0].shape.gamma > 0 {
			return checkInStrong(one, exact)(e, q, parts)
		}
		return strong(one, exact)(e, q, parts)
	}
}

// checkInStrong is strong composition of self check-in. Outside a window of k a round counts
// as lost; inside it a round has the shuffle of the smallest k and the inclusion of the
// largest: more reports are that shuffle and reports of clients whose data is known, which
// anyone can add.
func checkInStrong(one oneShuffle, exact bool) computation {
	return func(_ *engine, q Query, parts []part) (answer, error) {
		c, err := chance(parts[0])
		if err != nil {
			return answer{}, err
		}
		times, best := parts[0].times, answer{eps: math.Inf(1), delta: math.Inf(1)}
		var last error
		try := func(lost float64) {
			lo, hi := tail.Window(c.Reports, c.Gamma, 1-c.Gamma, lost/2, lost/2)
			if hi == 0 {
				return
			}
			least := parts[0].shape
			least.reports = max(1, lo)
			delta, err := one(q, least)
			if err != nil {
				last = err
				return
			}
			got, err := compose(q, literature.Strong{Eps0: c.Eps0, Delta: delta, Gamma: float64(hi) / float64(c.Population),
				Rounds: times, Lost: lost, Exact: exact})
			switch {
			case err != nil:
				last = err
			case got.eps < best.eps || got.eps == best.eps && got.delta < best.delta:
				best = got
			}
		}
		if q.AskDelta {
			for x := 1e-3; x > 1e-300; x *= x * x {
				try(x / float64(times))
			}
		} else {
			for _, share := range []float64{.1, .01} {
				try(share * q.Delta / float64(times))
			}
		}
		if math.IsInf(best.eps, 1) {
			if last == nil {
				last = refuse("no window of k shows a bound")
			}
			return answer{}, last
		}
		return best, nil
	}
}

// girgis makes a divergence of one of Girgis et al.'s bounds. most is the largest number of
// reports that it accepts in a round.
func girgis(bound func(literature.Round, int) (float64, error), most int64) divergence {
	return func(_ *engine, p part) (func(float64) (float64, error), error) {
		s := p.shape
		switch {
		case !s.trust.Is(dp.Shuffled) || s.gamma > 0:
			return nil, refuse("stated for a fixed number k of shuffled reports")
		case s.reports > most:
			return nil, refuse("a sum over the outcomes of k = %d reports, above %d, takes too long", s.reports, most)
		}
		c := literature.Round{Eps0: s.eps0, Population: s.population, Reports: s.reports}
		return func(order float64) (float64, error) { return bound(c, int(order)) }, nil
	}
}

func gddsk(plain bool) divergence {
	return func(_ *engine, p part) (func(float64) (float64, error), error) {
		if err := fixed(p); err != nil {
			return nil, err
		}
		s, err := literature.NewShuffleRenyi(p.shape.eps0, p.shape.reports)
		gamma := float64(p.shape.included) / float64(p.shape.population)
		return func(order float64) (float64, error) { return s.Divergence(gamma, int(order), plain) }, err
	}
}

func gddskSimple(_ *engine, p part) (func(float64) (float64, error), error) {
	if err := unsampled(p); err != nil {
		return nil, err
	}
	s, err := literature.NewShuffleRenyi(p.shape.eps0, p.shape.reports)
	return func(order float64) (float64, error) { return s.SimpleDivergence(order), nil }, err
}

// directReports is the number of reports up to which the clones pair is summed outcome by
// outcome.
const directReports = 64

func eabTheorem1(e *engine, q Query, parts []part) (answer, error) {
	p := parts[0]
	curve, err := eabDivergence(e, p)
	if err != nil {
		return answer{}, err
	}
	if p.shape.reports > directReports {
		out, err := convert(q, func(order float64) float64 {
			d, _ := curve(order) // the curve of a pair returns no error
			return float64(p.times) * d
		})
		out.note = "outcomes merged, 5e-5 of epsilon above the sum"
		return out, err
	}
	return convert(q, func(order float64) float64 {
		m, err := shuffledMoment(p.shape, order)
		if err != nil {
			return math.Inf(1)
		}
		return float64(p.times) * m / (order - 1)
	})
}

func shuffledMoment(s shape, order float64) (float64, error) {
	return literature.ShuffledMoment(s.eps0, s.reports, amplify.Clones(s.eps0), order)
}

func eabDivergence(e *engine, p part) (func(float64) (float64, error), error) {
	if err := unsampled(p); err != nil {
		return nil, err
	}
	if p.shape.reports > directReports {
		return pairDivergence(fmt22)(e, p)
	}
	return func(order float64) (float64, error) {
		m, err := shuffledMoment(p.shape, order)
		return m / (order - 1), err
	}, nil
}

// gaussianRenyi is the Rényi divergence λμ²/2 at order λ; EAB, Corollary 2.
func gaussianRenyi(g literature.GDP) rdp.Curve {
	return func(order float64) float64 { return order * g.Mu * g.Mu / 2 }
}

const limitLaw = "a limit law: can be far too small"

// gdpApprox is EAB's Gaussian limit, converted exactly or by its Rényi curve.
func gdpApprox(renyi bool) computation {
	return func(_ *engine, q Query, parts []part) (answer, error) {
		p := parts[0]
		if err := unsampled(p); err != nil {
			return answer{}, err
		}
		g, err := literature.ShuffleGDP(p.shape.eps0, p.shape.reports, p.times)
		switch {
		case err != nil:
			return answer{}, err
		case renyi:
			return convert(q, gaussianRenyi(g))
		case q.AskDelta:
			return answer{eps: q.Eps, delta: g.Delta(q.Eps)}, nil
		}
		return answer{eps: g.Epsilon(q.Delta), delta: q.Delta}, nil
	}
}

func gdpDivergence(_ *engine, p part) (func(float64) (float64, error), error) {
	if err := unsampled(p); err != nil {
		return nil, err
	}
	g, err := literature.ShuffleGDP(p.shape.eps0, p.shape.reports, 1)
	renyi := gaussianRenyi(g)
	return func(order float64) (float64, error) { return renyi(order), nil }, err
}

func erlingssonRenyi(_ *engine, p part) (func(float64) (float64, error), error) {
	return func(order float64) (float64, error) {
		return literature.ErlingssonRenyi(p.shape.eps0, p.shape.reports, order), nil
	}, unsampled(p)
}

func sciTheorem1(printed bool) divergence {
	return func(_ *engine, p part) (func(float64) (float64, error), error) {
		c, err := chance(p)
		if err != nil {
			return nil, err
		}
		bound, err := literature.SCITheorem1(c, printed)
		return func(order float64) (float64, error) { return bound(int(order)) }, err
	}
}

// sciTheorem2 answers by SCI's Theorem 2, which holds for every Δ. It searches the best order
// at one Δ, then the best Δ at that order, then the best order at that Δ. It sets Δ =
// √(2x/(nγ)), so that a round has fewer than (1−Δ)nγ reports with probability at most e^−x.
func sciTheorem2(printed bool) computation {
	return func(_ *engine, q Query, parts []part) (answer, error) {
		c, err := chance(parts[0])
		if err != nil {
			return answer{}, err
		}
		at := func(x float64) (func(order int) (float64, error), error) {
			return literature.SCITheorem2(c, math.Min(1, math.Sqrt(2*x/(float64(c.Reports)*c.Gamma))), printed)
		}
		search := func(x float64) (answer, error) {
			b, err := at(x)
			if err != nil {
				return answer{}, err
			}
			return upTo2048.convert(q, parts[0].times, b)
		}
		best := 40.
		out, err := search(best)
		if err != nil && !errors.Is(err, dp.ErrNoBound) {
			return answer{}, err
		}
		order, least := int(math.Max(2, out.order)), math.Inf(1)
		for x := 4.; x < 4000; x *= 1.25 {
			b, err := at(x)
			if err != nil {
				return answer{}, err
			}
			if d, err := b(order); err == nil && d < least {
				best, least = x, d
			}
		}
		if a, failed := search(best); failed == nil && (err != nil || a.eps < out.eps || a.eps == out.eps && a.delta < out.delta) {
			return a, nil
		}
		return out, err
	}
}

func sciTheorem3(_ *engine, p part) (func(float64) (float64, error), error) {
	c, err := chance(p)
	return func(order float64) (float64, error) { return literature.SCITheorem3(c, int(order)) }, err
}
