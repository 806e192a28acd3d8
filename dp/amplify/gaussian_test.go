package amplify_test

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/amplify/literature"
	"github.com/riffle-dp/riffle/internal/golden"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// hockeyStick is Σ(p − e^ε q)₊ of a pair, with its mirror image, the mass of
// loss 0 and its remainders.
func hockeyStick(p dp.Pair, eps float64) float64 {
	sum, rest := p.Dropped(), 1.
	for _, a := range p.Atoms {
		up, down := a.Q*math.Exp(a.Loss), a.Q
		sum += math.Max(0, up-math.Exp(eps)*down) + math.Max(0, down-math.Exp(eps)*up)
		rest -= up + down
	}
	return sum + math.Max(0, rest)*math.Max(0, -math.Expm1(eps))
}

// One round against direct integrals, both signs of ε: never below, hardly
// above.
func TestGoldenGaussian(t *testing.T) {
	for _, v := range golden.Table(t, "gaussian.tsv", 60) {
		sigma, n, k, gamma, eps, want := v[0], int64(v[1]), int64(v[2]), v[3], v[4], v[5]
		var pair dp.Pair
		var err error
		if gamma > 0 {
			pair, err = amplify.GaussianArrival(amplify.GaussianArrivalConfig{Sigma: sigma, Population: n, Asked: n, Gamma: gamma})
		} else {
			c := amplify.GaussianConfig{Sigma: sigma, Population: n, Reports: k}
			pair, err = amplify.Gaussian(c)
			curve, failed := c.Curve()
			if failed != nil {
				t.Fatal(failed)
			}
			if eps >= 0 {
				if got := curve.Delta(eps); !(got >= want*(1-1e-13)) || got > want*(1+1e-9) {
					t.Errorf("%v: closed form %.17g", v, got)
				}
				if want < 1 {
					if back, err := curve.Epsilon(want * (1 + 2e-9)); err != nil || back > eps*(1+1e-8)+1e-300 {
						t.Errorf("%v: closed form gives eps = %.17g back", v, back)
					}
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		// Between nodes the curve of the pair is a chord: its error is absolute
		// in units of a node's share of the density.
		if got := hockeyStick(pair, eps); !(got >= want*(1-1e-12)) || got > want*1.004+1e-18 {
			t.Errorf("%v: pair %.17g, %.3g off", v, got, got/want-1)
		}
	}
}

// exactSum is the hockey-stick divergence, at each ε, of a round of n clients
// with scalar inputs, the first of which is inputs[0] or y, k of them present
// and the sum seen. By quadrature, within 1e-7.
func exactSum(inputs []float64, y, sigma float64, k int, epsilons []float64) []float64 {
	out := make([]float64, len(epsilons))
	if k == 0 {
		for i, eps := range epsilons {
			out[i] = math.Max(0, -math.Expm1(eps))
		}
		return out
	}
	var p, q []float64 // means of the components, equally likely
	for set := range 1 << len(inputs) {
		var sum float64
		size := 0
		for i, x := range inputs {
			if set>>i&1 == 1 {
				sum += x
				size++
			}
		}
		if size == k {
			p = append(p, sum)
			q = append(q, sum+float64(set&1)*(y-inputs[0]))
		}
	}
	s := sigma * math.Sqrt(float64(k))
	density := func(means []float64, at float64) (d float64) {
		for _, m := range means {
			d += math.Exp(-(at - m) * (at - m) / (2 * s * s))
		}
		return d / (float64(len(means)) * s * math.Sqrt(2*math.Pi))
	}
	const points = 16000
	lo, hi := -float64(k)-7*s, float64(k)+7*s
	h := (hi - lo) / points
	for j := range points + 1 {
		at := lo + float64(j)*h
		dP, dQ := density(p, at), density(q, at)
		for i, eps := range epsilons {
			out[i] += math.Max(0, dP-math.Exp(eps)*dQ) * h
		}
	}
	return out
}

// Brute force: two to four clients, every subset, all mixtures integrated. The
// bound holds for every ε of both signs and either order.
func TestGaussianBruteForce(t *testing.T) {
	epsilons := []float64{-2, -.5, -.1, 0, .05, .3, 1, 2.5}
	closest := 0.
	for _, inputs := range [][]float64{{1, -1}, {1, 1, -1}, {1, -1, -1}, {1, 0, .5, -1}, {.3, -1, -1, -1}} {
		n := int64(len(inputs))
		for _, sigma := range []float64{.5, 1, 3} {
			exact := make([][]float64, n+1)
			swapped := append([]float64{-1}, inputs[1:]...)
			for k := range exact {
				exact[k] = exactSum(inputs, -1, sigma, k, epsilons)
				for i, d := range exactSum(swapped, inputs[0], sigma, k, epsilons) {
					exact[k][i] = math.Max(exact[k][i], d)
				}
			}
			for k := int64(1); k <= n; k++ {
				pair, err := amplify.Gaussian(amplify.GaussianConfig{Sigma: sigma, Population: n, Reports: k})
				if err != nil {
					t.Fatal(err)
				}
				for i, eps := range epsilons {
					bound := hockeyStick(pair, eps)
					if bound < exact[k][i]-1e-7 {
						t.Errorf("%v, sigma = %v, k = %d, eps = %v: bound %v below exact %v", inputs, sigma, k, eps, bound, exact[k][i])
					}
					if eps == .3 {
						closest = math.Max(closest, exact[k][i]/bound)
					}
				}
			}
			for _, gamma := range []float64{.2, .7, 1} {
				pair, err := amplify.GaussianArrival(amplify.GaussianArrivalConfig{Sigma: sigma, Population: n, Asked: n, Gamma: gamma})
				if err != nil {
					t.Fatal(err)
				}
				for i, eps := range epsilons {
					var sum float64
					for k := range exact {
						sum += binomial(int(n), k) * math.Pow(gamma, float64(k)) * math.Pow(1-gamma, float64(int(n)-k)) * exact[k][i]
					}
					if bound := hockeyStick(pair, eps); bound < sum-1e-7 {
						t.Errorf("%v, sigma = %v, gamma = %v, eps = %v: bound %v below exact %v", inputs, sigma, gamma, eps, bound, sum)
					}
				}
			}
		}
	}
	if closest < .99 {
		t.Errorf("no case comes closer than %v: the test is blind", closest)
	}
}

// Colluders' noise is known, and so is which of them were drawn: with all subsets, drop-outs and
// numbers of honest reports. The listed outcomes stay below, and what ignores colluders is caught.
func TestGaussianColludersBruteForce(t *testing.T) {
	epsilons := []float64{-2, -.5, -.1, 0, .05, .3, 1, 2.5}
	closest, ignored, under := 0., 0., 0.
	for _, inputs := range [][]float64{{1}, {1, -1}, {1, -1, -1}, {1, 0, .5, -1}} {
		honest := len(inputs)
		for _, sigma := range []float64{.5, 2} {
			swapped := append([]float64{-1}, inputs[1:]...)
			exact := make([][]float64, honest+1)
			for a := range exact {
				exact[a] = exactSum(inputs, -1, sigma, a, epsilons)
				for i, d := range exactSum(swapped, inputs[0], sigma, a, epsilons) {
					exact[a][i] = math.Max(exact[a][i], d)
				}
			}
			for c := 1; c <= 3; c++ {
				if c == 2 && !longtest.On {
					continue
				}
				n := honest + c
				for k := 1; k <= n; k++ {
					for _, gamma := range []float64{.4, 1} {
						if !longtest.On && (gamma == 1) != (k%2 == 0) {
							continue // every other number asked
						}
						config := amplify.GaussianArrivalConfig{Sigma: sigma, Population: int64(n), Asked: int64(k), Gamma: gamma, Colluders: int64(c)}
						pair, err := amplify.GaussianArrival(config)
						if err != nil {
							t.Fatal(err)
						}
						below, err := amplify.GaussianOutcomes(config)
						if err != nil {
							t.Fatal(err)
						}
						config.Colluders = 0
						without, err := amplify.GaussianArrival(config)
						if err != nil {
							t.Fatal(err)
						}
						for i, eps := range epsilons {
							var sum float64
							for h := max(0, k-c); h <= min(k, honest); h++ {
								drawn := binomial(honest, h) * binomial(c, k-h) / binomial(n, k)
								for a := 0; a <= h; a++ {
									sum += drawn * binomial(h, a) * math.Pow(gamma, float64(a)) * math.Pow(1-gamma, float64(h-a)) * exact[a][i]
								}
							}
							bound := hockeyStick(pair, eps)
							if bound < sum-1e-7 {
								t.Errorf("%v, sigma = %v, k = %d of %d, %d collude, gamma = %v, eps = %v: bound %v below exact %v", inputs, sigma, k, n, c, gamma, eps, bound, sum)
							}
							ignored = math.Max(ignored, sum-hockeyStick(without, eps))
							if eps == .3 {
								closest = math.Max(closest, sum/bound)
							}
							if honest > 3 {
								continue // others do not hold the neighbour's vector
							}
							var listed float64
							for _, o := range below {
								listed += math.Max(0, o.Q*(math.Exp(o.Loss)-math.Exp(eps)))
							}
							if listed > sum+1e-7 {
								t.Errorf("%v, sigma = %v, k = %d of %d, %d collude, gamma = %v, eps = %v: outcomes have %v, exactly %v", inputs, sigma, k, n, c, gamma, eps, listed, sum)
							}
							under = math.Max(under, listed/sum)
						}
					}
				}
			}
		}
	}
	if closest < .99 || ignored < .01 || under < .99 {
		t.Errorf("closest bound %v, lower bound %v, colluders ignored %v: the test is blind", closest, under, ignored)
	}
}

func binomial(n, k int) float64 {
	c := 1.
	for i := range k {
		c *= float64(n-i) / float64(i+1)
	}
	return c
}

// The mutant that writes γ for k/n is below the truth, so the brute force above
// can see it.
func TestGammaInPlaceOfInclusionIsCaught(t *testing.T) {
	const sigma, gamma, eps = .5, .2, .3
	var exact, mutant float64
	for k := 1; k <= 2; k++ {
		weight := binomial(2, k) * math.Pow(gamma, float64(k)) * math.Pow(1-gamma, float64(2-k))
		exact += weight * exactSum([]float64{1, -1}, -1, sigma, k, []float64{eps})[0]
		mu := float64(amplify.GaussianMu(sigma, int64(k)))
		// Inclusion γ whatever k is.
		at := math.Log1p(math.Expm1(eps)/gamma) / mu
		mutant += weight * gamma * (math.Erfc((at-mu/2)/math.Sqrt2) - (1+math.Expm1(eps)/gamma)*math.Erfc((at+mu/2)/math.Sqrt2)) / 2
	}
	if mutant > exact*.9 {
		t.Errorf("gamma for k/n gives %v, exact %v", mutant, exact)
	}
}

// Seen one by one, the noise of others hides nothing.
func TestGaussianApart(t *testing.T) {
	alone, err := amplify.Gaussian(amplify.GaussianConfig{Sigma: 2, Population: 100, Reports: 10, Apart: true})
	if err != nil {
		t.Fatal(err)
	}
	sum, err := amplify.Gaussian(amplify.GaussianConfig{Sigma: 2, Population: 100, Reports: 10})
	if err != nil {
		t.Fatal(err)
	}
	one, err := amplify.Gaussian(amplify.GaussianConfig{Sigma: 2, Population: 100, Reports: 1, Included: 10})
	if err != nil {
		t.Fatal(err)
	}
	for _, eps := range []float64{0, .1, .5} {
		a, s, o := hockeyStick(alone, eps), hockeyStick(sum, eps), hockeyStick(one, eps)
		if a != o || !(a > s) {
			t.Errorf("eps = %v: apart %v, one's noise %v, sum %v", eps, a, o, s)
		}
	}
}

func TestGaussianRefusals(t *testing.T) {
	nan := math.NaN()
	for _, c := range []amplify.GaussianConfig{
		{Sigma: 0, Population: 10, Reports: 1}, {Sigma: nan, Population: 10, Reports: 1}, {Sigma: -1, Population: 10, Reports: 1},
		{Sigma: math.Inf(1), Population: 10, Reports: 1}, {Sigma: 2e9, Population: 10, Reports: 1},
		{Sigma: 1, Population: 0, Reports: 1}, {Sigma: 1, Population: 10, Reports: 0}, {Sigma: 1, Population: 10, Reports: 11},
		{Sigma: 1, Population: 10, Reports: 5, Included: 4}, {Sigma: 1, Population: 10, Reports: 5, Included: 11},
	} {
		if _, err := amplify.Gaussian(c); err == nil || errors.Is(err, dp.ErrNoBound) {
			t.Errorf("%+v: %v", c, err)
		}
		if _, err := literature.WBKGaussian(c, 2); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	for _, gamma := range []float64{0, -1, nan, 1.1} {
		c := amplify.GaussianArrivalConfig{Sigma: 1, Population: 10, Asked: 10, Gamma: gamma}
		if _, err := amplify.GaussianArrival(c); err == nil {
			t.Errorf("gamma = %v is taken", gamma)
		}
		if _, err := literature.SCIEquation10(c, 2, false); err == nil {
			t.Errorf("gamma = %v is taken", gamma)
		}
	}
	ok := amplify.GaussianArrivalConfig{Sigma: 1, Population: 10, Asked: 10, Gamma: .5}
	for _, printed := range []bool{false, true} {
		if _, err := literature.SCIEquation10(ok, 1, printed); !errors.Is(err, dp.ErrNoBound) {
			t.Errorf("order 1: %v", err)
		}
	}
	if _, err := literature.SCIEquation11(ok, 1); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("order 1: %v", err)
	}
	// So little noise that losses leave float64's range.
	if _, err := amplify.Gaussian(amplify.GaussianConfig{Sigma: .03, Population: 10, Reports: 1}); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("sigma = .03: %v", err)
	}
}

// Cells whose mass leaves float64's range under Q need not do so under P.
func TestGaussianArrivalKeepsRareMass(t *testing.T) {
	for _, c := range []struct {
		config amplify.GaussianArrivalConfig
		eps    float64
		truth  float64 // from the exact mixture
	}{
		{amplify.GaussianArrivalConfig{Sigma: .12, Population: 600, Asked: 600, Gamma: .4}, 400, 7.47e-192},
		{amplify.GaussianArrivalConfig{Sigma: .1, Population: 1300, Asked: 1300, Gamma: .3}, 300, 5.96e-210},
	} {
		pair, err := amplify.GaussianArrival(c.config)
		if err != nil {
			t.Fatal(err)
		}
		delta := pair.Dropped()
		for _, a := range pair.Atoms {
			if a.Loss > c.eps {
				delta += a.Q * math.Exp(a.Loss) * -math.Expm1(c.eps-a.Loss)
			}
		}
		if delta < c.truth*.99 {
			t.Errorf("%+v: delta at %v is %v, truly %v", c.config, c.eps, delta, c.truth)
		}
	}
	// The pair's mass stays a mass: a lean on wide cells once brought it to 15454.
	pair, err := amplify.Gaussian(amplify.GaussianConfig{Sigma: .1, Population: 11, Reports: 8, Included: 8})
	if err != nil {
		t.Fatal(err)
	}
	var mass float64
	for _, a := range pair.Atoms {
		mass += a.Q * (1 + math.Exp(a.Loss))
	}
	if mass > 1+1e-6 {
		t.Errorf("the pair has mass %v", mass)
	}
}
