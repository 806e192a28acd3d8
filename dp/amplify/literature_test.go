package amplify_test

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
)

// Errors in the literature, each shown to be one: what is printed is refuted by
// a real mechanism, and what riffle has in its place is not.

// rr3Renyi is the exact Rényi divergence of a shuffle of n 3-ary randomized
// responses, all others on the third symbol: a sum over the counts of the first
// two. Counts beyond 60 are left out, which only lowers it.
func rr3Renyi(n int, eps0, order float64) float64 {
	p := 1 / (math.Exp(eps0) + 2) // of a symbol that is not the client's own
	E := math.Exp(eps0)
	N := float64(n - 1)
	// Law of the others' counts (a, b), trinomial.
	law := func(a, b int) float64 {
		if a < 0 || b < 0 {
			return 0
		}
		x, y := float64(a), float64(b)
		l1, _ := math.Lgamma(N + 1)
		l2, _ := math.Lgamma(x + 1)
		l3, _ := math.Lgamma(y + 1)
		l4, _ := math.Lgamma(N - x - y + 1)
		return math.Exp(l1 - l2 - l3 - l4 + (x+y)*math.Log(p) + (N-x-y)*math.Log1p(-2*p))
	}
	var s float64
	for a := 0; a <= 60; a++ {
		for b := 0; b <= 60; b++ {
			P := p * (E*law(a-1, b) + law(a, b-1) + law(a, b))
			Q := p * (law(a-1, b) + E*law(a, b-1) + law(a, b))
			s += P * math.Pow(P/Q, order-1)
		}
	}
	return math.Log(s) / (order - 1)
}

// SCI prints 2ε₀, 8ε₀ and e^{−ε₀/l̃} in its Theorem 2.
func TestSCITheorem2AsPrintedIsUnsound(t *testing.T) {
	c := amplify.CheckInRenyiConfig{Eps0: 12, Population: 54000, Gamma: 1}
	const order = 6
	truth := rr3Renyi(54000, 12, order)
	if math.Abs(truth-11.70) > .01 {
		t.Errorf("3-ary randomized response has %v, want 11.70", truth)
	}
	printed, repaired := math.Inf(1), math.Inf(1)
	for x := 1e-3; x <= 1; x *= 1.01 {
		v, err := amplify.SCITheorem2Printed(c, x, order)
		if err != nil {
			t.Fatal(err)
		}
		printed = math.Min(printed, v)
		b, err := amplify.SCITheorem2(c, x)
		if err != nil {
			t.Fatal(err)
		}
		if v, err = b(order); err != nil {
			t.Fatal(err)
		}
		repaired = math.Min(repaired, v)
	}
	if math.Abs(printed-10.71) > .01 || !(printed < truth) {
		t.Errorf("as printed %v, want 10.71, below the truth %v", printed, truth)
	}
	if !(repaired >= truth) {
		t.Errorf("repaired %v below the truth %v", repaired, truth)
	}
}

