package account

import (
	"context"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/account/certificate"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/pld"
	"github.com/riffle-dp/riffle/dp/rdp"
)

const (
	// certifyGrow enlarges the losses of a certified pair, so that rounding the pair's masses, by
	// 1e-10 relative, cannot bring its losses below those of the protocol.
	certifyGrow = 1e-9
	// certifyMargin is the relative excess of a certified ε over the composition's. It pays for
	// the checker's coarser grid, whose variance is at most 1e-6 larger.
	certifyMargin = 1e-5
	// certifyDelta is the relative excess of a certified δ over the composition's.
	certifyDelta = 2e-3
	// certifyInfinite is the smallest mass of infinite loss that can be certified.
	certifyInfinite = 0x1p-169
)

// Certify makes a certificate of an upper bound, on ε at q.Delta or on δ at q.Eps, by a method
// that can be certified; "" means the tightest of them. It proves nothing:
// certificate.Document's Verify does. Several messages are certified as so many times more rounds
// of all clients. Its claim exceeds Answer's by certifyMargin and, for a
// single round, by 1e-4 for the grid.
func Certify(ctx context.Context, q Query, method string) (certificate.Document, error) {
	if err := q.Validate(); err != nil {
		return certificate.Document{}, err
	}
	if q.Messages > 1 {
		one, _, exact := q.alone(0)
		if !exact {
			return certificate.Document{}, fmt.Errorf("account: several messages with participation %s cannot be certified, those of all clients can: %w", q.Participation, dp.ErrNoBound)
		}
		q = one
	}
	d := certificate.Document{Format: certificate.Format, Version: certificate.Version, Query: certified(q)}
	if restored(d.Query, q).withDefaults() != q.withDefaults() {
		return d, fmt.Errorf("account: the query has a part that certificates do not know: %w", dp.ErrNoBound)
	}
	s, times := q.shape()
	parts := []part{{s, times}}
	e := new(engine)
	switch method {
	case certificate.Basic:
		return d, certifyBasic(&d, q, parts)
	case certificate.BlanketPLD:
		return d, e.certifyPLD(&d, q, parts, blanket)
	case certificate.ClonesPLD:
		return d, e.certifyPLD(&d, q, parts, fmt22)
	case "":
	default:
		return d, fmt.Errorf("account: method %q cannot be certified: its pair has no independent check; want %s, %s or %s: %w", method,
			certificate.BlanketPLD, certificate.ClonesPLD, certificate.Basic, dp.ErrNoBound)
	}
	err := e.certifyPLD(&d, q, parts, blanket)
	if cerr := ctx.Err(); cerr != nil {
		return d, cerr
	}
	pure := certificate.Document{Format: d.Format, Version: d.Version, Query: d.Query}
	if certifyBasic(&pure, q, parts) == nil && (err != nil || pure.Claim.Eps <= d.Claim.Eps && pure.Claim.Delta <= d.Claim.Delta) {
		return pure, nil
	}
	return d, err
}

// certified converts a query to a certificate's form; restored converts back.
func certified(q Query) certificate.Query {
	q = q.withDefaults()
	return certificate.Query{Trust: q.Trust, Participation: q.Participation, Randomizer: q.Class, Symbols: q.Symbols, Adjacency: dp.ReplaceOne,
		Eps0: q.Eps0, N: q.Population, K: q.Reports, Gamma: q.Gamma, Dropout: q.Dropout, Rounds: q.Rounds}
}

func restored(c certificate.Query, q Query) Query {
	return Query{Trust: c.Trust, Participation: c.Participation, Class: c.Randomizer, Symbols: c.Symbols, Eps0: c.Eps0,
		Population: c.N, Reports: c.K, Gamma: c.Gamma, Dropout: c.Dropout, Rounds: c.Rounds,
		Delta: q.Delta, AskDelta: q.AskDelta, Eps: q.Eps}
}

func certifyBasic(d *certificate.Document, q Query, parts []part) error {
	d.Claim = certificate.Claim{Method: certificate.Basic, Eps: basic(parts), Delta: q.Delta}
	if q.AskDelta {
		if d.Claim.Eps > q.Eps {
			return fmt.Errorf("account: the pure guarantee is %.4g: %w", d.Claim.Eps, dp.ErrNoBound)
		}
		d.Claim.Eps = q.Eps
	}
	return nil
}

