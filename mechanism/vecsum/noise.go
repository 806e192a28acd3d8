package vecsum

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// NoiseKind names a law of integer noise.
type NoiseKind string

const (
	// Binomial noise Bin(Bits, P) is bounded. It is the default.
	Binomial NoiseKind = "binomial"
	// Skellam noise is the difference of two Poisson variables; it is closed under sums and
	// has any variance.
	Skellam NoiseKind = "skellam"
	// DiscreteGaussian noise is not closed under sums; the accounting covers the ratio of the
	// two laws.
	DiscreteGaussian NoiseKind = "discrete-gaussian"
)

// Noise is the noise that one client adds to one coordinate, in grid steps.
type Noise struct {
	Kind NoiseKind // required
	Bits int64     // binomial: b, at least 1
	P    float64   // binomial: probability of a one; 0 means 1/2
	// Variance of skellam noise, and the parameter σ² of discrete Gaussian
	// noise, which is used rounded up to a multiple of 2^−20.
	Variance float64
}

func (n Noise) p() float64 {
	if n.P == 0 {
		return .5
	}
	return n.P
}

// Limits of noise. Samplers and accounting are exact and tested within them.
const (
	maxBits     = 1 << 40
	maxVariance = 1 << 32
)

// validate returns an error that names the first value out of range.
func (n Noise) validate() error {
	switch n.Kind {
	case Binomial:
		if n.Bits < 1 || n.Bits > maxBits {
			return fmt.Errorf("vecsum: noise bits = %d must lie between 1 and 2^40", n.Bits)
		}
		if n.P != 0 && !(n.P >= 0x1p-40 && n.P <= 1-0x1p-40) {
			return fmt.Errorf("vecsum: p = %v of the noise bits must lie between 2^-40 and 1 - 2^-40", n.P)
		}
		if n.Variance != 0 {
			return fmt.Errorf("vecsum: variance = %v given for binomial noise, which has bits", n.Variance)
		}
	case Skellam, DiscreteGaussian:
		if !(n.Variance >= 0x1p-20 && n.Variance <= maxVariance) {
			return fmt.Errorf("vecsum: noise variance = %v must lie between 2^-20 and 2^32", n.Variance)
		}
		if n.Bits != 0 || n.P != 0 {
			return fmt.Errorf("vecsum: bits given for %s noise, which has a variance", n.Kind)
		}
	default:
		return fmt.Errorf("vecsum: unknown noise %q", n.Kind)
	}
	return nil
}

// gaussianDen is the denominator of a discrete Gaussian's σ².
const gaussianDen = 1 << 20

// variance returns the variance of one client's noise; for the discrete Gaussian its
// parameter, which is at least the variance.
func (n Noise) variance() float64 {
	switch n.Kind {
	case Binomial:
		p := n.p()
		return float64(n.Bits) * p * (1 - p)
	case DiscreteGaussian:
		return math.Ceil(n.Variance*gaussianDen) / gaussianDen
	}
	return n.Variance
}

// mean returns the mean of one client's noise.
func (n Noise) mean() float64 {
	if n.Kind == Binomial {
		return float64(n.Bits) * n.p()
	}
	return 0
}

// reach bounds the noise of n clients: always for binomial noise, otherwise with probability
// 1 − e^−60. Beyond it only the estimate is wrong.
func (n Noise) reach(clients int64) (below, above float64) {
	if n.Kind == Binomial {
		return 0, float64(n.Bits) * float64(clients)
	}
	r := math.Ceil(12*math.Sqrt(n.variance()*float64(clients)) + 64)
	return r, r
}

// sampler draws the exact noise of a number of clients together.
type sampler interface {
	// add adds independent noise to each element of dst; work is at least as
	// long and is overwritten.
	add(src rng.Source, dst, work []int64)
}

// newSampler prepares the noise of one client, or of many clients at once if the law of their
// sum is known.
func (n Noise) newSampler(clients int64) (sampler, error) {
	switch n.Kind {
	case Binomial:
		t, err := sample.NewBinomial(n.Bits*clients, n.p())
		return tabled{t, nil}, err
	case Skellam:
		t, err := sample.NewPoisson(n.Variance / 2 * float64(clients))
		return tabled{t, t}, err
	}
	if clients != 1 {
		return nil, fmt.Errorf("vecsum: %d discrete Gaussian variables have no law to draw their sum from", clients)
	}
	g, err := sample.NewDiscreteGaussian(sample.Ratio{Num: uint64(math.Ceil(n.Variance * gaussianDen)), Den: gaussianDen})
	return tabled{g, nil}, err
}

