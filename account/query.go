package account

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// Query asks for the cost of rounds that are all alike. The zero value of a field means "not
// given"; Participation decides which fields are required.
type Query struct {
	Trust         dp.Trust         // "" means dp.DefaultTrust
	Participation dp.Participation // Required.
	Adjacency     dp.Adjacency     // "" means dp.ReplaceOne; dp.AddRemoveOne for check-in of Gaussian sums only
	Class         dp.Class         // "" means dp.Generic; VectorSumClass: see Sum
	Symbols       int              // K; required for dp.KRR, 0 otherwise
	// TV is a total-variation parameter a of class Generic, see dp.Report; 0: not known. Class
	// Cap requires it.
	TV    float64
	Steps dp.Steps // required for dp.Rising
	Eps0  float64  // ε₀ of one report. Required, except for dp.Gaussian and dp.GaussianSum.
	// CrossEps0 is for clients with different randomizers in a round, one of whom has Eps0: at no outcome is the
	// chance of this client's report more than e^CrossEps0 times that of any other client's, whatever
	// they hold. It is no client's own ε₀. 0: all clients have the same randomizer, or CrossEps0 = Eps0. For
	// class Generic without TV, participation All or Once, and no drop-outs: dp/amplify/across.md.
	CrossEps0 float64
	// Sigma is required for dp.Gaussian and dp.GaussianSum, 0 otherwise: σ of one report, or of the
	// sum, over the clip norm.
	Sigma      float64
	Population int64   // Required. n.
	Reports    int64   // k; required for Sampled and Once
	Gamma      float64 // γ before drop-outs; required for CheckIn
	Dropout    float64 // p′ in [0, 1): a report is lost, independently of the data
	// Least is n-min, m: a round of fewer reports is void, and nothing is assumed of who is there to report, but that it
	// follows neither from data nor from draws. Rounds then counts void ones too, but for All and Once, where they cost
	// nothing. 0: all report who are asked, but for Dropout. Of vector sums Sum says it.
	Least  int64
	Rounds int64 // Required. T.
	// Messages is the number of messages m of each client in a round, all of the same data and
	// each with Eps0; 0 means one. No chance is credited to several: see alone.
	Messages int64
	// Colluders is the number of clients, of the n, that tell the observer everything they
	// know. The others are protected, and colluders hide nobody. With Once all of them may be
	// in one batch: see dp/amplify/colluders.md.
	Colluders int64
	// HiddenReports says whether the number of reports of a round is hidden from everybody. The
	// bounds returned are those for a public number.
	HiddenReports bool
	// AdaptiveWithinRound lets a report's randomizer depend on the round's earlier reports; with
	// whatever came before it is of the class. Only bounds proved for that case answer.
	AdaptiveWithinRound bool
	// Delta in (0, 1) is the δ at which ε is bounded. With AskDelta, δ is bounded at Eps ≥ 0
	// and Delta must be 0.
	Delta    float64
	AskDelta bool
	Eps      float64
	// Sum describes a round of class VectorSumClass, of which an observer sees only the summed
	// counts. What the query has on single reports (Eps0, Sigma, Symbols, TV), Colluders,
	// HiddenReports and AdaptiveWithinRound must then be left empty; Trust may be a mode in
	// which only sums are seen. Defaults: Users is the most clients that a round can have;
	// MinUsers, below which it is void, is what Surely returns; Radius is 1; Norm is as in
	// vecsum.Tight.
	//
	// The accounting relies on noise from a share Honest of every opened round's clients, and
	// on at least that share of all Population being honest. It relies on nothing from the
	// others.
	Sum vecsum.Params
	// NoiseBy says who adds a vector sum's noise; "": clients. With vecsum.ByAggregators the noise is
	// Sigma, of which Sum says no more than Dim; nothing is asked of other clients, so Colluders is
	// allowed, and counts only where chance does.
	NoiseBy vecsum.NoiseBy
	// Every, if not 0, says that each client takes part in at most one of so many consecutive rounds, by
	// its own count, and that the noise is correlated over rounds by Strategy; Sigma is then
	// that of one round's release (vecsum.Aggregated.Sigma). Who takes part is no secret, so Participation
	// is dp.All. With noise by clients Sigma is that of the share Honest of MinUsers clients together, of which Sum says no
	// more besides Dim; by default they are what Surely returns of one client in Every.
	Every int64
	// Strategy says how the noise is correlated; "": toeplitz.Band.
	Strategy toeplitz.Kind
}

