package rdp

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// gaussianCurve is D_λ = ρλ, the Gaussian mechanism's.
func gaussianCurve(rho float64) Curve { return func(order float64) float64 { return rho * order } }

// Delta at the ε that Minimize gives is at most δ, and both are near the best
// order's.
func TestConversionInverse(t *testing.T) {
	for _, rho := range []float64{1e-8, 1e-3, .1, 4} {
		for _, delta := range []float64{1e-12, 1e-6, 1e-2} {
			eps, order := Minimize(gaussianCurve(rho), delta)
			if eps == 0 {
				continue
			}
			if d := Delta(gaussianCurve(rho), eps); !(d <= delta*(1+1e-6)) || d < delta*.99 {
				t.Errorf("rho = %v: eps = %v at delta = %v, delta there %v", rho, eps, delta, d)
			}
			for _, near := range []float64{.9, 1.1} {
				if e := Epsilon(1+(order-1)*near, rho*(1+(order-1)*near), delta); e < eps*(1-1e-6) {
					t.Errorf("rho = %v, delta = %v: order %v gives %v, missed by %v at %v", rho, delta, near*order, e, eps, order)
				}
			}
		}
	}
}

// Divergence grows with the order, is at most the largest loss, and at that
// limit where the order is huge.
func TestDivergenceOrder(t *testing.T) {
	p := dp.Pair{Atoms: []dp.Atom{{Q: .05, Loss: 2}, {Q: .2, Loss: .4}}}
	last := 0.
	for order := 1.001; order < 1e7; order *= 1.7 {
		d := Divergence(p, order)
		if !(d >= last) || d > 2*(1+1e-8) {
			t.Errorf("order %v: %v after %v, largest loss 2", order, d, last)
		}
		last = d
	}
	if last < 1.999 {
		t.Errorf("limit %v, want 2", last)
	}
	// A remainder costs, at its largest loss.
	with := p
	with.Remainders = []dp.Remainder{{Mass: 1e-6, MaxLoss: 5}}
	if a, b := Divergence(p, 8), Divergence(with, 8); !(b > a) {
		t.Errorf("a remainder lowers %v to %v", a, b)
	}
}

func TestRdpRefusals(t *testing.T) {
	p := dp.Pair{Atoms: []dp.Atom{{Q: .1, Loss: 1}}}
	for _, order := range []float64{1, math.Nextafter(1, 0), 0, -3, math.NaN()} {
		if d := Divergence(p, order); !math.IsInf(d, 1) {
			t.Errorf("order %v: %v, want +Inf", order, d)
		}
		if e := Epsilon(order, 1, 1e-6); !math.IsInf(e, 1) {
			t.Errorf("order %v: eps = %v, want +Inf", order, e)
		}
	}
	for _, delta := range []float64{0, -1, math.NaN()} {
		if e := Epsilon(2, 1, delta); !math.IsInf(e, 1) {
			t.Errorf("delta = %v: eps = %v, want +Inf", delta, e)
		}
	}
	for name, c := range map[string]Curve{
		"NaN":  func(float64) float64 { return math.NaN() },
		"+Inf": func(float64) float64 { return math.Inf(1) },
	} {
		if e, _ := Minimize(c, 1e-6); !math.IsInf(e, 1) {
			t.Errorf("curve %s: eps = %v", name, e)
		}
		if d := Delta(c, 1); d != 1 {
			t.Errorf("curve %s: delta = %v", name, d)
		}
	}
}

func FuzzDivergence(f *testing.F) {
	f.Add(.1, 1., 2.)
	f.Add(1e-30, 50., 5000.)
	f.Fuzz(func(t *testing.T, q, loss, order float64) {
		if !(q > 0) || !(loss > 0) || loss > 50 || q*(1+math.Exp(loss)) > 1 {
			t.Skip()
		}
		d := Divergence(dp.Pair{Atoms: []dp.Atom{{Q: q, Loss: loss}}}, order)
		if math.IsNaN(d) || d < 0 || order > 1 && order < 1e300 && d > loss*1.0001*math.Max(1, order/(order-1)) {
			t.Errorf("q = %v, loss %v, order %v: %v", q, loss, order, d)
		}
	})
}

func BenchmarkDivergence(b *testing.B) {
	var p dp.Pair
	for i := range 1000 {
		p.Atoms = append(p.Atoms, dp.Atom{Q: 1e-4, Loss: 1e-3 * float64(i+1)})
	}
	for b.Loop() {
		Divergence(p, 30)
	}
}
