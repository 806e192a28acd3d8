package literature

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/monotone"
	"github.com/riffle-dp/riffle/internal/tail"
)

// Repeated is a mechanism that is (Eps, 0)-DP, used Rounds times, adaptively.
// Its worst case is randomized response, whose loss is Eps·(2B − T) with B ~
// Bin(T, e^ε/(1+e^ε)).
type Repeated struct {
	Eps    float64 // Required, at least 0.
	Rounds int64   // Required. T, from 1 to 2^52.
	Exact  bool    // nothing smaller holds for every (Eps, 0)-DP mechanism; false: closed forms
}

// Epsilon bounds ε at delta in [0, 1), for the adjacency of Eps, rounded up. If Exact, it is
// Delta solved for ε, at most 1e-9 relative above the smallest that rounding can distinguish,
// and never above the closed form.
//
// Upper, proved. Source: Kairouz, Oh, Viswanath 2015, Theorems 3.3 (exact) and 3.4.
func (r Repeated) Epsilon(delta float64) float64 {
	closed := r.closedEps(delta)
	if !r.Exact || !(delta > 0) {
		return closed
	}
	return math.Min(closed, monotone.Falling(r.exactDelta, delta, 0, closed, 1e-9))
}

// Delta bounds δ at eps ≥ 0, rounded up. Upper, proved, like Epsilon.
func (r Repeated) Delta(eps float64) float64 {
	if r.Exact {
		return r.exactDelta(eps)
	}
	return r.closedDelta(eps)
}

// spread returns the mean of the composed loss, Tε·tanh(ε/2), and ε√T, the square root of its
// variance proxy.
func (r Repeated) spread() (mean, deviation float64) {
	t := float64(r.Rounds)
	return t * r.Eps * math.Tanh(r.Eps/2), r.Eps * math.Sqrt(t)
}

// closedEps is the closed form of Epsilon.
//
// Source: Kairouz, Oh, Viswanath 2015, Theorem 3.4: the smallest
// of Tε, m + s√(2 log(e + s/δ)) and m + s√(2 log(1/δ)) with m = Tε·tanh(ε/2)
// and s = ε√T; strong.md proves the last two. Time O(1).
func (r Repeated) closedEps(delta float64) float64 {
	pure := float64(r.Rounds) * r.Eps
	if !(delta > 0) {
		return pure * (1 + 1e-14)
	}
	m, s := r.spread()
	// log(e + s/δ) is at least as large as either of the two logarithms.
	short := math.Min(math.Log(math.E+s/delta), -math.Log(delta))
	return math.Min(pure, m+s*math.Sqrt(2*math.Max(0, short))) * (1 + 1e-14)
}

// closedDelta is closedEps solved for δ: it returns a δ ≤ 1 that is proved for eps ≥ 0.
func (r Repeated) closedDelta(eps float64) float64 {
	m, s := r.spread()
	switch {
	case eps >= float64(r.Rounds)*r.Eps*(1+1e-14):
		return 0
	case !(eps > m*(1+1e-14)):
		return 1
	}
	x := (eps*(1-2e-14) - m*(1+1e-14)) / s
	if !(x > 0) {
		return 1
	}
	delta := math.Exp(-x * x / 2)
	// log(e + s/δ) = x²/2 has a solution where x²/2 exceeds 1.
	if free := 1/delta - math.E; free > 0 {
		delta = math.Min(delta, s/free)
	}
	return math.Min(1, delta*(1+1e-9)+1e-300)
}

// exactDelta is the exact Delta.
//
// Source: Kairouz, Oh, Viswanath 2015, Theorem 3.3, at any ε:
// Pr_P[B ≥ b] − e^ε Pr_Q[B ≥ b], b the first count of loss above ε. Slack: at
// least 1e-11 of the tail, more with √T. Time O(1).
func (r Repeated) exactDelta(eps float64) float64 {
	t := float64(r.Rounds)
	switch {
	case math.IsNaN(eps) || eps < 0:
		return 1
	case eps >= t*r.Eps*(1+1e-14):
		return 0
	}
	q := 1 / (1 + math.Exp(r.Eps))
	p := 1 / (1 + math.Exp(-r.Eps))
	first := int64(math.Min(t, math.Floor((eps/r.Eps+t)/2)+1))
	var delta float64
	// Rounding may shift b by one; δ is the largest over all b, so the neighbours are tried
	// too.
	for b := max(0, first-1); b <= min(r.Rounds, first+1); b++ {
		above, under := tail.Survival(r.Rounds, b, p, q), tail.Survival(r.Rounds, b, q, p)
		if under > 0 {
			under = math.Exp(math.Min(700, eps+math.Log(under)))
		}
		// The rounding of p and q moves b by √T times as much, in deviations.
		z := math.Abs(float64(b)-t*p) / math.Sqrt(t*p*q)
		slack := 1e-11 + 1e-15*math.Sqrt(t)*(z+2)
		delta = math.Max(delta, above-under+slack*(above+under))
	}
	return math.Min(1, delta+1e-300)
}