// maxRounds keeps products of rounds and losses far from overflow.
const maxRounds = 1e12

// Validate returns an error that names the first value out of range.
func (q Query) Validate() error {
	switch {
	case q.isSum():
		return q.validateSum()
	case q.Every != 0 || q.Strategy != "":
		return fmt.Errorf("account: every = %d and strategy %q go with class %s", q.Every, q.Strategy, VectorSumClass)
	case q.NoiseBy != "":
		return fmt.Errorf("account: noise-by %s goes with class %s, not %q", q.NoiseBy, VectorSumClass, q.Class)
	case q.Sum != (vecsum.Params{}):
		return fmt.Errorf("account: a vector sum goes with class %s, not %q", VectorSumClass, q.Class)
	}
	if err := q.event().Validate(); err != nil {
		return err
	}
	if err := q.validateMessages(); err != nil {
		return err
	}
	switch a := q.withDefaults().Adjacency; {
	case a != dp.ReplaceOne && a != dp.AddRemoveOne:
		return fmt.Errorf("account: adjacency %q must be %s or %s", a, dp.ReplaceOne, dp.AddRemoveOne)
	case a == dp.AddRemoveOne && q.Class == dp.GaussianSum:
		return fmt.Errorf("account: adjacency %s is not counted for class %s: for a client replaced", a, q.Class)
	case a == dp.AddRemoveOne && (!q.Trust.Is(dp.RemovalCounted) || q.Participation != dp.CheckIn):
		return fmt.Errorf("account: adjacency %s is refused: the number of reports is public and fixed, so a removed client is seen to be missing; it is counted for trust %s with participation %s", a, dp.AnyTrust(dp.RemovalCounted), dp.CheckIn)
	}
	switch {
	case q.Population > 1<<52:
		return fmt.Errorf("account: n = %d must be at most 2^52", q.Population)
	case q.Rounds < 1 || q.Rounds > maxRounds:
		return fmt.Errorf("account: rounds = %d must lie between 1 and 1e12", q.Rounds)
	case q.Colluders < 0 || q.Colluders >= q.Population:
		return fmt.Errorf("account: colluders = %d must be at least 0 and fewer than n = %d", q.Colluders, q.Population)
	case !(q.Dropout >= 0 && q.Dropout < 1):
		return fmt.Errorf("account: dropout = %v must be at least 0 and below 1", q.Dropout)
	case q.Least != 0 && q.Dropout != 0:
		return fmt.Errorf("account: n-min = %d and dropout = %v: give one: with n-min nothing is assumed of who reports", q.Least, q.Dropout)
	case q.Least != 0 && (q.Least <= q.Colluders || q.Least > q.mostReports()):
		return fmt.Errorf("account: n-min = %d must lie above colluders = %d and be at most the %d reports that a round can have", q.Least, q.Colluders, q.mostReports())
	case q.CrossEps0 != 0 && !(q.CrossEps0 > 0 && q.CrossEps0 <= dp.MaxEps0):
		return fmt.Errorf("account: cross-eps0 = %v must be above 0 and at most %d", q.CrossEps0, dp.MaxEps0)
	case q.CrossEps0 != 0 && (q.withDefaults().Class != dp.Generic || q.TV != 0):
		return fmt.Errorf("account: cross-eps0 goes with class %s and no total-variation parameter", dp.Generic)
	case q.CrossEps0 != 0 && (q.Participation != dp.All && q.Participation != dp.Once || q.Dropout != 0):
		return fmt.Errorf("account: cross-eps0 goes with participation %s or %s and no drop-outs: where chance decides who reports, another client's report stands in this one's place", dp.All, dp.Once)
	case q.Participation != dp.CheckIn && q.Gamma != 0:
		return fmt.Errorf("account: gamma = %v has no meaning with participation %s", q.Gamma, q.Participation)
	case q.Participation == dp.Once && q.Rounds > q.Population/q.Reports:
		return fmt.Errorf("account: %d rounds of k = %d disjoint reports need more than n = %d clients", q.Rounds, q.Reports, q.Population)
	case (q.Participation == dp.All || q.Participation == dp.CheckIn) && q.Reports != 0:
		return fmt.Errorf("account: k = %d has no meaning with participation %s", q.Reports, q.Participation)
	}
	if q.Eps != 0 && !q.AskDelta {
		return fmt.Errorf("account: eps = %v is given but delta is not asked for", q.Eps)
	}
	if q.AskDelta {
		if q.Delta != 0 {
			return fmt.Errorf("account: delta = %v and eps = %v: give one, the other is bounded", q.Delta, q.Eps)
		}
		if !(q.Eps >= 0) || math.IsInf(q.Eps, 1) {
			return fmt.Errorf("account: eps = %v must be at least 0 and finite", q.Eps)
		}
		return nil
	}
	return dp.CheckDelta(q.Delta)
}

