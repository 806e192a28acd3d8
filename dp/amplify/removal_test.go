package amplify_test

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
)

// removalMoment is ∫P^λQ^(1−λ) over k < n and the sum, of scalar inputs, all of
// them under P and all but the first under Q; exchanged if reverse.
func removalMoment(inputs []float64, sigma, gamma, order float64, reverse bool) float64 {
	n := len(inputs)
	type component struct {
		weight, mean float64
		with         bool
	}
	sizes := make([][]component, n+1)
	for set := range 1 << n {
		var sum float64
		k := 0
		for i, x := range inputs {
			if set>>i&1 == 1 {
				sum += x
				k++
			}
		}
		sizes[k] = append(sizes[k], component{math.Pow(gamma, float64(k)) * math.Pow(1-gamma, float64(n-k)), sum, set&1 == 1})
	}
	total := 0.
	for k := range n {
		s := sigma * math.Sqrt(float64(k))
		law := func(at float64) (p, q float64) {
			for _, c := range sizes[k] {
				d := 1.
				if k > 0 {
					d = math.Exp(-(at-c.mean)*(at-c.mean)/(2*s*s)) / (s * math.Sqrt(2*math.Pi))
				}
				p += c.weight * d
				if !c.with {
					q += c.weight / (1 - gamma) * d
				}
			}
			return p, q
		}
		moment := func(p, q float64) float64 {
			if reverse {
				p, q = q, p
			}
			if p < 1e-250 || q < 1e-250 {
				return 0
			}
			return math.Exp(order*math.Log(p) + (1-order)*math.Log(q))
		}
		if k == 0 {
			total += moment(law(0))
			continue
		}
		const points = 6000
		lo, hi := -float64(k)-12*s-order/s, float64(k)+12*s+order/s
		h := (hi - lo) / points
		for i := range points + 1 {
			total += moment(law(lo+float64(i)*h)) * h
		}
	}
	return total
}

func TestRemovalBruteForce(t *testing.T) {
	closest := 0.
	for _, inputs := range [][]float64{{1, -1}, {1, 1, -1}, {1, -1, -1, -1}, {.2, 1, -1}, {-1, 1, 1, .5}} {
		for _, sigma := range []float64{.8, 2, 6} {
			for _, gamma := range []float64{.05, .3, .8} {
				curve, dropped, err := amplify.Removal(amplify.GaussianArrivalConfig{Sigma: sigma, Population: int64(len(inputs)), Asked: int64(len(inputs)), Gamma: gamma}, 1e-14)
				if err != nil {
					t.Fatal(err)
				}
				if all := math.Pow(gamma, float64(len(inputs))); !(dropped >= all) || dropped > all*(1+1e-8)+1e-12 {
					t.Errorf("dropped %v, all take part with probability %v", dropped, all)
				}
				for _, order := range []float64{1.5, 2, 3, 6} {
					if order*2/sigma > 10 {
						continue // decided by what the bound leaves out
					}
					got := curve(order)
					for _, reverse := range []bool{false, true} {
						exact := math.Log(removalMoment(inputs, sigma, gamma, order, reverse)) / (order - 1)
						if exact > got+1e-9 {
							t.Errorf("%v, sigma = %v, gamma = %v, order %v, reverse %v: bound %v below exact %v", inputs, sigma, gamma, order, reverse, got, exact)
						}
						// k = n is only in one world; where that is rare the bound is close.
						if gamma == .05 && len(inputs) == 4 {
							closest = math.Max(closest, exact/got)
						}
					}
				}
			}
		}
	}
	if closest < .97 {
		t.Errorf("no case comes closer than %v: the test is blind", closest)
	}
}

func TestRemovalRefusals(t *testing.T) {
	ok := amplify.GaussianArrivalConfig{Sigma: 1, Population: 100, Asked: 100, Gamma: .1}
	for name, change := range map[string]func(*amplify.GaussianArrivalConfig){
		"everybody":     func(c *amplify.GaussianArrivalConfig) { c.Gamma = 1 },
		"alone":         func(c *amplify.GaussianArrivalConfig) { c.Population, c.Asked = 1, 1 },
		"apart":         func(c *amplify.GaussianArrivalConfig) { c.Apart = true },
		"a sample":      func(c *amplify.GaussianArrivalConfig) { c.Asked = 50 },
		"too many of k": func(c *amplify.GaussianArrivalConfig) { c.Population, c.Asked = 1e9, 1e9 },
	} {
		c := ok
		change(&c)
		if _, _, err := amplify.Removal(c, 1e-12); !errors.Is(err, dp.ErrNoBound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, drop := range []float64{0, 1, math.NaN()} {
		if _, _, err := amplify.Removal(ok, drop); err == nil {
			t.Errorf("drop = %v is taken", drop)
		}
	}
	curve, _, err := amplify.Removal(ok, 1e-12)
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range []float64{1, 0, -1, math.NaN()} {
		if d := curve(order); !math.IsInf(d, 1) {
			t.Errorf("order %v: %v", order, d)
		}
	}
}
