package vecsum

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/monotone"
)

// Curve is a privacy guarantee between two datasets that differ in one client's
// data: for every ε,
//
//	δ(ε) ≤ e^Ratio·(Tail + (1−Tail)·δ_G(ε − 2·Ratio; Mu)) + (1+e^ε)·Distance
//
// with δ_G the curve of N(Mu, 1) against N(0, 1). Upper bound, proved; both
// orders of the neighbours.
type Curve struct {
	Mu   float64 // Gaussian privacy parameter
	Tail float64 // mass beyond the window
	// Ratio bounds |log| of the ratio of the law used and the law accounted for.
	Ratio float64
	// Distance bounds the total variation between the view and what is accounted for, for
	// each dataset. It comes from truncated padding and from imperfect hiding by a transport.
	Distance float64
}

// MethodGDP is the id of this package's own bounds, which count a round as Gaussian noise: see
// [Curve].
const MethodGDP = "vecsum-gdp"

// delta returns an upper bound on δ at any real eps, at most 1.
func (c Curve) delta(eps float64) float64 {
	if math.IsNaN(eps) || !(c.Mu >= 0 && c.Tail >= 0 && c.Ratio >= 0 && c.Distance >= 0) {
		return 1
	}
	tail := math.Min(1, c.Tail)
	d := math.Exp(c.Ratio) * (tail + (1-tail)*gaussDelta(c.Mu, eps-2*c.Ratio))
	if c.Distance > 0 {
		d += (1 + math.Exp(eps)) * c.Distance
	}
	if d *= 1 + 0x1p-48; !(d < 1) {
		return 1
	}
	return d
}

// epsilon returns an ε ≥ 0 with delta(ε) ≤ delta, rounded up, at most 1e-9
// relative above the smallest; an error that wraps dp.ErrNoBound if there is
// none below 1e4.
func (c Curve) epsilon(delta float64) (float64, error) {
	if err := dp.CheckDelta(delta); err != nil {
		return 0, err
	}
	top := 1e4
	if c.Distance > 0 { // Delta rises again where e^ε·Distance dominates
		top = math.Min(top, math.Max(0, math.Log(delta/c.Distance)))
	}
	eps := monotone.Falling(c.delta, delta, 0, top, 1e-10)
	if math.IsInf(eps, 1) {
		// Distance may only spoil the upper end of the range.
		for x := top * .98; x > 1e-6; x *= .98 {
			if c.delta(x) <= delta {
				return monotone.Falling(c.delta, delta, 0, x, 1e-10), nil
			}
		}
		return 0, fmt.Errorf("vecsum: no eps meets delta = %v with mu = %v, tail %v, ratio %v, distance %v: %w",
			delta, c.Mu, c.Tail, c.Ratio, c.Distance, dp.ErrNoBound)
	}
	return eps, nil
}

// compose returns the curve of rounds released one after another, each chosen after seeing
// the ones before: μ adds in squares [Dong, Roth, Su 2022, Corollary 3.3], the rest adds.
func compose(rounds ...Curve) Curve {
	var squares, stay, distance, ratio float64
	for _, r := range rounds {
		squares += r.Mu * r.Mu
		stay += math.Log1p(-math.Min(1, r.Tail))
		distance += r.Distance
		ratio += r.Ratio
	}
	up := 1 + float64(len(rounds)+4)*0x1p-52
	return Curve{Mu: math.Sqrt(squares) * up, Tail: -math.Expm1(stay) * up, Distance: distance * up, Ratio: ratio * up}
}

// times returns the composition of n ≥ 1 rounds of c.
func (c Curve) times(n int64) Curve {
	if n < 1 {
		return Curve{Distance: math.Inf(1)}
	}
	const up = 1 + 0x1p-48
	t := float64(n)
	return Curve{
		Mu: c.Mu * math.Sqrt(t) * up, Tail: -math.Expm1(t*math.Log1p(-math.Min(1, c.Tail))) * up,
		Distance: c.Distance * t * up, Ratio: c.Ratio * t * up,
	}
}

// through returns c, the curve of all rounds together, with what the transport t reveals in
// that number of rounds added. If rounds is below 1, it returns δ = 1.
func (c Curve) through(t Transport, rounds int64) Curve {
	if rounds < 1 {
		c.Distance = math.Inf(1)
		return c
	}
	c.Distance += t.Cost().Distance * float64(rounds) * (1 + 0x1p-48)
	return c
}
