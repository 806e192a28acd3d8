package literature_test

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/amplify/literature"
)

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
	c := literature.Round{Eps0: 12, Population: 54000, Gamma: 1}
	const order = 6
	truth := rr3Renyi(54000, 12, order)
	if math.Abs(truth-11.70) > .01 {
		t.Errorf("3-ary randomized response has %v, want 11.70", truth)
	}
	printed, repaired := math.Inf(1), math.Inf(1)
	for x := 1e-3; x <= 1; x *= 1.01 {
		for least, asPrinted := range map[*float64]bool{&printed: true, &repaired: false} {
			b, err := literature.SCITheorem2(c, x, asPrinted)
			if err != nil {
				t.Fatal(err)
			}
			v, err := b(order)
			if err != nil {
				t.Fatal(err)
			}
			*least = math.Min(*least, v)
		}
	}
	if math.Abs(printed-10.71) > .01 || !(printed < truth) {
		t.Errorf("as printed %v, want 10.71, below the truth %v", printed, truth)
	}
	if !(repaired >= truth) {
		t.Errorf("repaired %v below the truth %v", repaired, truth)
	}
}

// EAB's Gaussian limit under-reports what its own exact pair has.
func TestGaussianLimitUnderReports(t *testing.T) {
	for _, c := range []struct {
		eps0  float64
		k     int64
		short float64
	}{{1, 100, .031}, {4, 1000, .545}} {
		family, err := amplify.ClonesFamily(c.eps0, amplify.Clones(c.eps0))
		if err != nil {
			t.Fatal(err)
		}
		curve, err := family.Curve(amplify.FamilyRound{Population: c.k, Reports: c.k})
		if err != nil {
			t.Fatal(err)
		}
		exact, err := curve.Epsilon(1e-5)
		if err != nil {
			t.Fatal(err)
		}
		g, err := literature.ShuffleGDP(c.eps0, c.k, 1)
		if err != nil {
			t.Fatal(err)
		}
		if short := 1 - g.Epsilon(1e-5)/exact; math.Abs(short-c.short) > .002 {
			t.Errorf("eps0 %v, k %d: short by %v, want %v", c.eps0, c.k, short, c.short)
		}
	}
}

// Theorem 1 of Girgis et al. is Lemma 2 of their Theorem 4.
func TestLemma2OfTheorem4IsTheorem1(t *testing.T) {
	for _, c := range []literature.Round{{Eps0: 2, Population: 1e6, Reports: 1e3}, {Eps0: .3, Population: 900, Reports: 900}, {Eps0: 5, Population: 1e12, Reports: 1e9}} {
		for _, order := range []int{2, 3, 30, 300} {
			a, err := literature.GirgisUpper(c, order)
			if err != nil {
				t.Fatal(err)
			}
			b, err := literature.TernaryRenyi(float64(c.Reports)/float64(c.Population), order, func(alpha int) float64 {
				l, err := literature.TernaryShuffle(c.Eps0, c.Reports, alpha)
				if err != nil {
					t.Fatal(err)
				}
				return l
			})
			if err != nil || math.Abs(a-b) > 1e-9*a {
				t.Errorf("%+v order %d: Theorem 1 %v, Lemma 2 of Theorem 4 %v (%v)", c, order, a, b, err)
			}
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
	_, err := literature.Erlingsson2019(.5, 1000, .1)
	noBound("Erlingsson eps0 = 1/2", err)
	_, err = literature.Erlingsson2019(.4, 999, .1)
	noBound("Erlingsson k = 999", err)
	_, err = literature.TernaryShuffle(1, 1, 2)
	noBound("ternary k = 1", err)
	_, err = literature.TernarySame(1, 5, 1)
	noBound("ternary alpha = 1", err)
	_, err = literature.ShuffleGDP(1, 1, 1)
	noBound("Gaussian limit of k = 1", err)
	_, err = literature.ShuffledMoment(1, 10, .3, 1)
	noBound("order 1", err)
	_, err = literature.ShuffledMoment(1, 1e7, .3, 2)
	noBound("a sum of too many outcomes", err)
	b, err := literature.NewBlanketed(1, 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.ExactDelta(.1)
	noBound("exact blanket of any randomizer", err)
	for _, x := range []float64{0, -1, math.NaN(), math.Inf(1), 51} {
		_, err = literature.NewBlanketed(x, 10, 2)
		bad("blanket eps0", err)
		_, err = literature.NewShuffleRenyi(x, 10)
		bad("Rényi eps0", err)
		_, err = literature.SCITheorem1(literature.Round{Eps0: x, Population: 9, Gamma: .5}, false)
		bad("check-in eps0", err)
		_, err = literature.SCITheorem2(literature.Round{Eps0: 1, Population: 9, Gamma: .5}, x+1.5, false)
		if x != 0 && x != -1 {
			bad("Delta", err)
		}
	}
	_, err = literature.NewBlanketed(1, 10, 1)
	bad("one symbol", err)
	for _, f := range []func(float64, int64, float64) float64{literature.ClonesClosed, literature.Feldman2023} {
		if d := f(1, 1e6, math.NaN()); d != 1 {
			t.Errorf("closed form at NaN is %v", d)
		}
	}
	if d := (literature.Repeated{Eps: 1, Rounds: 5, Exact: true}).Delta(math.NaN()); d != 1 {
		t.Errorf("composition at NaN is %v", d)
	}
	c := literature.Strong{Eps0: 1, Delta: func(float64) float64 { return math.NaN() }, Gamma: 1, Rounds: 3}
	if eps, err := c.Epsilon(1e-6); err != nil || eps < 3 {
		t.Errorf("a shuffle whose delta is not a number gives %v, %v: want the pure guarantee", eps, err)
	}
	c.Lost = 1e-6
	_, err = c.Epsilon(1e-6)
	noBound("rounds that fail too often", err)
	_, err = literature.GirgisUpper(literature.Round{Eps0: 1, Population: 5, Reports: 5}, 1)
	noBound("Girgis order 1", err)
}
