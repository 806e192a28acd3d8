package randomizer

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// KRR names k-ary randomized response: it reports one of K = Dim symbols truthfully with
// probability E/(E+K−1), otherwise a uniformly random one of the others.
//
// As a [Mechanism] it takes a vector of K weights, the probability distribution from which
// the client's symbol is drawn; a plain symbol is a unit vector. Negative weights and NaN
// count as 0, +Inf as the largest float32. Weights are scaled to sum 1; if all are 0 all
// symbols are equally likely.
//
// KRR is exactly ε₀-LDP, without slack: the rarer of truth and lie is an exact coin whose
// probability is rounded towards the lie, and the lie's symbol is drawn exactly. The class is
// dp.KRR, for K = 2 dp.BinaryRR. The estimate of the distribution is unbiased. With p the
// truth's probability and q each lie's, the mean squared error is ((1−q)² + (K−1)q²)/(p−q)² −
// ‖x‖², largest at the uniform x.
//
// Inputs may be spread: with Config.Bits = w, at least 2 and at most K/2, a distribution with a
// weight above 1/w counts as the uniform one. A symbol is then reported with a probability of at
// least q and at most q(1 + (p/q−1)/w) = qE, so that p/q = 1 + w(E−1): at the same ε₀ the truth is
// told more often. The class is dp.Cap, and K/w symbols would be as private. A number that is spread
// evenly over w neighbouring symbols has an error of rounding that does not depend on the number;
// its reports are the square waves of Li et al. spread.md has the slack.
//
// Source: Kairouz, Oh, Viswanath, "Extremal Mechanisms for Local Differential Privacy",
// NeurIPS 2014, §4. Spread inputs: Li, Wang, Lopuhaä-Zwakenberg, Škorić, Li, "Estimating Numerical
// Distributions under Local Differential Privacy", SIGMOD 2020, §5.
const KRR = "krr"

type krr struct {
	pure
	indexed
	// rare is the probability of the less likely of truth and lie: a float64, taken as the exact
	// number that it is. rareTruth says whether the less likely one is the truth.
	rare      float64
	rareTruth bool
	lie       float64 // q, each other symbol's probability
	gap       float64 // p − q
	spread    int     // w, or 1
}

// spreadSlack is by how much weights, as stored and as drawn from, may exceed 1/w; spread.md.
const spreadSlack = 0x1p-19

// maxSpread is the largest number of symbols of which spread inputs are drawn.
const maxSpread = 1 << 20

// newKRR validates c; its Radius is not used.
func newKRR(c Config) (*krr, error) {
	if c.Bits < 2 {
		return newPlainKRR(c)
	}
	if c.Dim > maxSpread || c.Bits > c.Dim/2 || c.Bits > maxBits {
		return nil, fmt.Errorf("randomizer: inputs spread over %d symbols need twice as many at least and 2^20 at most, there are %d; they are spread over %d at most", c.Bits, c.Dim, maxBits)
	}
	if err := checkEps0(c.Eps0); err != nil {
		return nil, err
	}
	inner := math.Log1p(float64(c.Bits)/(1+spreadSlack)*math.Expm1(c.Eps0)) * (1 - 0x1p-40)
	if inner > dp.MaxEps0 {
		return nil, fmt.Errorf("randomizer: eps0 = %v is above what inputs spread over %d symbols allow", c.Eps0, c.Bits)
	}
	m, err := newPlainKRR(Config{Dim: c.Dim, Eps0: inner})
	if err != nil {
		return nil, err
	}
	m.spread = c.Bits
	// All laws have the part q on each symbol in common, of mass 1 − (p−q).
	tv := math.Min(m.gap/math.Expm1(c.Eps0)*(1+0x1p-40), 1/(math.Exp(c.Eps0)+1))
	m.event = dp.Report{Class: dp.Cap, Eps0: c.Eps0, TV: tv}
	return m, nil
}

