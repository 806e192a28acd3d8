package vecsum

import (
	"math"
	"math/big"
	"testing"
)

// precise is a number of 300 bits.
func precise(x float64) *big.Float { return new(big.Float).SetPrec(300).SetFloat64(x) }

// powered returns the law P(k) ∝ base^(k²) on −reach … reach.
func powered(base *big.Float, reach int) []*big.Float {
	p, total := make([]*big.Float, 2*reach+1), precise(0)
	power, factor := precise(1), precise(0).Set(base) // base^(k²), base^(2k+1)
	for k := range reach + 1 {
		p[reach+k] = precise(0).Set(power)
		p[reach-k] = p[reach+k]
		total.Add(total, power)
		if k > 0 {
			total.Add(total, power)
		}
		power.Mul(power, factor)
		factor.Mul(factor, base)
		factor.Mul(factor, base)
	}
	for k := range reach + 1 {
		p[reach+k] = precise(0).Quo(p[reach+k], total)
		p[reach-k] = p[reach+k]
	}
	return p
}

// convolved returns the law of the sum of two independent variables.
func convolved(p, q []*big.Float) []*big.Float {
	out := make([]*big.Float, len(p)+len(q)-1)
	for i := range out {
		out[i] = precise(0)
	}
	term := precise(0)
	for i, a := range p {
		for j, b := range q {
			out[i+j].Add(out[i+j], term.Mul(a, b))
		}
	}
	return out
}

// The sum of h discrete Gaussian variables of parameter v is within 3(h−1)·ρ(r), r² = v/2, of the discrete
// Gaussian of parameter hv in total variation, which is what vecsum.md, section 12 (b), charges for it: computed from
// the definitions, in 300 bits, for parameters where it is not small.
func TestSumsOfClientsNoise(t *testing.T) {
	rho := func(r2 float64) (sum float64) {
		for j := 1.; j < 9; j++ {
			sum += 2 * math.Exp(-2*math.Pi*math.Pi*r2*j*j)
		}
		return sum
	}
	nearest, mutant := 0., 0.
	for _, about := range []float64{.6, .8, 1, 1.5, 2, 3, 4} {
		for h := 2; h <= 5; h++ {
			// The law of hv has this base, so that of v has its h-th power: no root is taken.
			base := math.Exp(-1 / (2 * about * float64(h)))
			v := -1 / (2 * float64(h) * math.Log(base))
			one := precise(1)
			for range h {
				one.Mul(one, precise(base))
			}
			reach := int(16*math.Sqrt(v)) + 1
			each := powered(one, reach)
			sum := each
			for range h - 1 {
				sum = convolved(sum, each)
			}
			want := powered(precise(base), h*reach)
			distance := precise(0)
			for k := range sum {
				diff := precise(0).Sub(sum[k], want[k])
				distance.Add(distance, diff.Abs(diff))
			}
			tv, _ := distance.Float64()
			tv /= 2
			if bound := 3 * float64(h-1) * rho(v/2); !(tv <= bound) {
				t.Errorf("%d variables of parameter %v: total variation %v above %v", h, v, tv, bound)
			} else if h == 2 {
				nearest = math.Max(nearest, tv/bound)
			}
			// The last one added to h−1 does it nearly alone, and that is what makes the bound wide for more than two.
			if ratio := tv / rho(v*float64(h-1)/float64(h)); !(ratio > .49 && ratio < 2) {
				t.Errorf("%d variables of parameter %v: %v times what the last one does", h, v, ratio)
			}
			mutant = math.Max(mutant, tv/(3*float64(h-1)*rho(.75*v)))
		}
	}
	t.Logf("%.3g of the bound for two; with r² = 3v/4 %.3g times the bound", nearest, mutant)
	if nearest < .16 || mutant < 2 {
		t.Errorf("%v of the bound for two, and %v of that with r² = 3v/4: is the distance that of these laws?", nearest, mutant)
	}
}
