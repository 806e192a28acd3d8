package literature

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/tail"
)

// Distributed check-in with Gaussian noise as published: SCI ("self check-in"), Theorem 4.
// All functions are for integer Rényi orders λ ≥ 2, in nats, replace-one adjacency; Gaussian
// and GaussianArrival are tighter.

// logWBKGaussian returns log(e^{(λ−1)·D} − 1) for a bound D on the divergence of
// order λ of the sum of k Gaussian reports, clients sampled at rate gamma
// without replacement:
//
//	γ²·C(λ,2)·min(4(e^v − 1), 2e^v) + Σ_{j=3..λ} 2γ^j·C(λ,j)·e^{v·j(j−1)/2},
//
// v = 4/(kσ²). Upper bound, proved. Source: Wang, Balle, Kasiviswanathan 2019,
// Theorem 9, with the Gaussian's j·v/2; SCI, Theorem 4. Time O(λ).
func logWBKGaussian(gamma, sigma float64, k int64, order int) float64 {
	v := 4 / (float64(k) * sigma * sigma)
	lambda, lg := float64(order), math.Log(gamma)
	second := math.Ln2 + v
	if v < 1 {
		second = math.Min(second, math.Log(4*math.Expm1(v)))
	}
	// log C(λ, j) is computed by its recursion, because lgamma would be the slowest part.
	choose := math.Log(lambda * (lambda - 1) / 2)
	var sum logSum
	sum.add(2*lg + choose + second)
	for j := 3.; j <= lambda; j++ {
		choose += math.Log((lambda - j + 1) / j)
		sum.add(math.Ln2 + j*lg + choose + v*j*(j-1)/2)
	}
	return sum.value() + 1e-12*lambda
}

// WBKGaussian returns an upper bound on the Rényi divergence of order λ of a round with a
// fixed number of reports of which the sum is seen. Proved: Wang, Balle, Kasiviswanathan
// 2019, Theorem 9.
func WBKGaussian(c amplify.GaussianConfig, order int) (float64, error) {
	gamma, err := c.Inclusion()
	if err != nil {
		return 0, err
	}
	if order < 2 {
		return 0, fmt.Errorf("amplify: order = %d must be a whole number of at least 2: %w", order, dp.ErrNoBound)
	}
	return log1pExp(logWBKGaussian(gamma, c.Sigma, c.Reports, order)) * (1 + 1e-9) / float64(order-1), nil
}

func checkSCI(c amplify.GaussianArrivalConfig, order int) error {
	if _, err := (amplify.GaussianConfig{Sigma: c.Sigma, Population: c.Population, Reports: c.Asked}).Inclusion(); err != nil {
		return err
	}
	if !(c.Gamma > 0 && c.Gamma <= 1) {
		return fmt.Errorf("amplify: gamma = %v must be above 0 and at most 1", c.Gamma)
	}
	if c.Colluders != 0 {
		return fmt.Errorf("amplify: colluders = %d must be 0: %w", c.Colluders, dp.ErrNoBound)
	}
	if order < 2 {
		return fmt.Errorf("amplify: order = %d must be a whole number of at least 2: %w", order, dp.ErrNoBound)
	}
	return nil
}

// SCIEquation10 returns an upper bound on the Rényi divergence of order λ of a check-in round
// of which the sum is seen. It is SCI, Theorem 4, equation 10, with two corrections: inclusion
// is k/n where the paper prints γ (given k the participants are a uniform k-subset), and k =
// 0, which the paper drops, is included. Proved. Time O(λ) for some hundred blocks of k.
//
// With printed set inclusion is γ for every k, but k = 0 is included, without which the value
// can fall below 0. Approximate: with γ in place of k/n the bound is not proved, and for small
// n it is false.
func SCIEquation10(c amplify.GaussianArrivalConfig, order int, printed bool) (float64, error) {
	if err := checkSCI(c, order); err != nil {
		return 0, err
	}
	var sum logSum
	add := func(first, last int64, logWeight float64) {
		inclusion := float64(last) / float64(c.Population)
		if printed {
			inclusion = c.Gamma * float64(c.Asked) / float64(c.Population)
		}
		sum.add(logWeight + logWBKGaussian(inclusion, c.Sigma, first, order))
	}
	lo, _ := tail.Window(c.Asked, c.Gamma, 1-c.Gamma, 1e-17, 1e-17)
	for _, b := range amplify.Arrivals(c.Asked, c.Gamma) {
		if b.Last > 0 && b.Last >= lo {
			add(max(1, b.First), b.Last, math.Log(b.Weight))
		}
	}
	// The lower tail is summed by logarithms, because at high orders its smallest k dominate.
	q := 1 - c.Gamma
	for k := lo - 1; k > 0; {
		first := k - k/256
		weight := tail.LogPMF(c.Asked, k, c.Gamma, q)
		if first < k {
			// Going down from k, masses fall at least by this ratio.
			r := float64(k) * q / (float64(c.Asked-k+1) * c.Gamma)
			weight -= math.Log1p(-math.Min(r, .999999))
		}
		add(first, k, weight+1e-9)
		k = first - 1
	}
	return log1pExp(sum.value()) * (1 + 1e-9) / float64(order-1), nil
}

// SCIEquation11 is SCI, Theorem 4, equation 11 as printed,
//
//	1/(λ−1)·log(e^{(λ−1)ε₁ − Δ²nγ/2} + e^{(λ−1)ε_m}),  m = ⌊(1−Δ)nγ⌋ + 1,
//
// at the best of a hundred Δ in [0, 1]. Approximate, like equation 10.
func SCIEquation11(c amplify.GaussianArrivalConfig, order int) (float64, error) {
	if err := checkSCI(c, order); err != nil {
		return 0, err
	}
	mean, gamma := c.Gamma*float64(c.Asked), c.Gamma*float64(c.Asked)/float64(c.Population)
	one := log1pExp(logWBKGaussian(gamma, c.Sigma, 1, order))
	best := math.Inf(1)
	for i := range 101 {
		delta := float64(i) / 100
		m := int64((1-delta)*mean) + 1
		var sum logSum
		sum.add(one - delta*delta*mean/2)
		sum.add(log1pExp(logWBKGaussian(gamma, c.Sigma, m, order)))
		best = math.Min(best, sum.value())
	}
	return best * (1 + 1e-9) / float64(order-1), nil
}
