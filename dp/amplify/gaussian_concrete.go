package amplify

import (
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// GaussianOutcomes lists outcomes of a round of which the sum is seen, in which the victim's
// vector is v under P and −v under Q, and everybody else's is −v. Any bound for Gaussian
// reports must allow their loss, because the sum can be computed from the reports as well.
// Losses rise; P is the mixture with inclusion k/n, Q the law without the victim. Cells of a
// 25th of a deviation are merged and mass beyond 14 deviations is left out; both only leak
// less. Gamma = 1 means a fixed k = Asked. With colluders k counts the others' reports.
func GaussianOutcomes(c GaussianArrivalConfig) ([]dp.Atom, error) {
	if err := (GaussianConfig{Sigma: c.Sigma, Population: c.Population, Reports: c.Asked}).validate(); err != nil {
		return nil, err
	}
	concrete := ConcreteConfig{Eps0: 1, Population: c.Population, Asked: c.Asked, Gamma: c.Gamma, Colluders: c.Colluders} // Eps0 is not used here
	sizes, err := concrete.sizes()
	if err != nil {
		return nil, err
	}
	const width, far = 1. / 25, 14.
	span := func(b spanned) (mu, end float64) {
		mu = 2 / (c.Sigma * math.Sqrt(float64(b.Last)))
		return mu, math.Min(mu/2+far, 37-mu/2)
	}
	visit := func(b spanned, gamma float64, yield func(p, q, over float64)) {
		mu, end := span(b)
		for i := math.Floor(-end / width); i*width < end; i++ {
			a := i * width
			q, rise := gaussianCell(mu, a, a+width)
			grow := math.Exp(mu * a)
			over := gamma * (grow*rise + math.Expm1(mu*a)*q)
			w := b.Weight * (1 - 1e-11)
			yield(w*((1-gamma)*q+gamma*grow*(q+rise)), w*q, w*over)
		}
	}
	extremes := func(b spanned, gamma float64) (low, high float64) {
		mu, end := span(b)
		low = -mu * end // e^low may be lost by rounding beside 1
		if gamma < 1 {
			low = math.Log1p(gamma * math.Expm1(low))
		}
		return low, SampledLoss(mu*end, gamma)
	}
	return concrete.list(sizes, visit, extremes, false)
}
