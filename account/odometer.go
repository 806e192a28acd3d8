package account

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/ledger"
)

// Odometer keeps what a run has cost so far, round by round, as it really went:
// adding a round takes about a microsecond, asking for ε some milliseconds, and
// neither grows with the number of rounds once their shapes repeat. Its answer is
// the Accountant's for the same rounds.
//
// A round's ε₀, n and number of reports may be random and known only afterwards,
// but may not depend on what earlier rounds released: see Filter for that. Not
// safe for concurrent use.
type Odometer struct {
	accountant *Accountant
	tally      tally
}

// Odometer returns an odometer at zero that shares the accountant's cache.
func (a *Accountant) Odometer() *Odometer {
	return &Odometer{accountant: a, tally: tally{at: map[shape]int{}}}
}

// Add counts a round. On an error nothing was counted.
func (o *Odometer) Add(r dp.Round) error { return o.tally.add(r, 1) }

// Rounds returns how many rounds in which somebody reported were counted.
func (o *Odometer) Rounds() int64 { return int64(o.tally.total) }

// Eps returns an upper bound on ε at delta for all rounds counted.
func (o *Odometer) Eps(delta float64) (dp.Bound, error) {
	if err := dp.CheckDelta(delta); err != nil {
		return dp.Bound{}, err
	}
	return o.accountant.worst(&o.tally, delta)
}

// FilterConfig says when a Filter refuses. Accountant, Delta and MaxEps are
// required.
type FilterConfig struct {
	Accountant *Accountant
	Delta      float64
	MaxEps     float64
	// Order, above 1, chooses a Rényi filter of this order: rounds may then depend
	// on everything released before. 0: they may not, and ε is the odometer's.
	Order float64
}

// Filter accepts rounds as long as all of them together stay within a budget of
// (MaxEps, Delta), and refuses the first that would exceed it, before it runs.
//
// Without Order it is a budget for rounds whose parameters do not depend on what
// was released: the tightest composition is not a bound for parameters that do.
// With Order the sum of the rounds' Rényi divergences is kept, each at the pair of
// its reports; it is a bound however they are chosen (ledger/adaptive.md; Feldman and Zrnic 2021, the
// Rényi filter; Lécuyer 2021). What pairs leave out of it has a budget of its own,
// filterDropped of Delta, and the divergences have the rest, whatever was left out:
// traded for each other, an adaptive choice could spend both. Not safe for
// concurrent use.
type Filter struct {
	config   FilterConfig
	odometer *Odometer
	spent    filtered // at Order
	last     dp.Bound
}

// NewFilter returns a filter with nothing spent.
func NewFilter(c FilterConfig) (*Filter, error) {
	if c.Accountant == nil {
		return nil, fmt.Errorf("account: a filter needs an accountant")
	}
	if err := dp.CheckDelta(c.Delta); err != nil {
		return nil, err
	}
	if !(c.MaxEps > 0) || math.IsInf(c.MaxEps, 1) {
		return nil, fmt.Errorf("account: budget epsilon = %v must be above 0 and finite", c.MaxEps)
	}
	if c.Order != 0 && (!(c.Order > 1) || math.IsInf(c.Order, 1)) {
		return nil, fmt.Errorf("account: order = %v must be above 1 and finite", c.Order)
	}
	return &Filter{config: c, odometer: c.Accountant.Odometer(),
		last: proved("none", 0, c.Delta, "nothing was charged")}, nil
}

// Charge counts a round, before it runs, and returns what all rounds cost. A round
// that would exceed the budget is refused with an error that wraps
// ledger.ErrBudget; then, and on any other error, nothing was counted.
func (f *Filter) Charge(r dp.Round) (dp.Bound, error) {
	if f.config.Order > 0 {
		return f.chargeAdaptive(r)
	}
	before := f.odometer.tally.clone()
	if err := f.odometer.Add(r); err != nil {
		return dp.Bound{}, err
	}
	b, err := f.odometer.Eps(f.config.Delta)
	if err == nil {
		err = f.within(b)
	}
	if err != nil {
		f.odometer.tally = before
		return dp.Bound{}, err
	}
	f.last = b
	return b, nil
}

// Spent returns what was charged.
func (f *Filter) Spent() dp.Bound { return f.last }

func (f *Filter) within(b dp.Bound) error {
	// Negated so that a NaN refuses.
	if !(b.Eps <= f.config.MaxEps) {
		return fmt.Errorf("account: the round would bring epsilon to %.4g, above %.4g: %w", b.Eps, f.config.MaxEps, ledger.ErrBudget)
	}
	return nil
}

// chargeAdaptive adds Rényi divergences. Disjoint batches count like any round:
// more than they cost.
func (f *Filter) chargeAdaptive(r dp.Round) (dp.Bound, error) {
	one := tally{at: map[shape]int{}}
	if err := one.add(everyBatch(r), 1); err != nil {
		return dp.Bound{}, err
	}
	if len(one.parts) == 0 {
		return f.last, nil // nobody reported
	}
	e := f.config.Accountant.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	cost, err := e.filter(one.parts[0].shape, f.config.Order, f.config.Delta)
	if err != nil {
		return dp.Bound{}, err
	}
	next := f.spent.plus(cost, 1)
	if !next.within(f.config.Delta) {
		return dp.Bound{}, fmt.Errorf("account: the round would bring losses too far to be counted to a mass of %.3g, above %v of delta: %w",
			next.dropped, filterDropped, ledger.ErrBudget)
	}
	b := next.bound(e.sources(one.parts), f.config.Order, f.config.Delta)
	if err := f.within(b); err != nil {
		return dp.Bound{}, err
	}
	f.spent, f.last = next, b
	return b, nil
}
