package randomizer

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// SignedKRR names k-ary randomized response for the ball ‖x‖₁ ≤ a, in at most 2^29
// dimensions. The client draws one of the K = 2d symbols (j, ±): the symbol (j, sign x_j) with
// probability |x_j|/a, and a uniform symbol with the remaining probability 1 − ‖x‖₁/a. It
// sends the symbol through [KRR]. A report of (j, ±) stands for ±a/(p−q) at coordinate j, p −
// q = (E−1)/(E+2d−1).
//
// Longer inputs are scaled into the ball; NaN counts as 0 and ±Inf as the largest float32. It
// is exactly ε₀-LDP, without slack. Only the symbol depends on the input. Whatever law
// floating point gives the symbol, the reports of two inputs are mixtures of KRR's laws, so
// KRR's bound holds. The class is dp.KRR with 2d symbols, for d = 1 dp.BinaryRR. It covers a
// client with a random symbol, because hockey-stick divergences are jointly convex.
//
// The estimate is unbiased, up to the float sum's error of about 1e-13: the two symbols of
// coordinate j are reported with probabilities that differ by (p−q) times x_j/a, as q and the
// uniform part are the same for both. Every report has the length a/(p−q), so the mean squared
// error is a²((E+2d−1)/(E−1))² − ‖x‖², largest at x = 0. From E ≈ 2√d on that is below the
// error of [R1] with one bit; for small ε₀ it is far above it.
//
// Source: the reduction of mean estimation in the ℓ₁ ball to frequencies of its 2d corners; for
// KRR see [KRR].
const SignedKRR = "signed-krr"

func newSignedKRR(c Config) (Randomizer, error) {
	if err := c.check(false); err != nil {
		return nil, err
	}
	if c.Dim > 1<<29 {
		return nil, fmt.Errorf("randomizer: dim = %d must be at most 2^29 for signed symbols", c.Dim)
	}
	corner, err := newKRR(Config{Dim: 2 * c.Dim, Eps0: c.Eps0})
	if err != nil {
		return nil, err
	}
	scale := c.Radius / corner.gap
	b := indexed{among: c.Dim, count: 1}
	return &signedKRR{
		pure: pure{base{
			facts: b.sized(Facts{
				Name:    SignedKRR,
				Dim:     c.Dim,
				MSE:     scale * scale,
				Largest: scale / c.Radius, // attained by every report
			}),
			radius: c.Radius, scale: scale,
			input: c.Radius, report: scale,
		}, corner.event},
		indexed: b,
		corner:  corner,
	}, nil
}

// signedKRR sends a symbol as its coordinate and its sign.
type signedKRR struct {
	pure
	indexed
	corner *krr
}

// Randomize overwrites r with a randomized report of x; see [SignedKRR] for inputs
// outside the domain.
func (m *signedKRR) Randomize(src rng.Source, x []float32, r *Report) {
	checkInput(m.facts.Dim, x)
	checkReport(r, 1, 1)
	symbol := m.corner.symbol(src, m.choose(src, x))
	r.Index[0], r.Value[0] = uint32(symbol/2), int32(1-2*(symbol&1))
}

// choose draws the symbol 2j for (j, +), 2j+1 for (j, −).
func (m *signedKRR) choose(src rng.Source, x []float32) int {
	size := norm(x, 1)
	if !(size <= math.MaxFloat64) {
		clean := make([]float32, len(x))
		sanitize(clean, x)
		x, size = clean, norm(clean, 1)
	}
	left := math.Max(size, m.radius) * (float64(src.Uint64()>>11) * 0x1p-53)
	for j, v := range x {
		if left -= math.Abs(float64(v)); left < 0 {
			if v < 0 {
				return 2*j + 1
			}
			return 2 * j
		}
	}
	return int(sample.Uniform(src, uint64(m.corner.among)))
}
