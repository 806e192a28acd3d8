package rdp_test

import (
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/rdp"
	"github.com/riffle-dp/riffle/internal/golden"
)

// Symmetric two-point pairs of the table as dp.Pair.
func TestGoldenDivergence(t *testing.T) {
	used := 0
	for _, r := range golden.Rows(t, "divergence.tsv", 30) {
		p, q := golden.Numbers(t, strings.Split(r[0], ",")), golden.Numbers(t, strings.Split(r[1], ","))
		if len(p) != 2 || p[0] != q[1] {
			continue // dp.Pair holds symmetric pairs only
		}
		used++
		p0, q0 := p[0], q[0]
		pair := dp.Pair{}
		if p0 > q0 {
			pair.Atoms = []dp.Atom{{Q: q0, Loss: math.Log(p0 / q0)}}
		}
		v := golden.Numbers(t, r[2:])
		order, want := v[0], v[1]
		got := rdp.Divergence(pair, order)
		if !(got >= want*(1-1e-12)) || !(got <= want*(1+1e-6)) {
			t.Errorf("order %v of %v: %.17g, true %.17g", order, r[0], got, want)
		}
	}
	if used < 16 {
		t.Fatalf("only %d rows used", used)
	}
}

func TestGoldenConversion(t *testing.T) {
	for _, r := range golden.Table(t, "convert.tsv", 20) {
		rho, delta, order, want := r[0], r[1], r[2], math.Max(0, r[3])
		eps, at := rdp.Minimize(func(l float64) float64 { return rho * l }, delta)
		if !(eps >= want*(1-1e-12)) || !(eps <= want*(1+1e-6)+1e-12) {
			t.Errorf("rho %v delta %v: eps %.17g at %v, true %.17g at %v", rho, delta, eps, at, want, order)
		}
		if want > 0 {
			// δ(ε) is the same curve read the other way.
			if d := rdp.Delta(func(l float64) float64 { return rho * l }, want); !(d >= delta*(1-1e-9)) || !(d <= delta*(1+1e-5)) {
				t.Errorf("rho %v eps %v: delta %v, true %v", rho, want, d, delta)
			}
		}
	}
}
