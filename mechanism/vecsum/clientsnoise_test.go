package vecsum

import (
	"errors"
	"math"
	"math/big"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
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

// The noise of the clients that are relied on is worth what was asked for and no more than it is, whatever the
// rounding of their number; all numbers stay in range.
func TestClientsNoiseIsWorthItsSigma(t *testing.T) {
	strategy := toeplitz.Strategy{Bits: 5, Weights: []int64{32, 17, 3}}
	for _, c := range []struct {
		least  int64
		honest float64
		want   int64
	}{{1, 1, 1}, {2, .5, 1}, {3, 1. / 3, 1}, {10, .7, 7}, {10, .69, 6}, {100, .29, 28}, {3000, .893, 2679}, {1 << 30, 1, 1 << 30}} {
		for _, sigma := range []float64{.01, 1, 61.5, 900, 3e4} {
			p, err := NewCorrelatedByClients(1<<31, c.least, c.honest, 10, 3, sigma, strategy)
			if errors.Is(err, dp.ErrNoBound) && sigma > 1e3 {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			n := p.Guaranteed()
			if n != c.want {
				t.Errorf("%v of %d: %d clients", c.honest, c.least, n)
			}
			got, tail, err := p.Sigma(7)
			if err != nil || !(got >= sigma*(1-1e-15)) || !(tail > 0 && tail < 1e-20) {
				t.Fatalf("%v of %d: sigma %v, asked %v, tail %v: %v", c.honest, c.least, got, sigma, tail, err)
			}
			// σ·B·2^Bits squared is at most hV − 25, in integers.
			steps := precise(0).Mul(precise(got), precise(float64(p.Bound)*32))
			steps.Mul(steps, steps)
			worth := new(big.Int).Mul(big.NewInt(n), new(big.Int).SetUint64(p.Variance))
			if steps.Cmp(precise(0).SetInt(worth.Sub(worth, big.NewInt(spread)))) > 0 {
				t.Errorf("%v of %d: sigma %v is more than the noise", c.honest, c.least, got)
			}
			if p.Variance < leastEach {
				t.Errorf("variance %d", p.Variance)
			}
			if least := smoothing(spread, 10) * 7 * (1 + 3*float64(n-1)) * math.Exp(MostEps); !(tail >= least) {
				t.Errorf("%d clients: tail %v below %v", n, tail, least)
			}
		}
	}
	p, err := NewCorrelatedByClients(100, 10, .5, 3, 1, 2, strategy)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []uint64{0, 49, 1 << 54, 1 << 63, math.MaxUint64, math.MaxUint64/5 + 1} {
		q := p
		q.Variance = v
		if _, _, err := q.Sigma(1); err == nil {
			t.Errorf("variance %d was taken", v)
		}
	}
	for _, c := range [][2]int64{{0, 100}, {-1, 100}, {101, 100}} {
		q := p
		q.MinUsers, q.Users = c[0], c[1]
		if _, _, err := q.Sigma(1); err == nil {
			t.Errorf("%d of %d clients were taken", c[0], c[1])
		}
	}
	for _, honest := range []float64{0, -1, 1.0001, .0999, math.NaN(), math.Inf(1)} {
		q := p
		q.Honest = honest
		if _, _, err := q.Sigma(1); err == nil {
			t.Errorf("honest = %v was taken", honest)
		}
	}
	q := p
	if q.Bits, q.Weight = 0, 0; q.validate() == nil {
		t.Error("noise apart without weights was taken")
	}
}
