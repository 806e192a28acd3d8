package sample

import (
	"math"
	"testing"
)

// normal.md needs: all strips have the same area to 5e-13, and what counts as
// inside is inside.
func TestZigguratStrips(t *testing.T) {
	edge := zigguratEdge
	if x := zig.strips[1].width * 0x1p53; x != edge {
		t.Fatalf("edge %v, want %v", x, edge)
	}
	tail := math.Sqrt(math.Pi/2) * math.Erfc(edge/math.Sqrt2)
	if area := edge*math.Exp(-edge*edge/2) + tail; math.Abs(area/zigguratArea-1) > 1e-14 {
		t.Errorf("base strip has area %.17g, want %.17g", area, zigguratArea)
	}
	for i := range zig.strips {
		x := zig.strips[i].width * 0x1p53
		area := x * (zig.height[i+1] - zig.height[i]) // height[0] is 0
		if math.Abs(area/zigguratArea-1) > 5e-13 {
			t.Errorf("strip %d has area %.17g, off by %.2g", i, area, area/zigguratArea-1)
		}
		next := 0.
		if i < 255 {
			next = zig.strips[i+1].width * 0x1p53
		}
		if inside := float64(zig.strips[i].inside) * zig.strips[i].width; inside > next*(1+1e-15) || inside < next-1e-15 {
			t.Errorf("strip %d: inside ends at %v, the strip above at %v", i, inside, next)
		}
		if zig.strips[i].twice != 2*zig.strips[i].inside {
			t.Errorf("strip %d: table is inconsistent", i)
		}
	}
	if zig.height[256] != 1 {
		t.Errorf("peak at %v", zig.height[256])
	}
}

func TestGaussianSequence(t *testing.T) {
	dst := make([]float64, 600) // more than one block
	Gaussian(source(40), dst)
	want := map[int]float64{0: 0.87188806792419438, 1: 1.2036394527139258, 511: 0.23178843666618848, 599: -1.0538397165851117}
	for i, w := range want {
		if math.Abs(dst[i]-w) > 1e-12 {
			t.Errorf("value %d is %.17g, want %.17g", i, dst[i], w)
		}
	}
}

// One value at a time and in bulk are the same law by the same words.
func TestNormalIsGaussian(t *testing.T) {
	for i := range uint64(2000) {
		var one [1]float64
		Gaussian(source(41, i), one[:])
		if x := Normal(source(41, i)); x != one[0] {
			t.Fatalf("path %d: Normal gives %v, Gaussian %v", i, x, one[0])
		}
	}
}

// Chi-square on 401 cells of width 1/40 (fine enough to see each wedge of the
// ziggurat), moments, and the law beyond the edge.
func TestGaussianLaw(t *testing.T) {
	n := draws(t, 40_000_000)
	src := source(42)
	const half = 200
	counts, probs := make([]int64, 2*half+1), make([]float64, 2*half+1)
	var m1, m2, m3, m4 float64
	var beyond, farther, positive int64
	const far = zigguratEdge + .5
	block := make([]float64, 5000)
	for range n / 5000 {
		Gaussian(src, block)
		for _, x := range block {
			if c := math.Floor(40*x + .5); c >= -half && c <= half {
				counts[int(c)+half]++
			}
			m1 += x
			m2 += x * x
			m3 += x * x * x
			m4 += x * x * x * x
			if math.Abs(x) > zigguratEdge {
				beyond++
				if math.Abs(x) > far {
					farther++
				}
			}
			if x > 0 {
				positive++
			}
		}
	}
	upper := func(x float64) float64 { return math.Erfc(x/math.Sqrt2) / 2 }
	for c := range probs {
		lo, hi := (float64(c-half)-.5)/40, (float64(c-half)+.5)/40
		if hi < 0 {
			lo, hi = -hi, -lo
		}
		probs[c] = upper(lo) - upper(hi)
	}
	chiSquare(t, "Gaussian", counts, probs, n)
	proportion(t, "Gaussian beyond the edge", beyond, n, 2*upper(zigguratEdge))
	proportion(t, "Gaussian tail ratio", farther, beyond, upper(far)/upper(zigguratEdge))
	proportion(t, "Gaussian sign", positive, n, .5)
	// Moments within 7 standard errors each (2.6e-12 two-sided).
	for i, c := range []struct{ got, want, variance float64 }{
		{m1, 0, 1}, {m2, 1, 2}, {m3, 0, 15}, {m4, 3, 96},
	} {
		if d := math.Abs(c.got/float64(n) - c.want); d > 7*math.Sqrt(c.variance/float64(n)) {
			t.Errorf("moment %d is off by %.3g", i+1, d)
		}
	}
}

func TestExponentialLaw(t *testing.T) {
	n := draws(t, 2_000_000)
	src := source(43)
	counts, probs := make([]int64, 200), make([]float64, 200)
	for range n {
		x := Exponential(src)
		if x < 0 {
			t.Fatalf("negative value %v", x)
		}
		if c := int(x * 20); c < 200 {
			counts[c]++
		}
	}
	for c := range probs {
		probs[c] = math.Exp(-float64(c)/20) * -math.Expm1(-1./20)
	}
	chiSquare(t, "exponential", counts, probs, n)
}

// Large values are not cut off where a word's 64 bits end.
func TestExponentialHasNoCeiling(t *testing.T) {
	s := &script{t, []uint64{0, 0, 0, 1, 0}}
	want := (3*64+63)*math.Ln2 + math.Ln2
	if x := Exponential(s); math.Abs(x-want) > 1e-12 {
		t.Errorf("255 leading zeros give %v, want %v", x, want)
	}
	s = &script{t, []uint64{1 << 63, 1<<64 - 1}}
	if x := Exponential(s); x < 0 || x > 1e-15 {
		t.Errorf("the largest uniform gives %v", x)
	}
}
