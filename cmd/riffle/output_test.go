package main

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestRoundUpNeverShowsLess(t *testing.T) {
	for x, want := range map[float64]string{1e-8: "1e-08", .15223601: "0.1523", 16: "16", .99999: "1", 1.00001: "1.001",
		123456: "1.235e+05", 0: "0", math.Inf(1): "+Inf"} {
		if got := roundUp(x); got != want {
			t.Errorf("%v is shown as %s, want %s", x, got, want)
		}
	}
	if got := roundDown(.38415); got != "0.3841" {
		t.Errorf("a lower bound of .38415 is shown as %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		x := rapid.Float64Range(1e-300, 1e300).Draw(t, "x")
		if y := parse(roundUp(x)); y < x || y > x*1.0011 {
			t.Errorf("%v is shown as %v", x, y)
		}
		if y := parse(roundDown(x)); y > x || y < x*.9989 {
			t.Errorf("as a lower bound %v is shown as %v", x, y)
		}
	})
}
