// Package account answers what a protocol costs in privacy. From an event, or from a query
// about rounds that are all alike, it returns the tightest bound that is proved, with every
// other bound beside it.
//
// Bounds are for replace-one adjacency: n is public, and one client's data changes. ε and
// losses are in nats, δ is a probability, E = e^ε₀. Families, clones and inclusion are
// explained in package amplify; EAB and SCI are papers, named in package literature.
package account

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/riffle-dp/riffle/dp"
)

// Accountant is the default dp.Accountant. For each round it takes the tightest dominating pair
// that is proved: the blanket, which covers any ε₀-LDP reports, or the pair of the reports'
// class. It composes the pairs by privacy-loss distributions. Its answer is never worse than
// Rényi or pure composition. Safe for concurrent use; it remembers pairs as a cache only. The
// zero value is ready for use.
type Accountant struct{ engine engine }

var _ dp.Accountant = (*Accountant)(nil)

// Eps returns an upper bound on ε at delta for the event, rounded up.
func (a *Accountant) Eps(ev dp.Event, delta float64) (dp.Bound, error) {
	if err := dp.CheckDelta(delta); err != nil {
		return dp.Bound{}, err
	}
	t := tally{at: map[shape]int{}}
	if err := t.add(ev, 1); err != nil {
		return dp.Bound{}, err
	}
	return a.worst(&t, delta)
}

// worst returns the largest bound over the possible histories of a client; see tally.worlds.
func (a *Accountant) worst(t *tally, delta float64) (dp.Bound, error) {
	worlds, err := t.worlds()
	if err != nil {
		return dp.Bound{}, err
	}
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	var worst dp.Bound
	for i, parts := range worlds {
		b, err := a.engine.tightest(parts, delta)
		if err != nil {
			return dp.Bound{}, err
		}
		if i == 0 || !(b.Eps <= worst.Eps) {
			worst = b
		}
	}
	return worst, nil
}

// tightest returns the smallest proved upper bound on ε.
func (e *engine) tightest(parts []part, delta float64) (dp.Bound, error) {
	best := proved("basic", basic(parts), delta, basicSource)
	if len(parts) == 0 || best.Eps == 0 {
		return best, nil
	}
	c := e.narrowest(parts)
	eps, err := e.pldEps(parts, c, delta)
	switch {
	case err == nil && eps < best.Eps:
		best = proved(c.name+"-pld", eps, delta, c.source+asPLD)
	case err != nil && !errors.Is(err, dp.ErrNoBound):
		return dp.Bound{}, err
	}
	// Round-off grows with the number of rounds; Rényi divergences have no round-off.
	if err != nil || rounds(parts) > 1e7 {
		if eps, order, err := e.rdpEps(parts, blanket, delta); err == nil && eps < best.Eps {
			best = proved(blanket.name+"-rdp", eps, delta, blanket.source+"; Rényi composition")
			best.Order = order
		}
	}
	if best, err = e.withGaussian(best, parts, delta); err != nil {
		return dp.Bound{}, err
	}
	if math.IsNaN(best.Eps) {
		return dp.Bound{}, fmt.Errorf("account: epsilon is not a number: %w", dp.ErrNoBound)
	}
	return best, nil
}

func proved(method string, eps, delta float64, source string) dp.Bound {
	return dp.Bound{Method: method, Kind: dp.Upper, Status: dp.Proved, Source: source,
		Guarantee: dp.Guarantee{Eps: eps, Delta: delta, Adjacency: dp.ReplaceOne}}
}

// Listed is a method's entry in a Reply.
type Listed struct {
	dp.Bound
	// Applies is false if the method has no bound; Note then says why.
	Applies bool
}

// Reply is the answer to a Query. A pointer is nil if there is no such bound.
type Reply struct {
	Query Query     // with the defaults of Sum filled in
	Upper *dp.Bound // tightest proved upper bound
	Best  *dp.Bound // tightest sound upper bound
	Lower *dp.Bound // largest lower bound from a mechanism that the query admits
	// KnowsWho is the answer of AnswerKnowsWho, where it was asked for.
	KnowsWho *dp.Bound
	// Bounds lists all methods, in a fixed order.
	Bounds []Listed
}

