package statistic

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// noise is the law of integer noise that does not depend on the data, and of random rounding.
// Errors of several sums are independent.
type noise struct {
	step float64 // of the grid, in the units of the sums
	// rounding bounds the variance of all reports' rounding, in squared steps.
	rounding float64
	// cumulants of the noise, without its mean: the second to the fourth, in steps.
	cumulants [3]float64
	// exact is the law of the noise where its variance is small, else empty.
	exact      lattice
	mid, whole tails // of exact
	atLeast    bool  // intervals hold with their chance at least
}

// exactBelow is the variance in squared steps below which a law is kept as a table. Above it
// cumulants give its quantiles with an error below 1e-6 standard deviations.
const exactBelow = 1e4

// roundedBelow is exactBelow where there is rounding too, which hides the grid.
const roundedBelow = 100

// OfClients returns the law of the errors of the sums that [vecsum.Params.Estimate] gives for a
// number of clients: the clients' noise exactly, and rounding to the grid by a bound on its
// variance. Counts are not rounded.
func OfClients(p vecsum.Params, clients int64) (Law, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if err := p.CheckCohort(clients); err != nil {
		return nil, err
	}
	l := &noise{step: 2 * p.Radius / float64(p.Grid), rounding: float64(clients) / 4}
	if p.Ones > 0 {
		l.step, l.rounding = 1/float64(p.Grid), 0
	}
	l.set(clientNoise(p.Noise), clients, p.Split)
	return l, nil
}

// OfAggregators is OfClients for the two noises of aggregators.
func OfAggregators(p vecsum.Aggregated, clients int64) (Law, error) {
	if _, _, err := p.Sigma(1); err != nil {
		return nil, err // it validates p
	}
	if clients < 1 || clients > p.Users {
		return nil, fmt.Errorf("statistic: %d clients must lie between 1 and users = %d", clients, p.Users)
	}
	l := &noise{step: p.Step()}
	if p.Ones == 0 {
		l.rounding = float64(clients) / 4
	}
	l.set(gaussianNoise(float64(p.Variance)), 2, false)
	return l, nil
}

// OfCurator returns the law of the errors of sums on a grid of the given step to which a
// curator adds one discrete Gaussian variable of parameter σ², in squared steps. exact says
// that inputs lie on the grid; otherwise so many reports are rounded to it at random.
func OfCurator(step, variance float64, reports int64, exact bool) (Law, error) {
	// The condition is negated so that it refuses a NaN.
	if !(step > 0 && step <= mostValue && variance >= 0x1p-20 && variance <= 0x1p60) || reports < 1 {
		return nil, fmt.Errorf("statistic: noise of variance %v on steps of %v leaves no law", variance, step)
	}
	l := &noise{step: step}
	if !exact {
		l.rounding = float64(reports) / 4
	}
	l.set(gaussianNoise(variance), 1, false)
	return l, nil
}

func (l *noise) independent() bool { return true }

func (l *noise) variance(float64) float64 {
	return l.step * l.step * (l.cumulants[0] + l.rounding)
}

func (l *noise) sources() []string {
	if l.rounding > 0 {
		return []string{"noise", "rounding"}
	}
	return []string{"noise"}
}

func (l *noise) interval(sum, chance float64) (low, high float64) {
	tail := (1 - chance) / 2
	if len(l.exact.mass) > 0 {
		if l.rounding == 0 {
			t := l.mid
			if l.atLeast {
				t = l.whole
			}
			least, most := t.accepted(tail)
			return l.onGrid(sum - l.step*most), l.onGrid(sum - l.step*least)
		}
		return sum - l.step*l.exact.smooth(l.rounding, 1-tail), sum - l.step*l.exact.smooth(l.rounding, tail)
	}
	v := l.cumulants[0] + l.rounding
	sd := math.Sqrt(v)
	skew, excess := l.cumulants[1]/(v*sd), l.cumulants[2]/(v*v)
	return sum - l.step*sd*cornishFisher(1-tail, skew, excess), sum - l.step*sd*cornishFisher(tail, skew, excess)
}

func (l *noise) surely() Law {
	sure := *l
	sure.atLeast = true
	return &sure
}

// onGrid moves an end of an interval that floating point took off the grid back onto it, where
// the true sum may lie.
func (l *noise) onGrid(x float64) float64 {
	if on := math.Round(x/l.step) * l.step; math.Abs(x-on) < 1e-4*l.step {
		return on
	}
	return x
}

// cornishFisher returns the quantile of a standardised law near the normal one, by its skewness
// and excess: Cornish and Fisher's expansion up to the fourth cumulant.
func cornishFisher(p, skew, excess float64) float64 {
	z := normalQuantile(p)
	return z + skew*(z*z-1)/6 + excess*z*(z*z-3)/24 - skew*skew*z*(2*z*z-5)/36
}

// normalQuantile returns the standard normal quantile at p, 0 < p < 1.
func normalQuantile(p float64) float64 {
	if p < .5 {
		return -math.Sqrt2 * math.Erfcinv(2*p)
	}
	return math.Sqrt2 * math.Erfcinv(2*(1-p))
}
