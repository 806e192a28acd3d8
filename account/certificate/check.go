package certificate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"

	"github.com/riffle-dp/riffle/dp"
)

// ErrRejected is wrapped by Verify's errors about a document whose claim it could
// not prove. The claim may still be true.
var ErrRejected = errors.New("not verified")

// Verdict has the numbers that Verify proved.
type Verdict struct {
	// Delta is an upper bound on δ at the claim's ε, rounded up; at most the
	// claimed one.
	Delta float64
	// Room is the least relative distance over the grid by which the listed pair's curve
	// stays above the protocol's curve.
	Room float64
}

// Verify proves the document's claim or returns an error. The error wraps ErrRejected if the
// proof fails or asks for too many steps, and ErrMalformed if the document is meaningless.
func (d Document) Verify(ctx context.Context) (Verdict, error) { return d.VerifyShowing(ctx, nil) }

// VerifyShowing is Verify that calls show with what is done of a part of its work, from any goroutine, one call at
// a time.
func (d Document) VerifyShowing(ctx context.Context, show func(part string, done, of int64)) (Verdict, error) {
	return d.verify(begin(ctx, show))
}

func (d Document) verify(ctx *work) (Verdict, error) {
	if err := d.validate(); err != nil {
		return Verdict{}, err
	}
	if err := d.Query.fitsSteps(); err != nil {
		return Verdict{}, err
	}
	if d.Claim.Method == RemovePLD {
		return d.verifyRemoval(ctx)
	}
	times := d.Query.Rounds
	if d.Query.Participation == dp.Once {
		times = 1 // batches are disjoint: a client is in only one of them
	}
	if d.Round == nil {
		return Verdict{}, d.verifyBasic(times)
	}
	if d.Round.Times != times {
		return Verdict{}, reject("%d rounds are composed %d times", times, d.Round.Times)
	}
	p := newPair(*d.Round)
	if err := d.verifyAccount(p); err != nil {
		return Verdict{}, err
	}
	room, err := d.verifyRound(ctx, p)
	if err != nil {
		return Verdict{}, err
	}
	delta, err := d.verifyComposition(ctx, p)
	if err != nil {
		return Verdict{}, err
	}
	return Verdict{Delta: delta, Room: room}, nil
}

func reject(format string, args ...any) error {
	return fmt.Errorf("certificate: %s: %w", fmt.Sprintf(format, args...), ErrRejected)
}

// verifyBasic checks a claim of pure composition: a round's loss is at most log(1 + γ(E−1)),
// with E = e^ε₀ and γ the largest possible share of clients in it.
func (d Document) verifyBasic(times int64) error {
	who := d.Query.reporters()
	gamma := quo(whole(who.asked), whole(who.n))
	most := add(real(1), mul(gamma, sub(exp(real(d.Query.Eps0)), real(1))))
	each := quo(real(d.Claim.Eps), whole(times))
	if each.Cmp(real(dp.MaxEps0)) <= 0 && exp(each).Cmp(mul(most, add(real(1), two(-200)))) < 0 {
		return reject("%d rounds have a larger pure epsilon", times)
	}
	return nil
}

// pair is the round that a document lists, from its smallest loss on, or, if it is symmetric, from
// loss 0 on. p[i] and q[i] are the masses of loss (low+i)·step; ratio[i] is e^{(low+i)·step}.
type pair struct {
	low         int
	ratio, p, q []*big.Float
	infinite    *big.Float
	symmetric   bool // each loss above 0 has a mirror image
}

func newPair(r Round) pair {
	out := pair{low: -len(r.Lower), infinite: real(r.Infinite), symmetric: len(r.Lower) == 0}
	out.ratio = ratios(real(r.Step), out.low, len(r.Lower)+1+len(r.Q))
	rest := sub(real(1), out.infinite)
	apart := sub(real(r.Missing), out.infinite) // by how much Q exceeds 1, if what is left has loss 0
	for i, ratio := range out.ratio {
		q := real(0)
		switch j := out.low + i; {
		case j > 0:
			q = real(r.Q[j-1])
		case j < 0:
			q = real(r.Lower[-j-1])
		}
		p := mul(ratio, q)
		rest, apart = sub(rest, p), add(apart, sub(q, p))
		if out.symmetric { // under P a loss has mass p, and the loss of opposite sign has mass q
			rest = sub(rest, q)
		}
		out.p, out.q = append(out.p, p), append(out.q, q)
	}
	if !out.symmetric {
		i := len(r.Lower) - r.Balance
		out.q[i] = quo(apart, sub(out.ratio[i], real(1)))
		out.p[i] = mul(out.ratio[i], out.q[i])
		rest = sub(rest, out.p[i])
	}
	out.p[-out.low], out.q[-out.low] = rest, rest // what is left has loss 0
	return out
}

// ratios lists e^{j·step} for so many j from low on.
func ratios(step *big.Float, low, count int) []*big.Float {
	grow := exp(step)
	out := []*big.Float{exp(mul(step, whole(int64(low))))}
	for len(out) < count {
		out = append(out, mul(out[len(out)-1], grow))
	}
	return out
}

// verifyRound checks that the listed pair dominates one round. For ε < 0 both have D(ε) = 1 − e^ε
// + e^ε·D(−ε), by symmetry.
func (d Document) verifyRound(ctx *work, p pair) (room float64, err error) {
	exact, err := d.curve(ctx, p.ratio)
	if err != nil {
		return 0, err
	}
	return d.Round.dominates(p, exact)
}

