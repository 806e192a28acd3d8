package account

import (
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/account/certificate"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/pld"
)

const (
	// certifyLosses bounds the losses of either sign that are listed: the checker takes some 50 µs for each of them and
	// each number of reports.
	certifyLosses = 1500
	// certifyTop is the largest loss of either sign that is listed. A certificate takes losses up to 100.
	certifyTop = 99
	// certifyMostGrow bounds what certifyGrow's counterpart, for losses above 0, may be.
	certifyMostGrow = 1e-4
)

// certifyRemoval makes a certificate by gauss-remove-pld: both orders of the neighbours, on one grid.
func certifyRemoval(d *certificate.Document, q Query, p part) error {
	delta := q.Delta
	if q.AskDelta {
		found, err := removePLDMethod(nil, q, []part{p})
		if err != nil {
			return err
		}
		delta = math.Min(found.delta*(1+certifyDelta), .999)
	}
	infinite := math.Max(dropShare*delta/float64(p.times), certifyInfinite)
	if !(infinite*float64(p.times) <= .1*delta) {
		return fmt.Errorf("account: delta = %v over %d rounds is too small for a certificate: %w", delta, p.times, dp.ErrNoBound)
	}
	pairs, err := listedPairs(p, infinite/4)
	if err != nil {
		return err
	}
	fraction := .03
	switch {
	case p.times == 1:
		fraction = .01
	case p.times > 1e4:
		fraction = .05
	}
	step, top, tilts := math.Inf(1), 0., [2]float64{}
	for i, pair := range pairs {
		x, tilt, err := directedGrid(pair, p.times, delta, fraction)
		if err != nil {
			return err
		}
		step, top, tilts[i] = math.Min(step, x), math.Max(top, topLoss(pair)), tilt
	}
	step = math.Max(math.Min(step, .5), top/certifyLosses)
	claim := certificate.Claim{Method: certificate.RemovePLD, Eps: q.Eps, Delta: delta}
	var composed [2]ordered
	var rounds [2]certificate.Round
	for i, pair := range pairs {
		loss, err := certifyDirected(pair, step)
		if err != nil {
			return err
		}
		// A grid may be much coarser than its pair, and a certificate takes tilts up to 1,000 by the largest loss.
		c, err := pld.Compose([]pld.Part{{Loss: loss, Times: p.times}}, math.Min(tilts[i], 800/(topLoss(pair)+2*step)))
		if err != nil {
			return err
		}
		var high float64
		for j, mass := range loss.Upper {
			if mass > 0 {
				high = float64(j) * step
			}
		}
		composed[i] = inOrder(c, p.times, high, loss.Infinite)
		if q.AskDelta {
			claim.Delta = math.Min(.999, math.Max(claim.Delta, composed[i].Delta(q.Eps)*(1+certifyDelta)))
		} else {
			claim.Eps = math.Max(claim.Eps, composed[i].Epsilon(delta)*(1+certifyMargin))
		}
		rounds[i] = directedRound(loss, p.times, pair.Missing)
	}
	var accounts [2]certificate.Composition
	for i := range composed {
		if accounts[i], err = accountOf(composed[i].Composed, claim, step); err != nil {
			return err
		}
	}
	d.Claim = claim
	d.Round, d.Composition = &rounds[0], &accounts[0]
	d.Reverse = &certificate.Order{Round: rounds[1], Composition: accounts[1]}
	return nil
}

// listedPairs returns the pairs of a round in both orders, without losses that are too large for a certificate and others
// of some times the mass spare.
func listedPairs(p part, spare float64) (pairs [2]dp.Directed, err error) {
	if pairs, err = removalPairs(p, spare); err != nil {
		return pairs, err
	}
	for i := range pairs {
		pair := &pairs[i]
		pair.Atoms = slices.DeleteFunc(pair.Atoms, func(a dp.Atom) bool {
			if math.Abs(a.Loss) <= certifyTop {
				return false
			}
			pair.Dropped += a.Q * math.Exp(a.Loss) * (1 + 1e-9)
			pair.Missing += a.Q * (1 + 1e-9)
			return true
		})
		if len(pair.Atoms) == 0 || pair.Dropped > .4 {
			return pairs, fmt.Errorf("account: a certificate takes losses up to %v, and those of a round are larger with probability %v: %w", certifyTop, pair.Dropped, dp.ErrNoBound)
		}
	}
	return pairs, nil
}

// certifyDirected puts a pair on a grid, with its losses of either sign enlarged: those below 0 by certifyGrow, those above
// by as much more as keeps the mass under the second law, so that none has to be taken from losses below 0 to make its
// masses add to 1. Infinite losses take their share from all others, which only raises δ.
func certifyDirected(pair dp.Directed, step float64) (pld.Loss, error) {
	pair.Dropped = math.Max(pair.Dropped*(1+1e-8), certifyInfinite)
	var mass, above, below float64 // under the first law; E L⁺ and E L⁻ under the second
	for _, a := range pair.Atoms {
		mass += a.Q * math.Exp(a.Loss)
		above += a.Q * math.Max(0, a.Loss)
		below += a.Q * math.Max(0, -a.Loss)
	}
	down, up := certifyGrow, certifyGrow
	if wanted := certifyGrow * below / above; wanted > up {
		up = math.Min(wanted, certifyMostGrow)
		down *= up / wanted
	}
	scale := math.Min(1, (1-pair.Dropped*(1+1e-7)-1e-12)/mass)
	atoms := make([]dp.Atom, len(pair.Atoms))
	for i, a := range pair.Atoms {
		grow := up
		if a.Loss < 0 {
			grow = down
		}
		// Its mass under the first law stays.
		atoms[i] = dp.Atom{Q: a.Q * scale * math.Exp(-grow*a.Loss), Loss: a.Loss * (1 + grow)}
	}
	pair.Atoms = atoms
	return pld.Direct(pair, step)
}

// directedRound returns a directed loss as a certificate lists it. What balances its masses is a loss far down, but
// not so far that it carries next to nothing of the difference of the two laws. least is the least mass that is missing under the second law.
func directedRound(loss pld.Loss, times int64, least float64) certificate.Round {
	out := certificate.Round{Step: loss.Step, Infinite: loss.Infinite, Times: times, Clones: 1}
	for j := range loss.Upper[1:] {
		x := float64(j+1) * loss.Step
		out.Q = append(out.Q, loss.Upper[j+1]*math.Exp(-x))
		out.Lower = append(out.Lower, loss.Lower[j+1]*math.Exp(x))
	}
	shorten := func(masses []float64) []float64 {
		for len(masses) > 1 && masses[len(masses)-1] == 0 {
			masses = masses[:len(masses)-1]
		}
		return masses
	}
	out.Q, out.Lower = shorten(out.Q), shorten(out.Lower)
	weight := func(j int) float64 { return out.Lower[j-1] * -math.Expm1(-float64(j)*loss.Step) }
	var most float64
	for j := range out.Lower {
		most = math.Max(most, weight(j+1))
	}
	for out.Balance = len(out.Lower); out.Balance > 1 && weight(out.Balance) < 1e-3*most; {
		out.Balance--
	}
	out.Missing = loss.Infinite
	for j, q := range out.Q {
		out.Missing += q * math.Expm1(float64(j+1)*loss.Step)
	}
	for j, q := range out.Lower {
		out.Missing += q * math.Expm1(-float64(j+1)*loss.Step)
	}
	if most < 1e-13 {
		out.Missing -= 1e-13 // no loss below 0 has a mass: one gets enough to pay for rounding
	}
	out.Missing = math.Max(out.Missing, least)
	out.Lower[out.Balance-1] = 0
	return out
}
