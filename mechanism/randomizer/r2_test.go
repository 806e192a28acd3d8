package randomizer

import (
	"fmt"
	"math"
	"testing"
)

// The error against the closed form, the promise against the coin, and never
// better than PrivUnit's.
func TestR2Formulas(t *testing.T) {
	for _, dim := range []int{1, 2, 3, 10, 500, 4420, 1_000_000} {
		for _, eps0 := range []float64{.01, 1, 2, 6, 20, 49.9} {
			m := as[*privUnit](newR2(Config{Dim: dim, Radius: 3, Eps0: eps0}))
			up, _ := math.Lgamma(float64(dim) / 2)
			low, _ := math.Lgamma(float64(dim+1) / 2)
			mean := math.Exp(up-low) / math.Sqrt(math.Pi) * math.Tanh(eps0/2)
			// The random length and the grid add their shares.
			s := 1. / lengthRate
			square := 1/(1-4*s*s) + float64(dim)/12/privUnitUnit/privUnitUnit
			want := 9 * square * (1 - s*s) * (1 - s*s) / (mean * mean)
			// lgamma of a million loses ten digits in the difference.
			if math.Abs(m.Facts().MSE/want-1) > 1e-12+3e-15*math.Abs(up) {
				t.Errorf("d = %d, eps0 = %v: error %v, want %v", dim, eps0, m.Facts().MSE, want)
			}
			if got := m.Event().Eps0; got < eps0+privUnitSlack(dim) || got > eps0+1.001*privUnitSlack(dim)+1e-13*eps0 {
				t.Errorf("d = %d, eps0 = %v: promises %v, slack is %v", dim, eps0, got, privUnitSlack(dim))
			}
			if p := must(newPrivUnit(Config{Dim: dim, Radius: 3, Eps0: eps0})); p.Facts().MSE > m.Facts().MSE*(1+1e-12) {
				t.Errorf("d = %d, eps0 = %v: PrivUnit's error %v is above %v", dim, eps0, p.Facts().MSE, m.Facts().MSE)
			}
			if want := 1 / (1 + math.Exp(eps0)); math.Abs(m.rare/want-1) > 1e-14 || m.rareCap {
				t.Errorf("d = %d, eps0 = %v: the far side has %v, want %v", dim, eps0, m.rare, want)
			}
		}
	}
}

// ⟨v,u⟩ has the exact law on both hemispheres.
func TestR2HeightLaw(t *testing.T) {
	n := 60_000
	if testing.Short() {
		n /= 6
	}
	for i, c := range []struct {
		dim  int
		eps0 float64
	}{{2, 1}, {3, 2}, {40, .5}, {128, 3}, {4420, 2}} {
		m := as[*privUnit](newR2(Config{Dim: c.dim, Radius: 1, Eps0: c.eps0}))
		edges, probs := m.edges(10)
		counts := make([]int64, 20)
		src := source(64, uint64(i))
		for range n {
			h, _ := m.height(src)
			counts[cell(edges, h)]++
		}
		chiSquare(t, fmt.Sprintf("d = %d, eps0 = %v", c.dim, c.eps0), counts, probs)
	}
}