// dominates checks that a listed pair's hockey-stick divergences are at least the given ones, at
// its ratios. They are linear in g = e^ε between grid losses, below the first and from 1 at g = 0,
// and constant from the last on; a round's are convex and falling. So it is enough to compare them
// at grid losses.
func (r Round) dominates(p pair, exact []*big.Float) (room float64, err error) {
	if p.p[-p.low].Sign() < 0 {
		return 0, reject("the pair's masses add to more than 1")
	}
	if !p.symmetric && p.q[len(r.Lower)-r.Balance].Sign() < 0 {
		return 0, reject("no mass of loss %v balances the pair", -float64(r.Balance)*r.Step)
	}
	room = math.Inf(1)
	above, under := real(0), real(0) // P-mass and Q-mass of the finite losses beyond
	for i := len(exact) - 1; i >= 0; i-- {
		listed := add(p.infinite, sub(above, mul(p.ratio[i], under)))
		listed = mul(listed, sub(real(1), two(-200)))
		if listed.Cmp(exact[i]) < 0 {
			return 0, reject("at loss %.6g a round has divergence %.6g, the listed pair %.6g", float64(p.low+i)*r.Step, exact[i], listed)
		}
		gap, _ := sub(quo(listed, exact[i]), real(1)).Float64()
		room = math.Min(room, gap)
		above, under = add(above, p.p[i]), add(under, p.q[i])
	}
	return room, nil
}

// verifyComposition composes the listed pair and checks δ at the claimed ε.
func (d Document) verifyComposition(ctx *work, p pair) (float64, error) {
	times, delta := d.Round.Times, real(d.Claim.Delta)
	// Rounding adds one unit per cell and product, at most 2^18·times units in all: a share
	// of 2^-46 of δ.
	size := quo(whole(times), delta).MantExp(nil) + 64
	c := &composer{bits: uint((size + 63) / 64 * 64), step: real(d.Round.Step), times: times, top: mul(delta, two(-30))}
	base := law{low: int64(p.low), lost: c.fixed(p.infinite), rounds: 1}
	if p.symmetric {
		base.low = int64(1 - len(p.q))
		for j := len(p.q) - 1; j > 0; j-- {
			base.mass = append(base.mass, c.fixed(p.q[j]))
		}
	}
	for _, m := range p.p {
		base.mass = append(base.mass, c.fixed(m))
	}
	c.trim(&base)
	out, err := c.power(ctx, base)
	if err != nil {
		return 0, err
	}
	end := mul(real(d.Round.Step), whole(d.Composition.Low+d.Composition.Points))
	found := c.delta(out, real(d.Claim.Eps), end)
	if found.Cmp(delta) > 0 {
		return 0, reject("delta at epsilon %v is up to %.6g, above the claimed %v", d.Claim.Eps, found, d.Claim.Delta)
	}
	up, _ := new(big.Float).SetPrec(53).SetMode(big.ToPositiveInf).Set(found).Float64()
	return up, nil
}

// verifyAccount checks the writer's own account of the composition. The proof does not use
// it.
func (d Document) verifyAccount(p pair) error {
	r, w, times := d.Round, d.Composition, d.Round.Times
	// any is the probability that the loss is infinite in at least one of the rounds.
	any := sub(real(1), power(sub(real(1), p.infinite), times))
	// Untilting multiplies the error at ε by E[e^{tL}]^times·e^{−tε}.
	grow := exp(mul(real(w.Tilt), real(r.Step)))
	moment := p.infinite // the writer's moment counts the infinite mass at loss 0
	up := exp(mul(mul(real(w.Tilt), real(r.Step)), whole(int64(p.low))))
	for i, m := range p.p {
		moment = add(moment, mul(m, up))
		if p.symmetric && i > 0 {
			moment = add(moment, quo(p.q[i], up))
		}
		up = mul(up, grow)
	}
	untilt := quo(power(moment, times), exp(mul(real(w.Tilt), real(d.Claim.Eps))))
	wrapped, _ := mul(mul(real(w.Beyond), real(w.Inflation)), untilt).Float64()
	switch {
	case real(w.Truncation).Cmp(any) < 0:
		return reject("truncation is %.6g, above the stated %v", any, w.Truncation)
	case real(w.Splitting).Cmp(quo(mul(real(r.Step), real(r.Step)), real(4))) < 0:
		return reject("splitting is above the stated %v", w.Splitting)
	case math.IsInf(wrapped, 1) || !(math.Abs(w.WrapAround-wrapped) <= (1e-6+1e-13*float64(times))*wrapped):
		return reject("beyond, tilt and inflation make a wrap-around of %.6g, not %v", wrapped, w.WrapAround)
	case w.Total != w.Window+w.Truncation+w.WrapAround+w.RoundOff:
		return reject("the terms of delta do not add to %v", w.Total)
	case !(w.Total <= d.Claim.Delta):
		return reject("the terms of delta add to %v, above the claimed %v", w.Total, d.Claim.Delta)
	case !(float64(w.Low)*r.Step <= d.Claim.Eps) || p.symmetric && d.Claim.Eps > float64(w.Low+w.Points)*r.Step:
		// Of two orders of neighbours that are not alike one may have no loss as large.
		return reject("epsilon %v lies outside the window", d.Claim.Eps)
	}
	return nil
}
