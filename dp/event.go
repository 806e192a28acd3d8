package dp

import (
	"fmt"
	"math"
)

// Class is the widest family of local randomizers that a bound covers.
type Class string

const (
	// Generic is the class of all ε₀-LDP randomizers.
	Generic Class = "generic"
	// BinaryRR is binary randomized response on one bit, with nothing else released.
	BinaryRR Class = "rr2"
	// KRR is k-ary randomized response on one of Report.Symbols symbols, with nothing else
	// released. Any bound for Generic covers it.
	KRR Class = "krr"
	// LaplaceL1 is Laplace noise, continuous or discrete, of scale 2C/ε₀ per coordinate on
	// vectors of the ball ‖x‖₁ ≤ C, with nothing else released.
	LaplaceL1 Class = "laplace"
	// Gaussian is a vector clipped to ℓ2 norm 1 plus N(0, σ²) on each coordinate. It is not
	// ε₀-LDP for any ε₀.
	Gaussian Class = "gaussian"
)

// Report is what one client's report promises on its own, before any shuffle.
type Report struct {
	Class Class
	// Eps0 is the local privacy parameter in nats, including numerical slack; 0 for class
	// Gaussian.
	Eps0 float64
	// Sigma is the noise of class Gaussian in units of the clip norm; 0 for all
	// other classes.
	Sigma float64
	// Symbols is k of class KRR, at least 2; 0 for all other classes.
	Symbols int
	// TV is a, if any two inputs' laws are known to differ by at most a(e^ε₀−1) in total
	// variation, a ≤ 1/(e^ε₀+1); 0 if nothing is known. It is set for class Generic only,
	// because the other classes determine it.
	TV float64
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
	// Reports is k, the honest reports in the round. Required for Sampled, and
	// for a CheckIn round that has happened; All takes Population.
	Reports int64
	// Rate is γ, the probability that a client's report arrives. It is read
	// only for a CheckIn round whose Reports are not known yet (planning).
	Rate float64
	// Realised says that Reports was counted, even if it is zero.
	Realised bool
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
	if err := r.Report.parameter(); err != nil {
		return err
	}
	switch r.Report.Class {
	case Generic, BinaryRR, LaplaceL1, Gaussian:
		if r.Report.Symbols != 0 {
			return fmt.Errorf("dp: symbols = %d given for class %q, which has none", r.Report.Symbols, r.Report.Class)
		}
	case KRR:
		if r.Report.Symbols < 2 {
			return fmt.Errorf("dp: symbols = %d must be at least 2 for class %q", r.Report.Symbols, KRR)
		}
	default:
		return fmt.Errorf("dp: unknown randomizer class %q", r.Report.Class)
	}
	if tv := r.Report.TV; tv != 0 {
		if r.Report.Class != Generic {
			return fmt.Errorf("dp: total-variation parameter a = %v given for class %q, whose own is known", tv, r.Report.Class)
		}
		if err := CheckTV(r.Report.Eps0, tv); err != nil {
			return err
		}
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
		if r.Realised {
			if r.Reports < 0 || r.Reports > r.Population {
				return fmt.Errorf("dp: k = %d must lie between 0 and n = %d", r.Reports, r.Population)
			}
		} else if math.IsNaN(r.Rate) || r.Rate <= 0 || r.Rate > 1 {
			return fmt.Errorf("dp: gamma = %v must be above 0 and at most 1", r.Rate)
		}
	default:
		return fmt.Errorf("dp: unknown participation %q", r.Participation)
	}
	return nil
}

// parameter returns an error unless a report has what its class needs and nothing else.
func (r Report) parameter() error {
	if r.Class == Gaussian {
		if r.Eps0 != 0 {
			return fmt.Errorf("dp: eps0 = %v given for class %s, which has sigma", r.Eps0, Gaussian)
		}
		return CheckSigma(r.Sigma)
	}
	if r.Sigma != 0 {
		return fmt.Errorf("dp: sigma = %v given for class %q, which has eps0", r.Sigma, r.Class)
	}
	return CheckEps0(r.Eps0)
}

// Accountant turns an event into a guarantee. It is a pure function of the event; anything
// that it remembers between calls is a cache. An event that it does not know is an error,
// never a guess.
type Accountant interface {
	// Eps returns the tightest proved upper bound on ε at delta, rounded up.
	Eps(ev Event, delta float64) (Bound, error)
}
