package vecsum

import (
	"math"
	"testing"
)

// exactEpsilon is the least ε with hockey-stick divergence at most delta of a law
// and the law shifted by k, in the worse of both orders.
func exactEpsilon(pmf []float64, k int, delta float64) float64 {
	wide := make([]float64, len(pmf)+2*k)
	copy(wide[k:], pmf)
	over := func(eps float64) bool {
		e := math.Exp(eps)
		var up, down float64
		for i, a := range wide[k:] {
			b := wide[i]
			up += math.Max(0, a-e*b)
			down += math.Max(0, b-e*a)
		}
		return math.Max(up, down) > delta
	}
	lo, hi := 0., 4.
	for range 20 {
		if mid := (lo + hi) / 2; over(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi
}

// What the mechanism loses exactly, and its broken variants, on one coordinate
// that moves from one end to the other. Oracle 6: .976, 1.42, 2.07.
func TestNegativeControlsExactly(t *testing.T) {
	const delta = 1e-6
	p := mustTight(t, Target{Eps: 1, Delta: delta, Users: 40, Dim: 1, Radius: 1})
	m, g := p.Noise.Bits*40, int(p.Grid)
	claimed, err := p.Epsilon(delta, 1)
	if err != nil {
		t.Fatal(err)
	}
	if exact, mine := exactDelta(binomialPMF(100, .3), -3, .5), exactEpsilon(binomialPMF(100, .3), 3, exactDelta(binomialPMF(100, .3), -3, .5)); math.Abs(mine-.5) > 1e-5 {
		t.Fatalf("delta %v is at eps %v, not .5", exact, mine)
	}
	for name, c := range map[string]struct {
		bits     int64
		prob     float64
		shift    int
		from, to float64
	}{
		"as it is":                     {m, .5, g, .9, claimed},
		"half the noise":               {m / 2, .5, g, 1.35, 1.5},
		"a quarter of it":              {m / 4, .5, g, 1.95, 2.2},
		"a third honest, not charged":  {m / 3, .5, g, 1.6, 1.9},
		"p = 1/10":                     {m, .1, g, 1.6, 2.2},
		"sensitivity Radius, not both": {m, .5, 2 * g, 1.9, 2.3},
	} {
		eps := exactEpsilon(binomialPMF(c.bits, c.prob), c.shift, delta)
		if !(eps >= c.from && eps <= c.to) {
			t.Errorf("%s: exact eps %v, want %v to %v", name, eps, c.from, c.to)
		}
		t.Logf("%s: exact eps %.3f", name, eps)
	}
}

// product is a law on ℤ^d, one coordinate after another, from laws on −reach … reach.
func product(laws [][]float64) []float64 {
	out := []float64{1}
	for _, l := range laws {
		next := make([]float64, 0, len(out)*len(l))
		for _, a := range out {
			for _, b := range l {
				next = append(next, a*b)
			}
		}
		out = next
	}
	return out
}

// Checking the norm of the real vector and then rounding it, with the sensitivity
// of the real one, is not private: rounding lengthens. A vector with no fractions
// and one that rounding lengthens by half refute the claim, enumerated exactly;
// the bound for what is checked after rounding, as Encoder does, holds. Oracle 6.
func TestNormCheckBeforeRoundingIsRefuted(t *testing.T) {
	const g, tau, reach = 2, 1e-9, 24
	noise := Noise{Kind: DiscreteGaussian, Variance: 1}
	h, err := gaussianHalf(1, 1e-200, 1)
	if err != nil {
		t.Fatal(err)
	}
	// rounded is the law of noise on y rounded at random: steps from the middle.
	rounded := func(y float64) []float64 {
		k := int64(math.Floor(y))
		f := y - float64(k)
		out := make([]float64, 2*reach+1)
		for i := range out {
			at := int64(i) - reach - k
			out[i] = (1-f)*math.Exp(h.log(max(at, -at))) + f*math.Exp(h.log(max(at-1, 1-at)))
		}
		return out
	}
	for d := 2; d <= 3; d++ {
		var a, b [][]float64
		for j := range d {
			a = append(a, rounded(1/math.Sqrt(float64(d)))) // of norm g/2
			b = append(b, rounded(math.Min(0, float64(j-1))))
		}
		p, q := product(a), product(b)
		bound := func(norm int64, eps float64) float64 {
			mu1, _, err := noise.increment(1, min(g, isqrt(norm)), tau)
			if err != nil {
				t.Fatal(err)
			}
			c := float64(min(int64(d), norm))
			return Curve{Mu: mu1 * math.Sqrt(float64(norm)), Tail: -math.Expm1(c * math.Log1p(-tau))}.delta(eps)
		}
		worst := 0.
		for eps := 0.; eps <= 18; eps += .5 {
			var pq, qp float64
			for i := range p {
				pq += math.Max(0, p[i]-math.Exp(eps)*q[i])
				qp += math.Max(0, q[i]-math.Exp(eps)*p[i])
			}
			exact := math.Max(pq, qp)
			worst = math.Max(worst, exact/bound(g*g, eps))
			if sound := bound(Norm(d, g, 0), eps); exact > sound {
				t.Errorf("d = %d, eps = %v: exact %v above the bound %v after rounding", d, eps, exact, sound)
			}
		}
		if worst < 1.5 {
			t.Errorf("d = %d: the norm checked before rounding is not refuted, exact/claim %v", d, worst)
		}
		t.Logf("d = %d: exact delta is %.2f times the claim", d, worst)
	}
}
