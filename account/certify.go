package account

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

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
	if q.Adjacency == dp.AddRemoveOne && (method == "" || method == certificate.RemovePLD) {
		return d, certifyRemoval(&d, q, part{s, times})
	}
	parts := []part{{s, times}}
	e := new(engine)
	pairs := certifiable()
	if method == certificate.Basic {
		return d, certifyBasic(&d, q, parts)
	}
	narrow := blanket
	for _, c := range pairs {
		if c.name+"-pld" == method {
			return d, e.certifyPLD(&d, q, parts, c)
		}
		if c.needs != "" && c.covers(s) && s.class != dp.BinaryRR { // K-RR's pair for two symbols is the blanket
			narrow = c
		}
	}
	if method != "" {
		return d, fmt.Errorf("account: method %q cannot be certified: its pair has no independent check; want one of %s: %w", method,
			strings.Join(certificate.Methods(), ", "), dp.ErrNoBound)
	}
	err := e.certifyPLD(&d, q, parts, narrow)
	if err != nil && narrow.name != blanket.name && errors.Is(err, dp.ErrNoBound) {
		err = e.certifyPLD(&d, q, parts, blanket)
	}
	if cerr := ctx.Err(); cerr != nil {
		return d, cerr
	}
	pure := certificate.Document{Format: d.Format, Version: d.Version, Query: d.Query}
	if certifyBasic(&pure, q, parts) == nil && (err != nil || pure.Claim.Eps <= d.Claim.Eps && pure.Claim.Delta <= d.Claim.Delta) {
		return pure, nil
	}
	return d, err
}

// certifiable lists the pairs that the checker knows, in the order of Methods.
func certifiable() []clones {
	var out []clones
	for _, c := range append([]clones{blanket, fmt22}, classPairs...) {
		if slices.Contains(certificate.Methods(), c.name+"-pld") {
			out = append(out, c)
		}
	}
	return out
}

// certified converts a query to a certificate's form; restored converts back.
func certified(q Query) certificate.Query {
	q = q.withDefaults()
	out := certificate.Query{Trust: q.Trust, Participation: q.Participation, Randomizer: q.Class, Symbols: q.Symbols, Adjacency: dp.ReplaceOne,
		Eps0: q.Eps0, N: q.Population, K: q.Reports, Gamma: q.Gamma, Dropout: q.Dropout, Rounds: q.Rounds,
		TV: q.TV, Height: q.Steps.Height, Shares: q.Steps.Each(), Eta: q.Steps.Eta, Colluders: q.Colluders, KHidden: q.HiddenReports}
	if q.Adjacency == dp.AddRemoveOne {
		out.Adjacency, out.Sigma = q.Adjacency, q.Sigma
	}
	return out
}

