package account

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/amplify/literature"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// Gaussian reports: each client clips its vector to ℓ2 norm 1 and adds N(0, σ²) to every
// coordinate. They are not ε₀-LDP for any ε₀, so they have methods of their own, and the
// other methods do not apply to them.

// Sums to which others add the noise count as reports seen apart do: a client is hidden by one σ,
// however many report.

// apart says whether the noise that hides a client does not grow with the number of reports:
// they are seen one by one, or others add it to their sum.
func (s shape) apart() bool { return !s.trust.Is(dp.SumsOnly) || s.class == dp.GaussianSum }

// gaussian says whether reports, or their sums, have Gaussian noise.
func gaussian(c dp.Class) bool { return c == dp.Gaussian || c == dp.GaussianSum }

// gaussianPair is the dominating pair of a round of Gaussian reports. Shuffled
// ones count as sampled only: shuffling is post-processing.
func (s shape) gaussianPair(rough bool) (dp.Pair, error) {
	if s.least > 0 {
		return amplify.GaussianAttendance(s.sigma, s.attendance(), s.apart())
	}
	if s.gamma > 0 {
		c := s.gaussianArrival()
		c.Rough = rough
		return amplify.GaussianArrival(c)
	}
	return amplify.Gaussian(s.gaussianConfig())
}

func (s shape) gaussianConfig() amplify.GaussianConfig {
	return amplify.GaussianConfig{Sigma: s.sigma, Population: s.population, Reports: s.reports, Included: s.included, Apart: s.apart()}
}

func (s shape) gaussianArrival() amplify.GaussianArrivalConfig {
	return amplify.GaussianArrivalConfig{Sigma: s.sigma, Population: s.population, Asked: s.asked, Gamma: s.gamma, Apart: s.apart(), Colluders: s.colluders}
}

func anyGaussian(parts []part) bool {
	return slices.ContainsFunc(parts, func(p part) bool { return p.shape.sigma > 0 })
}

// gaussianExact returns the closed form for Gaussian rounds: any number of rounds without
// sampling, or a single round; otherwise nil.
func gaussianExact(parts []part) *curve {
	var mus []gdp.Mu
	for _, p := range parts {
		s := p.shape
		if s.sigma == 0 || s.gamma > 0 || s.least > 0 {
			return nil
		}
		if s.included < s.population {
			if len(parts) > 1 || p.times > 1 {
				return nil
			}
			c, err := s.gaussianConfig().Curve()
			if err != nil {
				return nil
			}
			return &curve{c.Delta, c.Epsilon}
		}
		k := s.reports
		if s.apart() {
			k = 1
		}
		mus = append(mus, amplify.GaussianMu(s.sigma, k).Repeat(p.times))
	}
	mu := gdp.Compose(mus...)
	return &curve{mu.Delta, func(delta float64) (float64, error) { return mu.Epsilon(delta), nil }}
}

// withGaussian returns the better of a bound and the bounds that hold only if the composition
// has Gaussian reports.
func (e *engine) withGaussian(best dp.Bound, parts []part, delta float64) (dp.Bound, error) {
	if !anyGaussian(parts) {
		return best, nil
	}
	switch best.Method {
	case "blanket-pld":
		best.Method, best.Source = "gauss-pld", gaussSource+"; composed as privacy-loss distributions"
	case "blanket-rdp":
		best.Method, best.Source = "gauss-rdp", gaussSource+"; Rényi divergence at real orders"
	}
	if slices.ContainsFunc(parts, func(p part) bool { return p.shape.sigma > 0 && p.shape.trust.Is(dp.Shuffled) }) {
		eps, _, err := e.approxEps(parts, delta, best.Eps)
		switch {
		case err == nil && eps < best.Eps:
			best = proved("shuffle-approx-ldp", eps, delta, approxSource)
		case err != nil && !errors.Is(err, dp.ErrNoBound):
			return dp.Bound{}, err
		}
	}
	if math.IsInf(best.Eps, 1) {
		return dp.Bound{}, fmt.Errorf("account: no finite epsilon for Gaussian reports at delta = %v: %w", delta, dp.ErrNoBound)
	}
	return best, nil
}

// approximated replaces shuffled Gaussian reports by ε₀-LDP ones, each within tv of them in
// total variation. It also returns their expected number: dp/amplify/approx.md.
func approximated(parts []part, tv float64) (out []part, reports float64, err error) {
	for _, p := range parts {
		s := p.shape
		if s.sigma > 0 && s.trust.Is(dp.Shuffled) {
			k := float64(s.included)
			switch {
			case s.least > 0 && s.gamma > 0:
				return nil, 0, refuse("nobody knows how many reports there are")
			case s.least > 0:
				k = float64(s.asked)
			case s.gamma > 0:
				k = float64(s.asked) * s.gamma * (1 + 1e-15)
			}
			reports += k * float64(p.times)
			if tv > 0 {
				s.eps0, s.sigma, s.class = amplify.GaussianEps0(s.sigma, tv), 0, dp.Generic
				if math.IsInf(s.eps0, 1) {
					return nil, 0, fmt.Errorf("account: no eps0 up to %d is within %.3g of a Gaussian report of sigma = %v: %w", dp.MaxEps0, tv, p.shape.sigma, dp.ErrNoBound)
				}
			}
		}
		out = append(out, part{s, p.times})
	}
	return out, reports * (1 + 1e-12), nil
}

