package randomizer

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// law of a report on a distribution with weights of at most 1/w: q(1 + (p/q−1)x_v), and q(1 + w(E−1)x_v)
// but for the slack. Other distributions count as uniform. The false-alarm chance is chiSquare's.
func TestSpreadLaw(t *testing.T) {
	t.Parallel()
	uniform := slices.Repeat([]float64{.125}, 8)
	for i, c := range []struct {
		x      []float32
		weight []float64
	}{
		{[]float32{0, 1, 1, 1, 1, 0, 0, 0}, []float64{0, .25, .25, .25, .25, 0, 0, 0}},
		{[]float32{.7, 1, 1, 1, .3, 0, 0, 0}, []float64{.175, .25, .25, .25, .075, 0, 0, 0}},
		{[]float32{1, 1, 1, 0, 0, 0, 0, 0}, uniform},
		{[]float32{0, 0, 0, 9, 0, 0, 0, 0}, uniform},
		{[]float32{1, 1, 1, float32(math.Inf(1)), 0, 0, 0, 0}, uniform},
		{[]float32{0, -1, float32(math.NaN()), 0, 0, 0, 0, 0}, uniform},
	} {
		for _, eps0 := range []float64{.3, 2, 6} {
			m := must(newKRR(Config{Dim: 8, Eps0: eps0, Bits: 4}))
			probs := make([]float64, 8)
			for j, w := range c.weight {
				probs[j] = (1 + 4*math.Expm1(eps0)*w) / (8 + 4*math.Expm1(eps0))
			}
			counts := make([]int64, 8)
			r, src := m.NewReport(), source(61, uint64(i), math.Float64bits(eps0))
			for range longtest.Pick(30_000, 100_000) {
				m.Randomize(src, c.x, r)
				counts[r.Index[0]]++
			}
			chiSquare(t, fmt.Sprintf("eps0 %v, weights %v", eps0, c.x), counts, probs)
		}
	}
}

// The largest probability of a report is at most E times the smallest, by the coin as it is
// thrown and weights with all their slack, and the class says how much the laws have in common.
func TestSpreadRatio(t *testing.T) {
	for _, k := range []int{4, 32, 1000, 1 << 20} {
		for _, w := range []int{2, 16, 500, 1024} {
			for _, eps0 := range []float64{0x1p-20, .01, 1, 5, 12, 40} {
				m, err := newKRR(Config{Dim: k, Eps0: eps0, Bits: w})
				if w > k/2 {
					if err == nil {
						t.Errorf("K = %d, w = %d: not refused", k, w)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				truth, lie := m.law()
				most := lie + (truth-lie)/float64(w)*(1+spreadSlack)
				if ratio := most / lie; ratio > math.Exp(eps0)*(1+1e-14*(1+eps0)) || ratio-1 < math.Expm1(eps0)*(1-1e-8*(1+eps0)) {
					t.Errorf("K = %d, w = %d, eps0 = %v: ratio − 1 is %.12g, want %.12g", k, w, eps0, ratio-1, math.Expm1(eps0))
				}
				e := m.Event()
				if e.Class != dp.Cap || e.Eps0 != eps0 {
					t.Errorf("K = %d, w = %d, eps0 = %v: %+v", k, w, eps0, e)
				}
				if common := 1 - e.TV*math.Expm1(eps0); common > float64(k)*lie+1e-15 {
					t.Errorf("K = %d, w = %d, eps0 = %v: a common part of %v is claimed, there is %v", k, w, eps0, common, float64(k)*lie)
				}
				round := dp.Round{Report: e, Trust: dp.Shuffle, Participation: dp.All, Population: 10}
				if err := round.Validate(); err != nil {
					t.Errorf("K = %d, w = %d, eps0 = %v: %v", k, w, eps0, err)
				}
			}
		}
	}
	for _, c := range []Config{{Dim: 1<<20 + 1, Eps0: 1, Bits: 2}, {Dim: 3, Eps0: 1, Bits: 2}, {Dim: 4000, Eps0: 1, Bits: 1025}, {Dim: 64, Eps0: 50, Bits: 2}, {Dim: 64, Eps0: math.NaN(), Bits: 2}} {
		if m, err := New(KRR, c); err == nil {
			t.Errorf("%+v made %v", c, m)
		}
	}
}
