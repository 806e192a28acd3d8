package randomizer

import (
	"math"
	"slices"
	"testing"
)

func TestNewByName(t *testing.T) {
	for _, name := range names() {
		m, err := New(name, Config{Dim: 5, Radius: 2, Eps0: 1.5})
		if err != nil || m.Facts().Name != name || m.Facts().Dim != 5 || m.Event().Eps0 < 1.5 || m.Event().Eps0 > 1.5001 {
			t.Errorf("%s: %v, %v", name, m, err)
		}
		if m, err := New(name, Config{Dim: 5, Radius: 2, Eps0: -1}); err == nil || m != nil {
			t.Errorf("%s: eps0 = -1 gave %v", name, m)
		}
		m, err = New(name, Config{Dim: 5, Radius: 2, Eps0: 8, Bits: 2})
		if name == "krr" { // spreads inputs over two symbols
			if err != nil || len(m.NewReport().Value) != 1 {
				t.Errorf("%s with two bits: %v, %v", name, m, err)
			}
		} else if takes := name == "rinf" || name == "r1"; takes != (err == nil) {
			t.Errorf("%s with two bits: %v, %v", name, m, err)
		} else if takes && len(m.NewReport().Value) != 2 {
			t.Errorf("%s with two bits reports %d", name, len(m.NewReport().Value))
		}
		// A vector on the boundary in the stated norm is not changed by clipping:
		// the estimate of many reports is the input (7 deviations by MSE).
		k, err := KindOf(name)
		if err != nil {
			t.Fatal(err)
		}
		x := slices.Repeat([]float32{1}, 5)
		radius := 2.
		if name == "krr" {
			radius = 1
		}
		scale := radius / norm(x, k.Norm)
		for i := range x {
			x[i] = float32(scale)
		}
		m, _ = New(name, Config{Dim: 5, Radius: radius, Eps0: 4})
		const n = 20_000
		sum, r, src := make([]int64, 5), m.NewReport(), source(67)
		for range n {
			m.Randomize(src, x, r)
			m.Add(sum, r)
		}
		mean := make([]float64, 5)
		m.Estimate(mean, sum, n)
		for _, v := range mean {
			if math.Abs(v-float64(x[0])) > 7*math.Sqrt(m.Facts().MSE/n) {
				t.Errorf("%s: mean %v, want %v", name, v, x[0])
			}
		}
	}
	if _, err := New("gaussian", Config{Dim: 5, Radius: 2, Eps0: 1}); err == nil {
		t.Error("made a pure randomizer that is none")
	}
	if _, err := KindOf("gaussian"); err == nil {
		t.Error("gave a norm for an unknown name")
	}
}