// Gap is by how much the tightest proved upper bound on ε exceeds a lower one, rounded up; false
// if δ is asked for or a bound is missing.
func (r *Reply) Gap(lower *dp.Bound) (float64, bool) {
	if r.Query.AskDelta || r.Upper == nil || lower == nil {
		return 0, false
	}
	return math.Max(0, r.Upper.Eps-lower.Eps) * (1 + 0x1p-50), true
}

// Orthogonal is the lower bound for reports of class Cap or Rising if everybody else holds one
// input that is orthogonal to the victim's; nil if it was not computed. The class admits other
// mechanisms, so Lower may be larger.
func (r *Reply) Orthogonal() *dp.Bound {
	for _, l := range r.Bounds {
		if l.Method == orthogonalMethod && l.Applies {
			return &l.Bound
		}
	}
	return nil
}

// list adds a method's answer to the reply. start is when its computation began, and err is
// the error that it ended with.
func (r *Reply) list(m Method, got answer, start time.Time, err error) error {
	l := Listed{Bound: dp.Bound{Method: m.ID, Kind: m.Kind, Status: m.Status, Source: m.Source, Order: got.order, Note: got.note,
		Guarantee: dp.Guarantee{Eps: got.eps, Delta: got.delta, Adjacency: r.Query.withDefaults().Adjacency}, Seconds: time.Since(start).Seconds()}}
	switch {
	case errors.Is(err, dp.ErrNoBound):
		l.Note = err.Error()
	case err != nil:
		return fmt.Errorf("account: %s: %w", l.Method, err)
	case math.IsNaN(l.Eps) || math.IsNaN(l.Delta):
		l.Note = "not a number"
	case math.IsInf(l.Eps, 0):
		l.Note = fmt.Sprintf("no finite epsilon at delta = %v", l.Delta)
	default:
		l.Applies = true
	}
	r.Bounds = append(r.Bounds, l)
	r.choose(l)
	return nil
}

// choose makes a listed bound the tightest of its kind if it is.
func (r *Reply) choose(l Listed) {
	b := l.Bound
	if l.Applies && l.Kind == dp.Upper && l.Status == dp.Proved && (r.Upper == nil || better(l.Bound, *r.Upper)) {
		r.Upper, r.Best = &b, &b
	}
	if l.Applies && l.Kind == dp.Lower && (r.Lower == nil || better(*r.Lower, l.Bound)) {
		r.Lower = &b
	}
}

// Answer computes the bounds that a query asks for. which is "all", "best" (only what the
// tightest proved bound needs), "quick" (a proved bound that is some percent larger, mostly in
// a tenth of the time), or a method's id.
//
// Those of vector sums are upper bounds, proved, replace-one, for an observer of the summed
// counts; rounds of fewer than MinUsers are void. They do not include what a transport adds
// to δ.
func Answer(ctx context.Context, q Query, which string) (Reply, error) {
	return new(Accountant).answer(ctx, q, which, nil)
}

// answer is Answer. It calls each, if each is not nil, before it computes a method for single
// reports.
func (a *Accountant) answer(ctx context.Context, q Query, which string, each func(method string, done, of int)) (Reply, error) {
	if err := q.Validate(); err != nil {
		return Reply{}, err
	}
	if q.isSum() {
		return answerSum(ctx, q, which)
	}
	if q.Messages > 1 {
		return a.answerMessages(ctx, q, which, each)
	}
	e := &a.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	s, times := q.shape()
	parts := []part{{s, times}}
	r := Reply{Query: q}
	known := which == "all" || which == "best" || which == "quick"
	var all []Method
	for _, m := range Methods() {
		if m.Class != VectorSumClass && !m.OnlyDivergence {
			all = append(all, m)
		}
	}
	for i, m := range all {
		if which == "quick" && m.quick(q, s) {
			m = m.roughly()
		} else if which != "all" && m.ID != which && !(which == "best" && m.mayBeBest(q, s)) {
			continue
		}
		known = true
		if err := ctx.Err(); err != nil {
			return Reply{}, err
		}
		if each != nil {
			each(m.ID, i, len(all))
		}
		start := time.Now()
		got, err := m.answer(e, q, parts)
		if err := r.list(m, got, start, err); err != nil {
			return Reply{}, err
		}
	}
	if !known {
		return Reply{}, fmt.Errorf("account: unknown method %q", which)
	}
	return r, nil
}

func better(a, b dp.Bound) bool { return a.Eps < b.Eps || a.Eps == b.Eps && a.Delta < b.Delta }