// SCI's proof of Theorem 1 includes every client with probability γ for every
// k, and so does its Theorem 2: with few reports that is far too small.
func TestInclusionGammaIsUnsound(t *testing.T) {
	const n, gamma, eps0, order = 2, .001, 3., 12
	a, b := krr(2, eps0).neighbours(0, 1, []int{0})
	truth := checkInPair(a, b, gamma).renyi(order)
	c := amplify.CheckInRenyiConfig{Eps0: eps0, Population: n, Gamma: gamma}
	value := func(bound amplify.RenyiOrders, err error) float64 {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		v, err := bound(order)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := value(amplify.SCITheorem1(c, true)); !(v < truth/2) {
		t.Errorf("Theorem 1 with gamma gives %v, truth %v: not refuted", v, truth)
	}
	if v := value(amplify.SCITheorem1(c, false)); !(v >= truth) {
		t.Errorf("Theorem 1 with k/n gives %v, below %v", v, truth)
	}
	// Theorem 2 with its misprints corrected and nothing else.
	corrected := math.Inf(1)
	for _, D := range []float64{0, .01, .1, .5, .9, 1} {
		E, mu := math.Exp(eps0), n*gamma
		low := math.Exp(-D * D * mu / 2)
		l := math.Floor((1-D)*mu/(2*E)) + 1
		w := gamma * (E - 1/E)
		s := 4*choose(order, 2)*gamma*gamma*(E-1)*(E-1)/E*(low+1/l) +
			(math.Pow(1+w, order)-1-order*w)*(low+math.Exp(-(1-D)*mu/(8*E)))
		for j := 3; j <= order; j++ {
			same, err := amplify.TernarySame(eps0, 1, j)
			if err != nil {
				t.Fatal(err)
			}
			s += choose(order, j) * math.Pow(gamma, float64(j)) * math.Exp(same) * (low + math.Pow(l, -float64(j)/2))
		}
		corrected = math.Min(corrected, math.Log1p(s)/(order-1))
		if v := value(amplify.SCITheorem2(c, D)); !(v >= truth) {
			t.Errorf("repaired Theorem 2 at Delta %v gives %v, below %v", D, v, truth)
		}
	}
	if !(corrected < truth/2) {
		t.Errorf("Theorem 2 without misprints gives %v, truth %v: not refuted", corrected, truth)
	}
}

// SCI's Theorem 3 is below what binary randomized response really has.
func TestSCITheorem3IsALowerBound(t *testing.T) {
	near := 0.
	for _, eps0 := range []float64{.1, 1, 4} {
		for n := 1; n <= 6; n++ {
			others := make([]int, n-1)
			a, b := krr(2, eps0).neighbours(1, 0, others)
			for _, gamma := range []float64{.01, .3, 1} {
				truth := checkInPair(a, b, gamma)
				for _, order := range []int{2, 3, 9} {
					v, err := amplify.SCITheorem3(amplify.CheckInRenyiConfig{Eps0: eps0, Population: int64(n), Gamma: gamma}, order)
					if err != nil || !(v <= truth.renyi(float64(order))) || !(v > 0) {
						t.Errorf("eps0 %v, n %d, gamma %v, order %d: %v above %v (%v)", eps0, n, gamma, order, v, truth.renyi(float64(order)), err)
					}
					near = math.Max(near, v/truth.renyi(float64(order)))
				}
			}
		}
	}
	if near < .1 {
		t.Errorf("never above %v of the truth", near)
	}
}

// EAB's Gaussian limit under-reports what its own exact pair has.
func TestGaussianLimitUnderReports(t *testing.T) {
	for _, c := range []struct {
		eps0  float64
		k     int64
		short float64
	}{{1, 100, .031}, {4, 1000, .545}} {
		curve, err := amplify.NewCurve(amplify.RoundConfig{Eps0: c.eps0, Population: c.k, Reports: c.k, Rate: amplify.Clones(c.eps0)})
		if err != nil {
			t.Fatal(err)
		}
		exact, err := curve.Epsilon(1e-5)
		if err != nil {
			t.Fatal(err)
		}
		g, err := amplify.ShuffleGDP(c.eps0, c.k)
		if err != nil {
			t.Fatal(err)
		}
		if short := 1 - g.Epsilon(1e-5)/exact; math.Abs(short-c.short) > .002 {
			t.Errorf("eps0 %v, k %d: short by %v, want %v", c.eps0, c.k, short, c.short)
		}
	}
}

// The trade-off function from the curve against the Neyman-Pearson tests of
// the pair itself.
func TestTradeOff(t *testing.T) {
	for _, eps0 := range []float64{.3, 2} {
		for _, k := range []int{1, 3, 12} {
			for kind, rate := range map[string]float64{"blanket": amplify.Blanket(eps0), "clones": amplify.Clones(eps0)} {
				d := refShuffle(k, eps0, rate)
				for _, gamma := range []float64{1, .25} {
					d := refSampled(d, gamma).merged() // sorted by p/(p+q), rising
					c, err := amplify.NewCurve(amplify.RoundConfig{Eps0: eps0, Population: int64(k) * int64(1/gamma), Reports: int64(k), Rate: rate})
					if err != nil {
						t.Fatal(err)
					}
					for _, alpha := range []float64{0, 1e-4, .01, .2, .5, .9, 1} {
						// Reject Q (type I error alpha under Q) where P/Q is largest.
						left, power := alpha, 0.
						for i := len(d.p) - 1; i >= 0 && left > 0; i-- {
							take := math.Min(1, left/d.q[i])
							left -= take * d.q[i]
							power += take * d.p[i]
						}
						got, want := c.TradeOff(alpha), 1-power
						if got > want+1e-12 || got < want-1e-5 {
							t.Errorf("%s eps0 %v, k %d, gamma %v: f(%v) = %v, want %v", kind, eps0, k, gamma, alpha, got, want)
						}
					}
				}
			}
		}
	}
	g := amplify.GDP{Mu: .7}
	for _, alpha := range []float64{1e-6, .05, .5, .99} {
		f := g.TradeOff(alpha)
		if back := g.TradeOff(f); math.Abs(back-alpha) > 1e-9 || f > 1-alpha {
			t.Errorf("Gaussian f(%v) = %v, f of that %v", alpha, f, back)
		}
		// δ(ε) is the largest 1 − f(α) − e^ε α.
		if d := 1 - f - math.Exp(.9)*alpha; d > g.Delta(.9)+1e-12 {
			t.Errorf("delta(.9) = %v below %v from the trade-off function", g.Delta(.9), d)
		}
	}
}

func TestPaperRefusals(t *testing.T) {
	bad := func(name string, err error) {
		t.Helper()
		if err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
	noBound := func(name string, err error) {
		t.Helper()
		if !errors.Is(err, dp.ErrNoBound) {
			t.Errorf("%s: %v, want ErrNoBound", name, err)
		}
	}
	_, err := amplify.Erlingsson2019(.5, 1000, .1)
	noBound("Erlingsson eps0 = 1/2", err)
	_, err = amplify.Erlingsson2019(.4, 999, .1)
	noBound("Erlingsson k = 999", err)
	_, err = amplify.TernaryShuffle(1, 1, 2)
	noBound("ternary k = 1", err)
	_, err = amplify.TernarySame(1, 5, 1)
	noBound("ternary alpha = 1", err)
	_, err = amplify.ShuffleGDP(1, 1)
	noBound("Gaussian limit of k = 1", err)
	_, err = amplify.ShuffledMoment(1, 10, .3, 1)
	noBound("order 1", err)
	_, err = amplify.ShuffledMoment(1, 1e7, .3, 2)
	noBound("a sum of too many outcomes", err)
	b, err := amplify.NewBlanketed(1, 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.ExactDelta(.1)
	noBound("exact blanket of any randomizer", err)
	for _, x := range []float64{0, -1, math.NaN(), math.Inf(1), 51} {
		_, err = amplify.NewBlanketed(x, 10, 2)
		bad("blanket eps0", err)
		_, err = amplify.NewShuffleRenyi(x, 10)
		bad("Rényi eps0", err)
		_, err = amplify.SCITheorem1(amplify.CheckInRenyiConfig{Eps0: x, Population: 9, Gamma: .5}, false)
		bad("check-in eps0", err)
		_, err = amplify.SCITheorem2(amplify.CheckInRenyiConfig{Eps0: 1, Population: 9, Gamma: .5}, x+1.5)
		if x != 0 && x != -1 {
			bad("Delta", err)
		}
	}
	_, err = amplify.NewBlanketed(1, 10, 1)
	bad("one symbol", err)
	for _, f := range []func(float64, int64, float64) float64{amplify.ClonesClosed, amplify.Feldman2023} {
		if d := f(1, 1e6, math.NaN()); d != 1 {
			t.Errorf("closed form at NaN is %v", d)
		}
	}
	if d := (amplify.Repeated{Eps: 1, Rounds: 5}).ExactDelta(math.NaN()); d != 1 {
		t.Errorf("composition at NaN is %v", d)
	}
	c := amplify.Strong{Eps0: 1, Delta: func(float64) float64 { return math.NaN() }, Gamma: 1, Rounds: 3}
	if eps, err := c.Epsilon(1e-6); err != nil || eps < 3 {
		t.Errorf("a shuffle whose delta is not a number gives %v, %v: want the pure guarantee", eps, err)
	}
	c.Lost = 1e-6
	_, err = c.Epsilon(1e-6)
	noBound("rounds that fail too often", err)
}