// tabled adds a draw of plus and subtracts one of minus, if there is one.
type tabled struct{ plus, minus *sample.Table }

func (t tabled) add(src rng.Source, dst, work []int64) {
	work = work[:len(dst)]
	t.plus.Fill(src, work)
	for i, w := range work {
		dst[i] += w
	}
	if t.minus != nil {
		t.minus.Fill(src, work)
		for i, w := range work {
			dst[i] -= w
		}
	}
}

// increment returns μ₁ for the summed noise of honest clients, added to integers that differ
// by k, |k| ≤ shift: but for mass tau, its trade-off curve is at least that of a Gaussian
// mechanism with μ = |k|·μ₁, in both orders. The second result bounds |log| of the ratio of
// that sum's law and the law accounted for: 0 but for discrete Gaussian noise. Coordinates
// and rounds compose as in [Curve].
//
// Upper bound, proved (vecsum.md); replace-one. μ₁ is +Inf where the window that the theorem
// needs leaves the support of the noise. Needs 1 ≤ shift, 1e-250 ≤ tau < 1/2. Slack: 2e-5
// relative for tau ≥ 1e-30 and 2e-4 at most; for standard deviations up to 2000 and noise of
// two halves 1e-8.
func (n Noise) increment(honest, shift int64, tau float64) (mu1, ratio float64, err error) {
	if err := n.validate(); err != nil {
		return 0, 0, err
	}
	if honest < 1 {
		return 0, 0, fmt.Errorf("vecsum: %d honest clients leave no noise: %w", honest, dp.ErrNoBound)
	}
	if shift < 1 || shift > 1<<40 {
		return 0, 0, fmt.Errorf("vecsum: shift = %d must lie between 1 and 2^40", shift)
	}
	if !(tau >= 1e-250 && tau < .5) {
		return 0, 0, fmt.Errorf("vecsum: tau = %v must lie between 1e-250 and 1/2: %w", tau, dp.ErrNoBound)
	}
	var halves []half
	switch n.Kind {
	case Binomial:
		if honest > 1<<53/n.Bits {
			return 0, 0, fmt.Errorf("vecsum: %d noise bits of %d clients are more than 2^53: %w", n.Bits, honest, dp.ErrNoBound)
		}
		m, p := n.Bits*honest, n.p()
		h, err := binomialHalf(m, p, 1-p, tau, shift)
		if err != nil {
			return 0, 0, err
		}
		halves = append(halves, h)
		if h.skewed {
			if h, err = binomialHalf(m, 1-p, p, tau, shift); err != nil {
				return 0, 0, err
			}
			h.mirrored = true
			halves = append(halves, h)
		}
	case Skellam, DiscreteGaussian:
		v := n.variance() * float64(honest)
		make := skellamHalf
		if n.Kind == DiscreteGaussian {
			make = gaussianHalf
			if ratio, err = gaussianRatio(n.variance(), honest); err != nil {
				return 0, 0, err
			}
		}
		h, err := make(v, tau, shift)
		if err != nil {
			return 0, 0, err
		}
		halves = append(halves, h)
	}
	for _, h := range halves {
		mu1 = math.Max(mu1, h.maxIncrement(tau, shift))
	}
	return mu1, ratio, nil
}

// gaussianRatio bounds |log| of the ratio of the sum of n discrete Gaussian laws
// of parameter v and one of parameter nv; vecsum.md, section 5.
func gaussianRatio(v float64, n int64) (float64, error) {
	if v < 1 {
		return 0, fmt.Errorf("vecsum: discrete Gaussian noise of variance %v a client is below 1, where sums are not nearly Gaussian; skellam is: %w", v, dp.ErrNoBound)
	}
	var sum float64
	const each = 4096
	for k := int64(1); k < n; k++ {
		// This is 2·Σ_j e^(−2π²j²s²) with s² = v·k/(k+1) ≥ 1/2: the first term, and less than
		// 1e-7 of it for the others.
		rho := 2.0000002 * math.Exp(-2*math.Pi*math.Pi*v*float64(k)/float64(k+1))
		term := math.Log1p(2 * rho / (1 - rho))
		if k == each { // terms fall
			sum += term * float64(n-k)
			break
		}
		sum += term
	}
	return sum * (1 + 1e-9), nil
}
