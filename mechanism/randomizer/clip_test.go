package randomizer

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestClipNorm(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, p := range []float64{1, 2, math.Inf(1)} {
		for range 300 {
			x := make([]float32, 1+r.IntN(50))
			for i := range x {
				x[i] = float32(r.NormFloat64() * math.Exp(5*r.NormFloat64()))
			}
			c := math.Exp(3 * r.NormFloat64())
			before, was := slices.Clone(x), norm(x, p)
			ClipNorm(x, p, c)
			is := norm(x, p)
			if was <= c {
				if !slices.Equal(x, before) {
					t.Fatalf("p = %v: a vector of norm %v was changed by clipping at %v", p, was, c)
				}
				continue
			}
			if math.Abs(is/c-1) > 1e-6 {
				t.Fatalf("p = %v: norm %v after clipping %v at %v", p, is, was, c)
			}
			for i := range x { // the direction stays
				if want := float64(before[i]) * c / was; math.Abs(float64(x[i])-want) > 1e-6*math.Abs(want)+1e-40 {
					t.Fatalf("p = %v: coordinate %v became %v, want %v", p, before[i], x[i], want)
				}
			}
		}
	}
}

func TestClipCoordinate(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	x := []float32{0, 1, -1, 2, -3, nan, inf, -inf, 1e-40}
	ClipCoordinate(x, 1)
	if want := []float32{0, 1, -1, 1, -1, 0, 1, -1, 1e-40}; !slices.Equal(x, want) {
		t.Errorf("got %v, want %v", x, want)
	}
	x = []float32{5, -5}
	ClipCoordinate(x, .1) // float32(.1) is above .1
	if float64(x[0]) > .1 || float64(x[0]) < .0999999 || x[1] != -x[0] {
		t.Errorf("clipped to %v at .1", x)
	}
}

func TestClipNotFinite(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, p := range []float64{1, 2, math.Inf(1)} {
		x := []float32{nan, 1, 2}
		ClipNorm(x, p, 10)
		if !slices.Equal(x, []float32{0, 1, 2}) {
			t.Errorf("p = %v: NaN clipped to %v", p, x)
		}
		x = []float32{inf, -inf, 1}
		ClipNorm(x, p, 1)
		if x[0] != -x[1] || math.Abs(norm(x, p)-1) > 1e-6 {
			t.Errorf("p = %v: infinities clipped to %v", p, x)
		}
	}
}

func TestClipRefuses(t *testing.T) {
	for name, f := range map[string]func(){
		"p = 3":      func() { ClipNorm([]float32{1}, 3, 1) },
		"p = NaN":    func() { ClipNorm([]float32{1}, math.NaN(), 1) },
		"c = 0":      func() { ClipNorm([]float32{1}, 2, 0) },
		"c = NaN":    func() { ClipCoordinate([]float32{1}, math.NaN()) },
		"c = +Inf":   func() { ClipCoordinate([]float32{1}, math.Inf(1)) },
		"c negative": func() { ClipCoordinate([]float32{1}, -1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}
