package monotone

import (
	"math"
	"testing"
)

func TestFalling(t *testing.T) {
	calls := 0
	count := func(f func(float64) float64) func(float64) float64 {
		return func(x float64) float64 { calls++; return f(x) }
	}
	step := func(x float64) float64 {
		if x < 1.25 {
			return 1
		}
		return 1e-9
	}
	for name, c := range map[string]struct {
		f            func(float64) float64
		target, want float64
	}{
		"gauss": {func(x float64) float64 { return math.Exp(-x * x) }, 1e-8, math.Sqrt(8 * math.Ln10)},
		"line":  {func(x float64) float64 { return 10 - x }, 2.5, 7.5},
		"step":  {step, 1e-6, 1.25},
		"zero":  {func(x float64) float64 { return math.Max(0, 1-x) }, 1e-12, 1},
	} {
		calls = 0
		f := count(c.f)
		x := Falling(f, c.target, 0, 10, 1e-9)
		if !(c.f(x) <= c.target) || x < c.want*(1-1e-12) || x > c.want*(1+2e-9) {
			t.Errorf("%s: %.15g, want just above %.15g", name, x, c.want)
		}
		if calls > 60 {
			t.Errorf("%s: %d calls", name, calls)
		}
	}
}

func TestFallingEnds(t *testing.T) {
	f := func(x float64) float64 { return 1 / x }
	if got := Falling(f, 2, 1, 3, 1e-9); got != 1 {
		t.Errorf("met at the start: %v", got)
	}
	if got := Falling(f, .1, 1, 3, 1e-9); !math.IsInf(got, 1) {
		t.Errorf("never met: %v", got)
	}
	if got := Falling(func(float64) float64 { return math.NaN() }, .1, 1, 3, 1e-9); !math.IsInf(got, 1) {
		t.Errorf("NaN met a target: %v", got)
	}
	// NaN in the middle counts as not met: the safe end is kept.
	g := func(x float64) float64 {
		if x > 1.5 && x < 2 {
			return math.NaN()
		}
		return 1 / x
	}
	if x := Falling(g, .7, 1, 3, 1e-9); !(g(x) <= .7) {
		t.Errorf("stopped at %v where f is %v", x, g(x))
	}
}