func restored(c certificate.Query, q Query) Query {
	return Query{Trust: c.Trust, Participation: c.Participation, Adjacency: c.Adjacency, Sigma: c.Sigma, Class: c.Randomizer, Symbols: c.Symbols, Eps0: c.Eps0,
		Population: c.N, Reports: c.K, Gamma: c.Gamma, Dropout: c.Dropout, Rounds: c.Rounds,
		TV: c.TV, Steps: dp.NewSteps(c.Height, c.Shares, c.Eta), Colluders: c.Colluders, HiddenReports: c.KHidden,
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
	infinite := math.Max(dropShare*delta/float64(times), certifyInfinite)
	if !(infinite*float64(times) <= .1*delta) {
		return fmt.Errorf("account: delta = %v over %d rounds is too small for a certificate: %w", delta, times, dp.ErrNoBound)
	}
	loss, tilt, blocks, err := e.certifyLoss(s, c, float64(times), delta, infinite)
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
	account, err := accountOf(composed, claim, loss.Step)
	if err != nil {
		return err
	}
	d.Claim = claim
	d.Round = &certificate.Round{Step: loss.Step, Infinite: loss.Infinite, Times: times, Clones: blocks.Clones, Reports: blocks.Reports, Drawn: blocks.Drawn}
	for j, p := range loss.Upper[1:] {
		d.Round.Q = append(d.Round.Q, p*math.Exp(-float64(j+1)*loss.Step))
	}
	d.Composition = &account
	return nil
}

// accountOf returns a composition's terms of δ at the claim's ε.
func accountOf(c *pld.Composed, claim certificate.Claim, step float64) (certificate.Composition, error) {
	var slack pld.Slack
	if c.Delta(claim.Eps) <= claim.Delta { // otherwise the window does not show the claim
		slack = c.Slack(claim.Eps)
	}
	if total := slack.Total; !(total > 0 && total <= claim.Delta) || !(claim.Eps <= 1e5) {
		return certificate.Composition{}, fmt.Errorf("account: composition shows no epsilon for delta = %v: %w", claim.Delta, dp.ErrNoBound)
	}
	return certificate.Composition{Low: slack.Low, Points: int64(slack.Points), Tilt: slack.Tilt, Beyond: slack.Beyond,
		Inflation: slack.Inflation, Splitting: step * step / 4 * (1 + 1e-15), Window: slack.Window, Truncation: slack.Truncation,
		WrapAround: slack.WrapAround, RoundOff: slack.RoundOff, Total: slack.Total}, nil
}

// certifyLoss returns the round's pair on the grid that compose would choose, with its losses
// enlarged by certifyGrow and the given mass infinite.
func (e *engine) certifyLoss(s shape, c clones, times, delta, infinite float64) (loss pld.Loss, tilt float64, blocks amplify.Blocks, err error) {
	pair, blocks, err := e.certifiedPair(s, c)
	if err != nil {
		return loss, 0, blocks, err
	}
	grow := certifyGrow
	if c.rate == nil {
		grow = s.certifySums(blocks)
	}
	if cut := pld.Truncate(pair, infinite); len(cut.Atoms) > 0 {
		pair = cut
	}
	// The mass that Truncate dropped is at most this.
	out := dp.Pair{Remainders: []dp.Remainder{{Mass: infinite * (1 + 1e-8), MaxLoss: s.eps0}}}
	var top, mass float64
	for _, a := range pair.Atoms {
		a.Loss *= 1 + grow
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
	tilt = math.Min(200/top, tiltFor(delta)(func(t float64) float64 { return times * t * rdp.Divergence(finite, 1+t) }))
	step := top
	if len(out.Atoms) > 1 {
		step = gridStep(chooseStep(top, times, times*tiltedVariance(finite, tilt)))
		if times == 1 && c.rate != nil { // Answer uses a closed form for one round
			step = math.Max(step/8, top/(1<<14))
		}
		step = top / math.Ceil(top/step)
	}
	loss, err = pld.Discretize(out, step)
	return loss, tilt, blocks, err
}

// certifiedPair returns a round's pair, and how it groups numbers of reports.
func (e *engine) certifiedPair(s shape, c clones) (pair dp.Pair, blocks amplify.Blocks, err error) {
	if thinned := s.colluders > 0 && s.gamma < 1; s.gamma > 0 && (c.rate == nil || thinned) {
		f, err := c.of(s)
		if err != nil {
			return pair, blocks, err
		}
		return f.CoarseArrival(s.arrival())
	}
	if pair, err = e.pair(s, c); err != nil {
		return pair, blocks, err
	}
	if c.rate == nil {
		return pair, amplify.Blocks{Clones: 1}, nil
	}
	f, err := amplify.ClonesFamily(s.eps0, c.rate(s))
	switch {
	case err != nil:
	case s.gamma > 0:
		blocks, err = f.ArrivalBlocks(s.arrival())
	default:
		blocks, err = f.RoundBlocks(s.round())
	}
	return pair, blocks, err
}

// certifySums is certifyGrow for pairs that the checker sums up on a grid: each doubling of the
// number of reports and each further block of them costs a little, and few reports some more.
// Where their number is random, every number has ratios of its own, between which the checker
// takes chords: they lie the higher the fewer reports are expected.
func (s shape) certifySums(b amplify.Blocks) float64 {
	most := float64(max(s.reports, s.asked))
	honest := math.Max(1, most*(1-float64(s.colluders)/float64(s.population)))
	few := 2e-3 / honest
	if s.gamma > 0 {
		honest = math.Max(1, honest*s.gamma)
		few = 2e-2/honest + 5e-3/math.Sqrt(honest)
	}
	return 2e-4 + few + 5e-6*math.Log2(most) + 2.5e-5*float64(len(b.Reports))
}
