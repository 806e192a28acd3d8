package randomizer

import (
	"fmt"
	"math"
	"math/bits"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
)

func sign(i, j int) float64 { return float64(1 - 2*(bits.OnesCount(uint(i&j))&1)) }

// Rows in blocks of 64 against their definition, with lengths that end inside a
// block and inside a group of four.
func TestHadamardRows(t *testing.T) {
	for _, dim := range []int{1, 2, 3, 5, 8, 63, 64, 65, 130, 300, 4420} {
		x := direction(dim, 1)
		size := 1 << bits.Len(uint(dim-1))
		for j := 0; j < size; j += 1 + size/50 {
			var want float64
			for i, v := range x {
				want += sign(i, j) * float64(v)
			}
			if got := hadamardRow(x, uint32(j)); math.Abs(got-want) > 1e-12 {
				t.Fatalf("d = %d, row %d: %v, want %v", dim, j, got, want)
			}
			for _, negative := range []bool{false, true} {
				sum := make([]int64, dim)
				addRow(sum, uint32(j), negative)
				for i, s := range sum {
					if w := sign(i, j); s != int64(w) != negative && s != -int64(w) != !negative {
						t.Fatalf("d = %d, row %d, coordinate %d: %d", dim, j, i, s)
					}
				}
			}
		}
	}
}

// All (row, bit) with their probabilities, for an input inside the ball, on it,
// outside, and not finite; three coordinates are padded to four.
func TestR1Law(t *testing.T) {
	t.Parallel()
	n := longtest.Pick(100_000, 400_000)
	if testing.Short() {
		n = 50_000
	}
	const eps0 = 1.1
	m := must(newR1(Config{Dim: 3, Radius: 2, Eps0: eps0}))
	inf := float32(math.Inf(1))
	for k, c := range []struct{ x, as []float32 }{
		{[]float32{.5, -1, .25}, nil},
		{[]float32{0, -2, 0}, nil},
		{[]float32{10, -20, 10}, []float32{.5, -1, .5}},
		{[]float32{inf, float32(math.NaN()), -inf}, []float32{1, 0, -1}},
	} {
		if c.as == nil {
			c.as = c.x
		}
		counts, probs := make([]int64, 8), make([]float64, 8)
		for j := range 4 {
			var y float64
			for i, v := range c.as {
				y += sign(i, j) * float64(v)
			}
			plus, minus := bitLaw(y, 2, eps0)
			probs[2*j], probs[2*j+1] = minus/4, plus/4
		}
		r, src := m.NewReport(), source(63, uint64(k))
		for range n {
			m.Randomize(src, c.x, r)
			counts[2*r.Index[0]+uint32(r.Value[0]+1)/2]++
		}
		chiSquare(t, fmt.Sprint(c.x), counts, probs)
	}
}

// a²d((E+1)/(E−1))² with the true d, padded or not.
func TestR1Variance(t *testing.T) {
	for _, dim := range []int{1, 4, 5, 1024, 1025} {
		e := math.E * math.E
		want := 9 * float64(dim) * math.Pow((e+1)/(e-1), 2)
		if got := must(newR1(Config{Dim: dim, Radius: 3, Eps0: 2})).Facts().MSE; math.Abs(got/want-1) > 1e-12 {
			t.Errorf("d = %d: error %v, want %v", dim, got, want)
		}
	}
}
