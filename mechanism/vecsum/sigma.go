package vecsum

import (
	"context"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// Sigma returns the noise σ of one client, in units of Radius (of counts: of half the largest
// distance of two inputs, √min(2·Ones, Dim)), such that a round of any
// MinUsers ≤ k ≤ Users clients is as private as the sum of k vectors of norm 1 with N(0, σ²)
// from each: μ(k) ≤ 2/(σ√k). Bounds proved for such sums then hold for these rounds, but for
// tail, which all rounds together add to δ.
//
// Result: σ rounded down, by 1 % where MinUsers < Users; tail below 1e-3·delta.
//
// Argument: noise of more clients is post-processing, so μ(k) ≤ μ(k₁) for k ≥ k₁; between k₁
// and k₂ = 1.01·k₁ the bound 2/(μ(k₁)√k₂) holds. Rounds compose by the function compose, and
// their tails add.
//
// Parameters from an untrusted party may make it take minutes. It returns ctx's error soon
// after ctx has ended.
func (p Params) Sigma(ctx context.Context, delta float64, rounds int64) (sigma, tail float64, err error) {
	if err := dp.CheckDelta(delta); err != nil {
		return 0, 0, err
	}
	if rounds < 1 {
		return 0, 0, fmt.Errorf("vecsum: rounds = %d must be at least 1", rounds)
	}
	p = p.withDefaults()
	tau := p.tau(delta, rounds)
	sigma = math.Inf(1)
	for k := p.MinUsers; ; {
		if ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
		next := min(p.Users, max(k, k+k/100))
		q := p
		q.MinUsers = k
		c, err := q.curve(tau)
		if err != nil {
			return 0, 0, err
		}
		if c.Ratio > 0 || c.Distance > 0 {
			return 0, 0, fmt.Errorf("vecsum: %s noise is accounted for up to a ratio, which a sigma does not hold: %w", p.Noise.Kind, dp.ErrNoBound)
		}
		sigma = math.Min(sigma, 2/(c.Mu*math.Sqrt(float64(next)))*(1-0x1p-50))
		tail = math.Max(tail, c.Tail)
		if next == p.Users {
			break
		}
		k = max(next, k+1)
	}
	if !(sigma > 0) {
		return 0, 0, fmt.Errorf("vecsum: noise of %d users leaves no sigma: %w", p.guaranteed(), dp.ErrNoBound)
	}
	return sigma, tail * float64(rounds) * (1 + 0x1p-48), nil
}

// tightSigma is Tight for t.Sigma.
func tightSigma(t Target) (Params, error) {
	if t.Eps != 0 || t.Mu != 0 {
		return Params{}, fmt.Errorf("vecsum: eps = %v and mu = %v must be 0 where sigma is wanted", t.Eps, t.Mu)
	}
	if err := dp.CheckSigma(t.Sigma); err != nil {
		return Params{}, err
	}
	most, sigma := t.Users, t.Sigma
	t.Users, t.Sigma = t.MinUsers, 0
	t.Mu = 2 / (sigma * math.Sqrt(float64(t.MinUsers)))
	for range 20 {
		p, err := Tight(t)
		if err != nil {
			return Params{}, err
		}
		p.Users = most
		got, tail, err := p.Sigma(context.Background(), t.Delta, t.Rounds)
		if err != nil {
			return Params{}, err
		}
		if !(tail <= TailShare*t.Delta) {
			return Params{}, fmt.Errorf("vecsum: tails of %v are above %v of delta: %w", tail, TailShare, dp.ErrNoBound)
		}
		if got >= sigma {
			return p, nil
		}
		t.Mu *= got / sigma * (1 - 1e-6)
	}
	return Params{}, fmt.Errorf("vecsum: no noise is found that is worth sigma = %v: %w", sigma, dp.ErrNoBound)
}

// AddNoise adds the noise of the given number of clients to counts. It makes one draw for each
// count, from the law of the clients' summed noise.
func (p Params) AddNoise(src rng.Source, counts []int64, clients int64) error {
	if p.Noise.Kind == DiscreteGaussian {
		return fmt.Errorf("vecsum: sums of discrete Gaussian noise have no law of their own to draw from: %w", dp.ErrNoBound)
	}
	if err := p.CheckCohort(clients); err != nil {
		return err
	}
	if len(counts) != p.Streams() {
		return fmt.Errorf("vecsum: %d counts for %d streams", len(counts), p.Streams())
	}
	noise, err := p.Noise.newSampler(clients)
	if err != nil {
		return fmt.Errorf("vecsum: %w", err)
	}
	noise.add(src, counts, make([]int64, len(counts)))
	return nil
}
