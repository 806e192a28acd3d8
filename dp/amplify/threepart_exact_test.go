package amplify

import (
	"math"
	"math/big"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// exactThreeParts returns k·δ of k reports in the pair of threepart.md, at g = e^eps: E and a are
// those of the pair, and c is 1 or E. Numbers have 320 bits, and the sum has positive terms only.
func exactThreeParts(bigE, a, c *big.Float, k int, eps float64) *big.Float {
	num := func() *big.Float { return new(big.Float).SetPrec(320) }
	one := num().SetInt64(1)
	g := exactExp(eps)
	third := num().Mul(a, num().Add(bigE, one))
	third.Quo(third.Sub(one, third), c)
	useless := num().Sub(one, num().Add(third, num().Add(a, a)))
	powers := func(x *big.Float) []*big.Float {
		out := []*big.Float{one}
		for range k {
			out = append(out, num().Mul(out[len(out)-1], x))
		}
		return out
	}
	pairs, thirds, rests := powers(a), powers(third), powers(useless)
	sum := num()
	for first := range k + 1 {
		for second := range min(first, k-first+1) {
			for beside := range k - first - second + 1 {
				// P − gQ over the reports' base law, of which only the victim's place is chosen.
				v := num().Mul(num().SetInt64(int64(first)), num().Sub(bigE, g))
				v.Sub(v, num().Mul(num().SetInt64(int64(second)), num().Sub(num().Mul(g, bigE), one)))
				v.Sub(v, num().Mul(num().SetInt64(int64(beside)), num().Mul(c, num().Sub(g, one))))
				if v.Sign() <= 0 {
					continue
				}
				ways := new(big.Int).Binomial(int64(k), int64(first))
				ways.Mul(ways, new(big.Int).Binomial(int64(k-first), int64(second)))
				ways.Mul(ways, new(big.Int).Binomial(int64(k-first-second), int64(beside)))
				v.Mul(v, num().SetInt(ways))
				v.Mul(v, pairs[first+second]).Mul(v, thirds[beside]).Mul(v, rests[k-first-second-beside])
				sum.Add(sum, v)
			}
		}
	}
	return sum
}

// exactExp returns e^x, by its series at x/64.
func exactExp(x float64) *big.Float {
	num := func() *big.Float { return new(big.Float).SetPrec(400) }
	small := num().Quo(num().SetFloat64(x), num().SetInt64(64))
	sum, term := num().SetInt64(1), num().SetInt64(1)
	for i := int64(1); i < 120; i++ {
		term.Quo(term.Mul(term, small), num().SetInt64(i))
		sum.Add(sum, term)
	}
	for range 6 {
		sum.Mul(sum, sum)
	}
	return sum.SetPrec(320)
}

// Rounding must not lower δ, however near U is to 1 and however small δ is.
func TestThreePartRoundsUp(t *testing.T) {
	one := new(big.Float).SetPrec(320).SetInt64(1)
	sizes := longtest.Pick([]int{1, 2, 5, 9}, []int{1, 2, 3, 5, 8, 13})
	losses := longtest.Pick([]float64{2, 12, 28, 31}, []float64{.5, 2, 5, 12, 20, 24, 28, 31, 35})
	worst, checked := math.Inf(1), 0
	for _, eps0 := range losses {
		bigE := exactExp(eps0)
		families := map[string]func() (f Family, a, c *big.Float, err error){}
		for name, symbols := range map[string]int64{"2 symbols": 2, "3 symbols": 3, "40 symbols": 40, "1e9 symbols": 1e9} {
			families[name] = func() (Family, *big.Float, *big.Float, error) {
				f, err := KRR(eps0, int(symbols))
				all := new(big.Float).SetPrec(320).Add(bigE, new(big.Float).SetInt64(symbols-1))
				return f, all.Quo(one, all), one, err
			}
		}
		families["blanket"] = func() (Family, *big.Float, *big.Float, error) {
			f, err := ClonesFamily(eps0, Blanket(eps0))
			return f, new(big.Float).SetPrec(320).Quo(one, new(big.Float).SetPrec(320).Add(bigE, one)), one, err
		}
		for name, share := range map[string]float64{"a thousandth": 1e-3, "half": .5, "all but 1e-9": 1 - 1e-9} {
			families[name] = func() (Family, *big.Float, *big.Float, error) {
				a := share / (math.Exp(eps0) + 1)
				f, err := KnownTV(eps0, a)
				return f, new(big.Float).SetPrec(320).SetFloat64(a), bigE, err
			}
		}
		for name, family := range families {
			f, a, c, err := family()
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range sizes {
				p, err := f.Round(FamilyRound{Population: int64(k), Reports: int64(k)})
				if err != nil {
					t.Fatal(err)
				}
				for _, share := range []float64{1e-6, .01, .1, .3, .5, .7, .9, .95, .98} {
					eps := share * eps0
					sum := exactThreeParts(bigE, a, c, k, eps)
					sum.Quo(sum, new(big.Float).SetInt64(int64(k)))
					truth, _ := sum.Float64()
					if !(truth > 1e-290) {
						continue
					}
					over := deltaOf(p, eps)/truth - 1
					if worst, checked = min(worst, over), checked+1; over < 0 && !(name == "blanket" && over > -2e-14) { // a crowd of clones adds nothing for rounding
						t.Errorf("%s, eps0 = %v, k = %d: δ(%v) = %g is %.3g of itself too small", name, eps0, k, eps, truth, -over)
					}
				}
			}
		}
	}
	t.Logf("%d comparisons, the least bound is %.3g above the truth", checked, worst)
}