func newPlainKRR(c Config) (*krr, error) {
	if c.Dim < 2 || c.Dim > 1<<30 {
		return nil, fmt.Errorf("randomizer: symbols = %d must lie between 2 and 2^30", c.Dim)
	}
	if err := checkEps0(c.Eps0); err != nil {
		return nil, err
	}
	m := &krr{spread: 1, indexed: indexed{among: c.Dim, count: 1, unsigned: true}}
	k, others := float64(c.Dim), float64(c.Dim-1)
	// Each formula errs by less than 2^−50. The factors correct for that, so that p/q =
	// p(K−1)/(1−p) of the stored doubles is at most E.
	truth, lies := 1/(1+others*math.Exp(-c.Eps0)), 1/(1+math.Exp(c.Eps0)/others)
	if m.rareTruth = truth < lies; m.rareTruth {
		m.rare = truth * (1 - 0x1p-49)
		m.lie = (1 - m.rare) / others
		m.gap = (m.rare*k - 1) / others
	} else {
		m.rare = math.Min(1, lies*(1+0x1p-49))
		m.lie = m.rare / others
		m.gap = 1 - m.rare - m.lie
	}
	q := m.lie
	square := ((1-q)*(1-q) + others*q*q) / (m.gap * m.gap) // ‖estimate‖² of any single report
	event := dp.Report{Class: dp.KRR, Eps0: c.Eps0, Symbols: c.Dim}
	if c.Dim == 2 {
		event = dp.Report{Class: dp.BinaryRR, Eps0: c.Eps0} // K-RR on two symbols has the law of binary randomized response
	}
	m.pure = pure{base{
		facts: m.indexed.sized(Facts{
			Name: KRR,
			Dim:  c.Dim,
			// The error is largest at the uniform distribution; at a symbol it is 1−1/K less.
			MSE:     square - 1/k,
			Largest: (1 - q + others*q) / m.gap, // attained by every report, in ℓ₁
		}),
		radius: 1,
		input:  1, report: math.Sqrt(square),
	}, event}
	return m, nil
}

// symbol returns a randomized report of a symbol between 0 and K−1. A symbol outside is
// replaced by the nearer end.
func (m *krr) symbol(src rng.Source, symbol int) int {
	symbol = max(0, min(symbol, m.facts.Dim-1))
	if sample.Bernoulli(src, m.rare) == m.rareTruth {
		return symbol
	}
	other := int(sample.Uniform(src, uint64(m.facts.Dim-1)))
	if other >= symbol {
		other++
	}
	return other
}

// Randomize overwrites r with a randomized report of a symbol drawn from the
// weights x; see [KRR] for weights that are no distribution.
func (m *krr) Randomize(src rng.Source, x []float32, r *Report) {
	checkInput(m.facts.Dim, x)
	checkReport(r, 1, 1)
	r.Index[0], r.Value[0] = uint32(m.symbol(src, m.choose(src, x))), 1
}

func (m *krr) choose(src rng.Source, x []float32) int {
	var total, largest float64
	for _, v := range x {
		total += weight(v)
		largest = math.Max(largest, weight(v))
	}
	if total == 0 || m.spread > 1 && !(largest*float64(m.spread) <= total*(1+spreadSlack/2)) {
		return int(sample.Uniform(src, uint64(m.facts.Dim)))
	}
	left := total * (float64(src.Uint64()>>11) * 0x1p-53)
	last := 0
	for i, v := range x {
		if w := weight(v); w > 0 {
			last = i
			if left -= w; left < 0 {
				break
			}
		}
	}
	return last
}

// weight returns v as a weight: 0 for a negative v or NaN, the largest float32 for +Inf.
func weight(v float32) float64 {
	if !(v > 0) {
		return 0
	}
	return math.Min(float64(v), math.MaxFloat32)
}

// Estimate stores the unbiased mean of n distributions from the counts in sum.
// Entries may be negative; they sum to 1.
func (m *krr) Estimate(mean []float64, sum []int64, n int64) {
	if n < 1 {
		clear(mean)
		return
	}
	for i, s := range sum {
		mean[i] = (float64(s)/float64(n) - m.lie) / m.gap
	}
}
