package account

import (
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/amplify/literature"
	"github.com/riffle-dp/riffle/dp/rdp"
)

// These bounds of the literature are listed so that they can be compared and reproduced. None
// is tighter than blanket-pld. If a precondition is missing they refuse.

// computation is the compute function of a method.
type computation func(e *engine, q Query, parts []part) (eps, delta, order float64, note string, err error)

// paperMethods returns the methods of the papers.
func paperMethods() []method {
	up := func(id, source string, c computation) method { return method{id, dp.Upper, dp.Proved, source, c} }
	about := func(id, source string, c computation) method {
		return method{id, dp.Approximate, dp.Approximation, source, c}
	}
	const kov = "; sampling by Balle, Barthe, Gaboardi 2018, Theorem 9; composition by Kairouz, Oh, Viswanath 2015, Theorem "
	const fmtClosed, fmtNumeric = "Feldman, McMillan, Talwar 2022, Theorem 3.1 in closed form", "Feldman, McMillan, Talwar 2022, Theorem 3.1 numerically"
	const bbgn = "Balle, Bell, Gascón, Nissim 2019, privacy blanket"
	return []method{
		up("clones-closed-strong", fmtClosed+kov+"3.4", strong(clonesClosed, false)),
		up("clones-closed-kov", fmtClosed+kov+"3.3", strong(clonesClosed, true)),
		up("clones-numeric-strong", fmtNumeric+kov+"3.4", strong(clonesNumeric, false)),
		up("clones-numeric-kov", fmtNumeric+kov+"3.3", strong(clonesNumeric, true)),
		up("checkin-strong", fmtNumeric+", at the window of k that holds with high probability"+kov+"3.4", checkInStrong(false)),
		up("checkin-kov", fmtNumeric+", at the window of k that holds with high probability"+kov+"3.3", checkInStrong(true)),
		up("balle-hoeffding", bbgn+", Hoeffding's inequality"+kov+"3.3", strong(balle((*literature.Blanketed).HoeffdingDelta), true)),
		up("balle-bennett", bbgn+", Bennett's inequality"+kov+"3.3", strong(balle((*literature.Blanketed).BennettDelta), true)),
		up("balle-blanket", bbgn+", for randomized response by its sum"+kov+"3.3", strong(balleExact, true)),
		up("gddsk-wbk", "Girgis, Data, Diggavi, Suresh, Kairouz 2021 (CCS), Theorem 1; sampling by Wang, Balle, Kasiviswanathan 2019, Theorem 9", gddskWBK((*literature.ShuffleRenyi).Sampled)),
		up("gddsk-wbk-plain", "the same without 4(e^eps(2)-1), the first part of Theorem 9's minimum", gddskWBK((*literature.ShuffleRenyi).SampledPlain)),
		up("eab-thm1", "EAB (Chen, Cao, Ge 2024), Theorem 1: the Rényi divergence of the clones pair", eabTheorem1),
		about("gdp-approx", "EAB, Theorem 2, Gaussian limit; Dong, Roth, Su 2022", gdpApprox(false)),
		about("eab-thm3", "EAB, Theorem 3 and Corollary 2: shuffled Laplace DP-SGD, an epoch a round", gdpApprox(true)),
		up("sci-thm1", "SCI (self check-in), Theorem 1 with inclusion k/n, at Girgis et al. 2021, Theorem 1", sciTheorem1(false)),
		about("sci-thm1-printed", "SCI, Theorem 1 with inclusion gamma as printed", sciTheorem1(true)),
		up("sci-thm2", "SCI, Theorem 2, misprints and inclusion repaired (dp/amplify/literature/selfcheckin.md)", sciTheorem2),
		about("sci-thm2-printed", "SCI, Theorem 2 as printed", sciTheorem2Printed),
		about("sci-thm3", "SCI, Theorem 3 and Lemma 2", sciTheorem3),
		about("efmrtt", "Erlingsson et al. 2019, Corollary 9"+kov+"3.4", strong(erlingsson, false)),
		about("efmrtt-rdp", "Erlingsson et al. 2019, Remark 1: Rényi divergence", erlingssonRenyi),
		about("fmt23", "Feldman, McMillan, Talwar 2023, Theorem 3.2, proof withdrawn"+kov+"3.4", strong(feldman2023, false)),
	}
}