func (e *engine) certifyPLD(d *certificate.Document, q Query, parts []part, c clones) error {
	delta := q.Delta
	if q.AskDelta {
		var err error
		if delta, err = e.pldDelta(parts, c, q.Eps); err != nil {
			return err
		}
		delta = math.Min(delta*(1+certifyDelta), .999)
	}
	s, times := parts[0].shape, parts[0].times
	blocks, err := s.blocks(c)
	if err != nil {
		return err
	}
	infinite := math.Max(dropShare*delta/float64(times), certifyInfinite)
	if !(infinite*float64(times) <= .1*delta) {
		return fmt.Errorf("account: delta = %v over %d rounds is too small for a certificate: %w", delta, times, dp.ErrNoBound)
	}
	loss, tilt, err := e.certifyLoss(s, c, float64(times), delta, infinite)
	if err != nil {
		return err
	}
	composed, err := pld.Compose([]pld.Part{{Loss: loss, Times: times}}, tilt)
	if err != nil {
		return err
	}
	claim := certificate.Claim{Method: c.name + "-pld", Eps: q.Eps, Delta: delta}
	if q.AskDelta {
		claim.Delta = math.Min(.999, math.Max(delta, composed.Delta(q.Eps)*(1+certifyDelta)))
	} else {
		claim.Eps = composed.Epsilon(delta) * (1 + certifyMargin)
	}
	var slack pld.Slack
	if composed.Delta(claim.Eps) <= claim.Delta { // otherwise the window does not show the claim
		slack = composed.Slack(claim.Eps)
	}
	if total := slack.Total; !(total > 0 && total <= claim.Delta) || !(claim.Eps <= 1e5) {
		return fmt.Errorf("account: composition shows no epsilon for delta = %v: %w", claim.Delta, dp.ErrNoBound)
	}
	d.Claim = claim
	d.Round = &certificate.Round{Step: loss.Step, Infinite: loss.Infinite, Times: times, Clones: blocks.Clones, Reports: blocks.Reports}
	for j, p := range loss.Upper[1:] {
		d.Round.Q = append(d.Round.Q, p*math.Exp(-float64(j+1)*loss.Step))
	}
	d.Composition = &certificate.Composition{Low: slack.Low, Points: int64(slack.Points), Tilt: slack.Tilt, Beyond: slack.Beyond,
		Inflation: slack.Inflation, Splitting: loss.Step * loss.Step / 4 * (1 + 1e-15), Window: slack.Window, Truncation: slack.Truncation,
		WrapAround: slack.WrapAround, RoundOff: slack.RoundOff, Total: slack.Total}
	return nil
}

// certifyLoss returns the round's pair on the grid that compose would choose, with its losses
// enlarged by certifyGrow and the given mass infinite.
func (e *engine) certifyLoss(s shape, c clones, times, delta, infinite float64) (pld.Loss, float64, error) {
	pair, err := e.pair(s, c)
	if err != nil {
		return pld.Loss{}, 0, err
	}
	if cut := pld.Truncate(pair, infinite); len(cut.Atoms) > 0 {
		pair = cut
	}
	// The mass that Truncate dropped is at most this.
	out := dp.Pair{Remainders: []dp.Remainder{{Mass: infinite * (1 + 1e-8), MaxLoss: s.eps0}}}
	var top, mass float64
	for _, a := range pair.Atoms {
		a.Loss *= 1 + certifyGrow
		top = math.Max(top, a.Loss)
		out.Atoms = append(out.Atoms, a)
		mass += a.Q * (1 + math.Exp(a.Loss))
	}
	// The infinite losses take their share from all others, which only raises δ.
	if most := 1 - infinite*(1+1e-7) - 1e-12; mass > most {
		for i := range out.Atoms {
			out.Atoms[i].Q *= most / mass
		}
	}
	finite := dp.Pair{Atoms: out.Atoms}
	tilt := math.Min(200/top, tiltFor(delta)(func(t float64) float64 { return times * t * rdp.Divergence(finite, 1+t) }))
	step := top
	if len(out.Atoms) > 1 {
		step = gridStep(chooseStep(top, times, times*tiltedVariance(finite, tilt)))
		if times == 1 { // Answer uses a closed form for one round
			step = math.Max(step/8, top/(1<<14))
		}
		step = top / math.Ceil(top/step)
	}
	loss, err := pld.Discretize(out, step)
	return loss, tilt, err
}

// blocks returns how the shape's pair groups numbers of reports.
func (s shape) blocks(c clones) (amplify.Blocks, error) {
	f, err := amplify.ClonesFamily(s.eps0, c.rate(s.eps0))
	if err != nil {
		return amplify.Blocks{}, err
	}
	if s.gamma > 0 {
		return f.ArrivalBlocks(s.arrival())
	}
	return f.RoundBlocks(s.round())
}
