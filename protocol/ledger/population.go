package ledger

import (
	"fmt"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// adaptive is an accountant that can also bound rounds which were chosen after seeing what
// others released.
type adaptive interface {
	dp.Accountant
	// EpsAdaptive bounds ε at delta for a sequence of rounds each of which may have been
	// chosen after seeing everything that earlier rounds released. As long as its answer
	// stays within maxEps, all rounds together are (maxEps, delta)-DP.
	EpsAdaptive(ev dp.Event, maxEps, delta float64) (dp.Bound, error)
}

// adaptiveShare is the share of δ for populations of several tasks; the rest is for
// populations with one task (adaptive.md, §3).
const adaptiveShare = 0.01

// total computes the cost of all tasks of a population together. One task's parameters are
// fixed in its signed terms, so its cost is computed as tightly as possible. A second task
// may have been planned after seeing what the first released. From then on all rounds are
// counted as if each had been chosen in this way (adaptive.md).
type total struct {
	counter
	charges int64
	first   [32]byte // task of the first charge
	several bool     // more than one task was charged
	proved  bool     // a charge is of sums whose noise the aggregators add
}

// sumsUpTo refuses to charge a budget for sums whose noise the aggregators add if it has room for
// an ε at which their tails do not hold. Where tasks are planned upon each other the budget is
// the ε that is promised, however little of it is spent.
func (c Config) sumsUpTo() error {
	if !(c.MaxEps <= mechanism.MostEps) {
		return fmt.Errorf("%w: sums with noise by aggregators are counted up to epsilon = %d, the budget is %g", ErrBudget, int(mechanism.MostEps), c.MaxEps)
	}
	return nil
}

// severalWith says whether more than one task is charged once this one is.
func (t *total) severalWith(task [32]byte) bool {
	return t.several || t.charges > 0 && task != t.first
}

// afford returns an error unless a task's entry fits the budget.
func (t *total) afford(task [32]byte, e Entry) error {
	if t.proved || e.Event.Report.Class == dp.GaussianSum {
		if err := t.config.sumsUpTo(); err != nil {
			return err
		}
	}
	how := count{share: 1 - adaptiveShare}
	if t.severalWith(task) {
		how = count{adaptive: true, share: adaptiveShare}
	}
	b, ok, err := t.fits(e, how)
	if err != nil {
		return fmt.Errorf("ledger: entry %d: %w", t.charges+1, err)
	}
	if ok {
		return nil
	}
	also := ""
	if how.adaptive && !t.several {
		also = "; it is the second task, and all tasks are counted as if they had been planned upon each other's releases"
	}
	return fmt.Errorf("ledger: entry %d would bring epsilon to %.4g (%s), above %.4g: %w%s",
		t.charges+1, b.Eps, b.Method, t.config.MaxEps, ErrBudget, also)
}

// record adds n entries of a charge. The caller has checked that they fit the budget, or reads
// charges that were accepted before.
func (t *total) record(task [32]byte, e Entry, n int64) {
	if n < 1 {
		return
	}
	t.proved = t.proved || e.Event.Report.Class == dp.GaussianSum
	t.several = t.severalWith(task)
	if t.charges == 0 {
		t.first = task
	}
	t.charges += n
	t.add(e, n)
}

// spentEps returns the bound on all charges: for one task the tightest, for several the one for
// adaptive choice.
func (t *total) spentEps() (dp.Bound, error) {
	if t.several {
		return t.cost(count{adaptive: true, share: adaptiveShare})
	}
	return t.cost(count{share: 1})
}
