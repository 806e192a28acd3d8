package amplify_test

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/pld"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// removalCell has the masses of an outcome with all clients and without the first.
type removalCell struct{ p, q float64 }

// removalCells are the outcomes, k and the sum, of scalar inputs, with the sum cut into so many cells up to far
// from the means. Outcomes of a cell are taken together, so what is found of them is never too much.
func removalCells(inputs []float64, sigma, gamma, far float64, points int) (out []removalCell) {
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
	for k := range n + 1 {
		s := sigma * math.Sqrt(float64(k))
		law := func(a, b float64) {
			var p, q float64
			for _, c := range sizes[k] {
				d := 1.
				if k > 0 {
					x, y := (a-c.mean)/(s*math.Sqrt2), (b-c.mean)/(s*math.Sqrt2)
					if x < 0 {
						x, y = -y, -x
					}
					d = (math.Erfc(x) - math.Erfc(y)) / 2
				}
				p += c.weight * d
				if !c.with {
					q += c.weight / (1 - gamma) * d
				}
			}
			out = append(out, removalCell{p, q})
		}
		if k == 0 {
			law(0, 1)
			continue
		}
		lo, hi := -float64(k)-12*s-far/s, float64(k)+12*s+far/s
		h := (hi - lo) / float64(points)
		for i := range points {
			law(lo+float64(i)*h, lo+float64(i+1)*h)
		}
	}
	return out
}

// removalMoments are ∫P^λQ^(1−λ) over k < n and the sum, and with P and Q exchanged.
func removalMoments(inputs []float64, sigma, gamma, order float64) (total [2]float64) {
	for _, c := range removalCells(inputs, sigma, gamma, order, 6000) {
		if c.p >= 1e-250 && c.q >= 1e-250 {
			p, q := math.Log(c.p), math.Log(c.q)
			total[0] += math.Exp(order*p + (1-order)*q)
			total[1] += math.Exp(order*q + (1-order)*p)
		}
	}
	return total
}

func TestRemovalBruteForce(t *testing.T) {
	closest := 0.
	for _, inputs := range longtest.Pick([][]float64{{1, -1}, {.2, 1, -1}, {1, -1, -1, -1}}, [][]float64{{1, -1}, {1, 1, -1}, {1, -1, -1, -1}, {.2, 1, -1}, {-1, 1, 1, .5}}) {
		for _, sigma := range longtest.Pick([]float64{.8, 6}, []float64{.8, 2, 6}) {
			for _, gamma := range []float64{.05, .3, .8} {
				if sigma == 6 && gamma == .3 && !longtest.On {
					continue
				}
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
					for reverse, moment := range removalMoments(inputs, sigma, gamma, order) {
						exact := math.Log(moment) / (order - 1)
						if exact > got+1e-9 {
							t.Errorf("%v, sigma = %v, gamma = %v, order %v, reverse %d: bound %v below exact %v", inputs, sigma, gamma, order, reverse, got, exact)
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

// Every δ(ε) of every subset's mixture, in both orders, over one round and two, is at most the pairs'; and where
// all others hold the opposite vector, it is as large.
func TestRemovalPairsBruteForce(t *testing.T) {
	closest := 0.
	for _, inputs := range longtest.Pick([][]float64{{1, -1}, {.2, 1, -1}, {1, -1, -1, -1}}, [][]float64{{1, -1}, {1, 1, -1}, {1, -1, -1, -1}, {.2, 1, -1}, {-1, 1, 1, .5}}) {
		for _, sigma := range longtest.Pick([]float64{.8, 6}, []float64{.8, 2, 6}) {
			for _, gamma := range []float64{.05, .3, .8} {
				n := int64(len(inputs))
				present, absent, err := amplify.RemovalPairs(amplify.GaussianArrivalConfig{Sigma: sigma, Population: n, Asked: n, Gamma: gamma}, 1e-14)
				if err != nil {
					t.Fatal(err)
				}
				cells := removalCells(inputs, sigma, gamma, 0, 150)
				for reverse, pair := range []dp.Directed{present, absent} {
					loss, err := pld.Direct(pair, .005)
					if err != nil {
						t.Fatal(err)
					}
					for times := range 3 {
						if times == 0 {
							continue
						}
						composed, err := pld.Compose([]pld.Part{{Loss: loss, Times: int64(times)}}, 1)
						if err != nil {
							t.Fatal(err)
						}
						for _, eps := range []float64{0, .01, .1, .3, 1, 2.5} {
							exact, e := 0., math.Exp(eps)
							gain := func(p, q float64) {
								if reverse == 1 {
									p, q = q, p
								}
								if more := p - e*q; more > 0 {
									exact += more
								}
							}
							for _, c := range cells {
								if times == 1 {
									gain(c.p, c.q)
									continue
								}
								for _, d := range cells {
									gain(c.p*d.p, c.q*d.q)
								}
							}
							got := composed.Delta(eps)
							if exact > got*(1+1e-11) {
								t.Errorf("%v, sigma = %v, gamma = %v, %d rounds, eps = %v, order %d: bound %v below exact %v", inputs, sigma, gamma, times, eps, reverse, got, exact)
							}
							if gamma == .05 && n == 4 && inputs[1] == -1 && exact > 1e-3 {
								closest = math.Max(closest, exact/got)
							}
						}
					}
				}
			}
		}
	}
	if closest < .98 {
		t.Errorf("no case comes closer than %v: the test is blind", closest)
	}
}
