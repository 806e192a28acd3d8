package gdp_test

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/golden"
)

// Never below the truth, and above it by the stated slack only.
func TestGoldenDelta(t *testing.T) {
	for _, r := range golden.Table(t, "delta.tsv", 250) {
		mu, eps, want := r[0], r[1], r[2]
		got := gdp.Mu(mu).LogDelta(eps)
		slack := 2e-12 + 2e-15*(1+math.Abs(eps/mu-mu/2))*(eps/mu+mu/2) + 1e-15*math.Abs(want)
		// The table's logarithms are rounded to float64 as well.
		if !(got >= want-1e-15*math.Abs(want)) || got > want+slack {
			t.Errorf("mu = %v, eps = %v: log delta = %.17g, want %.17g, off %.3g of %.3g", mu, eps, got, want, got-want, slack)
		}
		if d := gdp.Mu(mu).Delta(eps); !(d >= math.Exp(want)*(1-1e-13)) || want > -690 && d > math.Exp(want+slack)*(1+2e-13) {
			t.Errorf("mu = %v, eps = %v: delta = %v, want %v", mu, eps, d, math.Exp(want))
		}
	}
}

func TestGoldenTradeOff(t *testing.T) {
	for _, r := range golden.Table(t, "tradeoff.tsv", 70) {
		mu, alpha, want := r[0], r[1], r[2]
		got := gdp.Mu(mu).TradeOff(alpha)
		if got > want || got < want*(1-2e-11*(1+mu)*(1+mu+40)) {
			t.Errorf("mu = %v, alpha = %v: beta = %.17g, want %.17g", mu, alpha, got, want)
		}
	}
}
