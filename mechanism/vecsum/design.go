package vecsum

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// Target states what a design must achieve.
type Target struct {
	Eps, Delta float64 // required: the guarantee of all rounds together
	// Mu, if not 0, replaces Eps: it is the Gaussian privacy parameter of one round (for
	// discrete Gaussian noise without Curve.Ratio). Delta then bounds the tails.
	Mu float64
	// Sigma, if not 0, replaces Eps: [Params.Sigma] of the rounds is to be at least Sigma, at Delta.
	Sigma    float64
	Users    int64     // n, required
	MinUsers int64     // the smallest cohort that may be opened; 0 means Users
	Honest   float64   // γ, the fraction of clients that add noise; 0 means 1
	Dim      int       // d, required
	Radius   float64   // Δ₂, required; of counts 0
	Ones     int       // not 0: counts; see Params
	Rounds   int64     // T, rounds the same client may take part in; 0 means 1
	Overhead float64   // variance allowed on top of the Gaussian mechanism's, as a share of it; 0 means .05
	Kind     NoiseKind // "" means Binomial
	Split    bool      // see Params
}

func (t Target) withDefaults() Target {
	if t.MinUsers == 0 {
		t.MinUsers = t.Users
	}
	if t.Honest == 0 {
		t.Honest = 1
	}
	if t.Rounds == 0 {
		t.Rounds = 1
	}
	if t.Overhead == 0 {
		t.Overhead = .05
	}
	if t.Kind == "" {
		t.Kind = Binomial
	}
	if t.Ones > 0 && t.Radius == 0 {
		t.Radius = onesRadius(t.Ones)
	}
	return t
}

func (t Target) validate() error {
	switch {
	case t.Mu != 0 && (t.Eps != 0 || !(t.Mu > 0 && t.Mu <= math.MaxFloat64)):
		return fmt.Errorf("vecsum: mu = %v must be above 0 and finite, and goes without eps = %v", t.Mu, t.Eps)
	case t.Mu == 0 && !(t.Eps > 0 && t.Eps <= dp.MaxEps0):
		return fmt.Errorf("vecsum: eps = %v must be above 0 and at most %d", t.Eps, dp.MaxEps0)
	case t.Users < 1 || t.Users > maxUsers:
		return fmt.Errorf("vecsum: users = %d must lie between 1 and 2^40", t.Users)
	case t.MinUsers < 1 || t.MinUsers > t.Users:
		return fmt.Errorf("vecsum: min users = %d must lie between 1 and users = %d", t.MinUsers, t.Users)
	case !(t.Honest > 0 && t.Honest <= 1):
		return fmt.Errorf("vecsum: honest fraction = %v must be above 0 and at most 1", t.Honest)
	case math.Floor(t.Honest*float64(t.MinUsers)) < 1:
		return fmt.Errorf("vecsum: honest fraction %v of %d users leaves no noise: %w", t.Honest, t.MinUsers, dp.ErrNoBound)
	case t.Dim < 1 || t.Dim > maxDim:
		return fmt.Errorf("vecsum: dim = %d must lie between 1 and 2^24", t.Dim)
	case t.Ones != 0 && (t.Ones < 0 || t.Ones > t.Dim || t.Split):
		return fmt.Errorf("vecsum: ones = %d must lie between 1 and dim = %d, and signs of counts are not split", t.Ones, t.Dim)
	case !(t.Radius >= 1e-30 && t.Radius <= 1e30):
		return fmt.Errorf("vecsum: radius = %v must lie between 1e-30 and 1e30", t.Radius)
	case t.Rounds < 1:
		return fmt.Errorf("vecsum: rounds = %d must be at least 1", t.Rounds)
	case !(t.Overhead >= 1e-4 && t.Overhead <= 100):
		return fmt.Errorf("vecsum: overhead = %v must lie between 1e-4 and 100", t.Overhead)
	case t.Kind != Binomial && t.Kind != Skellam && t.Kind != DiscreteGaussian:
		return fmt.Errorf("vecsum: unknown noise %q", t.Kind)
	}
	return dp.CheckDelta(t.Delta)
}

// NormBeta is the probability with which a client has to round again, if [Tight] chooses
// Norm.
const NormBeta = 1e-9

