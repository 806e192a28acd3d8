package randomizer

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// The best number of coordinates against the errors themselves, all of them.
func TestBestBits(t *testing.T) {
	for _, dim := range []int{1, 2, 7, 40} {
		for eps0 := .05; eps0 < 50; eps0 += .13 {
			best, least := 0, math.Inf(1)
			for m := 1; m <= dim; m++ {
				e1 := must(newRInf(Config{Dim: dim, Radius: 1, Eps0: eps0, Bits: m})).Facts().MSE
				e2 := must(newR1(Config{Dim: dim, Radius: 1, Eps0: eps0, Bits: m})).Facts().MSE
				if math.Abs(e1/e2/float64(dim)-1) > 1e-9 {
					t.Fatalf("d = %d, m = %d: R_inf's error %v is not d times R_1's %v", dim, m, e1, e2)
				}
				if e1 < least {
					best, least = m, e1
				}
			}
			if got := BestBits(dim, eps0); got != best {
				t.Errorf("d = %d, eps0 = %v: best m = %d, want %d", dim, eps0, got, best)
			}
		}
	}
	if a, b := BestBits(1000, 3.056), BestBits(1000, 3.058); a != 1 || b != 2 {
		t.Errorf("m goes from %d to %d at eps0 = 3.057, want from 1 to 2", a, b)
	}
	for _, c := range []struct {
		dim  int
		eps0 float64
	}{{0, math.NaN()}, {100, math.NaN()}, {100, math.Inf(1)}, {100, 100}, {100, 50.001}, {100, -5}, {100, 0}, {math.MaxInt32, 10}, {-3, 10}} {
		if m := BestBits(c.dim, c.eps0); m != 1 {
			t.Errorf("%+v is out of range: m = %d, want 1", c, m)
		}
	}
}

// With all coordinates R_inf is RR, with one it is the published mechanism.
func TestRInfAtItsEnds(t *testing.T) {
	for _, eps0 := range []float64{.3, 2, 9} {
		for _, dim := range []int{1, 5} {
			all, one := as[*rInf](newRInf(Config{Dim: dim, Radius: 2, Eps0: eps0, Bits: dim})), as[*rr](newRR(Config{Dim: dim, Radius: 2, Eps0: eps0}))
			if all.each != one.each || math.Abs(all.Facts().MSE/one.Facts().MSE-1) > 1e-12 {
				t.Errorf("d = %d: eps0 %v and error %v, RR has %v and %v", dim, all.each, all.Facts().MSE, one.each, one.Facts().MSE)
			}
			e := math.Exp(eps0)
			want := 4 * float64(dim*dim) * math.Pow((e+1)/(e-1), 2)
			if got := must(newRInf(Config{Dim: dim, Radius: 2, Eps0: eps0})).Facts().MSE; math.Abs(got/want-1) > 1e-12 {
				t.Errorf("d = %d: error %v, want %v", dim, got, want)
			}
		}
	}
}

// Every subset is as likely.
func TestDrawIsUniform(t *testing.T) {
	t.Parallel()
	n := 200_000
	if testing.Short() {
		n /= 8
	}
	for i, c := range []struct{ among, count int }{{6, 1}, {6, 3}, {5, 5}, {7, 6}} {
		b := indexed{among: c.among, count: c.count}
		cells := map[uint]int{}
		for s := uint(0); s < 1<<c.among; s++ {
			if bits.OnesCount(s) == c.count {
				cells[s] = len(cells)
			}
		}
		counts, probs := make([]int64, len(cells)), make([]float64, len(cells))
		for j := range probs {
			probs[j] = 1 / float64(len(cells))
		}
		index, src := make([]uint32, c.count), source(61, uint64(i))
		for range n {
			b.draw(src, index)
			var s uint
			for k, j := range index {
				if k > 0 && index[k-1] >= j {
					t.Fatalf("indices %v do not ascend", index)
				}
				s |= 1 << j
			}
			counts[cells[s]]++
		}
		if len(cells) > 1 {
			chiSquare(t, fmt.Sprintf("%d of %d", c.count, c.among), counts, probs)
		}
	}
}

// Whole reports of two coordinates: every pair with its four values.
func TestRInfTwoCoordinatesLaw(t *testing.T) {
	t.Parallel()
	n := longtest.Pick(150_000, 600_000)
	if testing.Short() {
		n = 75_000
	}
	const eps0 = 3
	m := must(newRInf(Config{Dim: 3, Radius: 1, Eps0: eps0, Bits: 2}))
	x := []float32{-1, .25, 9}
	counts, probs := make([]int64, 12), make([]float64, 12)
	r, src := m.NewReport(), source(62)
	at := func(i, j uint32, v, w int32) int { return int(4*(i+j-1)) + int(v+1) + int(w+1)/2 }
	for range n {
		m.Randomize(src, x, r)
		counts[at(r.Index[0], r.Index[1], r.Value[0], r.Value[1])]++
	}
	for _, c := range [][2]uint32{{0, 1}, {0, 2}, {1, 2}} {
		for v := int32(-1); v <= 1; v += 2 {
			for w := int32(-1); w <= 1; w += 2 {
				one := func(j uint32, v int32) float64 {
					plus, minus := bitLaw(float64(x[j]), 1, eps0/2.)
					if v > 0 {
						return plus
					}
					return minus
				}
				probs[at(c[0], c[1], v, w)] = one(c[0], v) * one(c[1], w) / 3
			}
		}
	}
	chiSquare(t, "two coordinates", counts, probs)
}

func TestSparseBitsRefuse(t *testing.T) {
	for _, m := range []int{-1, 6, 1025} {
		if _, err := newRInf(Config{Dim: 5, Radius: 1, Eps0: 1, Bits: m}); err == nil {
			t.Errorf("R_inf accepted m = %d of 5", m)
		}
		if _, err := newR1(Config{Dim: 5, Radius: 1, Eps0: 1, Bits: m}); err == nil {
			t.Errorf("R_1 accepted m = %d of 5", m)
		}
	}
	if _, err := newRInf(Config{Dim: 5000, Radius: 1, Eps0: 1, Bits: 1025}); err == nil {
		t.Error("R_inf accepted m = 1025")
	}
	if _, err := newRInf(Config{Dim: 5, Radius: 1, Eps0: 5e-324, Bits: 5}); err == nil {
		t.Error("R_inf accepted an eps0 that cannot be split")
	}
}
