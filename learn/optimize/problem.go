package optimize

import (
	"errors"
	"fmt"
	"math"
)

// Noise says how noisy a released mean gradient is.
type Noise interface {
	// deviation returns σ, a bound on the standard deviation of the privacy noise in each
	// coordinate of the mean over a batch. clients is the number of people in the batch, and
	// uses is the number of rounds of the run in which each of them takes part. The noise has
	// mean 0. σ is +Inf if no noise of that kind exists. A plan calls deviation some hundred
	// times.
	deviation(clients, uses int64) float64
}

// GaussianNoise is noise of the size of the central Gaussian mechanism on a sum of vectors of
// ℓ2 norm at most Lipschitz, one of which is replaced. It describes the noise of a vector sum
// (with the Overhead of its rounding) and of a trusted curator (Overhead 0).
type GaussianNoise struct {
	// Lipschitz is the radius that gradients are clipped to. Required.
	Lipschitz float64
	// Mu is μ of Gaussian differential privacy for the whole run. Required.
	Mu float64
	// Overhead is the relative excess of the noise's variance over that of the Gaussian
	// mechanism. Default 0.
	Overhead float64
}

// deviation returns 2L√((1 + overhead)·uses)/(μ·clients): the rounds of one
// client compose to μ as the root of a sum of squares.
func (g GaussianNoise) deviation(clients, uses int64) float64 {
	return 2 * g.Lipschitz * math.Sqrt((1+g.Overhead)*float64(uses)) / (g.Mu * float64(clients))
}

// ReportNoise is the noise of a mean of single reports. Each report has its own noise,
// however many a client sends. The zero value is no noise, and no privacy.
type ReportNoise struct {
	MSE float64 // sup E‖R(x) − x‖₂² of one report
	Dim int     // required with MSE
}

// deviation returns √(MSE/(d·clients)).
func (r ReportNoise) deviation(clients, _ int64) float64 {
	if r.MSE == 0 {
		return 0
	}
	return math.Sqrt(r.MSE / (float64(r.Dim) * float64(clients)))
}

// Problem is a stochastic convex problem: find the point of the ℓ2 ball about 0 with the least
// mean loss over a population, from which n clients are drawn. No field may depend on the
// clients' data.
//
// Lipschitz, Smoothness and StrongConvexity describe every client's loss, whose gradients it
// sends, on the ball. If they are wrong the plan's Bound does not hold. Privacy does not rest
// on them, because clients clip to Lipschitz whatever their loss is.
type Problem struct {
	Dim     int   // d. Required.
	Clients int64 // n, at most 2³². Required.
	// Lipschitz is L, the ℓ2 norm that a client's gradient is clipped to. Required.
	Lipschitz float64
	// Noise of a released mean. Required; ReportNoise{} is no noise.
	Noise Noise
	// Radius of the ball. Default 0, all of space; then Distance is required.
	Radius float64
	// Start is the first point. Default 0.
	Start []float64
	// Distance is D, an upper bound on the distance of Start from the optimum. Default:
	// Radius + ‖Start‖, or 2L/λ if that is smaller. (The paper takes the diameter, 2·Radius,
	// which bounds the distance from any point.)
	Distance float64
	// Smoothness is β: gradients are β-Lipschitz. Default 0, not smooth.
	Smoothness float64
	// StrongConvexity is λ. Default 0. Where clients smooth their loss, λ is taken to be a
	// ridge that they do not smooth (model.LinearConfig).
	StrongConvexity float64
	// MaxRounds bounds T if rounds are costly. Default 0, no bound.
	MaxRounds int64
}

func (p Problem) validate() error {
	if err := checkStart(p.Dim, 1, p.Radius, p.Start); err != nil {
		return err
	}
	if p.Clients < 1 || p.Clients > 1<<32 {
		return fmt.Errorf("optimize: n = %d clients must be at least 1 and at most 2^32", p.Clients)
	}
	if p.Noise == nil {
		return errors.New("optimize: a problem needs its noise, ReportNoise{} if there is none")
	}
	if !(p.Lipschitz > 0) || math.IsInf(p.Lipschitz, 1) {
		return fmt.Errorf("optimize: L = %v must be above 0 and finite", p.Lipschitz)
	}
	for name, v := range map[string]float64{"distance": p.Distance, "beta": p.Smoothness, "lambda": p.StrongConvexity} {
		if !(v >= 0) || math.IsInf(v, 1) {
			return fmt.Errorf("optimize: %s = %v must be at least 0 and finite", name, v)
		}
	}
	if p.Smoothness > 0 && p.StrongConvexity > p.Smoothness {
		return fmt.Errorf("optimize: lambda = %v above beta = %v: no such loss exists", p.StrongConvexity, p.Smoothness)
	}
	if p.MaxRounds < 0 {
		return fmt.Errorf("optimize: at most %d rounds, must be at least 1, or 0 for no limit", p.MaxRounds)
	}
	if d := p.distance(); math.IsInf(d, 1) {
		return errors.New("optimize: a problem needs a radius, a distance or a strong convexity")
	}
	return nil
}

// distance returns D, +Inf if nothing bounds it.
func (p Problem) distance() float64 {
	if p.Distance > 0 {
		return math.Min(p.Distance, p.anywhere())
	}
	if p.Radius == 0 {
		return p.anywhere()
	}
	start := make([]float64, p.Dim)
	copy(start, p.Start)
	project(start, p.Radius)
	sum := 0.0
	for _, v := range start {
		sum += v * v
	}
	return math.Min(p.Radius+math.Sqrt(sum), p.anywhere())
}

// anywhere bounds the distance of any feasible point from the optimum: the
// diameter, or 2L/λ, since (λ/2)‖θ − θ*‖² ≤ f(θ) − f* ≤ L‖θ − θ*‖.
func (p Problem) anywhere() float64 {
	out := math.Inf(1)
	if p.Radius > 0 {
		out = 2 * p.Radius
	}
	if p.StrongConvexity > 0 {
		out = math.Min(out, 2*p.Lipschitz/p.StrongConvexity)
	}
	return out
}

// variance returns dσ², where σ is the noise's deviation in a mean; +Inf if no such noise
// exists.
func (p Problem) variance(clients, uses int64) float64 {
	s := p.Noise.deviation(clients, uses)
	if !(s >= 0) {
		return math.Inf(1)
	}
	return float64(p.Dim) * s * s
}
