package vecsum

import (
	"fmt"
	"math"
	"math/big"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
)

// This file has correlated noise of clients. Each sends a noise vector apart from its own one, because what
// is held for later rounds must be without noise; vecsum.md, section 12.

const (
	// leastEach is the least parameter of one client's noise: sums of several are then nearly discrete Gaussian.
	leastEach = 2 * spread
	// farNoise is the x of e^−x, the probability that a client's noise is longer than NoiseBound.
	farNoise = 650
	// mostNoiseBound bounds NoiseBound.
	mostNoiseBound = 1 << 30
)

// NewCorrelatedByClients is NewCorrelated with noise that clients add. sigma is that of the noise
// which ⌊honest·minUsers⌋ of them add together, over the weight of a round's own vectors.
func NewCorrelatedByClients(users, minUsers int64, honest float64, dim int, radius, sigma float64, strategy toeplitz.Strategy) (Aggregated, error) {
	if err := dp.CheckSigma(sigma); err != nil {
		return Aggregated{}, err
	}
	if dim < 1 || dim > maxDim {
		return Aggregated{}, fmt.Errorf("vecsum: dim = %d must lie between 1 and 2^24", dim)
	}
	if err := strategy.Validate(); err != nil {
		return Aggregated{}, err
	}
	p := Aggregated{Users: users, MinUsers: minUsers, Honest: honest, Dim: dim, Radius: radius, Variance: leastEach}.Weighted(strategy)
	if err := p.checkClients(); err != nil {
		return Aggregated{}, err
	}
	return p.withNoise(sigma)
}

// ByClients says whether clients add the noise, each in a vector of its own.
func (p Aggregated) ByClients() bool { return p.MinUsers != 0 }

// Guaranteed returns the number of clients whose noise is relied on in every release; 0 if clients add none.
func (p Aggregated) Guaranteed() int64 { return guaranteed(p.Honest, p.MinUsers) }

// each returns the parameter of a client's noise such that the guaranteed ones have variance together.
func (p Aggregated) each(variance uint64) uint64 {
	n := uint64(p.Guaranteed())
	return max(leastEach, (variance+n-1)/n)
}

// checkClients returns an error that names the first value out of range of a round to which clients
// add noise.
func (p Aggregated) checkClients() error {
	switch {
	case p.MinUsers < 1 || p.MinUsers > p.Users:
		return fmt.Errorf("vecsum: n-min = %d must lie between 1 and users = %d", p.MinUsers, p.Users)
	case !(p.Honest > 0 && p.Honest <= 1):
		return fmt.Errorf("vecsum: honest fraction = %v must be above 0 and at most 1", p.Honest)
	case p.Guaranteed() < 1:
		return fmt.Errorf("vecsum: honest fraction %v of %d users leaves no noise: %w", p.Honest, p.MinUsers, dp.ErrNoBound)
	case p.Weight == 0:
		return fmt.Errorf("vecsum: noise that clients send apart is for correlated noise, and there are no weights")
	case p.Variance < leastEach || float64(p.Variance)*float64(p.Guaranteed()) > mostDeviation*mostDeviation:
		return fmt.Errorf("vecsum: a client's noise variance %d must be at least %d, and at most 2^54 for %d clients together", p.Variance, leastEach, p.Guaranteed())
	case p.NoiseBound() > mostNoiseBound:
		return fmt.Errorf("vecsum: a client's noise of variance %d in %d coordinates may be longer than 2^30: %w", p.Variance, p.Dim, dp.ErrNoBound)
	}
	return nil
}

// honestNoise returns the parameter of the guaranteed clients' noise together, rounded down, and what it
// lacks in total variation, over all coordinates of one release, of an integer post-processing of
// Gaussian noise whose variance is less by spread. vecsum.md, section 12.
func (p Aggregated) honestNoise() (variance uint64, lost float64) {
	n := p.Guaranteed()
	lost = smoothing(spread, p.Dim)*(1+3*float64(n-1)) + float64(n)*math.Exp(-farNoise)
	return p.Variance * uint64(n), lost * (1 + 0x1p-40)
}

// NoiseBound bounds the ℓ₂ norm of one client's noise, in steps of weight 1: a power of two, of which proofs tell
// the least. An honest client's noise is longer with probability e^−650 at most. It is 0 if clients
// add none.
//
// A discrete Gaussian is sub-Gaussian with its parameter V, so the squared norm exceeds V·(d + 2√(dx) + 2x)
// with probability e^−x at most (Hsu, Kakade and Zhang 2012, Theorem 2.1). Integers, so that all machines agree.
func (p Aggregated) NoiseBound() int64 {
	if !p.ByClients() {
		return 0
	}
	of := int64(p.Dim) + 2*(isqrt(int64(p.Dim)*farNoise)+1) + 2*farNoise
	square := new(big.Int).Mul(new(big.Int).SetUint64(p.Variance), big.NewInt(of))
	// The least power of two whose square is at least that.
	return 1 << ((square.Sub(square, big.NewInt(1)).BitLen() + 1) / 2)
}

// together returns parameters of few draws whose sum has the law of so many clients' noise: of as many clients each as
// the sampler can draw at once.
func (p Aggregated) together(clients int64) (parts []uint64) {
	most := int64(mostDeviation * mostDeviation / p.Variance)
	for ; clients > 0; clients -= most {
		parts = append(parts, p.Variance*uint64(min(clients, most)))
	}
	return parts
}
