package dp

import (
	"fmt"
	"math"
)

// Report is what one client's report promises on its own, before any shuffle.
type Report struct {
	Class Class
	// Eps0 is the local privacy parameter in nats, including numerical slack; 0 for classes
	// Gaussian and GaussianSum.
	Eps0 float64
	// Sigma is the noise of class Gaussian, or of the sum of reports of class GaussianSum, in units
	// of the clip norm; 0 for all other classes.
	Sigma float64
	// Symbols is k of class KRR, at least 2; 0 for all other classes.
	Symbols int
	// TV is a, if any two inputs' laws are known to differ by at most a(e^ε₀−1) in total
	// variation, a ≤ 1/(e^ε₀+1); 0 if nothing is known. It is set for class Generic, where it
	// may be 0, and for class Cap; the other classes determine it.
	TV float64
	// Steps is set for class Rising only, whose Eps0 includes what Steps.Eta adds.
	Steps Steps `json:",omitzero"`
}

// Participation says who reports in a round.
type Participation string

const (
	All     Participation = "all"      // every client
	Sampled Participation = "sampled"  // k of n, uniform without replacement
	CheckIn Participation = "check-in" // each client with probability γ, on its own coin
	Once    Participation = "once"     // disjoint batches: each client is in one round only
)

// Event says what happened, never how it is accounted for.
type Event interface{ event() }

// Round is one round of reports released together.
type Round struct {
	Report        Report
	Trust         Trust
	Participation Participation
	// Population is n, the honest clients who could have taken part. Clients who collude with
	// an observer are counted neither here nor in Reports.
	Population int64
	// Reports is k: of a Once round its reports, of a Sampled one the clients that are drawn. CheckIn has none,
	// and All takes Population.
	Reports int64
	// Gamma is γ of CheckIn: the chance that a client's coin says yes.
	Gamma float64
	// Least is m of Sampled and CheckIn: a round of fewer honest reports is void, and who of the clients is
	// there to report is anybody's choice, before each draw. Each announced round is an event, void or not. 0: all
	// who are drawn report, or all whose coins say so.
	Least int64
}

// Repeat is the same event, repeated Times times adaptively.
type Repeat struct {
	Event Event
	Times int64
}

// Sequence is an adaptive composition of events.
type Sequence []Event

func (Round) event()    {}
func (Repeat) event()   {}
func (Sequence) event() {}

// Validate returns an error that names the first value out of range.
func (r Round) Validate() error {
	if err := r.Report.check(); err != nil {
		return err
	}
	if err := r.Trust.check(r.Report.Class); err != nil {
		return err
	}
	if r.Population < 1 {
		return fmt.Errorf("dp: n = %d must be at least 1", r.Population)
	}
	switch r.Participation {
	case All:
		if r.Reports != 0 && r.Reports != r.Population {
			return fmt.Errorf("dp: k = %d must equal n = %d when all take part", r.Reports, r.Population)
		}
	case Sampled, Once:
		if r.Reports < 1 || r.Reports > r.Population {
			return fmt.Errorf("dp: k = %d must lie between 1 and n = %d", r.Reports, r.Population)
		}
	case CheckIn:
		if math.IsNaN(r.Gamma) || r.Gamma <= 0 || r.Gamma > 1 {
			return fmt.Errorf("dp: gamma = %v must be above 0 and at most 1", r.Gamma)
		}
	default:
		return fmt.Errorf("dp: unknown participation %q", r.Participation)
	}
	switch {
	case r.Least == 0:
	case r.Participation != Sampled && r.Participation != CheckIn:
		return fmt.Errorf("dp: n-min = %d has no meaning with participation %s: n is the fewest reports", r.Least, r.Participation)
	case r.Least < 0 || r.Participation == Sampled && r.Least > r.Reports || r.Least > r.Population:
		return fmt.Errorf("dp: n-min = %d must lie between 1 and the %d clients that can report", r.Least, r.most())
	}
	return nil
}

// most is the largest number of reports that a round can have.
func (r Round) most() int64 {
	if r.Participation == Sampled {
		return r.Reports
	}
	return r.Population
}

// Accountant turns an event into a guarantee. It is a pure function of the event; anything
// that it remembers between calls is a cache. An event that it does not know is an error,
// never a guess.
type Accountant interface {
	// Eps returns the tightest proved upper bound on ε at delta, rounded up.
	Eps(ev Event, delta float64) (Bound, error)
}
