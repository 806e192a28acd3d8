package amplify

import (
	"math"
	"testing"
)

// honestArrivals returns the chance of each number of honest reports: of n clients, c of whom
// collude, k are drawn, and each report arrives with probability gamma. By enumeration of the
// draws' sizes.
func honestArrivals(n, c, k int, gamma float64) []float64 {
	of := func(n, k int) float64 {
		if k < 0 || k > n {
			return 0
		}
		v := 1.
		for i := range k {
			v *= float64(n-i) / float64(i+1)
		}
		return v
	}
	out := make([]float64, n-c+1)
	for h := range out {
		drawn := of(n-c, h) * of(c, k-h) / of(n, k)
		for a := range h + 1 {
			out[a] += drawn * of(h, a) * math.Pow(gamma, float64(a)) * math.Pow(1-gamma, float64(h-a))
		}
	}
	return out
}

// Listed outcomes are the mechanism's, with colluders who tell which of them were drawn: every
// outcome of tiny rounds. The draw of a round without colluders in their place is caught.
func TestConcreteWithColluders(t *testing.T) {
	mutants := 0
	for _, eps0 := range []float64{.7, 2.5} {
		for _, n := range []int{2, 4, 6} {
			for c := 1; c < n; c++ {
				for k := 1; k <= n; k++ {
					for _, gamma := range []float64{.4, 1} {
						config := ConcreteConfig{Eps0: eps0, Population: int64(n), Asked: int64(k), Gamma: gamma, Colluders: int64(c)}
						weights := honestArrivals(n, c, k, gamma)
						if weights[0] > 1-1e-12 {
							continue // no honest report
						}
						weight := func(a int) float64 { return weights[a] }
						two, err := response2(config)
						if err != nil {
							t.Fatal(err)
						}
						three, err := response3(config)
						if err != nil {
							t.Fatal(err)
						}
						config.Colluders = 0
						without, err := response3(config)
						if err != nil {
							t.Fatal(err)
						}
						for _, share := range []float64{-.5, 0, .1, .5, .9} {
							eps := share * eps0
							for name, v := range map[string][2]float64{
								"2-RR": {listed(two, eps), hockey(naive(2, n-c, weight, eps0, 1, 0), naive(2, n-c, weight, eps0, 0, 0), eps)},
								"3-RR": {listed(three, eps), hockey(naive(3, n-c, weight, eps0, 0, 2), naive(3, n-c, weight, eps0, 1, 2), eps)},
							} {
								if got, want := v[0], v[1]; !(got <= want*(1+1e-12)+1e-16) || !(got >= want*(1-1e-3)-1e-15) {
									t.Errorf("%s %+v, %d colluders, eps=%v: listed %.15g, enumerated %.15g", name, config, c, eps, got, want)
								}
								if name == "3-RR" && listed(without, eps) < v[1]*(1-1e-2) {
									mutants++
								}
							}
						}
					}
				}
			}
		}
	}
	if mutants < 100 {
		t.Errorf("colluders matter in %d cases only: the comparison is blind", mutants)
	}
}

// Blocks of the number of honest reports for a lower bound hold no more than its law: the chance of each
// number can pay for all blocks, each with numbers within it.
func TestPartsOfHonestReports(t *testing.T) {
	wide := int64(0)
	for _, s := range []struct {
		n, c, k int64
		gamma   float64
	}{{4000, 2000, 2000, .9}, {20000, 19000, 10000, .5}, {5000, 1, 100, .01}, {30, 29, 30, .5}, {30, 12, 20, 1}, {1e6, 3e5, 1e5, .7}, {1e6, 3e5, 1e5, 1}} {
		c := ConcreteConfig{Eps0: 1, Population: s.n, Asked: s.k, Gamma: s.gamma, Colluders: s.c}
		sizes, err := c.sizes()
		if err != nil {
			t.Fatal(err)
		}
		var mass, first, last float64
		for _, b := range sizes {
			if b.First < 0 || b.Last < b.First || b.Last > min(s.k, s.n-s.c) || !(b.Weight >= 0) {
				t.Fatalf("%+v: block %+v", s, b)
			}
			mass += b.Weight
			first += b.Weight * float64(b.First)
			last += b.Weight * float64(b.Last)
			wide = max(wide, b.Last-b.First)
		}
		mean := c.arrival().mean()
		if !(mass <= 1) || mass < 1-1e-8 || first > mean || last < mean*(1-1e-8) || last-first > .02*mean+2 {
			t.Errorf("%+v: mass %v, mean between %v and %v, truly %v", s, mass, first, last, mean)
		}
		if s.n > 1e5 {
			continue
		}
		law := make([]float64, s.n-s.c+1)
		for h := max(0, s.k-s.c); h <= min(s.k, s.n-s.c); h++ {
			drawn := lchoose(s.n-s.c, h) + lchoose(s.c, s.k-h) - lchoose(s.n, s.k)
			for a := range h + 1 {
				l := drawn + lchoose(h, a) + float64(a)*math.Log(s.gamma)
				if h > a {
					l += float64(h-a) * math.Log1p(-s.gamma)
				}
				if l > -60 {
					law[a] += math.Exp(l)
				}
			}
		}
		// Numbers in order; each goes to the block with room that ends first. sizes are sorted by First.
		for a, w := range law {
			w *= 1 + 1e-8
			for w > 0 {
				best := -1
				for i, b := range sizes {
					if b.First <= int64(a) && int64(a) <= b.Last && b.Weight > 0 && (best < 0 || b.Last < sizes[best].Last) {
						best = i
					}
				}
				if best < 0 {
					break
				}
				take := min(w, sizes[best].Weight)
				sizes[best].Weight -= take
				w -= take
			}
		}
		var left float64
		for _, b := range sizes {
			left += b.Weight
		}
		if left > 1e-12 {
			t.Errorf("%+v: blocks of mass %v find no number within them", s, left)
		}
	}
	if wide < 10 {
		t.Errorf("no block is wider than %d", wide)
	}
}

func lchoose(n, k int64) float64 {
	if k < 0 || k > n {
		return math.Inf(-1)
	}
	log := func(x int64) float64 { l, _ := math.Lgamma(float64(x + 1)); return l }
	return log(n) - log(k) - log(n-k)
}