// approxEps bounds ε of shuffled Gaussian reports by that of ε₀-LDP ones. most is the best
// bound without it, +Inf if there is none; a larger ε is refused.
func (e *engine) approxEps(parts []part, delta, most float64) (eps, eps0 float64, err error) {
	_, reports, err := approximated(parts, 0)
	if err != nil {
		return 0, 0, err
	}
	// The charge (1 + e^ε)·reports·tv takes a share of δ. It has to cover ε only up to a
	// guess, which the answer must then not exceed.
	guess, eps := math.Min(most, dp.MaxEps0), math.Inf(1)
	for _, share := range []float64{.05, .05, .2, .01} {
		tv := share * delta / (reports * (1 + math.Exp(guess))) * (1 - 1e-12)
		replaced, _, failed := approximated(parts, tv)
		if failed == nil {
			var try float64
			try, failed = e.pldEps(replaced, blanket, delta*(1-share)*(1-1e-15))
			if failed == nil && try <= guess && try < eps {
				eps, eps0 = try, largestEps0(replaced)
				guess = math.Min(guess, eps*1.01)
			}
		}
		if failed != nil && !errors.Is(failed, dp.ErrNoBound) {
			return 0, 0, failed
		}
		if math.IsInf(eps, 1) {
			if failed == nil {
				failed = fmt.Errorf("account: shuffling %g Gaussian reports hides no more than their own noise does, epsilon = %.4g: %w", reports, most, dp.ErrNoBound)
			}
			return 0, 0, failed
		}
	}
	return eps, eps0, nil
}

func largestEps0(parts []part) (eps0 float64) {
	for _, p := range parts {
		eps0 = math.Max(eps0, p.shape.eps0)
	}
	return eps0
}

// approxDelta is approxEps for δ at eps.
func (e *engine) approxDelta(parts []part, eps, most float64) (delta, eps0 float64, err error) {
	_, reports, err := approximated(parts, 0)
	if err != nil {
		return 0, 0, err
	}
	at := func(charge float64, of func([]part, clones, float64) (float64, error)) (float64, []part, error) {
		replaced, _, err := approximated(parts, charge/(reports*(1+math.Exp(eps)))*(1-1e-12))
		if err != nil {
			return 1, nil, err
		}
		d, err := of(replaced, blanket, eps)
		return math.Min(1, (d+charge)*(1+1e-15)), replaced, err
	}
	// Rényi divergences find a nearly best charge; any charge is sound.
	best, charge := math.Inf(1), 0.
	for c := -1.; c > -300; c *= 1.15 {
		d, _, err := at(math.Pow(10, c), e.rdpDelta)
		if err == nil && d < best {
			best, charge = d, math.Pow(10, c)
		}
		if err != nil && !errors.Is(err, dp.ErrNoBound) {
			return 0, 0, err
		}
		if err != nil || d > 10*best {
			break
		}
	}
	delta = math.Inf(1)
	for _, c := range []float64{charge, charge / 10, charge / 100} {
		if c == 0 {
			continue
		}
		d, replaced, err := at(c, e.pldDelta)
		if err == nil && d < delta {
			delta, eps0 = d, largestEps0(replaced)
		}
	}
	if !(delta < most) {
		return 0, 0, fmt.Errorf("account: shuffling %g Gaussian reports hides no more than their own noise does, delta = %.4g: %w", reports, most, dp.ErrNoBound)
	}
	return delta, eps0, nil
}

// gaussianPLD computes the method gauss-pld.
func gaussianPLD(e *engine, q Query, parts []part) (answer, error) {
	if q.AskDelta {
		delta, err := e.gaussianDelta(parts, q.Eps)
		return answer{eps: q.Eps, delta: delta, note: apartNote(parts)}, err
	}
	eps, err := e.pldEps(parts, blanket, q.Delta)
	return answer{eps: eps, delta: q.Delta, note: apartNote(parts)}, err
}

// gaussianRDP computes the method gauss-rdp.
func gaussianRDP(e *engine, q Query, parts []part) (answer, error) {
	out, err := rdpMethod(blanket)(e, q, parts)
	out.note = apartNote(parts)
	return out, err
}

