package gdp_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
)

var mus = []gdp.Mu{1e-9, 1e-4, .03, .4999, .5, .5001, 1, 3, 30, 1e4}

func TestDeltaFallsInEpsAndRisesInMu(t *testing.T) {
	for i, m := range mus {
		last := 1.0
		for x := -3.; x <= 40; x += .25 {
			eps := float64(m) * x
			d := m.Delta(eps)
			slack := 1 + 4e-12 + 4e-15*float64(m)*(1+math.Abs(x))
			if !(d <= last*slack) {
				t.Errorf("mu = %v: delta(%v) = %v after %v", m, eps, d, last)
			}
			last = d
			if i > 0 && eps >= 0 && mus[i-1].Delta(eps) > d*slack {
				t.Errorf("eps = %v: delta falls from mu = %v to %v", eps, mus[i-1], m)
			}
		}
	}
}

func TestEpsilonInvertsDelta(t *testing.T) {
	for _, m := range mus {
		for _, delta := range []float64{1e-300, 1e-100, 1e-30, 1e-8, .1, .9} {
			eps := m.Epsilon(delta)
			if !(m.Delta(eps) <= delta) {
				t.Errorf("mu = %v: delta(%v) = %v above %v", m, eps, m.Delta(eps), delta)
			}
			slack := 1e-9 + 1e-14*float64(m)
			if eps > 0 && m.Delta(eps*(1-slack)) <= delta {
				t.Errorf("mu = %v, delta = %v: eps = %v is not the smallest", m, delta, eps)
			}
		}
	}
}

// Calibrating and accounting again never exceeds the target.
func TestCalibrateThenAccount(t *testing.T) {
	for _, eps := range []float64{0, 1e-6, .01, .5, 1, 8, 100, 1e4} {
		for _, delta := range []float64{1e-300, 1e-30, 1e-8, 1e-2, .5} {
			m, err := gdp.Calibrate(dp.Guarantee{Eps: eps, Delta: delta})
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Epsilon(delta); got > eps {
				t.Errorf("eps = %v, delta = %v: mu = %v costs %v", eps, delta, m, got)
			}
			if more := m * (1 + 1e-8); !(more.Epsilon(delta) > eps) {
				t.Errorf("eps = %v, delta = %v: mu = %v is not the largest", eps, delta, m)
			}
		}
	}
}

// The trade-off curve and δ(ε) are duals: 1 − β ≤ δ + e^ε·α for each α, with
// equality somewhere.
func TestTradeOffIsTheDual(t *testing.T) {
	for _, m := range []gdp.Mu{.01, .3, 1, 4} {
		for _, x := range []float64{0, .5, 2, 5} {
			eps := float64(m) * (x + float64(m)/2)
			delta, least := m.Delta(eps), math.Inf(1)
			for z := -8.; z <= 12; z += 1. / 64 {
				alpha := math.Erfc(z/math.Sqrt2) / 2
				gap := delta - (1 - m.TradeOff(alpha) - math.Exp(eps)*alpha)
				least = math.Min(least, gap)
			}
			// TradeOff rounds down, so the gap may be a little below 0.
			if least < -1e-10 || least > 1e-4 {
				t.Errorf("mu = %v, eps = %v: least gap %v", m, eps, least)
			}
		}
	}
}

func TestTradeOffIsSymmetricAndConvex(t *testing.T) {
	for _, m := range []gdp.Mu{0, .2, 1, 5} {
		for _, alpha := range []float64{.001, .2, .5, .8} {
			// f is its own inverse.
			if back := m.TradeOff(m.TradeOff(alpha)); math.Abs(back-alpha) > 1e-8 {
				t.Errorf("mu = %v: f(f(%v)) = %v", m, alpha, back)
			}
			if f := m.TradeOff; f(alpha) > (f(alpha-.0005)+f(alpha+.0005))/2+1e-9 {
				t.Errorf("mu = %v: not convex at %v", m, alpha)
			}
		}
		if m.TradeOff(0) != 1 || m.TradeOff(1) != 0 {
			t.Errorf("mu = %v: ends %v and %v", m, m.TradeOff(0), m.TradeOff(1))
		}
	}
}

