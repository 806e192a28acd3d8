package randomizer

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// pNorm is ‖x‖_p.
func pNorm(x []float64, p float64) (n float64) {
	for _, v := range x {
		switch {
		case math.IsInf(p, 1):
			n = math.Max(n, math.Abs(v))
		case p == 1:
			n += math.Abs(v)
		default:
			n += v * v
		}
	}
	if p == 2 {
		return math.Sqrt(n)
	}
	return n
}

// No report is longer than Largest says, and honest means stay below MeanBound: a
// false alarm has a chance of 1e-9 a mean. For PrivUnit the bound is no more than
// the radius and 2.5 times a usual mean.
func TestLargestAndMeanBound(t *testing.T) {
	for _, name := range names() {
		for _, dim := range []int{1, 2, 40, 300} {
			for _, eps0 := range []float64{.5, 3, 8} {
				if name == "krr" && dim == 1 {
					continue
				}
				c := Config{Dim: dim, Radius: 2, Eps0: eps0}
				m, err := New(name, c)
				if err != nil {
					t.Fatal(err)
				}
				k, _ := KindOf(name)
				radius := c.Radius
				if name == "krr" {
					radius = 1
				}
				s := m
				n := int64(60)
				if name == "privunit" && dim == 300 {
					n = 600
				}
				src := rng.Replay(11, uint64(dim), math.Float64bits(eps0))
				r, sum, one := m.NewReport(), make([]int64, dim), make([]float64, dim)
				for i := range n {
					x := make([]float32, dim)
					i := int(i)
					switch i % 3 { // a corner, the middle of a face, a short one
					case 0:
						x[i%dim] = float32(radius)
					case 1:
						for j := range x {
							x[j] = float32(radius)
						}
						ClipNorm(x, k.Norm, radius)
					}
					m.Randomize(src, x, r)
					if err := m.Check(r); err != nil {
						t.Fatal(err)
					}
					m.Add(sum, r)
					alone := make([]int64, dim)
					m.Add(alone, r)
					m.Estimate(one, alone, 1)
					if got := pNorm(one, k.Norm); !(got <= s.Facts().Largest*radius*(1+1e-12)) {
						t.Fatalf("%s, d = %d, eps0 = %v: a report of length %v, the largest is %v", name, dim, eps0, got, s.Facts().Largest*radius)
					}
				}
				m.Estimate(one, sum, n)
				got, bound := pNorm(one, 2), s.MeanBound(n)
				if !(got <= bound) {
					t.Errorf("%s, d = %d, eps0 = %v: a mean of length %v, at most %v", name, dim, eps0, got, bound)
				}
				if name == "privunit" && dim == 300 && !(bound < radius+2.5*got) {
					t.Errorf("d = %d, eps0 = %v: the bound %v is far above a mean of %v", dim, eps0, bound, got)
				}
				if b := s.MeanBound(4 * n); !(b < bound && b > bound/4) {
					t.Errorf("%s: with four times as many the bound goes from %v to %v", name, bound, b)
				}
			}
		}
	}
}

// What a liar can send: a report of the largest length passes Check, and moves the
// mean by as much as is said. At ε₀ = 2 and d = 1,930 it is 62.8 clip norms over n.
func TestLargestIsReached(t *testing.T) {
	m := as[*privUnit](newPrivUnit(Config{Dim: 1930, Radius: 1.5, Eps0: 2}))
	r := m.NewReport()
	r.Value[7] = privUnitLimit
	if err := m.Check(r); err != nil {
		t.Fatal(err)
	}
	sum, mean := make([]int64, 1930), make([]float64, 1930)
	m.Add(sum, r)
	m.Estimate(mean, sum, 1)
	got := pNorm(mean, 2) / 1.5
	if !(got <= m.Facts().Largest && got > .999*m.Facts().Largest) || math.Abs(m.Facts().Largest-62.8) > .1 {
		t.Errorf("a liar's report has %.4f clip norms, the largest is said to have %.4f", got, m.Facts().Largest)
	}
}

// A discrete Gaussian has no name, and the same bounds.
func TestDiscreteGaussianMeanBound(t *testing.T) {
	m, err := NewDiscreteGaussian(DiscreteGaussianConfig{Dim: 200, Radius: 1, Sigma: 2})
	if err != nil {
		t.Fatal(err)
	}
	const n = 40
	src := rng.Replay(12)
	r, sum, mean := m.NewReport(), make([]int64, 200), make([]float64, 200)
	for range n {
		m.Randomize(src, make([]float32, 200), r)
		m.Add(sum, r)
	}
	m.Estimate(mean, sum, n)
	if got, bound := pNorm(mean, 2), m.MeanBound(n); !(got <= bound && bound < 2*got) {
		t.Errorf("a mean of length %v, at most %v", got, bound)
	}
}

// A seed that was accepted has more rare words than other seeds: with one coordinate a word of high
// score is up to m.top times as likely.
func TestRareWords(t *testing.T) {
	for _, c := range []struct {
		eps0  float64
		edges []float64
	}{{1, []float64{1}}, {6, []float64{1, 2, 3}}, {12, []float64{3, 4}}} {
		r, err := New(StepUnit, Config{Dim: 1, Radius: 1, Eps0: c.eps0, Encoding: Seed, Edges: c.edges})
		if err != nil {
			t.Fatal(err)
		}
		m := r.(*seeded)
		// Of a word's two signs the one that is above all edges has the density m.top.
		const k = 1e13
		if least, got := k*seedRare/2*m.top, rareWords(k, 1, m.top); got < least {
			t.Errorf("eps0 = %v: %v rare words of %v, at least %v are expected", c.eps0, got, k, least)
		}
	}
}
