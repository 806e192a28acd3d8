package randomizer

import (
	"math"
	"strings"
	"testing"

	"gonum.org/v1/gonum/mathext"

	"github.com/riffle-dp/riffle/internal/golden"
)

// capRows returns the numbers of every line of testdata/cap.tsv that begins with kind.
func capRows(t *testing.T, kind string) (out [][]float64) {
	t.Helper()
	for _, row := range golden.Rows(t, "cap.tsv", 40) {
		if f := strings.Fields(row[0]); f[0] == kind {
			out = append(out, golden.Numbers(t, f[1:]))
		}
	}
	if len(out) < 20 {
		t.Fatalf("only %d golden lines of kind %s", len(out), kind)
	}
	return out
}

// privunit.md needs mass and first moment to a relative 1e-11.
func TestCapAgainstGolden(t *testing.T) {
	worst := 0.
	for _, v := range capRows(t, "mass") {
		c := newSphereCap(int(v[0]), v[1])
		for i, x := range []float64{c.mass/v[2] - 1, c.first/v[3] - 1, math.Exp(c.logMass)/v[2] - 1} {
			worst = math.Max(worst, math.Abs(x))
			if !(math.Abs(x) < 1e-11) {
				t.Errorf("d = %v, angle %v: value %d off by %.2g relative", v[0], v[1], i, x)
			}
		}
	}
	t.Logf("largest relative error %.2g", worst)
}

// A second way to the same number: the regularised incomplete beta function.
func TestCapMassIsIncompleteBeta(t *testing.T) {
	for _, d := range []int{2, 3, 5, 17, 300, 4420} {
		for _, angle := range []float64{.3, .9, 1.3, 1.5, 1.55, 1.57} {
			c := newSphereCap(d, angle)
			want := mathext.RegIncBeta(float64(d-1)/2, .5, c.sin*c.sin) / 2
			if want > 1e-250 && math.Abs(c.mass/want-1) > 1e-9 {
				t.Errorf("d = %d, angle %v: mass %.15g, incomplete beta %.15g", d, angle, c.mass, want)
			}
		}
	}
}

func TestHemisphere(t *testing.T) {
	for _, d := range []int{1, 2, 3, 100, 1 << 30} {
		c := newSphereCap(d, math.Pi/2)
		if math.Abs(c.mass-.5) > 1e-13 || c.cos != 0 || c.sin != 1 {
			t.Errorf("d = %d: hemisphere has mass %.17g, cosine %v", d, c.mass, c.cos)
		}
	}
}

func TestBestCapAgainstGolden(t *testing.T) {
	for _, v := range capRows(t, "best") {
		d, eps0, want := int(v[0]), v[1], v[2]
		m := as[*privUnit](newPrivUnit(Config{Dim: d, Radius: 1, Eps0: eps0}))
		if math.Abs(m.mean/want-1) > 1e-10 {
			t.Errorf("d = %d, eps0 = %v: mean %.15g, best %.15g", d, eps0, m.mean, want)
		}
		// No other cap does better.
		less := math.Expm1(eps0)
		for _, f := range []float64{.5, .9, .99, .999, 1.001, 1.01} {
			if angle := m.cap.angle * f; angle < math.Pi/2 {
				c := newSphereCap(d, angle)
				if other := c.first * less / (1 + c.mass*less); other > want*(1+1e-10) {
					t.Errorf("d = %d, eps0 = %v: angle times %v has mean %.15g > %.15g", d, eps0, f, other, want)
				}
			}
		}
	}
}

// Figures of an independent prototype, rounded to three digits: the error is
// d·v(ε₀) for large d.
func TestPrivUnitErrorPerDimension(t *testing.T) {
	for eps0, v := range map[float64]float64{2: 1.617, 3: .743, 4: .435, 5: .292, 6: .213} {
		m, err := newPrivUnit(Config{Dim: 4420, Radius: 1, Eps0: eps0})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Facts().MSE / 4420; math.Abs(got-v) > .001 {
			t.Errorf("eps0 = %v: error per dimension %.5f, want %.3f", eps0, got, v)
		}
	}
}