func refuse(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, dp.ErrNoBound)...)
}

// fixed returns the shape and the number of rounds of a query about shuffles of a fixed
// number of reports.
func fixed(parts []part) (part, error) {
	s := parts[0].shape
	switch {
	case len(parts) != 1:
		return part{}, refuse("stated for rounds that are alike")
	case !s.trust.Shuffled():
		return part{}, refuse("stated for shuffled reports")
	case s.rate > 0:
		return part{}, refuse("stated for a fixed number k of reports, here it is up to chance")
	}
	return parts[0], nil
}

// unsampled is fixed for queries in which every client is in every round.
func unsampled(parts []part) (part, error) {
	p, err := fixed(parts)
	if err == nil && p.shape.included < p.shape.population {
		return part{}, refuse("stated without sampling, here k = %d of n = %d", p.shape.reports, p.shape.population)
	}
	return p, err
}

// chance returns the mixture over k of self check-in and of drop-outs.
func chance(parts []part) (literature.CheckInRenyiConfig, int64, error) {
	s := parts[0].shape
	switch {
	case len(parts) != 1:
		return literature.CheckInRenyiConfig{}, 0, refuse("stated for rounds that are alike")
	case !s.trust.Shuffled():
		return literature.CheckInRenyiConfig{}, 0, refuse("stated for shuffled reports")
	case !(s.rate > 0):
		return literature.CheckInRenyiConfig{}, 0, refuse("stated for clients who flip coins, here k is fixed")
	case s.colluders > 0:
		return literature.CheckInRenyiConfig{}, 0, refuse("stated without colluders among those who are drawn")
	}
	return literature.CheckInRenyiConfig{Eps0: s.eps0, Population: s.population, Asked: s.asked, Gamma: s.rate}, parts[0].times, nil
}

// oneShuffle returns δ of one shuffle as a function of ε, with a note; or an error that says
// why there is none.
type oneShuffle func(q Query, s shape) (delta func(eps float64) float64, note string, err error)

func clonesClosed(_ Query, s shape) (func(float64) float64, string, error) {
	return func(eps float64) float64 { return literature.ClonesClosed(s.eps0, s.reports, eps) }, "", nil
}

func clonesNumeric(_ Query, s shape) (func(float64) float64, string, error) {
	delta, err := clonesCurve(s.eps0, s.reports)
	return delta, "", err
}

func clonesCurve(eps0 float64, reports int64) (func(float64) float64, error) {
	c, err := amplify.NewCurve(amplify.RoundConfig{Eps0: eps0, Population: reports, Reports: reports, Rate: amplify.Clones(eps0)})
	if err != nil {
		return nil, err
	}
	return c.Delta, nil
}

// symbolsOf returns K of a query's randomizer, 0 for any randomizer.
func symbolsOf(q Query) int {
	switch q.withDefaults().Class {
	case dp.BinaryRR:
		return 2
	case dp.KRR:
		return q.Symbols
	}
	return 0
}

func balle(delta func(b *literature.Blanketed, eps float64) float64) oneShuffle {
	return func(q Query, s shape) (func(float64) float64, string, error) {
		b, err := literature.NewBlanketed(s.eps0, s.reports, symbolsOf(q))
		if err != nil {
			return nil, "", err
		}
		return func(eps float64) float64 { return delta(b, eps) }, "", nil
	}
}

// balleReports is the number of reports up to which the blanket of K > 2 symbols can be
// summed in some ten milliseconds.
const balleReports = 256

