package vecsum

import (
	"math"
	"math/bits"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// seen is the chance of something that is seen, under one input and under the other.
type seen struct{ p, q float64 }

// shifted lists what is seen of one count with the noise of this law, moved by k steps under the
// first input.
func shifted(law []float64, k int) (out []seen) {
	at := func(i int) float64 {
		if i < 0 || i >= len(law) {
			return 0
		}
		return law[i]
	}
	for y := min(0, k); y < len(law)+max(0, k); y++ {
		out = append(out, seen{at(y - k), at(y)})
	}
	return out
}

// together lists what is seen of two independent things. What is very rare is left out, which makes
// δ smaller by next to nothing.
func together(a, b []seen) (out []seen) {
	for _, x := range a {
		for _, y := range b {
			if o := (seen{x.p * y.p, x.q * y.q}); o.p > 1e-13 || o.q > 1e-13 {
				out = append(out, o)
			}
		}
	}
	return out
}

// ways lists what is seen of a round of counts, for each pair of inputs of one client that are not
// alike: vectors of dim zeros and at most so many ones, each one of so many steps. What others send
// is known. Pairs that differ in as many places up and down look alike, so one of them stands for
// all: only the number of places in which each input alone has a one matters.
func ways(law []float64, dim, ones, step int) (rounds [][]seen) {
	have := map[[2]int]bool{}
	for a := range uint(1) << dim {
		for b := range uint(1) << dim {
			if bits.OnesCount(a) > ones || bits.OnesCount(b) > ones || a == b {
				continue
			}
			up, down := bits.OnesCount(a&^b), bits.OnesCount(b&^a)
			if have[[2]int{up, down}] {
				continue
			}
			have[[2]int{up, down}] = true
			round := []seen{{1, 1}}
			for range up {
				round = together(round, shifted(law, step))
			}
			for range down {
				round = together(round, shifted(law, -step))
			}
			rounds = append(rounds, round)
		}
	}
	return rounds
}

// most returns the largest δ at eps of one round or two. The second is chosen for each outcome of
// the first; the client may be left out of it.
func most(rounds [][]seen, times int, eps float64) (delta float64) {
	e := math.Exp(eps)
	one := func(a, b float64, r []seen) (d float64) {
		for _, o := range r {
			if more := a*o.p - e*b*o.q; more > 0 {
				d += more
			}
		}
		return d
	}
	for _, first := range rounds {
		d := 0.
		if times == 1 {
			d = one(1, 1, first)
		} else {
			for _, o := range first {
				best := math.Max(0, o.p-e*o.q)
				for _, second := range rounds {
					best = math.Max(best, one(o.p, o.q, second))
				}
				d += best
			}
		}
		delta = math.Max(delta, d)
	}
	return delta
}

// Section 10 with clients' noise, from the definitions: whatever two inputs a client may have, in
// either order, however many of the clients that are relied on or more add their noise, in one round
// and in two of which the second depends on the first: δ is at most that of the curve, and that of
// Gaussian noise of Sigma with its tail.
func TestOnesByEnumeration(t *testing.T) {
	closest := map[NoiseKind]float64{}
	type setting struct {
		dim, ones int
		grid      int64
		noise     Noise
		users     int64
		honest    float64
		times     int
	}
	var all []setting
	for _, shape := range []struct{ dim, ones int }{{1, 1}, {2, 1}, {2, 2}, {3, 1}, {3, 2}, {3, 3}, {4, 1}, {4, 2}} {
		for _, grid := range []int64{1, 2, 3} {
			for _, noise := range []Noise{{Kind: Binomial, Bits: 3}, {Kind: Binomial, Bits: 9}, {Kind: Binomial, Bits: 20, P: .3}, {Kind: Binomial, Bits: 40},
				{Kind: Skellam, Variance: .7}, {Kind: Skellam, Variance: 4}, {Kind: DiscreteGaussian, Variance: 1.5}} {
				for _, honest := range []float64{1, .5} {
					for times := 1; times <= 2; times++ {
						all = append(all, setting{shape.dim, shape.ones, grid, noise, 4, honest, times})
					}
				}
			}
		}
	}
	checked := 0
	for i, s := range all {
		if i%longtest.Pick(17, 1) != 0 {
			continue
		}
		p := Params{Users: s.users, MinUsers: s.users - 1, Honest: s.honest, Dim: s.dim, Radius: onesRadius(s.ones), Grid: s.grid, Ones: s.ones, Noise: s.noise}
		for _, tau := range []float64{1e-3, 1e-7} {
			c, err := p.curve(tau)
			if err != nil {
				t.Fatal(err)
			}
			if math.IsInf(c.Mu, 1) {
				continue
			}
			for clients := p.guaranteed(); clients <= s.users; clients++ {
				law := noiseLaw(s.noise, int(clients))
				for len(law) > 2 && law[0] < 1e-22 { // what is left out is below every bound here
					law = law[1:]
				}
				for len(law) > 2 && law[len(law)-1] < 1e-22 {
					law = law[:len(law)-1]
				}
				if size := math.Pow(float64(len(law)), float64(differing(s.ones, s.dim))*float64(s.times)); size > 3e6 {
					continue
				}
				rounds := ways(law, s.dim, s.ones, int(s.grid))
				for _, eps := range []float64{0, .4, 1.5, 4} {
					exact := most(rounds, s.times, eps)
					bound := c.times(int64(s.times)).delta(eps)
					if checked++; exact > bound*(1+1e-9)+1e-14 {
						t.Fatalf("%+v, tau %v, %d clients: delta(%v) is %v, bound %v", s, tau, clients, eps, exact, bound)
					}
					if bound < 1 {
						closest[s.noise.Kind] = math.Max(closest[s.noise.Kind], exact/bound)
					}
				}
			}
		}
		if s.honest < 1 || s.noise.Kind == DiscreteGaussian {
			continue
		}
		const delta = 1e-3
		sigma, tail, err := p.Sigma(t.Context(), delta, int64(s.times))
		if err != nil {
			continue
		}
		for clients := p.MinUsers; clients <= s.users; clients++ {
			law := noiseLaw(s.noise, int(clients))
			if size := math.Pow(float64(len(law)), float64(differing(s.ones, s.dim))*float64(s.times)); size > 3e6 {
				continue
			}
			mu := 2 / (sigma * math.Sqrt(float64(clients))) * math.Sqrt(float64(s.times))
			rounds := ways(law, s.dim, s.ones, int(s.grid))
			for _, eps := range []float64{0, .4, 1.5, 4} {
				if exact, bound := most(rounds, s.times, eps), gaussDelta(mu, eps)+tail; exact > bound*(1+1e-9)+1e-14 {
					t.Fatalf("%+v, %d clients: delta(%v) is %v, sigma = %v says %v", s, clients, eps, exact, sigma, bound)
				}
			}
		}
	}
	t.Logf("%d deltas, %.3v of the bound", checked, closest)
	for kind, part := range closest {
		if part < .9 {
			t.Errorf("%s: the bound is met to %v only: is the enumeration right?", kind, part)
		}
	}
}

// Section 10 with aggregators' noise, from the definitions. Smaller distances than claimed would be
// unsound.
func TestOnesOfAggregatorsByEnumeration(t *testing.T) {
	closest, unsound := 0., 0
	for _, shape := range []struct{ dim, ones int }{{1, 1}, {2, 1}, {2, 2}, {3, 1}, {3, 2}, {3, 3}, {4, 2}} {
		for _, steps := range []int64{1, 7, 40} {
			for _, v := range []uint64{26, 40, 900} {
				p := Aggregated{Users: 9, Dim: shape.dim, Radius: onesRadius(shape.ones), Ones: shape.ones, Steps: steps, Bound: 3 * steps, Variance: v}
				sigma, tail, err := p.Sigma(1)
				if err != nil {
					t.Fatal(err)
				}
				law := discrete(float64(v), int(7*math.Sqrt(float64(v)))) // beyond are 3e-12
				if math.Pow(float64(len(law)), float64(differing(shape.ones, shape.dim))) > longtest.Pick(3e5, 4e7) {
					continue
				}
				rounds := ways(law, shape.dim, shape.ones, int(steps))
				for _, eps := range []float64{0, .5, 2} {
					exact, bound := most(rounds, 1, eps), gaussDelta(2/sigma, eps)+tail
					if exact > bound*(1+1e-9)+1e-10 {
						t.Errorf("%+v: delta(%v) is %v, bound %v", p, eps, exact, bound)
					}
					if bound > 1e-7 {
						closest = math.Max(closest, exact/bound)
					}
					if exact > gaussDelta(2/(sigma*1.2), eps) {
						unsound++
					}
				}
			}
		}
	}
	t.Logf("%.3v of the bound, %d above that of 1.2 times the noise", closest, unsound)
	if closest < .95 || unsound == 0 {
		t.Errorf("the bound is met to %v only, %d would be unsound: is the enumeration right?", closest, unsound)
	}
}
