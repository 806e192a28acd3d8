package vecsum

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/tail"
)

const bigPrec = 320

func bigFloat(x float64) *big.Float { return new(big.Float).SetPrec(bigPrec).SetFloat64(x) }

// bigExp is e^x for x ≤ 0: the series of e^(x/2^s), squared s times.
func bigExp(x *big.Float) *big.Float {
	const s = 16
	y := new(big.Float).SetMantExp(x, -s)
	sum, term := bigFloat(1), bigFloat(1)
	for k := 1; k < 60; k++ {
		term.Mul(term, y).Quo(term, bigFloat(float64(k)))
		sum.Add(sum, term)
	}
	for range s {
		sum.Mul(sum, sum)
	}
	return sum
}

// bigNormal returns Φ(x) and φ(x): ½ + φ(x)·Σ x^(2k+1)/(2k+1)!!.
func bigNormal(x, rootTau *big.Float) (cdf, density *big.Float) {
	square := new(big.Float).Mul(x, x)
	density = bigExp(new(big.Float).Neg(new(big.Float).SetMantExp(square, -1)))
	density.Quo(density, rootTau)
	term, sum := new(big.Float).Copy(x), new(big.Float).Copy(x)
	for k := 3; k < 900; k += 2 {
		term.Mul(term, square).Quo(term, bigFloat(float64(k)))
		sum.Add(sum, term)
		if term.Sign() == 0 || term.MantExp(nil) < sum.MantExp(nil)-bigPrec {
			break
		}
	}
	cdf = new(big.Float).Mul(density, sum)
	return cdf.Add(cdf, bigFloat(.5)), density
}

// bigRootTau is √(2π) by Machin's formula.
func bigRootTau() *big.Float {
	arctan := func(inverse float64) *big.Float {
		x := new(big.Float).Quo(bigFloat(1), bigFloat(inverse))
		square := new(big.Float).Mul(x, x)
		sum := new(big.Float).Copy(x)
		for k := 3; k < 300; k += 2 {
			x.Mul(x, square).Neg(x)
			sum.Add(sum, new(big.Float).Quo(x, bigFloat(float64(k))))
		}
		return sum
	}
	pi := new(big.Float).Mul(bigFloat(16), arctan(5))
	pi.Sub(pi, new(big.Float).Mul(bigFloat(4), arctan(239)))
	return pi.Sqrt(pi.Mul(pi, bigFloat(2)))
}

// The definition of mu1, step by step, in 320 bits: the distribution function as
// exact fractions, its quantiles by Newton's method. Oracle 5e.
func TestIncrementInBigFloat(t *testing.T) {
	rootTau := bigRootTau()
	if x, _ := rootTau.Float64(); math.Abs(x-math.Sqrt(2*math.Pi)) > 1e-15 {
		t.Fatalf("√(2π) = %v", x)
	}
	for _, c := range []struct {
		m, shift int64
		p        *big.Rat
		tau      float64
	}{
		{60, 1, big.NewRat(1, 2), 1e-3}, {201, 5, big.NewRat(1, 2), 1e-7}, {900, 3, big.NewRat(1, 2), 1e-13},
		{120, 2, big.NewRat(1, 4), 1e-4}, {500, 4, big.NewRat(3, 4), 1e-9},
	} {
		if c.m == 900 && !longtest.On {
			continue
		}
		// cdf[t] = F(t), exactly.
		pmf := new(big.Rat).SetInt64(1)
		other := new(big.Rat).Sub(big.NewRat(1, 1), c.p)
		for range c.m {
			pmf.Mul(pmf, other)
		}
		odds := new(big.Rat).Quo(c.p, other)
		sum := new(big.Rat)
		cdf := make([]*big.Float, c.m)
		for k := range c.m {
			sum.Add(sum, pmf)
			cdf[k] = new(big.Float).SetPrec(bigPrec).SetRat(sum)
			pmf.Mul(pmf, odds).Mul(pmf, big.NewRat(c.m-k, k+1))
		}
		tau := bigFloat(c.tau)
		lo, hi := int64(0), int64(0)
		for cdf[lo].Cmp(tau) <= 0 {
			lo++
		}
		for new(big.Float).Sub(bigFloat(1), cdf[hi]).Cmp(tau) > 0 {
			hi++
		}
		if lo-c.shift < 0 || hi+c.shift > c.m-1 {
			t.Fatalf("%+v: the window leaves the support", c)
		}
		p, _ := c.p.Float64()
		quantile := func(u int64) *big.Float {
			start, _ := cdf[u].Float64()
			x := bigFloat(-upperQuantile(start, 0))
			if s := tail.Survival(c.m, u+1, p, 1-p); s < .5 {
				x = bigFloat(upperQuantile(s, 0))
			}
			for range 6 {
				f, density := bigNormal(x, rootTau)
				f.Sub(f, cdf[u])
				x.Sub(x, f.Quo(f, density))
			}
			f, _ := bigNormal(x, rootTau)
			if f.Sub(f, cdf[u]); f.Sign() != 0 && f.MantExp(nil) > cdf[u].MantExp(nil)-bigPrec+80 {
				t.Fatalf("%+v: the quantile at %d did not converge", c, u)
			}
			return x
		}
		want := bigFloat(0)
		before := quantile(lo - c.shift)
		for u := lo - c.shift + 1; u <= hi+c.shift; u++ {
			at := quantile(u)
			if d := new(big.Float).Sub(at, before); d.Cmp(want) > 0 {
				want = d
			}
			before = at
		}
		exact, _ := want.Float64()
		got, _, err := Noise{Kind: Binomial, Bits: c.m, P: p}.increment(1, c.shift, c.tau)
		if err != nil {
			t.Fatal(err)
		}
		if bigFloat(got).Cmp(want) < 0 || got > exact*(1+1e-8) {
			t.Errorf("Bin(%d, %v), shift %d, tau %v: mu1 = %.17g, in big.Float %s", c.m, c.p, c.shift, c.tau, got, fmt.Sprint(want.Text('g', 20)))
		}
	}
}
