package account

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/pld"
	"github.com/riffle-dp/riffle/dp/rdp"
)

// EpsAdaptive bounds ε at delta over rounds each of which may have been chosen after seeing
// everything that earlier rounds released. It is a Rényi filter
// (protocol/ledger/adaptive.md): the sum of the rounds' divergences at the one order
// filterOrder(maxEps, delta).
//
// Upper bound, proved; replace one client. If no round is run that would bring the answer
// above maxEps, all rounds together are (maxEps, delta)-DP, however they were chosen and
// whenever they end. An answer below maxEps is itself a bound for a history whose end was not
// chosen from releases. The answer is +Inf if the mass left out of the divergences exceeds its
// share of δ.
func (a *Accountant) EpsAdaptive(ev dp.Event, maxEps, delta float64) (dp.Bound, error) {
	if err := dp.CheckDelta(delta); err != nil {
		return dp.Bound{}, err
	}
	if !(maxEps > 0) {
		return dp.Bound{}, fmt.Errorf("account: budget epsilon = %v must be above 0", maxEps)
	}
	t := tally{at: map[shape]int{}}
	if err := t.add(everyBatch(ev), 1); err != nil {
		return dp.Bound{}, err
	}
	a.engine.mu.Lock()
	defer a.engine.mu.Unlock()
	var s filtered
	order := filterOrder(maxEps, delta)
	for _, p := range t.parts {
		one, err := a.engine.filter(p.shape, order, delta)
		if err != nil {
			return dp.Bound{}, err
		}
		s = s.plus(one, p.times)
	}
	return s.bound(a.engine.sources(t.parts), order, delta), nil
}

// everyBatch counts disjoint batches as ordinary rounds, because later batches may be chosen
// from releases. That overstates their cost: a client is in only one batch.
func everyBatch(ev dp.Event) dp.Event {
	switch e := ev.(type) {
	case dp.Round:
		if e.Participation == dp.Once && e.Validate() == nil {
			e.Participation, e.Population = dp.All, e.Reports
		}
		return e
	case dp.Repeat:
		e.Event = everyBatch(e.Event)
		return e
	case dp.Sequence:
		out := make(dp.Sequence, len(e))
		for i, x := range e {
			out[i] = everyBatch(x)
		}
		return out
	}
	return ev
}

// filterOrder returns the order of a Rényi filter for a budget; it depends on the budget alone.
// It is the order, of a grid, at which the budget allows the most rounds of a Gaussian
// mechanism. (Such a mechanism's divergence is proportional to the order.) If maxEps is
// infinite, it is the order for a budget of 1.
func filterOrder(maxEps, delta float64) float64 {
	if math.IsInf(maxEps, 1) {
		maxEps = 1
	}
	// ε is the divergence plus a term that does not depend on it. The term is computed at far, a
	// divergence so large that ε is above 0.
	const far = 1e3
	order, most := 0., math.Inf(-1)
	for u := -9.; u <= 14; u += 1. / 64 {
		at := 1 + math.Exp(u)
		if room := (maxEps - (rdp.Epsilon(at, far, delta) - far)) / at; room > most {
			order, most = at, room
		}
	}
	return order
}

// filtered is the state of a Rényi filter.
type filtered struct {
	spent   float64 // Σ divergences
	dropped float64 // the mass left out of the divergences
}

// plus returns f with further rounds added, times of them, each of which adds one; rounded up.
func (f filtered) plus(one filtered, times int64) filtered {
	return filtered{(f.spent + one.spent*float64(times)) * (1 + 0x1p-50), (f.dropped + one.dropped*float64(times)) * (1 + 0x1p-50)}
}

// filterDropped is the share of δ that pays for the mass left out of the divergences.
const filterDropped = 1e-3

// within says whether the mass left out is within its share of δ.
func (f filtered) within(delta float64) bool { return f.dropped*(1+1e-9) <= filterDropped*delta }

// bound converts the state to ε at delta.
func (f filtered) bound(source string, order, delta float64) dp.Bound {
	eps := 0.
	if f.spent > 0 || f.dropped > 0 {
		eps = rdp.Epsilon(order, f.spent*(1+1e-9), delta*(1-filterDropped))
	}
	if !f.within(delta) {
		eps = math.Inf(1)
	}
	b := proved("renyi-filter", eps, delta, fmt.Sprintf("Rényi filter of order %.4g (protocol/ledger/adaptive.md; Feldman, Zrnic 2021) over %s", order, source))
	b.Order = order
	return b
}

// sources names the theorems behind the parts' pairs. The caller holds e.mu.
func (e *engine) sources(parts []part) string {
	var out []string
	for _, p := range parts {
		source := gaussSource
		if p.shape.sigma == 0 {
			source = e.narrowOf(p.shape).source
		}
		if !slices.Contains(out, source) {
			out = append(out, source)
		}
	}
	return strings.Join(out, "; ")
}

type filterKey struct {
	shape shape
	order float64
	delta float64
}

// filter returns what one round adds to a Rényi filter, computed from the narrowest pair that
// covers its reports. The caller holds e.mu.
func (e *engine) filter(s shape, order, delta float64) (filtered, error) {
	k := filterKey{s, order, delta}
	if f, ok := e.filters[k]; ok {
		return f, nil
	}
	pair, err := e.pair(s, e.narrowOf(s))
	if err != nil {
		return filtered{}, err
	}
	pair = pld.Truncate(pair, 1e-4*delta/maxRounds)
	f := filtered{rdp.Divergence(dp.Pair{Atoms: pair.Atoms}, order), pair.Dropped()}
	if e.filters == nil || len(e.filters) >= cacheLimit {
		e.filters = map[filterKey]filtered{}
	}
	e.filters[k] = f
	return f, nil
}
