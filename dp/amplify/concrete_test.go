package amplify

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// naive enumerates the ordered reports of k of n clients of K-ary randomized
// response by brute force and returns both laws keyed by k and histogram. The
// victim holds x, all others other.
func naive(K, n int, weight func(k int) float64, eps0 float64, x, other int) map[string]float64 {
	e := math.Exp(eps0)
	row := func(held int) []float64 {
		r := make([]float64, K)
		for y := range r {
			r[y] = 1 / (e + float64(K) - 1)
		}
		r[held] *= e
		return r
	}
	out := map[string]float64{}
	for k := 0; k <= n; k++ {
		for _, victim := range []bool{false, true} {
			w := weight(k) * (1 - float64(k)/float64(n))
			if victim {
				w = weight(k) * float64(k) / float64(n)
			}
			if w == 0 {
				continue
			}
			var walk func(i int, w float64, counts []int)
			walk = func(i int, w float64, counts []int) {
				if i == k {
					out[fmt.Sprint(k, counts)] += w
					return
				}
				held := other
				if victim && i == 0 {
					held = x
				}
				for y, p := range row(held) {
					next := append([]int(nil), counts...)
					next[y]++
					walk(i+1, w*p, next)
				}
			}
			walk(0, w, make([]int, K))
		}
	}
	return out
}

func hockey(p, q map[string]float64, eps float64) float64 {
	var d float64
	for h, v := range p {
		d += math.Max(0, v-math.Exp(eps)*q[h])
	}
	return d
}

func listed(atoms []dp.Atom, eps float64) float64 {
	var d float64
	for _, a := range atoms {
		d += math.Max(0, a.Q*(math.Exp(a.Loss)-math.Exp(eps)))
	}
	return d
}

func response3(c ConcreteConfig) ([]dp.Atom, error) {
	c.Symbols = 3
	return responseK(c)
}

// TestConcreteIsTheMechanism: tiny rounds, every outcome; with few outcomes
// nothing is merged and the listing is exact.
func TestConcreteIsTheMechanism(t *testing.T) {
	for _, c := range []ConcreteConfig{
		{Eps0: 1, Population: 1, Asked: 1, Gamma: 1}, {Eps0: 2, Population: 4, Asked: 4, Gamma: 1},
		{Eps0: .5, Population: 5, Asked: 3, Gamma: 1}, {Eps0: 3, Population: 6, Asked: 1, Gamma: 1},
		{Eps0: 1.5, Population: 4, Asked: 4, Gamma: .3}, {Eps0: 5, Population: 5, Asked: 5, Gamma: .8},
	} {
		n := int(c.Population)
		weight := func(k int) float64 {
			if c.Gamma == 1 {
				if k == int(c.Asked) {
					return 1
				}
				return 0
			}
			w := 1.
			for i := 1; i <= k; i++ {
				w *= float64(n-k+i) / float64(i)
			}
			return w * math.Pow(c.Gamma, float64(k)) * math.Pow(1-c.Gamma, float64(n-k))
		}
		two, err := response2(c)
		if err != nil {
			t.Fatal(err)
		}
		three, err := response3(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, share := range []float64{-.9, -.3, 0, .01, .1, .4, .8, .99} {
			eps := share * c.Eps0
			for name, v := range map[string][2]float64{
				"2-RR": {listed(two, eps), hockey(naive(2, n, weight, c.Eps0, 1, 0), naive(2, n, weight, c.Eps0, 0, 0), eps)},
				"3-RR": {listed(three, eps), hockey(naive(3, n, weight, c.Eps0, 0, 2), naive(3, n, weight, c.Eps0, 1, 2), eps)},
			} {
				if got, want := v[0], v[1]; !(got <= want*(1+1e-12)+1e-16) || !(got >= want*(1-1e-3)-1e-15) {
					t.Errorf("%s %+v eps=%v: listed %.15g, enumerated %.15g", name, c, eps, got, want)
				}
			}
		}
	}
}

// TestConcreteBelowBlanket: a mechanism cannot leak more than a bound for all.
func TestConcreteBelowBlanket(t *testing.T) {
	for _, eps0 := range []float64{.2, 1, 3, 9} {
		for _, k := range []int64{1, 5, 60, 2000} {
			for _, n := range []int64{k, 30 * k} {
				curve, err := NewCurve(RoundConfig{Eps0: eps0, Population: n, Reports: k, Rate: Blanket(eps0)})
				if err != nil {
					t.Fatal(err)
				}
				c := ConcreteConfig{Eps0: eps0, Population: n, Asked: k, Gamma: 1}
				for name, f := range map[string]func(ConcreteConfig) ([]dp.Atom, error){"2-RR": response2, "3-RR": response3} {
					atoms, err := f(c)
					if err != nil {
						t.Fatal(err)
					}
					var mass float64
					for i, a := range atoms {
						mass += a.Q
						if i > 0 && a.Loss < atoms[i-1].Loss {
							t.Fatalf("%s: losses do not rise", name)
						}
					}
					if math.Abs(mass-1) > 1e-11 {
						t.Errorf("%s %+v: mass %v", name, c, mass)
					}
					for _, share := range []float64{-.5, 0, .001, .02, .2, .7} {
						if d := listed(atoms, share*eps0); !(d <= curve.Delta(share*eps0)*(1+1e-10)+1e-15) {
							t.Errorf("%s %+v eps=%v: %v above the blanket's %v", name, c, share*eps0, d, curve.Delta(share*eps0))
						}
					}
				}
			}
		}
	}
}

func TestConcreteRefused(t *testing.T) {
	good := ConcreteConfig{Eps0: 1, Population: 10, Asked: 5, Gamma: .5}
	for name, change := range map[string]func(*ConcreteConfig){
		"eps0":  func(c *ConcreteConfig) { c.Eps0 = math.NaN() },
		"n":     func(c *ConcreteConfig) { c.Population = 0 },
		"asked": func(c *ConcreteConfig) { c.Asked = 11 },
		"gamma": func(c *ConcreteConfig) { c.Gamma = math.Nextafter(1, 2) },
		"NaN":   func(c *ConcreteConfig) { c.Gamma = math.NaN() },
		"zero":  func(c *ConcreteConfig) { c.Gamma = 0 },
	} {
		c := good
		change(&c)
		if _, err := response2(c); err == nil {
			t.Errorf("%s: 2-RR accepted", name)
		}
		if _, err := response3(c); err == nil {
			t.Errorf("%s: 3-RR accepted", name)
		}
	}
	huge := ConcreteConfig{Eps0: 1, Population: 1 << 50, Asked: 1 << 50, Gamma: 1}
	if _, err := response2(huge); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("2-RR of 2^50: %v", err)
	}
	if _, err := response3(huge); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("3-RR of 2^50: %v", err)
	}
}
