package vecsum

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// half is the upper half of a log-concave integer law: index i stands for the
// value first+i, first at or just above the mean.
type half struct {
	first int64
	top   int64                 // last index of the support; MaxInt64 if there is none
	log   func(i int64) float64 // log Pr[X = first+i]
	slope func(i int64) float64 // log of Pr[X = first+i+1]/Pr[X = first+i]
	above func(i int64) float64 // Pr[X ≥ first+i]
	sd    float64
	// skewed says whether the law is asymmetric about its mean.
	skewed bool
	// mirrored says whether this is the lower half of a skewed law, mirrored. Its window ends one
	// value earlier.
	mirrored bool
}

// scanSD is the largest standard deviation for which a law is tabled and every increment
// computed. Above it, increments are bounded block by block.
const scanSD = 2000

// tableLimit is the largest number of probabilities tabled.
const tableLimit = 1 << 23

// binomialHalf is the upper half of Bin(m, p), q = 1 − p.
func binomialHalf(m int64, p, q, tau float64, shift int64) (half, error) {
	sd := math.Sqrt(float64(m) * p * q)
	// first is one below the mean: the mean of the mirrored law may be rounded as well, and
	// the two halves together must not leave a gap.
	h := half{first: max(0, int64(math.Ceil(float64(m)*p))-1), sd: sd, skewed: true}
	if p == .5 {
		h.first, h.skewed = m/2+m&1, false
	}
	h.top = m - h.first
	h.log = func(i int64) float64 { return tail.LogPMF(m, h.first+i, p, q) }
	h.slope = func(i int64) float64 {
		u := float64(h.first + i)
		return math.Log(p/q) + math.Log1p((float64(m)-2*u-1)/(u+1))
	}
	h.above = func(i int64) float64 { return tail.Survival(m, h.first+i, p, q) }
	if sd > scanSD && !h.skewed {
		return h, nil
	}
	_, hi := tail.Window(m, p, q, tau, tau*1e-6)
	last := min(m, hi+shift+1)
	n := last - h.first + 1
	if n > tableLimit {
		return half{}, fmt.Errorf("vecsum: shift %d is too large for Bin(%d, %v): %w", shift, m, p, dp.ErrNoBound)
	}
	mass := make([]float64, 0, n)
	tail.PMF(m, p, q, h.first, last, func(_ int64, f float64) { mass = append(mass, f) })
	h.table(mass, tail.Survival(m, last+1, p, q))
	return h, nil
}

// skellamHalf is the upper half of the difference of two Poisson laws with sum
// of means v, which is the variance: Pr[k] = e^−v·I_k(v). Log-concave by
// Turán's inequality for Bessel functions.
func skellamHalf(v, tau float64, shift int64) (half, error) {
	h := half{top: math.MaxInt64, sd: math.Sqrt(v)}
	// Chernoff: Pr[X ≥ k] ≤ exp(−(k·asinh(k/v) − √(k²+v²) + v)).
	exponent := func(k float64) float64 {
		return k*math.Asinh(k/v) - k*k/(math.Sqrt(k*k+v*v)+v)
	}
	k := 1.
	for exponent(k) < -math.Log(tau) {
		k *= 1.05
	}
	n := k + 1 + float64(shift) + 8*h.sd + 60
	if !(n < tableLimit) {
		return half{}, fmt.Errorf("vecsum: Skellam noise of variance %v with shift %d needs a table of %g: %w", v, shift, n, dp.ErrNoBound)
	}
	// Computes I_{k+1}/I_k downwards to 0, from so far out that the starting value does not
	// matter.
	mass := make([]float64, int(n))
	var r float64
	for i := len(mass) - 1; i > 0; i-- {
		r = 1 / (r + 2*float64(i)/v) // I_i/I_{i−1}
		mass[i] = r
	}
	mass[0] = 1
	h.normalise(mass)
	return h, nil
}

// gaussianHalf is the upper half of the discrete Gaussian law with parameter v.
func gaussianHalf(v, tau float64, shift int64) (half, error) {
	h := half{top: math.MaxInt64, sd: math.Sqrt(v)}
	n := (math.Sqrt(-2*math.Log(tau))+8)*h.sd + float64(shift) + 60
	if !(n < tableLimit) {
		return half{}, fmt.Errorf("vecsum: discrete Gaussian noise of variance %v with shift %d needs a table of %g: %w", v, shift, n, dp.ErrNoBound)
	}
	mass := make([]float64, int(n))
	mass[0] = 1
	for i := 1; i < len(mass); i++ {
		mass[i] = math.Exp(-(2*float64(i) - 1) / (2 * v))
	}
	h.normalise(mass)
	return h, nil
}

// normalise turns ratios of neighbours, in place, into the probabilities of a law that is
// symmetric about 0, and tables them. The mass beyond the last is below 1e-12 of any
// probability that is used.
func (h *half) normalise(ratio []float64) {
	for i := 1; i < len(ratio); i++ {
		ratio[i] *= ratio[i-1]
	}
	var rest float64
	for i := len(ratio) - 1; i > 0; i-- {
		rest += ratio[i]
	}
	total := 1 + 2*rest
	for i := range ratio {
		ratio[i] /= total
	}
	h.table(ratio, 0)
}

// table replaces the functions by look-ups; beyond is the mass above the last entry.
func (h *half) table(mass []float64, beyond float64) {
	above := make([]float64, len(mass)+1)
	above[len(mass)] = beyond
	for i := len(mass) - 1; i >= 0; i-- {
		above[i] = above[i+1] + mass[i]
	}
	h.log = func(i int64) float64 { return math.Log(mass[i]) }
	h.slope = func(i int64) float64 { return math.Log(mass[i+1] / mass[i]) }
	h.above = func(i int64) float64 { return above[min(i, int64(len(mass)))] }
}