func balleExact(q Query, s shape) (func(float64) float64, string, error) {
	symbols := symbolsOf(q)
	switch {
	case symbols == 0:
		return nil, "", refuse("needs a given randomizer: K-ary randomized response")
	case symbols == 2:
		// The blanket of two symbols is the clones pair of rate 2/(E+1).
		c, err := amplify.NewCurve(amplify.RoundConfig{Eps0: s.eps0, Population: s.reports, Reports: s.reports, Rate: amplify.Blanket(s.eps0)})
		if err != nil {
			return nil, "", err
		}
		return c.Delta, "", nil
	case s.reports > balleReports:
		return nil, "", refuse("a sum over the outcomes of k = %d reports, above %d, takes too long", s.reports, balleReports)
	}
	b, err := literature.NewBlanketed(s.eps0, s.reports, symbols)
	if err != nil {
		return nil, "", err
	}
	return func(eps float64) float64 {
		d, err := b.ExactDelta(eps)
		if err != nil {
			return 1
		}
		return d
	}, "", nil
}

func erlingsson(_ Query, s shape) (func(float64) float64, string, error) {
	if _, err := literature.Erlingsson2019(s.eps0, s.reports, 0); err != nil {
		return nil, "", err
	}
	return func(eps float64) float64 {
		d, err := literature.Erlingsson2019(s.eps0, s.reports, eps)
		if err != nil {
			return 1
		}
		return d
	}, "constants as published, proof not checked", nil
}

func feldman2023(_ Query, s shape) (func(float64) float64, string, error) {
	return func(eps float64) float64 { return literature.Feldman2023(s.eps0, s.reports, eps) },
		"its proof was withdrawn by an erratum; blanket-pld proves more", nil
}

// strong composes one shuffle's (ε, δ) guarantees, after sampling.
func strong(one oneShuffle, exact bool) computation {
	return func(_ *engine, q Query, parts []part) (float64, float64, float64, string, error) {
		p, err := fixed(parts)
		if err != nil {
			return 0, 0, 0, "", err
		}
		delta, note, err := one(q, p.shape)
		if err != nil {
			return 0, 0, 0, "", err
		}
		eps, d, err := compose(q, literature.Strong{Eps0: p.shape.eps0, Delta: delta,
			Gamma: float64(p.shape.included) / float64(p.shape.population), Rounds: p.times, Exact: exact})
		return eps, d, 0, note, err
	}
}

// compose answers a query by strong composition.
func compose(q Query, c literature.Strong) (eps, delta float64, err error) {
	if q.AskDelta {
		if delta = c.DeltaAt(q.Eps); !(delta < 1) {
			return 0, 0, refuse("composition shows no delta below 1 at epsilon = %v", q.Eps)
		}
		return q.Eps, delta, nil
	}
	eps, err = c.Epsilon(q.Delta)
	return eps, q.Delta, err
}

