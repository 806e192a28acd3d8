package literature

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
)

// Round describes a round of shuffled reports whose Rényi divergence is to be bounded. A
// uniform subset of the n clients report, or report by self check-in; their number k is public.
type Round struct {
	Eps0       float64 // Required.
	Population int64   // Required. n.
	Reports    int64   // size of the subset; with self check-in 0 means all
	// Gamma is for self check-in, k ~ Bin(Reports, Gamma): the probability with which each
	// client of the subset reports. 0 means that all of them do, k = Reports.
	Gamma float64
}

// checkIn returns the round of self check-in with its default.
func (c Round) checkIn() (Round, error) {
	if c.Reports == 0 {
		c.Reports = c.Population
	}
	if err := checkRound(c.Eps0, c.Population, c.Reports); err != nil {
		return c, err
	}
	if !(c.Gamma > 0 && c.Gamma <= 1) {
		return c, fmt.Errorf("amplify: gamma = %v must be above 0 and at most 1", c.Gamma)
	}
	return c, nil
}

// mean is the mean number of reports.
func (c Round) mean() float64 { return float64(c.Reports) * c.Gamma }

// inclusion is the mean inclusion, which is γ if all clients are asked.
func (c Round) inclusion() float64 { return c.mean() / float64(c.Population) }

// ternaryMix holds log E_k[γ_k^α ζ_k(α)^α] of a mixture over the number of reports k, split
// as in Girgis et al. 2021, Theorem 4: same[α] = log E[γ_k^α k̄^{−α/2}] and few[α] = log
// E[γ_k^α e^{−(k−1)/(8E)}].
type ternaryMix struct {
	eps0      float64
	term      func(alpha float64) (same, few float64)
	remembers []float64 // cache of log moments
}

// moment returns log E_k[γ_k^α ζ_k(α)^α].
func (m *ternaryMix) moment(alpha int) float64 {
	for a := len(m.remembers); a <= alpha; a++ {
		if a < 2 {
			m.remembers = append(m.remembers, math.Inf(-1))
			continue
		}
		x := float64(a)
		same, few := m.term(x)
		m.remembers = append(m.remembers, logAdd(ternarySame(m.eps0, x)+same, x*logWidth(m.eps0)+few))
	}
	return m.remembers[alpha]
}

// SCITheorem1 bounds the Rényi divergence of self check-in: Girgis et al. 2021, Theorem 1, at
// every k, mixed over k ~ Bin(Reports, Gamma). The result is the divergence (nats, replace-one
// adjacency) at integer orders of at least 2, not for concurrent use.
//
// Upper, proved; any ε₀-LDP randomizer of finitely many outputs, k public or hidden. Source:
// SCI, Theorem 1, with inclusion k/n: given k the participants are a uniform k-subset. With
// printed set it uses γ for every k, as the paper's proof does, which is unsound and for
// comparison only. Blocks of k take their smallest k̄ and largest inclusion, which costs less
// than 1e-3 of the divergence. Time O(λ·√k/1000).
func SCITheorem1(c Round, printed bool) (divergence func(order int) (float64, error), err error) {
	c, err = c.checkIn()
	if err != nil {
		return nil, err
	}
	type block struct{ weight, gamma, kbar, few float64 } // logarithms
	var blocks []block
	for _, k := range amplify.Arrivals(c.Reports, c.Gamma) {
		if k.Last == 0 || k.Weight == 0 {
			continue // no reports: loss 0
		}
		b := block{weight: math.Log(k.Weight), gamma: math.Log(float64(k.Last) / float64(c.Population))}
		if printed {
			b.gamma = math.Log(c.inclusion())
		}
		b.kbar, b.few = ternaryParts(c.Eps0, max(1, k.First))
		blocks = append(blocks, b)
	}
	mix := &ternaryMix{eps0: c.Eps0, term: func(alpha float64) (float64, float64) {
		var same, few logSum
		for _, b := range blocks {
			same.add(b.weight + alpha*(b.gamma-b.kbar/2))
			few.add(b.weight + alpha*b.gamma + b.few)
		}
		return same.value(), few.value()
	}}
	return func(order int) (float64, error) { return ternaryRenyi(1, order, mix.moment) }, nil
}

