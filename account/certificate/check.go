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
// proof fails, and ErrMalformed if the document is meaningless.
func (d Document) Verify(ctx context.Context) (Verdict, error) {
	if err := d.validate(); err != nil {
		return Verdict{}, err
	}
	if err := d.Query.fitsSteps(); err != nil {
		return Verdict{}, err
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

// pair is the round that a document lists. p[j] and q[j] are the masses of loss j·step for j ≥
// 1; ratio[j] is e^{j·step} for j ≥ 0.
type pair struct {
	ratio, p, q []*big.Float
	infinite    *big.Float
	rest        *big.Float // mass of loss 0
}

func newPair(r Round) pair {
	out := pair{ratio: []*big.Float{real(1)}, p: []*big.Float{nil}, q: []*big.Float{nil}, infinite: real(r.Infinite)}
	grow := exp(real(r.Step))
	out.rest = sub(real(1), out.infinite)
	for j, m := range r.Q {
		out.ratio = append(out.ratio, mul(out.ratio[j], grow))
		out.q = append(out.q, real(m))
		out.p = append(out.p, mul(out.ratio[j+1], real(m)))
		// Under P a loss has mass p, and its mirror image, the loss of opposite sign, has mass q.
		out.rest = sub(out.rest, add(out.p[j+1], out.q[j+1]))
	}
	return out
}

// verifyRound checks that the listed pair dominates one round. The pair's hockey-stick
// divergence is linear in g = e^ε between grid losses and constant from the last on; the
// round's is convex and falling. So it is enough to compare them at grid losses. For ε < 0
// both have D(ε) = 1 − e^ε + e^ε·D(−ε), by symmetry.
func (d Document) verifyRound(ctx context.Context, p pair) (room float64, err error) {
	if p.rest.Sign() < 0 {
		return 0, reject("the pair's masses add to more than 1")
	}
	exact, err := d.curve(ctx, p.ratio)
	if err != nil {
		return 0, err
	}
	room = math.Inf(1)
	above, under := real(0), real(0) // P-mass and Q-mass of the finite losses beyond
	for i := len(exact) - 1; i >= 0; i-- {
		listed := add(p.infinite, sub(above, mul(p.ratio[i], under)))
		listed = mul(listed, sub(real(1), two(-200)))
		if listed.Cmp(exact[i]) < 0 {
			return 0, reject("at loss %.6g a round has divergence %.6g, the listed pair %.6g", float64(i)*d.Round.Step, exact[i], listed)
		}
		gap, _ := sub(quo(listed, exact[i]), real(1)).Float64()
		room = math.Min(room, gap)
		if i > 0 {
			above, under = add(above, p.p[i]), add(under, p.q[i])
		}
	}
	return room, nil
}

// verifyComposition composes the listed pair and checks δ at the claimed ε.
func (d Document) verifyComposition(ctx context.Context, p pair) (float64, error) {
	times, delta := d.Round.Times, real(d.Claim.Delta)
	// Rounding adds one unit per cell and product, at most 2^18·times units in all: a share
	// of 2^-46 of δ.
	size := quo(whole(times), delta).MantExp(nil) + 64
	c := &composer{bits: uint((size + 63) / 64 * 64), step: real(d.Round.Step), times: times, top: mul(delta, two(-30))}
	nodes := len(p.ratio) - 1
	base := law{low: -int64(nodes), mass: make([]*big.Int, 2*nodes+1), lost: c.fixed(p.infinite), rounds: 1}
	base.mass[nodes] = c.fixed(p.rest)
	for j := 1; j <= nodes; j++ {
		base.mass[nodes+j], base.mass[nodes-j] = c.fixed(p.p[j]), c.fixed(p.q[j])
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
	moment, up := add(p.rest, p.infinite), real(1) // the writer's moment counts the infinite mass at loss 0
	for j := 1; j < len(p.p); j++ {
		up = mul(up, grow)
		moment = add(moment, add(mul(p.p[j], up), quo(p.q[j], up)))
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
	case !(float64(w.Low)*r.Step <= d.Claim.Eps && d.Claim.Eps <= float64(w.Low+w.Points)*r.Step):
		return reject("epsilon %v lies outside the window", d.Claim.Eps)
	}
	return nil
}