// mostReports is the largest number of reports that a round can have.
func (q Query) mostReports() int64 {
	if q.Participation == dp.Sampled || q.Participation == dp.Once {
		return q.Reports
	}
	return q.Population
}

// event returns one planned round of the query, without drop-outs.
func (q Query) event() dp.Round {
	q = q.withDefaults()
	r := dp.Round{Report: dp.Report{Class: q.Class, Eps0: q.Eps0, Sigma: q.Sigma, Symbols: q.Symbols, TV: q.TV, Steps: q.Steps}, Trust: q.Trust, Participation: q.Participation,
		Population: q.Population, Reports: q.Reports, Gamma: q.Gamma}
	if q.Least == 0 {
		return r
	}
	switch {
	case q.Participation == dp.Once:
		r.Reports = q.Least
	case q.Participation == dp.All || q.Colluders > 0:
		// Where some collude it is not known how many of a round's reports are honest, so no chance is credited.
		r.Participation, r.Population, r.Reports, r.Gamma = dp.All, q.Least, 0, 0
	default:
		r.Least = q.Least
	}
	return r
}

func (q Query) withDefaults() Query {
	if q.Trust == "" {
		q.Trust = dp.DefaultTrust
	}
	if q.Class == "" {
		q.Class = dp.Generic
	}
	if q.Adjacency == "" {
		q.Adjacency = dp.ReplaceOne
	}
	return q
}

// shape returns one planned round of the query, including drop-outs and colluders. Given
// their number, the honest reports that arrive come from a uniform subset of the honest
// clients.
func (q Query) shape() (shape, int64) {
	if q.Class == dp.GaussianSum {
		q.Dropout = 0 // who causes drop-outs may choose whom, and the noise stays as it is
	}
	ev, times := q.event(), q.Rounds
	switch ev.Participation {
	case dp.All, dp.CheckIn:
		ev.Population -= q.Colluders
	case dp.Once:
		ev.Reports = max(1, ev.Reports-q.Colluders)
	}
	s := shapeOf(ev)
	if s.trust.Is(dp.Shuffled) {
		s.cross = q.CrossEps0
	}
	if ev.Participation == dp.Sampled && q.Colluders > 0 && q.Class == dp.GaussianSum {
		// All who are asked may be of the others, and their noise is not counted on anyway: given
		// their number, the honest who are asked are a uniform subset of the honest.
		s.population -= q.Colluders
		s.included = min(s.included, s.population)
		s.reports = s.included
	}
	if ev.Participation == dp.Sampled && q.Colluders > 0 && q.Class != dp.GaussianSum && !s.trust.Is(dp.Alone) {
		s.colluders, s.asked, s.reports, s.included, s.gamma = q.Colluders, s.reports, 0, 0, 1
	}
	if ev.Participation == dp.Once {
		times = 1 // batches are disjoint: a client is in only one of them
	}
	if q.Dropout > 0 && s.reports > 0 && !s.trust.Is(dp.Alone) {
		s.asked, s.reports, s.included, s.gamma = s.reports, 0, 0, 1
	}
	if s.gamma > 0 && q.Dropout > 0 {
		s.gamma = math.Max(s.gamma*(1-q.Dropout), math.SmallestNonzeroFloat64)
	}
	return s, times
}