// Tight returns parameters that meet the target by [MethodGDP], with noise of the analytic
// Gaussian's variance but for Overhead. Overhead also covers honest noise beyond the
// required, but not the noise of clients who are not relied on.
//
// For t.Sigma it returns the parameters of least noise that are worth it, found by a search.
//
// Every result is checked before it is returned: Curve, composed Rounds times, is at most
// Delta at Eps, over a transport without a Distance (see [Curve.through]). An error wraps
// dp.ErrNoBound if no parameters within the limits meet the target.
func Tight(t Target) (Params, error) {
	t = t.withDefaults()
	if t.Sigma != 0 {
		return tightSigma(t)
	}
	if err := t.validate(); err != nil {
		return Params{}, err
	}
	mu := t.Mu
	if mu == 0 {
		mu = gaussMu(t.Eps, t.Delta*(1-TailShare)) / math.Sqrt(float64(t.Rounds)) * (1 - 0x1p-50)
	}
	if mu == 0 {
		return Params{}, fmt.Errorf("vecsum: eps = %v at delta = %v needs more noise than any: %w", t.Eps, t.Delta, dp.ErrNoBound)
	}
	p := Params{Users: t.Users, MinUsers: t.MinUsers, Honest: t.Honest, Dim: t.Dim, Radius: t.Radius, Split: t.Split, Ones: t.Ones}
	honest := float64(p.guaranteed())
	// This finds the smallest grid whose variance is within the overhead. With an integer
	// number of bits the variance need not fall smoothly, so every grid is tried.
	for p.Grid = 2; ; p.Grid++ {
		if p.Grid > maxGrid || float64(p.Dim)*float64(p.Grid)*float64(p.Grid) > 1<<60 {
			return Params{}, fmt.Errorf("vecsum: no grid up to 2^24 keeps the variance within %v of the Gaussian's: %w", t.Overhead, dp.ErrNoBound)
		}
		if t.Ones == 0 {
			p.Norm = Norm(t.Dim, p.Grid, NormBeta)
		}
		p.setNoise(t.Kind, p.needed(mu), honest)
		if p.overhead(mu, honest) <= t.Overhead {
			break
		}
	}
	need := p.needed(mu)
	for range 100 {
		p.setNoise(t.Kind, need, honest)
		c, err := p.curve(p.tau(t.Delta, t.Rounds))
		if err != nil {
			return Params{}, fmt.Errorf("%w: nothing within the limits: %w", dp.ErrNoBound, err)
		}
		if t.Mu == 0 && c.times(t.Rounds).delta(t.Eps) <= t.Delta || c.Mu <= t.Mu {
			return p, nil
		}
		have := p.Noise.variance() * honest
		need = math.Max(have*(1+1e-6), have*math.Min(2, c.Mu*c.Mu/(mu*mu)))
		if t.Kind == Binomial {
			need = math.Max(need, have+honest/4)
		}
	}
	return Params{}, fmt.Errorf("vecsum: eps = %v at delta = %v not met within 100 steps: %w", t.Eps, t.Delta, dp.ErrNoBound)
}

// needed returns the variance, in grid steps, of the noise on one count that the
// Gaussian mechanism would need.
func (p Params) needed(mu float64) float64 {
	_, norm, _ := p.sensitivity()
	return norm / mu * (norm / mu)
}

// setNoise chooses a client's noise such that the noise of all honest clients together has at
// least the variance total; honest is their number.
func (p *Params) setNoise(kind NoiseKind, total, honest float64) {
	each := total / honest * (1 + 0x1p-50)
	p.Noise = Noise{Kind: kind}
	switch kind {
	case Binomial:
		p.Noise.Bits = int64(math.Min(math.Ceil(4*each), maxBits+1))
	case DiscreteGaussian:
		p.Noise.Variance = math.Max(each, 2.5) // from this variance on sums are Gaussian enough
	default:
		p.Noise.Variance = each
	}
}

// overhead returns the relative excess of the estimate's variance, per honest client, over
// that of the Gaussian mechanism without a grid. Counts are not rounded, but are taken to be, so
// that a client's noise has enough steps to be chosen finely.
func (p Params) overhead(mu, honest float64) float64 {
	gauss, variance := 2*p.Radius/mu*(2*p.Radius/mu), p.Variance(1)
	if p.Ones != 0 {
		gauss, variance = float64(differing(p.Ones, p.Dim))/(mu*mu), variance+.25*p.step()*p.step()
	}
	return variance*honest/gauss - 1
}
