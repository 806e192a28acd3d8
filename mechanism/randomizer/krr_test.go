package randomizer

import (
	"fmt"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// law returns the probabilities of the truth and of each other symbol, from the
// coin as it is thrown, each with all its digits.
func (m *krr) law() (truth, lie float64) {
	others := float64(m.among - 1)
	if m.rareTruth {
		return m.rare, (1 - m.rare) / others
	}
	return 1 - m.rare, m.rare / others
}

// The likelihood ratio of the coin as a double never exceeds E, and misses it
// by rounding only.
func TestKRRRatio(t *testing.T) {
	for _, k := range []int{2, 3, 4, 10, 1000, 1 << 20, 1 << 30} {
		for _, eps0 := range []float64{1e-6, .01, .5, 1, math.Ln2, 2, 5, 12, 30, 50} {
			m := must(newKRR(Config{Dim: k, Eps0: eps0}))
			// log(p/q) with log1p where a probability is near 1.
			ratio := math.Log(m.rare) - math.Log1p(-m.rare) + math.Log(float64(k-1))
			if !m.rareTruth {
				ratio = -math.Log(m.rare) + math.Log1p(-m.rare) + math.Log(float64(k-1))
			}
			// The logarithms' own rounding is below 1e-16 of their size.
			noise := 3e-16 * (1 + math.Abs(math.Log(m.rare)) + math.Log(float64(k)))
			if ratio > eps0+noise {
				t.Errorf("K = %d, eps0 = %v: log-ratio %.17g", k, eps0, ratio)
			}
			if ratio < eps0-1e-14-noise {
				t.Errorf("K = %d, eps0 = %v: log-ratio %.17g wastes", k, eps0, ratio)
			}
			truth, lie := m.law()
			if lie != m.lie || math.Abs((truth-lie)-m.gap) > 1e-15 || !(m.gap > 0) {
				t.Errorf("K = %d, eps0 = %v: p−q = %v, estimator has %v", k, eps0, truth-lie, m.gap)
			}
		}
	}
}

// The gap, on which the estimator's scale rests, keeps its digits for small ε₀:
// p − q = (E−1)/(E+K−1).
func TestKRRGap(t *testing.T) {
	for _, k := range []int{2, 5, 1000, 1 << 30} {
		for _, eps0 := range []float64{0x1p-20, 1e-4, .1, 1, 20} {
			m := must(newKRR(Config{Dim: k, Eps0: eps0}))
			want := math.Expm1(eps0) / (math.Exp(eps0) + float64(k-1))
			if math.Abs(m.gap/want-1) > 4e-9 {
				t.Errorf("K = %d, eps0 = %v: gap %v, want %v", k, eps0, m.gap, want)
			}
		}
	}
}

// Sampled frequencies of every symbol, for plain symbols (as they are, as unit
// vectors and outside the range) and for weights.
func TestKRRLaw(t *testing.T) {
	t.Parallel()
	n := 300_000
	if testing.Short() {
		n /= 8
	}
	nan := float32(math.NaN())
	for i, c := range []struct {
		eps0   float64
		x      []float32
		symbol int       // -9 for none
		weight []float64 // the distribution x stands for
	}{
		{1, []float32{0, 0, 1, 0}, 2, []float64{0, 0, 1, 0}},
		{4, []float32{0, 0, 0, 7}, 99, []float64{0, 0, 0, 1}},
		{.2, []float32{3, 0, -1, nan}, -1, []float64{1, 0, 0, 0}},
		{2, []float32{.1, .2, .3, .4}, -9, []float64{.1, .2, .3, .4}},
		{2, []float32{-1, nan, 1, 3}, -9, []float64{0, 0, .25, .75}},
		{2, []float32{0, -1, nan, 0}, -9, []float64{.25, .25, .25, .25}},
		{2, []float32{float32(math.Inf(1)), 1, math.MaxFloat32, 0}, -9, []float64{.5, 0, .5, 0}},
	} {
		m := must(newKRR(Config{Dim: 4, Eps0: c.eps0}))
		probs := make([]float64, 4)
		e := math.Exp(c.eps0)
		for j, w := range c.weight {
			probs[j] = (w*(e-1) + 1) / (e + 3)
		}
		counts := make([]int64, 4)
		r, src := m.NewReport(), source(60, uint64(i))
		for range n {
			m.Randomize(src, c.x, r)
			counts[r.Index[0]]++
		}
		chiSquare(t, fmt.Sprintf("weights %v", c.x), counts, probs)
		if c.symbol == -9 {
			continue
		}
		clear(counts)
		for range n {
			counts[m.symbol(src, c.symbol)]++
		}
		chiSquare(t, fmt.Sprintf("symbol %d", c.symbol), counts, probs)
	}
}

func TestKRRRefuses(t *testing.T) {
	for _, c := range []Config{{Dim: 1, Eps0: 1}, {Dim: 0, Eps0: 1}, {Dim: -4, Eps0: 1}, {Dim: 1<<30 + 1, Eps0: 1}, {Dim: 3}, {Dim: 3, Eps0: math.NaN()},
		{Dim: 3, Eps0: 51}, {Dim: 3, Eps0: 1e-17}, {Dim: 3, Eps0: math.Nextafter(0x1p-20, 0)}} {
		if m, err := newKRR(c); err == nil {
			t.Errorf("accepted %+v as %+v", c, m)
		}
	}
	m := must(newKRR(Config{Dim: 3, Eps0: 1}))
	if err := m.Check(&Report{Index: []uint32{1}, Value: []int32{-1}}); err == nil {
		t.Error("a symbol that counts −1 was accepted")
	}
}

// What an accountant is told about symbols must make sense.
func TestKRREventIsValid(t *testing.T) {
	round := func(r dp.Report) dp.Round {
		return dp.Round{Report: r, Trust: dp.Shuffle, Participation: dp.All, Population: 10}
	}
	good := must(newKRR(Config{Dim: 3, Eps0: 1})).Event()
	if err := round(good).Validate(); err != nil {
		t.Error(err)
	}
	for _, bad := range []dp.Report{{Class: dp.KRR, Eps0: 1}, {Class: dp.KRR, Eps0: 1, Symbols: 1}, {Class: dp.Generic, Eps0: 1, Symbols: 3}} {
		if round(bad).Validate() == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
}