// checkInStrong is strong composition of self check-in. Outside a window of k a round counts
// as lost; inside it a round has the shuffle of the smallest k and the inclusion of the
// largest.
func checkInStrong(exact bool) computation {
	return func(_ *engine, q Query, parts []part) (float64, float64, float64, string, error) {
		c, times, err := chance(parts)
		if err != nil {
			return 0, 0, 0, "", err
		}
		best, bestDelta := math.Inf(1), math.Inf(1)
		var last error
		try := func(lost float64) {
			lo, hi := literature.CheckInWindow(c.Asked, c.Gamma, lost)
			if hi == 0 {
				return
			}
			delta, err := clonesCurve(c.Eps0, max(1, lo))
			if err != nil {
				last = err
				return
			}
			eps, d, err := compose(q, literature.Strong{Eps0: c.Eps0, Delta: delta, Gamma: float64(hi) / float64(c.Population),
				Rounds: times, Lost: lost, Exact: exact})
			switch {
			case err != nil:
				last = err
			case eps < best || eps == best && d < bestDelta:
				best, bestDelta = eps, d
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
		if math.IsInf(best, 1) {
			if last == nil {
				last = refuse("no window of k shows a bound")
			}
			return 0, 0, 0, "", last
		}
		return best, bestDelta, 0, "", nil
	}
}

// maxOrder bounds the integer orders to try.
const maxOrder = 1 << 14

// integerOrders converts a Rényi curve that exists at integer orders, composed times times.
func integerOrders(q Query, times int64, bound func(order int) (float64, error)) (eps, delta, order float64, note string, err error) {
	return ordersUpTo(maxOrder, q, times, bound)
}

func ordersUpTo(top int, q Query, times int64, bound func(order int) (float64, error)) (eps, delta, order float64, note string, err error) {
	at := func(lambda int) (float64, error) {
		d, err := bound(lambda)
		d *= float64(times)
		if q.AskDelta {
			return rdp.DeltaAt(float64(lambda), d, q.Eps), err
		}
		return rdp.Epsilon(float64(lambda), d, q.Delta), err
	}
	best, lambda := math.Inf(1), 0
	try := func(l int) error {
		v, err := at(l)
		if err == nil && v < best {
			best, lambda = v, l
		}
		return err
	}
	// Every order is valid, so an order that the search skips only makes the bound looser.
	// Orders grow by an eighth, then by ever smaller steps around the best.
	for l := 2; l <= top && l <= 4*lambda+64; l += max(1, l/8) {
		if err := try(l); err != nil {
			return 0, 0, 0, "", err
		}
	}
	for step := lambda / 16; step > 0; step /= 2 {
		for _, l := range []int{lambda - step, lambda + step} {
			if l < 2 {
				continue
			}
			if err := try(l); err != nil {
				return 0, 0, 0, "", err
			}
		}
	}
	if math.IsInf(best, 1) {
		return 0, 0, 0, "", refuse("no order gives a finite epsilon")
	}
	if q.AskDelta {
		return q.Eps, best, float64(lambda), "", nil
	}
	return best, q.Delta, float64(lambda), "", nil
}

func gddskWBK(sampled func(s *literature.ShuffleRenyi, gamma float64, order int) (float64, error)) computation {
	return func(_ *engine, q Query, parts []part) (float64, float64, float64, string, error) {
		p, err := fixed(parts)
		if err != nil {
			return 0, 0, 0, "", err
		}
		s, err := literature.NewShuffleRenyi(p.shape.eps0, p.shape.reports)
		if err != nil {
			return 0, 0, 0, "", err
		}
		gamma := float64(p.shape.included) / float64(p.shape.population)
		// The bound at an order needs all lower orders, so the time grows with the square.
		return ordersUpTo(1<<10, q, p.times, func(order int) (float64, error) { return sampled(s, gamma, order) })
	}
}

// directReports is the number of reports up to which the clones pair is summed outcome by
// outcome.
const directReports = 64

func eabTheorem1(e *engine, q Query, parts []part) (float64, float64, float64, string, error) {
	p, err := unsampled(parts)
	if err != nil {
		return 0, 0, 0, "", err
	}
	s := p.shape
	curve := rdp.Curve(func(order float64) float64 {
		m, err := literature.ShuffledMoment(s.eps0, s.reports, amplify.Clones(s.eps0), order)
		if err != nil {
			return math.Inf(1)
		}
		return float64(p.times) * m / (order - 1)
	})
	note := ""
	if s.reports > directReports {
		pair, err := e.pair(s, fmt22)
		if err != nil {
			return 0, 0, 0, "", err
		}
		note = "outcomes merged, 5e-5 of epsilon above the sum"
		curve = func(order float64) float64 { return float64(p.times) * rdp.Divergence(pair, order) }
	}
	return convert(q, curve, note)
}

// convert answers a query from a Rényi curve at real orders.
func convert(q Query, curve rdp.Curve, note string) (float64, float64, float64, string, error) {
	if q.AskDelta {
		return q.Eps, rdp.Delta(curve, q.Eps), 0, note, nil
	}
	eps, order := rdp.Minimize(curve, q.Delta)
	if math.IsInf(eps, 1) || math.IsNaN(eps) {
		return 0, 0, 0, "", refuse("no order gives a finite epsilon")
	}
	return eps, q.Delta, order, note, nil
}

// gdpApprox is EAB's Gaussian limit, converted exactly or by its Rényi curve.
func gdpApprox(renyi bool) computation {
	return func(_ *engine, q Query, parts []part) (float64, float64, float64, string, error) {
		p, err := unsampled(parts)
		if err != nil {
			return 0, 0, 0, "", err
		}
		g, err := literature.LaplaceSGD(p.shape.eps0, p.shape.reports, p.times)
		if err != nil {
			return 0, 0, 0, "", err
		}
		const note = "a limit law: can be far too small"
		switch {
		case renyi:
			return convert(q, g.Renyi, note)
		case q.AskDelta:
			return q.Eps, g.Delta(q.Eps), 0, note, nil
		}
		return g.Epsilon(q.Delta), q.Delta, 0, note, nil
	}
}

func sciTheorem1(printed bool) computation {
	return func(_ *engine, q Query, parts []part) (float64, float64, float64, string, error) {
		c, times, err := chance(parts)
		if err != nil {
			return 0, 0, 0, "", err
		}
		bound, err := literature.SCITheorem1(c, printed)
		if err != nil {
			return 0, 0, 0, "", err
		}
		eps, delta, order, _, err := integerOrders(q, times, bound)
		note := ""
		if printed {
			note = "inclusion gamma in place of k/n: unsound"
		}
		return eps, delta, order, note, err
	}
}

// bestDelta searches SCI's Δ: first orders at one Δ, then Δ at the best order, then orders
// once more. Fewer than (1−Δ)nγ reports arrive with probability at most e^-x.
func bestDelta(q Query, times int64, mean float64, bound func(Delta float64) (literature.RenyiOrders, error)) (eps, delta, order float64, note string, err error) {
	deltaOf := func(x float64) float64 { return math.Min(1, math.Sqrt(2*x/mean)) }
	search := func(x float64) (float64, float64, float64, error) {
		b, err := bound(deltaOf(x))
		if err != nil {
			return 0, 0, 0, err
		}
		e, d, o, _, err := ordersUpTo(1<<11, q, times, b)
		return e, d, o, err
	}
	best := 40.
	eps, delta, order, err = search(best)
	if err != nil && !errors.Is(err, dp.ErrNoBound) {
		return 0, 0, 0, "", err
	}
	at, least := math.Max(2, order), math.Inf(1)
	for x := 4.; x < 4000; x *= 1.25 {
		b, err := bound(deltaOf(x))
		if err != nil {
			return 0, 0, 0, "", err
		}
		if d, err := b(int(at)); err == nil && d < least {
			best, least = x, d
		}
	}
	if e, d, o, err2 := search(best); err2 == nil && (err != nil || e < eps || e == eps && d < delta) {
		eps, delta, order, err = e, d, o, nil
	} else if err != nil {
		return 0, 0, 0, "", err
	}
	return eps, delta, order, "", nil
}

func sciTheorem2(_ *engine, q Query, parts []part) (float64, float64, float64, string, error) {
	c, times, err := chance(parts)
	if err != nil {
		return 0, 0, 0, "", err
	}
	return bestDelta(q, times, float64(c.Asked)*c.Gamma, func(d float64) (literature.RenyiOrders, error) { return literature.SCITheorem2(c, d) })
}

func sciTheorem2Printed(_ *engine, q Query, parts []part) (float64, float64, float64, string, error) {
	c, times, err := chance(parts)
	if err != nil {
		return 0, 0, 0, "", err
	}
	eps, delta, order, _, err := bestDelta(q, times, float64(c.Asked)*c.Gamma, func(d float64) (literature.RenyiOrders, error) {
		return func(order int) (float64, error) { return literature.SCITheorem2Printed(c, d, order) }, nil
	})
	return eps, delta, order, "misprinted: unsound", err
}

func sciTheorem3(_ *engine, q Query, parts []part) (float64, float64, float64, string, error) {
	c, times, err := chance(parts)
	if err != nil {
		return 0, 0, 0, "", err
	}
	eps, delta, order, _, err := integerOrders(q, times, func(order int) (float64, error) { return literature.SCITheorem3(c, order) })
	return eps, delta, order, "a lower bound on the divergence, not on epsilon after conversion", err
}

func erlingssonRenyi(_ *engine, q Query, parts []part) (float64, float64, float64, string, error) {
	p, err := unsampled(parts)
	if err != nil {
		return 0, 0, 0, "", err
	}
	return convert(q, func(order float64) float64 {
		return float64(p.times) * literature.ErlingssonRenyi(p.shape.eps0, p.shape.reports, order)
	}, "constants as quoted, proof not checked")
}
