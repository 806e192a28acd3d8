package train

import (
	"math"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// tail returns the share of δ for losses outside the accountant's events: the mass beyond the
// windows of a vector sum's noise, and what its transport reveals.
func (c PrivacyConfig) tail() float64 {
	if c.Trust.SumsOnly() {
		return vecsum.TailShare + c.transportShare()
	}
	return 0
}

// accountedDelta returns the δ that is left for the accountant.
func (c PrivacyConfig) accountedDelta() float64 { return dp.Counted(c.Delta, c.tail()) }

// Limit returns the budget of a run: its own ε and δ, or no limit if it has no ε.
func (c PrivacyConfig) Limit() ledger.Config {
	limit := ledger.Config{Accountant: account.New(), Delta: c.Delta, Tail: c.tail(), MaxEps: math.Inf(1)}
	if c.Epsilon != 0 {
		limit.MaxEps = c.Epsilon
	}
	return limit
}

// newVectorSum designs a round: the least noise for which sums of at least n-min reports are
// at least as private as those of Gaussian reports with Sigma.
func (c PrivacyConfig) newVectorSum(dim int) (*mechanism.VectorSum, error) {
	most, err := c.asked()
	if err != nil {
		return nil, err
	}
	if c.Participation == dp.Once {
		most++ // blocks differ by one
	}
	p, sigma, err := vecsum.TightSigma(c.Sigma, vecsum.Target{Delta: c.Delta, Users: most, MinUsers: c.NMin, Honest: c.Honest, Dim: dim,
		Radius: c.Clip, Rounds: c.Rounds, Kind: c.Noise})
	if err != nil {
		return nil, err
	}
	return mechanism.NewVectorSum(p, sigma)
}
