package literature

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// ShuffleRenyi is the Rényi divergence of one shuffle, without sampling and on a sample, at
// integer orders. It caches what it computed and is not for concurrent use.
type ShuffleRenyi struct {
	eps0    float64
	logKbar float64
	few     float64   // −(k−1)/(8E)
	moments []float64 // at j: an upper bound on log E[(P/Q)^j]; 0 and 1 are not used
	logFact []float64
	terms   []float64
}

// NewShuffleRenyi prepares k reports of one ε₀-LDP randomizer.
func NewShuffleRenyi(eps0 float64, reports int64) (*ShuffleRenyi, error) {
	if err := dp.CheckEps0(eps0); err != nil {
		return nil, err
	}
	if reports < 1 || reports > maxReports {
		return nil, fmt.Errorf("amplify: k = %d must lie between 1 and 2^52", reports)
	}
	s := &ShuffleRenyi{eps0: eps0, moments: []float64{0, 0}, logFact: []float64{0, 0}}
	s.logKbar, s.few = ternaryParts(eps0, reports)
	return s, nil
}

// choose is log C(n, k) from the table.
func (s *ShuffleRenyi) choose(n, k int) float64 {
	for len(s.logFact) <= n {
		s.logFact = append(s.logFact, s.logFact[len(s.logFact)-1]+math.Log(float64(len(s.logFact))))
	}
	return s.logFact[n] - s.logFact[k] - s.logFact[n-k]
}

// term returns the log of i·Γ(i/2)((E²−1)²/(2k̄E²))^{i/2}, which is 2^−i times the ternary
// bound. The ternary bound allows for a third dataset.
func (s *ShuffleRenyi) term(i int) float64 {
	for j := len(s.terms); j <= i; j++ {
		x := float64(max(2, j))
		s.terms = append(s.terms, ternarySame(s.eps0, x)-x*math.Ln2-x/2*s.logKbar)
	}
	return s.terms[i]
}

// moment bounds log E[(P/Q)^λ] for λ ≥ 2.
func (s *ShuffleRenyi) moment(lambda int) float64 {
	for j := len(s.moments); j <= lambda; j++ {
		// A shuffle of ε₀-LDP reports is (ε₀, 0)-DP.
		pure := float64(j-1) * s.eps0
		if few := float64(j)*s.eps0 + s.few; few < pure {
			var sum logSum
			for i := 2; i <= j; i++ {
				sum.add(s.choose(j, i) + s.term(i))
			}
			sum.add(few)
			pure = math.Min(pure, log1pExp(sum.value())*(1+1e-9))
		}
		s.moments = append(s.moments, pure)
	}
	return s.moments[lambda]
}

// whole bounds the Rényi divergence of order λ ≥ 2, an integer, of one
// shuffle: nats, replace-one adjacency, any ε₀-LDP randomizer, and at most ε₀.
//
// Upper, proved. Source: Girgis, Data, Diggavi, Suresh, Kairouz 2021 (CCS),
// Theorem 1 (EAB's equation 4 simplifies it; wbk.md has the steps):
//
//	1/(λ−1)·log(1 + C(λ,2)(E−1)²/(k̄E)
//	  + Σ_{i=3..λ} C(λ,i)·i·Γ(i/2)((E²−1)²/(2k̄E²))^{i/2} + e^{ε₀λ − (k−1)/(8E)}).
//
// Relative error 1e-9 added. Time O(λ²) for all orders up to λ.
func (s *ShuffleRenyi) whole(order int) (float64, error) {
	if order < 2 {
		return 0, fmt.Errorf("amplify: order = %d must be a whole number of at least 2: %w", order, dp.ErrNoBound)
	}
	return s.moment(order) / float64(order-1) * (1 + 1e-14), nil
}

// SimpleDivergence is the coarser bound at real orders λ > 1,
//
//	1/(λ−1)·log(e^{λ²(E−1)²/k̄} + e^{ε₀λ − (k−1)/(8E)}),
//
// EAB's equation 4: Girgis et al. 2021 (CCS), Theorem 2. Upper, proved in wbk.md.
func (s *ShuffleRenyi) SimpleDivergence(order float64) float64 {
	if !(order > 1) {
		return math.Inf(1)
	}
	square := math.Exp(2*math.Log(order*math.Expm1(s.eps0)) - s.logKbar)
	return logAdd(square, s.eps0*order+s.few) / (order - 1) * (1 + 1e-12)
}

// Divergence bounds the Rényi divergence of order λ ≥ 2, an integer, of the shuffle on a
// sample of rate γ without replacement: nats, replace-one adjacency, any ε₀-LDP randomizer.
//
// Upper, proved. Source: Wang, Balle, Kasiviswanathan 2019, Theorem 9:
//
//	1/(λ−1)·log(1 + γ²C(λ,2)·min{4(e^{ε(2)}−1), e^{ε(2)}·min{2, (E−1)²}}
//	  + Σ_{j=3..λ} γ^j·C(λ,j)·e^{(j−1)ε(j)}·min{2, (E−1)^j}),
//
// ε(j) bounds the divergence of order j without sampling, γ = 1 (see whole), and ε(∞) = ε₀.
//
// With plain set it leaves out 4(e^{ε(2)}−1), the first part of the minimum. That bound is
// coarser, also upper and proved. Girgis et al. 2021 (NeurIPS) seem to compare with it,
// because it gives their factor of 2.5 and the order of the curves in their Figure 2b.
func (s *ShuffleRenyi) Divergence(gamma float64, order int, plain bool) (float64, error) {
	if !(gamma > 0 && gamma <= 1) {
		return 0, fmt.Errorf("amplify: gamma = %v must be above 0 and at most 1", gamma)
	}
	whole, err := s.whole(order)
	if err != nil || gamma == 1 {
		return whole, err
	}
	rise := math.Log(math.Expm1(s.eps0))
	second := s.moment(2) + math.Min(math.Ln2, 2*rise)
	if !plain {
		second = math.Min(math.Log(4*math.Expm1(s.moment(2))), second)
	}
	var sum logSum
	sum.add(2*math.Log(gamma) + s.choose(order, 2) + second)
	for j := 3; j <= order; j++ {
		x := float64(j)
		sum.add(x*math.Log(gamma) + s.choose(order, j) + s.moment(j) + math.Min(math.Ln2, x*rise))
	}
	return log1pExp(sum.value()) * (1 + 1e-9) / float64(order-1), nil
}