func TestCompose(t *testing.T) {
	if got := gdp.Compose(3, 4); !(got >= 5) || got > 5*(1+1e-14) {
		t.Errorf("3 and 4 compose to %v", got)
	}
	var many []gdp.Mu
	for range 1000 {
		many = append(many, .1)
	}
	a, b := gdp.Compose(many...), gdp.Mu(.1).Repeat(1000)
	if exact := math.Sqrt(1000) * .1; !(float64(a) >= exact && float64(b) >= exact) || math.Abs(float64(a-b)) > 1e-11 {
		t.Errorf("1000 of .1 compose to %v and %v", a, b)
	}
	if gdp.Compose() != 0 {
		t.Error("nothing composes to something")
	}
}

// What makes no sense is no privacy, never a small number.
func TestNonsenseCostsEverything(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, m := range []gdp.Mu{gdp.Mu(nan), gdp.Mu(inf), -1} {
		if m.Delta(1) != 1 || m.LogDelta(1) != 0 || !math.IsInf(m.Epsilon(1e-5), 1) || m.TradeOff(.5) != 0 || !math.IsInf(float64(m.Repeat(2)), 1) || !math.IsInf(float64(gdp.Compose(1, m)), 1) {
			t.Errorf("mu = %v is taken", m)
		}
	}
	if gdp.Mu(1).Delta(nan) != 1 || gdp.Mu(1).TradeOff(nan) != 0 || gdp.Mu(1).TradeOff(1.1) != 0 {
		t.Error("NaN is taken")
	}
	for _, delta := range []float64{0, 1, nan, -1, inf} {
		if !math.IsInf(gdp.Mu(1).Epsilon(delta), 1) {
			t.Errorf("delta = %v is taken", delta)
		}
		if _, err := gdp.Calibrate(dp.Guarantee{Eps: 1, Delta: delta}); err == nil {
			t.Errorf("delta = %v is taken", delta)
		}
	}
	for _, eps := range []float64{nan, -1, inf} {
		if _, err := gdp.Calibrate(dp.Guarantee{Eps: eps, Delta: .1}); err == nil {
			t.Errorf("eps = %v is taken", eps)
		}
	}
	if !math.IsInf(float64(gdp.Mu(1).Repeat(0)), 1) {
		t.Error("no rounds are taken")
	}
	if _, err := gdp.Calibrate(dp.Guarantee{Eps: 1e308, Delta: .1}); err != nil && errors.Is(err, dp.ErrNoBound) == false {
		t.Error(err)
	}
}

func FuzzDelta(f *testing.F) {
	f.Add(1., 1., 1e-5)
	f.Add(1e-300, 700., .5)
	f.Add(1e160, 1e-320, 1e-300)
	f.Fuzz(func(t *testing.T, mu, eps, delta float64) {
		m := gdp.Mu(mu)
		if d := m.Delta(eps); !(d >= 0 && d <= 1) {
			t.Errorf("mu = %v: delta(%v) = %v", mu, eps, d)
		}
		if l := m.LogDelta(eps); !(l <= 0) {
			t.Errorf("mu = %v: log delta(%v) = %v", mu, eps, l)
		}
		if e := m.Epsilon(delta); !(e >= 0) || !math.IsInf(e, 1) && !(m.Delta(e) <= delta) {
			t.Errorf("mu = %v: eps(%v) = %v", mu, delta, e)
		}
		if b := m.TradeOff(delta); !(b >= 0 && b <= 1) {
			t.Errorf("mu = %v: f(%v) = %v", mu, delta, b)
		}
	})
}

func Example() {
	// One release of a sum of vectors of norm at most 1, noise N(0, 5²) on each
	// coordinate, one vector replaced: the sum moves by at most 2.
	mu := gdp.Mu(2. / 5)
	fmt.Printf("eps = %.4f\n", mu.Epsilon(1e-6))
	// A hundred such releases.
	fmt.Printf("eps = %.4f\n", mu.Repeat(100).Epsilon(1e-6))
	// Output:
	// eps = 1.7656
	// eps = 26.3570
}