// gaussianDelta is pldDelta for Gaussian reports. A rare round of few reports may make the
// Rényi δ, with which pldDelta starts, far too large; gaussianDelta then continues to the δ
// at which ε meets eps.
func (e *engine) gaussianDelta(parts []part, eps float64) (float64, error) {
	delta, err := e.pldDelta(parts, blanket, eps)
	if err != nil {
		return 0, err
	}
	meets := func(d float64) bool {
		at, err := e.pldEps(parts, blanket, d)
		return err == nil && at <= eps
	}
	if delta < 1 && (delta < 1e-280 || !meets(delta/3)) {
		return delta, nil
	}
	good, bad := math.Log(delta), math.Inf(-1)
	for step := 2.; math.IsInf(bad, -1); step *= 2 {
		if next := good - step; next < -640 || !meets(math.Exp(next)) {
			bad = math.Max(next, -700)
		} else {
			good = next
		}
	}
	for good-bad > .05 {
		if mid := good + (bad-good)/2; meets(math.Exp(mid)) {
			good = mid
		} else {
			bad = mid
		}
	}
	return math.Min(delta, math.Exp(good)), nil
}

func apartNote(parts []part) string {
	if s := parts[0].shape; s.trust.Is(dp.Shuffled) {
		return "counts sampling, not shuffling"
	}
	return ""
}

// approxMethod computes shuffle-approx-ldp.
func approxMethod(e *engine, q Query, parts []part) (answer, error) {
	if !parts[0].shape.trust.Is(dp.Shuffled) {
		return answer{}, refuse("for shuffled reports; trust is %s", parts[0].shape.trust)
	}
	out := answer{eps: q.Eps, delta: q.Delta}
	var eps0 float64
	var err error
	if q.AskDelta {
		most, failed := e.gaussianDelta(parts, q.Eps)
		if failed != nil {
			most = 1
		}
		out.delta, eps0, err = e.approxDelta(parts, q.Eps, most)
	} else {
		most, failed := e.pldEps(parts, blanket, q.Delta)
		if failed != nil {
			most = math.Inf(1)
		}
		out.eps, eps0, err = e.approxEps(parts, q.Delta, most)
	}
	out.note = fmt.Sprintf("eps0 = %.4g", eps0)
	return out, err
}

// strongMethod computes gauss-strong: an (ε, δ) of one round that holds for all but a few k,
// composed by the closed form.
func strongMethod(_ *engine, q Query, parts []part) (answer, error) {
	s, times := parts[0].shape, float64(parts[0].times)
	if q.AskDelta {
		return answer{}, refuse("stated for epsilon at a given delta")
	}
	best := math.Inf(1)
	for _, outside := range []float64{.01, .1} {
		lo, hi, spare := s.reports, s.included, 1.
		if s.gamma > 0 {
			// k lies below lo or above hi with probability δ₁ + δ₂ a round.
			each := outside * q.Delta / (2 * times)
			lo, hi = tail.Window(s.asked, s.gamma, 1-s.gamma, each, each)
			lo, spare = max(1, lo), 1-outside
		}
		// The sampled curve rises as k falls and as inclusion grows.
		curve, err := amplify.GaussianConfig{Sigma: s.sigma, Population: s.population, Reports: lo,
			Included: max(lo, hi), Apart: s.apart()}.Curve()
		if err != nil {
			return answer{}, err
		}
		for x := -8.; x <= -.25; x += .25 { // the composition's own share of δ, as an exponent
			for _, share := range []float64{math.Pow(2, x), 1 - math.Pow(2, x)} {
				slack := share * spare * q.Delta
				each := (1 - share) * spare * q.Delta / times * (1 - 1e-12)
				if eps, err := curve.Epsilon(each); err == nil {
					best = math.Min(best, literature.Repeated{Eps: eps, Rounds: int64(times)}.Epsilon(slack))
				}
			}
		}
	}
	if math.IsInf(best, 1) || math.IsNaN(best) {
		return answer{}, refuse("no finite epsilon")
	}
	return answer{eps: best, delta: q.Delta}, nil
}

// sciMixture is the divergence of literature.SCIEquation10, or of WBKGaussian if k is fixed.
func sciMixture(_ *engine, p part) (func(float64) (float64, error), error) {
	s := p.shape
	return func(order float64) (float64, error) {
		if s.gamma == 0 {
			return literature.WBKGaussian(s.gaussianConfig(), int(order))
		}
		return literature.SCIEquation10(s.gaussianArrival(), int(order), false)
	}, sumsOnly(p)
}

// sciEquation10 is literature.SCIEquation10 as printed.
func sciEquation10(c amplify.GaussianArrivalConfig, order int) (float64, error) {
	return literature.SCIEquation10(c, order, true)
}

// sciPrinted makes a method's divergence from a curve that is computed as SCI prints it. SCI
// states it for k ~ Bin(n, γ) only.
func sciPrinted(curve func(amplify.GaussianArrivalConfig, int) (float64, error)) divergence {
	return func(_ *engine, p part) (func(float64) (float64, error), error) {
		err := sumsOnly(p)
		if err == nil && p.shape.gamma == 0 {
			err = refuse("stated for self check-in")
		}
		return func(order float64) (float64, error) { return curve(p.shape.gaussianArrival(), int(order)) }, err
	}
}

func sumsOnly(p part) error {
	if !p.shape.trust.Is(dp.SumsOnly) {
		return refuse("for sums, trust %s", dp.AnyTrust(dp.SumsOnly))
	}
	if p.shape.class == dp.GaussianSum {
		return refuse("for noise in every report, not added to the sum")
	}
	return nil
}