// Strong composes rounds by their (ε, δ) guarantees. A shuffle that is (ε₁, Delta(ε₁))-DP for
// every ε₁ runs on a sample, and Rounds such samples compose. Every ε₁ gives a bound; the
// best one is searched.
type Strong struct {
	Eps0  float64                   // Required: the shuffle is (Eps0, 0)-DP.
	Delta func(eps float64) float64 // Required: δ of one shuffle at 0 ≤ ε < Eps0, falling.
	// Gamma in (0, 1] is the largest chance to be in a round; a sample is (log(1 +
	// γ(e^ε₁ − 1)), γδ₁)-DP: Balle, Barthe, Gaboardi 2018, Theorem 9. Required.
	Gamma  float64
	Rounds int64   // Required, from 1 to 2^52.
	Lost   float64 // probability that a round has no guarantee; 0 by default
	Exact  bool    // as in Repeated
}

// round returns the guarantee of one round from that of one shuffle.
func (c Strong) round(eps1 float64) (Repeated, float64) {
	d := c.Lost
	if eps1 < c.Eps0 {
		d += c.Gamma * c.Delta(eps1)
	}
	if math.IsNaN(d) {
		d = 1
	}
	return Repeated{amplify.SampledLoss(eps1, c.Gamma) * (1 + 1e-14), c.Rounds, c.Exact}, math.Min(1, d*(1+1e-14))
}

// failed returns log of the probability that no round fails.
func (c Strong) failed(d float64) float64 { return float64(c.Rounds) * math.Log1p(-d) }

// Epsilon bounds ε at delta, replace-one adjacency, rounded up. With δ₁ per round and δ̃ for
// the composition, δ = 1 − (1−γδ₁)^T(1−δ̃): Kairouz, Oh, Viswanath 2015, Theorems 3.3 and
// 3.4. Cost: some 80 calls of Delta.
func (c Strong) Epsilon(delta float64) (float64, error) {
	if err := dp.CheckDelta(delta); err != nil {
		return 0, err
	}
	spent := func(eps1 float64) float64 {
		_, d := c.round(eps1)
		return -math.Expm1(c.failed(d))
	}
	least := monotone.Falling(spent, delta*(1-1e-12), 0, c.Eps0, 1e-7)
	if math.IsInf(least, 1) {
		return 0, fmt.Errorf("amplify: rounds fail with probability above delta = %v: %w", delta, dp.ErrNoBound)
	}
	at := func(eps1 float64) float64 {
		r, d := c.round(eps1)
		left := -math.Expm1(math.Log1p(-delta)-c.failed(d)) * (1 - 1e-9)
		if spent(eps1) > delta {
			return math.Inf(1)
		}
		return r.Epsilon(math.Max(0, left))
	}
	best := math.Min(at(least), at(c.Eps0))
	if c.Rounds == 1 && best < math.Inf(1) {
		return best, nil // the smallest choice already spends all of δ
	}
	_, v := coarseThenGolden(-26*math.Ln2, -0.5, 26, func(u float64) float64 { return at(least + (c.Eps0-least)*math.Exp(u)) })
	if best = math.Min(best, v); math.IsInf(best, 1) || math.IsNaN(best) {
		return 0, fmt.Errorf("amplify: composition shows no epsilon for delta = %v: %w", delta, dp.ErrNoBound)
	}
	return best, nil
}

// DeltaAt bounds δ at eps ≥ 0, replace-one adjacency, rounded up; 1 if it shows nothing
// smaller.
func (c Strong) DeltaAt(eps float64) float64 {
	at := func(u float64) float64 {
		r, d := c.round(c.Eps0 * math.Min(1, math.Exp(u)))
		over := r.closedDelta(eps)
		if c.Exact {
			over = math.Min(over, r.exactDelta(eps))
		}
		return -math.Expm1(c.failed(d)+math.Log1p(-over)) * (1 + 1e-12)
	}
	best := at(0)
	if c.Rounds == 1 {
		// For a single round, take the shuffle's ε₁ at which the sample's ε is eps.
		eps1 := math.Log1p(math.Expm1(eps*(1-1e-13)) / c.Gamma)
		return math.Min(1, math.Min(best, at(math.Min(0, math.Log(eps1/c.Eps0)))))
	}
	_, v := coarseThenGolden(-30, -0.01, 48, at)
	if best = math.Min(best, v); best < 1 {
		return best
	}
	return 1 // NaN too
}

// coarseThenGolden looks for a small value of f on [lo, hi]: it evaluates steps + 1 points,
// then does a golden section around the best.
func coarseThenGolden(lo, hi float64, steps int, f func(float64) float64) (x, value float64) {
	value = math.Inf(1)
	width := (hi - lo) / float64(steps)
	for i := 0; i <= steps; i++ {
		if v := f(lo + float64(i)*width); v < value {
			x, value = lo+float64(i)*width, v
		}
	}
	g := (math.Sqrt(5) - 1) / 2
	a, b := math.Max(lo, x-width), math.Min(hi, x+width)
	for range 18 {
		l, r := b-g*(b-a), a+g*(b-a)
		fl, fr := f(l), f(r)
		if fl <= fr {
			b = r
		} else {
			a = l
		}
		if fl < value {
			x, value = l, fl
		}
		if fr < value {
			x, value = r, fr
		}
	}
	return x, value
}
