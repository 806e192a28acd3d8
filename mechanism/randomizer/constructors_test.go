package randomizer

import (
	"math"
	"testing"
)

func TestConstructorsRefuse(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	type config struct {
		dim          int
		radius, eps0 float64
	}
	for _, c := range []config{
		{0, 1, 1}, {-1, 1, 1}, {1<<30 + 1, 1, 1},
		{1, 0, 1}, {1, -1, 1}, {1, nan, 1}, {1, inf, 1}, {1, 9e-31, 1}, {1, 1.1e30, 1},
		{1, 1, 0}, {1, 1, -1}, {1, 1, nan}, {1, 1, inf}, {1, 1, math.Nextafter(50, 51)}, {1, 1, 51}, {1, 1, 1e-300},
		{1, 1, math.Nextafter(0x1p-20, 0)},
	} {
		_, e1 := newRR(Config{Dim: c.dim, Radius: c.radius, Eps0: c.eps0})
		_, e2 := newRInf(Config{Dim: c.dim, Radius: c.radius, Eps0: c.eps0})
		_, e3 := newPrivUnit(Config{Dim: c.dim, Radius: c.radius, Eps0: c.eps0})
		// The Gaussian's sigma has the same shape but other limits.
		_, e4 := NewDiscreteGaussian(DiscreteGaussianConfig{c.dim, c.radius, c.eps0 * 512})
		_, e5 := newR1(Config{Dim: c.dim, Radius: c.radius, Eps0: c.eps0})
		_, e6 := newR2(Config{Dim: c.dim, Radius: c.radius, Eps0: c.eps0})
		_, e7 := newLaplace(Config{Dim: c.dim, Radius: c.radius, Eps0: c.eps0})
		_, e8 := newSignedKRR(Config{Dim: c.dim, Radius: c.radius, Eps0: c.eps0})
		for i, err := range []error{e1, e2, e3, e4, e5, e6, e7, e8} {
			if err == nil {
				t.Errorf("constructor %d accepted %+v", i, c)
			} else if got := err.Error(); len(got) < 12 || got[:12] != "randomizer: " {
				t.Errorf("error %q does not begin with the package", got)
			}
		}
	}
	for _, eps0 := range []float64{0x1p-20, 1e-3, 49.9} {
		for _, dim := range []int{1, 2, 3, 50, 5000} {
			_, e1 := newRR(Config{Dim: dim, Radius: 1, Eps0: eps0})
			_, e2 := newRInf(Config{Dim: dim, Radius: 1, Eps0: eps0})
			_, e3 := newPrivUnit(Config{Dim: dim, Radius: 1, Eps0: eps0})
			_, e4 := newR1(Config{Dim: dim, Radius: 1, Eps0: eps0})
			_, e5 := newR2(Config{Dim: dim, Radius: 1, Eps0: eps0})
			_, e6 := newLaplace(Config{Dim: dim, Radius: 1, Eps0: eps0})
			_, e7 := newSignedKRR(Config{Dim: dim, Radius: 1, Eps0: eps0})
			for i, err := range []error{e1, e2, e3, e4, e5, e6, e7} {
				if err != nil {
					t.Errorf("constructor %d refused dim = %d, eps0 = %v: %v", i, dim, eps0, err)
				}
			}
		}
	}
}

// At the smallest ε₀ the estimators' scales still have the digits claimed, and
// the errors are numbers whatever the other parameters.
func TestSmallestEps0(t *testing.T) {
	const eps0 = MinEps0
	t1, t2 := math.Tanh(eps0/2), math.Tanh(eps0/4)
	close := func(name string, got, want float64) {
		t.Helper()
		if !(math.Abs(got/want-1) <= 4e-9) {
			t.Errorf("%s: scale %.15g, want %.15g", name, got, want)
		}
	}
	close("rr", as[*rr](newRR(Config{Dim: 2, Radius: 1, Eps0: eps0})).scale, 1/t2)
	close("rinf", as[*rInf](newRInf(Config{Dim: 4, Radius: 1, Eps0: eps0, Bits: 2})).scale, 2/t2)
	close("r1", as[*r1](newR1(Config{Dim: 4, Radius: 1, Eps0: eps0, Bits: 1})).scale, 1/t1)
	for _, dim := range []int{1, 7, 5000} {
		// p(1−q) − q(1−p) ∝ E−1, and the hemisphere's E|⟨v,u⟩| is 2S.
		r2 := as[*privUnit](newR2(Config{Dim: dim, Radius: 1, Eps0: eps0}))
		close("r2", r2.mean, 2*r2.cap.first*t1)
		m := as[*privUnit](newPrivUnit(Config{Dim: dim, Radius: 1, Eps0: eps0}))
		close("privunit", m.mean, m.cap.first*math.Expm1(eps0)/(1+m.cap.mass*math.Expm1(eps0)))
	}
	for _, name := range names() {
		for _, dim := range []int{2, 1 << 20, 1 << 29} {
			for _, radius := range []float64{1e-30, 1e30} {
				m, err := New(name, Config{Dim: dim, Radius: radius, Eps0: eps0})
				if err != nil {
					t.Fatal(err)
				}
				if e := m.Facts().MSE; !(e > 0 && e <= math.MaxFloat64) {
					t.Errorf("%s, d = %d, radius %v: error %v", name, dim, radius, e)
				}
			}
		}
	}
}
