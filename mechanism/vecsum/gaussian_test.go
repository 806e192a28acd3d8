package vecsum

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/internal/golden"
	"github.com/riffle-dp/riffle/internal/tail"
)

func TestGaussDeltaGolden(t *testing.T) {
	for _, r := range golden.Table(t, "gauss.tsv", 1) {
		mu, eps, want := r[0], r[1], r[2]
		got := gaussDelta(mu, eps)
		if !(got >= want) {
			t.Errorf("mu = %v, eps = %v: delta = %.17g below %.17g", mu, eps, got, want)
		}
		if tol := 1e-11 + 2e-13/mu + 1e-13*eps/mu*eps/mu; got > want*(1+tol) {
			t.Errorf("mu = %v, eps = %v: delta = %.17g, too far above %.17g", mu, eps, got, want)
		}
	}
	for _, c := range []struct{ mu, eps float64 }{{math.NaN(), 1}, {1, math.NaN()}, {-1, 1}, {math.Inf(1), 1}} {
		if d := gaussDelta(c.mu, c.eps); d != 1 {
			t.Errorf("mu = %v, eps = %v: delta = %v, want 1", c.mu, c.eps, d)
		}
	}
}

func TestUpperQuantile(t *testing.T) {
	for _, q := range []float64{1e-300, 1e-100, 1e-20, 1e-13, 1e-6, .01, .3, .499999, .5, .500001, .7, .98} {
		z := upperQuantile(q, 0)
		if p := tail.UpperNormal(z); math.Abs(p/q-1) > 1e-15*(4+4*z*z) {
			t.Errorf("q = %v: z = %.17g has tail %.17g", q, z, p)
		}
		for _, near := range []float64{z - .1, z + .1, 5} {
			if again := upperQuantile(q, near); math.Abs(again-z) > 1e-15*(4+math.Abs(z)) {
				t.Errorf("q = %v from %v: %.17g, want %.17g", q, near, again, z)
			}
		}
	}
}

// The analytic Gaussian mechanism at δ = 1e-6; VECSUM-SCO.md section 5, oracle 5c.
func TestGaussMu(t *testing.T) {
	for _, c := range []struct{ eps, sigma float64 }{{.1, 36.305}, {1, 4.2247}, {4, 1.1935}} {
		mu := gaussMu(c.eps, 1e-6)
		if math.Abs(1/mu/c.sigma-1) > 5e-5 {
			t.Errorf("eps = %v: sigma = %v, want %v", c.eps, 1/mu, c.sigma)
		}
		if d := gaussDelta(mu, c.eps); d > 1e-6 || d < 1e-6*(1-1e-7) {
			t.Errorf("eps = %v: mu gives delta = %v", c.eps, d)
		}
	}
}
