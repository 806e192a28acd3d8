package literature

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/monotone"
	"github.com/riffle-dp/riffle/internal/tail"
)

// ShuffledMoment is log E_Q[(P/Q)^λ] of the clones pair of k reports with a rate of clones,
// at real order λ > 1, by its definition:
//
//	log E_C Σ_a C(m,a)2^{−m}·2/((E+1)m)·(Ea + b)^λ(a + Eb)^{1−λ}, b = m − a, m = C + 1.
//
// Divide by λ − 1 for the Rényi divergence: nats, replace-one adjacency. Upper, proved for
// rates Clones and Blanket. Source: EAB, Theorem 1, which equals this sum. Outcomes of mass
// 1e-30 in total are charged at e^{ε₀(λ−1)}; 1e-9 is added. Time O(k): k at most 1e6.
func ShuffledMoment(eps0 float64, reports int64, rate, order float64) (float64, error) {
	if err := checkRound(eps0, max(reports, 1), reports); err != nil {
		return 0, err
	}
	if !(rate > 0 && rate <= 1) {
		return 0, fmt.Errorf("amplify: rate = %v must be above 0 and at most 1", rate)
	}
	if reports > 1e6 || !(order > 1) {
		return 0, fmt.Errorf("amplify: k = %d must be at most 1e6 and order = %v above 1: %w", reports, order, dp.ErrNoBound)
	}
	const drop = 1e-30
	// This is the excess over 1 of each outcome and its mirror image, as in a Rényi sum of a
	// symmetric pair: Q(e^{λL} − 1)(1 − e^{−(λ−1)L}).
	var sum logSum
	lo, hi := tail.Window(reports-1, rate, 1-rate, drop/4, drop/4)
	logE1 := eps0 + math.Log1p(math.Exp(-eps0)) // log(E+1)
	shrink := math.Exp(-eps0)
	tail.PMF(reports-1, rate, 1-rate, lo, hi, func(c int64, mass float64) {
		m := c + 1
		_, top := tail.Window(m, .5, .5, drop/8, drop/8)
		tail.PMF(m, .5, .5, m/2+1, top, func(a int64, bin float64) {
			b := float64(m - a)
			under := float64(a)*shrink + b // (a + Eb)/E
			loss := math.Log1p(-math.Expm1(-eps0) * (float64(a) - b) / under)
			q := math.Log(mass*bin*2*under/float64(m)) + eps0 - logE1
			rise := order * loss
			if rise < 500 {
				rise = math.Log(math.Expm1(rise))
			}
			sum.add(q + rise + math.Log(-math.Expm1(-(order-1)*loss)))
		})
	})
	sum.add(math.Log(drop) + eps0*(order-1))
	return log1pExp(sum.value()) * (1 + 1e-9), nil
}

// GDP is a Gaussian privacy guarantee: telling neighbours apart is no easier than telling
// N(0, 1) from N(Mu, 1). Dong, Roth, Su 2022.
type GDP struct{ Mu float64 }

// ShuffleGDP is the Gaussian limit of a number, times, of composed shuffles, in each of which
// all k ≥ 2 clients report:
//
//	μ = √times·2·tanh(ε₀/2)/√((k−1)e^{−ε₀} + 4E/(E+1)²).
//
// It is also that of shuffled Laplace DP-SGD: in each epoch, times of them in all, the clients
// are split into blocks of k, and the ε₀-LDP Laplace reports of each block are shuffled; a
// client is in one block an epoch. The exact bound is that of one shuffle, composed as often.
//
// Approximate: it under-reports ε (by 3.1 % at ε₀ = 1, k = 100, by 55 % at ε₀ = 4, k = 1000,
// of one shuffle) and is never a guarantee. Source: EAB, Theorem 2; Algorithm 1, Theorem 3
// and Proposition 2.
func ShuffleGDP(eps0 float64, reports, times int64) (GDP, error) {
	if times < 1 {
		return GDP{}, fmt.Errorf("amplify: epochs = %d must be at least 1", times)
	}
	if err := dp.CheckEps0(eps0); err != nil {
		return GDP{}, err
	}
	if reports < 2 || reports > maxReports {
		return GDP{}, fmt.Errorf("amplify: k = %d must lie between 2 and 2^52: %w", reports, dp.ErrNoBound)
	}
	cosh := math.Cosh(eps0 / 2) // 4E/(E+1)² = 1/cosh²
	mu := 2 * math.Tanh(eps0/2) / math.Sqrt(float64(reports-1)*math.Exp(-eps0)+1/(cosh*cosh))
	return GDP{mu * math.Sqrt(float64(times))}, nil
}

// normal is the standard normal distribution function.
func normal(x float64) float64 { return tail.UpperNormal(-x) }

// Delta is δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), to 1e-15/μ relative.
func (g GDP) Delta(eps float64) float64 {
	if !(g.Mu > 0) {
		return 0
	}
	under := normal(-g.Mu/2 - eps/g.Mu)
	if under > 0 {
		under = math.Exp(eps + math.Log(under))
	}
	return math.Min(1, math.Max(0, normal(g.Mu/2-eps/g.Mu)-under))
}

// Epsilon is the smallest ε ≥ 0 with Delta(ε) ≤ delta.
func (g GDP) Epsilon(delta float64) float64 {
	top := g.Mu*g.Mu/2 + g.Mu*math.Sqrt(-2*math.Log(delta))
	return monotone.Falling(g.Delta, delta, 0, top*(1+1e-9), 1e-10)
}
