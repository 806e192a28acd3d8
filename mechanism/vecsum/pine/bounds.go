package pine

import (
	"math"
	"math/big"
)

// field is log2 of the field's order, to 1e-9.
func (p *Pine) field() float64 { return float64(p.config.Field) }

// points returns the interpolation points of both circuits.
func (p *Pine) points() (equality, rest float64) {
	l := p.layout
	up := func(n int) float64 { return math.Exp2(math.Ceil(math.Log2(float64(1 + n)))) }
	return up(calls(l.dim, l.equalityChunk)), up(calls(l.bitCount(), l.chunk) + calls(l.checks, l.chunk))
}

// slack is added to logarithms for rounding, and for what is left out of them.
const slack = 1e-6

// Soundness bounds the probability that a report is accepted whose vector has a norm above
// the bound, for any client that has computed at most 2^logHashes hashes before it sends it.
//
// Result: log2 of the probability of one report, at most 0, rounded up. Each report that a
// client sends is a new try; hashes are counted over all of them.
// Needs: both aggregators honest, a verify key that clients do not know, the XOF a random
// oracle; 0 ≤ logHashes ≤ 64, for its seeds have 128 bits, else the result is 0: no bound.
// Source: [ROCT23] lemmas 3.3 and 3.12, theorem 3.14, as the draft's find_wr_params.sage has
// them, recalled; rearranged for a client that hashes, as in pine.md.
func (p *Pine) Soundness(logHashes float64) float64 {
	if !(logHashes >= 0 && logHashes <= 64) {
		return 0
	}
	l, q := p.layout, p.field()
	sum := logHashes + p.wraparound()
	equality, rest := p.points()
	query := func(n float64) float64 { return math.Log2(2*(n-1)) - q + slack } // 2(n − 1)/(q − n), n below 2^26
	sum = logAdd(sum, float64(l.equalityProofs)*query(equality))
	lucky := math.Log2(float64(l.bitCount()+l.checks+4)) - q
	ways := 0.0 // log2 of l.proofs over j
	for j := range l.proofs + 1 {
		luck := 0.0
		if j > 0 {
			luck = min(0, logHashes+float64(j)*lucky)
		}
		sum = logAdd(sum, ways+luck+float64(l.proofs-j)*query(rest))
		ways += math.Log2(float64(l.proofs-j) / float64(j+1))
	}
	return min(0, sum+slack)
}

// wraparound returns log2 of the probability that a vector whose squared norm is small mod q
// but not small passes the projections, each with probability 1/2 at most.
func (p *Pine) wraparound() float64 {
	l := p.layout
	sum, one := new(big.Int), new(big.Int)
	for k := l.successes; k <= l.checks; k++ {
		sum.Add(sum, one.Binomial(int64(l.checks), int64(k)))
	}
	mantissa := new(big.Float).SetInt(sum)
	exponent := mantissa.MantExp(mantissa)
	m, _ := mantissa.Float64()
	return float64(exponent-l.checks) + math.Log2(m) + slack
}

// ZeroKnowledge bounds what one aggregator learns beyond that the norm is within the bound:
// the statistical distance of all that it sees from what could be computed without the vector,
// where seeds are expanded to truly random strings.
//
// It is the probability that the projections fail by chance. The client then draws anew, so
// that the projections that aggregators see have not failed for this vector.
//
// Result: log2 of the distance, rounded up.
// Source: [ROCT23] lemma 3.3, ρ_C; the chance of one projection is Hoeffding's, as in pine.md.
func (p *Pine) ZeroKnowledge() float64 {
	l := p.layout
	ratio := float64(l.reach) / float64(p.config.Bound)
	one := 1 - ratio*ratio*math.Log2E // log2 of 2·exp(−ratio²)
	failures := l.checks - l.successes + 1
	ways := new(big.Float).SetInt(new(big.Int).Binomial(int64(l.checks), int64(failures)))
	exponent := ways.MantExp(ways)
	m, _ := ways.Float64()
	return min(0, float64(failures)*one+float64(exponent)+math.Log2(m)+slack)
}

// completeness bounds the probability that honest aggregators refuse a report of an honest
// client: the point of one of its queries is a root of unity. That does not depend on the vector.
//
// Result: log2 of the probability, rounded up.
// Source: counted here, n/q for each proof with n interpolation points.
func (p *Pine) completeness() float64 {
	equality, rest := p.points()
	l := p.layout
	return math.Log2(float64(l.equalityProofs)*equality+float64(l.proofs)*rest) - p.field() + slack
}

// logAdd returns log2(2^a + 2^b).
func logAdd(a, b float64) float64 {
	if a < b {
		a, b = b, a
	}
	return a + math.Log1p(math.Exp2(b-a))*math.Log2E
}
