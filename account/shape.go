package account

import (
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
)

// shape is everything that a round's dominating pair depends on. Either reports is known, or
// each of asked clients reports with probability gamma, or nobody knows who is there and least is set.
type shape struct {
	trust      dp.Trust
	eps0       float64
	sigma      float64 // of Gaussian reports, which have no eps0
	population int64   // n
	reports    int64   // k, the reports that shuffle together
	included   int64   // how many of n, a uniform subset; k or more
	asked      int64
	gamma      float64
	colluders  int64 // number in the population, from which a uniform subset is asked
	// least is the fewest reports of a round that is not void, if it is not known who is there: asked of the
	// population are drawn, or each who is there reports with probability gamma.
	least int64
	cross float64 // see Query.CrossEps0
	// What is known about the reports' class: see dp.Report. Zero without a shuffler.
	class   dp.Class
	symbols int
	tv      float64
	steps   dp.Steps
}

// shapeOf describes a validated round.
func shapeOf(r dp.Round) shape {
	s := shape{trust: r.Trust, eps0: r.Report.Eps0, sigma: r.Report.Sigma, population: r.Population, reports: r.Reports, included: r.Reports,
		class: r.Report.Class, symbols: r.Report.Symbols, tv: r.Report.TV, steps: r.Report.Steps}
	if s.symbols == 2 { // K-RR on two symbols has the law of binary randomized response
		s.class, s.symbols = dp.BinaryRR, 0
	}
	switch {
	case r.Trust.Is(dp.Alone):
		// Every report carries its sender's name, so only the report itself matters.
		return shape{trust: r.Trust, eps0: s.eps0, sigma: s.sigma, population: 1, reports: 1, included: 1}
	case r.Participation == dp.All:
		s.reports, s.included = r.Population, r.Population
	case r.Participation == dp.Once:
		s.population = s.reports // it is public who is in which batch
	case r.Participation == dp.CheckIn && r.Least > 0: // no number of clients is assumed
		s.population, s.reports, s.included, s.gamma, s.least = 0, 0, 0, r.Gamma, r.Least
	case r.Participation == dp.CheckIn:
		s.reports, s.included, s.asked, s.gamma = 0, 0, r.Population, r.Gamma
	case r.Least > 0:
		s.asked, s.reports, s.included, s.least = r.Reports, 0, 0, r.Least
	}
	return s
}

// pair returns the dominating pair of one round.
func (s shape) pair(c clones) (dp.Pair, error) {
	if s.sigma > 0 {
		return s.gaussianPair(c.rough)
	}
	f, err := c.of(s)
	if err != nil {
		return dp.Pair{}, err
	}
	if s.least > 0 {
		return f.Attendance(s.attendance())
	}
	if s.gamma > 0 {
		return f.Arrival(s.arrival())
	}
	return f.Round(s.round())
}

func (s shape) arrival() amplify.FamilyArrival {
	return amplify.FamilyArrival{Population: s.population, Asked: s.asked, Gamma: s.gamma, Colluders: s.colluders}
}

func (s shape) round() amplify.FamilyRound {
	return amplify.FamilyRound{Population: s.population, Reports: s.reports, Included: s.included}
}

func (s shape) attendance() amplify.Attendance {
	return amplify.Attendance{Population: s.population, Sample: s.asked, Gamma: s.gamma, Least: s.least}
}

// maxLoss returns the largest loss that a round can have, log(1 + γ(e^ε₀ − 1)): a pure bound.
func (s shape) maxLoss() float64 {
	if s.sigma > 0 {
		return math.Inf(1)
	}
	if s.least > 0 { // all may be away but the fewest that make a round
		return s.eps0
	}
	included, honest := s.included, s.population-s.colluders
	if s.gamma > 0 {
		included = s.asked
	}
	if included >= honest || s.trust.Is(dp.Alone) {
		return s.eps0
	}
	return math.Log1p(float64(included) / float64(honest) * math.Expm1(s.eps0))
}