// SCITheorem2 is SCI's closed form for Theorem 1 at one Δ in [0, 1], as SCITheorem1 is, repaired:
//
//	1/(λ−1)·log(1 + Σ_{j=2..λ} C(λ,j)·γ^j·(c_j·(η + R_j·l̃^{−j/2}) + w^j·(η + R_j·e^{−⌊(1−Δ)μ⌋/(8E)}))),
//
// μ = nγ, η = e^{−Δ²μ/2}, l̃ = ⌊⌊(1−Δ)μ⌋/(2E)⌋ + 1, w = E − 1/E, c_j of ternarySame, and R_j
// = e^{μ(e^{j/μ}−1−j/μ)} ≥ E[(k/μ)^j].
//
// Upper, proved in selfcheckin.md. Source: SCI, Theorem 2. The paper prints 2ε₀, 8ε₀ and
// e^{−ε₀/l̃} for 2E, 8E and e^{−ε₀}/l̃, and its proof takes γ where inclusion is k/n; R_j
// corrects that. Time O(λ).
//
// With printed set it is the theorem as SCI prints it. Approximate and unsound: at n = 54000,
// γ = 1, ε₀ = 12, λ = 6 it is below the true divergence of a 3-ary randomized response. It is
// for comparison and for tests.
func SCITheorem2(c Round, Delta float64, printed bool) (divergence func(order int) (float64, error), err error) {
	c, err = c.checkIn()
	if err != nil {
		return nil, err
	}
	if !(Delta >= 0 && Delta <= 1) {
		return nil, fmt.Errorf("amplify: Delta = %v must lie between 0 and 1", Delta)
	}
	if printed {
		return func(order int) (float64, error) { return sciTheorem2Printed(c, Delta, order) }, nil
	}
	mu, gamma := c.mean(), math.Log(c.inclusion())
	low := -Delta * Delta * mu / 2 * (1 - 1e-14)
	least := math.Floor((1-Delta)*mu*(1-1e-15)) + 1 // k above (1−Δ)μ
	logL, few := ternaryParts(c.Eps0, int64(least))
	mix := &ternaryMix{eps0: c.Eps0, term: func(j float64) (float64, float64) {
		// This is e^x − 1 − x, without cancellation if j is far below μ.
		r := mu * -log1pMinusOf(math.Expm1(j/mu))
		return j*gamma + logAdd(low, r-j/2*logL), j*gamma + logAdd(low, r+few)
	}}
	return func(order int) (float64, error) { return ternaryRenyi(1, order, mix.moment) }, nil
}

// log1pMinusOf returns log(1+v) − v for v ≥ 0, so that with v = e^x − 1 its
// negative is e^x − 1 − x.
func log1pMinusOf(v float64) float64 {
	switch {
	case math.IsInf(v, 1):
		return math.Inf(-1)
	case v > 1e-3:
		return math.Log1p(v) - v
	}
	return -v * v * (.5 - v*(1./3-v*(.25-v*(.2-v/6))))
}

// sciTheorem2Printed is the bound of SCITheorem2 as printed.
func sciTheorem2Printed(c Round, Delta float64, order int) (float64, error) {
	if order < 2 {
		return 0, fmt.Errorf("amplify: order = %d must be a whole number of at least 2: %w", order, dp.ErrNoBound)
	}
	mu, gamma, lambda := c.mean(), c.inclusion(), float64(order)
	low := -Delta * Delta * mu / 2
	l := math.Floor((1-Delta)*mu/(2*c.Eps0)) + 1
	w := gamma * math.Expm1(2*c.Eps0) / math.Exp(c.Eps0)
	var sum logSum
	sum.add(math.Log(2*lambda*(lambda-1)) + 2*math.Log(gamma) + 2*math.Log(math.Expm1(c.Eps0)) + logAdd(low-c.Eps0, -c.Eps0/l))
	for j := 3; j <= order; j++ {
		x := float64(j)
		sum.add(logChoose(lambda, x) + x*math.Log(gamma) + ternarySame(c.Eps0, x) + logAdd(low, -x/2*math.Log(l)))
	}
	sum.add(logUpsilon(w, lambda) + logAdd(low, -(1-Delta)*mu/(8*c.Eps0)))
	return log1pExp(sum.value()) / (lambda - 1), nil
}

// SCITheorem3 is a lower bound on the Rényi divergence of order λ ≥ 2, an integer, of self
// check-in with binary randomized response, all others equal:
//
//	1/(λ−1)·log(1 + (1 − e^{−Δ²μ/(2+Δ)})·C(λ,2)·γ²(E−1)²/((1+Δ)μE)), μ = nγ.
//
// Lower, proved (also with inclusion k/n: selfcheckin.md), at the best of 64 Δ in [0, 1].
// Source: SCI, Theorem 3. Nats, replace-one adjacency, rounded down.
func SCITheorem3(c Round, order int) (float64, error) {
	c, err := c.checkIn()
	if err != nil {
		return 0, err
	}
	if order < 2 {
		return 0, fmt.Errorf("amplify: order = %d must be a whole number of at least 2: %w", order, dp.ErrNoBound)
	}
	mu, gamma, lambda := c.mean(), c.inclusion(), float64(order)
	var share float64
	for i := range 64 {
		d := math.Exp2(-float64(i) / 3)
		share = math.Max(share, -math.Expm1(-d*d*mu/(2+d))/(1+d))
	}
	x := 2*math.Log(gamma*math.Expm1(c.Eps0)) - c.Eps0 + math.Log(share*lambda*(lambda-1)/2/mu)
	return log1pExp(x) * (1 - 1e-12) / (lambda - 1), nil
}
