package randomizer

import (
	"math"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// RInf names the mechanism R_∞ for the cube |x_i| ≤ a. A report has m = c.Bits random
// coordinates, drawn without replacement, and one bit of each, passed through binary
// randomized response of ε₀/m. Each stands for ±a·(d/m)/tanh(ε₀/2m) at its coordinate; for m =
// 1 that is ±a·d·(E+1)/(E−1).
//
// Inputs outside the cube are projected on it coordinate by coordinate; NaN counts as 0. R_∞
// is exactly ε₀-LDP, without slack: the coordinates, the bits (to the 53 bits of x_j/a) and
// the flips are drawn exactly, and ε₀/m is rounded down. The estimate is unbiased; the mean
// squared error a²d²/(m·tanh²(ε₀/2m)) − ‖x‖² is largest at x = 0. With m = d it is [RR].
//
// Source: Girgis, Data, Diggavi, Kairouz, Suresh, "Shuffled Model of Differential Privacy in
// Federated Learning", AISTATS 2021; used in Girgis et al. 2021 (NeurIPS), §4.
//
// Privacy for m > 1: the m bits are independent given the coordinates, which do not depend on
// the input, so their losses add. The error follows from E‖R‖² = m·(value)² and E[R] = x.
//
// The mechanism is [Sparse].
const RInf = "rinf"

func newRInf(c Config) (Randomizer, error) {
	b, each, err := newBits(c, c.Dim)
	if err != nil {
		return nil, err
	}
	count := float64(b.count)
	scale := c.Radius * (float64(c.Dim) / count) * flipScale(each)
	return &rInf{
		pure: pure{base{
			facts: b.sized(Facts{
				Name:        RInf,
				Dim:         c.Dim,
				MSE:         count * scale * scale,
				Coordinates: b.count,
				Largest:     scale / c.Radius, // attained by every report: each of its coordinates has the same size
			}),
			radius: c.Radius, scale: scale,
			input: math.Sqrt(float64(c.Dim)) * c.Radius, report: math.Sqrt(count) * scale,
		}, bitsEvent(c.Eps0, b.count, each)},
		indexed: b,
		each:    each,
	}, nil
}

type rInf struct {
	pure
	indexed
	each float64 // ε₀ of one bit
}

var _ Sparse = (*rInf)(nil)

// flipScale returns (E+1)/(E−1) = 1/tanh(ε₀/2), the factor by which binary randomized
// response shrinks a mean.
func flipScale(eps0 float64) float64 { return 1 / math.Tanh(eps0/2) }

// Randomize overwrites r with a randomized report of x; see [RInf] for inputs
// outside the domain.
func (m *rInf) Randomize(src rng.Source, x []float32, r *Report) {
	checkInput(m.facts.Dim, x)
	m.RandomizeAt(src, func(j int) float32 { return x[j] }, r)
}

// RandomizeAt is Randomize for an input given by its coordinates; see [Sparse].
func (m *rInf) RandomizeAt(src rng.Source, at func(j int) float32, r *Report) {
	checkReport(r, m.count, m.count)
	m.draw(src, r.Index)
	for i, j := range r.Index {
		r.Value[i] = randomizedBit(src, float64(at(int(j))), m.radius, m.each)
	}
}

// randomizedBit returns +1 with probability 1/2 + (x/a)(E−1)/(2(E+1)), else −1:
// a bit with mean x/a, flipped with probability 1/(E+1).
func randomizedBit(src rng.Source, x, a, eps0 float64) int32 {
	plus := sample.Bernoulli(src, bitProbability(x, a))
	if sample.Flip(src, eps0) {
		plus = !plus
	}
	if plus {
		return 1
	}
	return -1
}

// bitProbability returns (1+x/a)/2 with x brought into [−a, a] and NaN to 0.
func bitProbability(x, a float64) float64 {
	switch {
	case x >= a:
		return 1
	case x <= -a:
		return 0
	case x != x:
		return .5
	}
	return (1 + x/a) / 2
}
