package amplify_test

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/amplify/literature"
	"github.com/riffle-dp/riffle/dp/rdp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// Errors in the literature, each shown to be one: what is printed is refuted by
// a real mechanism, and what riffle has in its place is not.

// SCI's proof of Theorem 1 includes every client with probability γ for every
// k, and so does its Theorem 2: with few reports that is far too small.
func TestInclusionGammaIsUnsound(t *testing.T) {
	const n, gamma, eps0, order = 2, .001, 3., 12
	a, b := krr(2, eps0).neighbours(0, 1, []int{0})
	truth := checkInPair(a, b, gamma).renyi(order)
	c := literature.Round{Eps0: eps0, Population: n, Gamma: gamma}
	value := func(bound func(int) (float64, error), err error) float64 {
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
	if v := value(literature.SCITheorem1(c, true)); !(v < truth/2) {
		t.Errorf("Theorem 1 with gamma gives %v, truth %v: not refuted", v, truth)
	}
	if v := value(literature.SCITheorem1(c, false)); !(v >= truth) {
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
			s += choose(order, j) * math.Pow(gamma, float64(j)) * ternarySame(eps0, 1, j) * (low + math.Pow(l, -float64(j)/2))
		}
		corrected = math.Min(corrected, math.Log1p(s)/(order-1))
		if v := value(literature.SCITheorem2(c, D, false)); !(v >= truth) {
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
					v, err := literature.SCITheorem3(literature.Round{Eps0: eps0, Population: int64(n), Gamma: gamma}, order)
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

// Theorem 2's mechanism is real: its bound must lie below the exact divergence
// of every upper bound on the same round.
func TestGirgisOrder(t *testing.T) {
	for _, eps0 := range []float64{0.3, 1, 2, 4} {
		for _, k := range []int64{1, 2, 10, longtest.Pick[int64](200, 1000)} {
			for _, n := range []int64{k, 7 * k} {
				p, err := amplify.Shuffle(amplify.ShuffleConfig{Eps0: eps0, Reports: k, Rate: amplify.Blanket(eps0), Tail: 1e-280})
				if err == nil {
					p, err = amplify.Subsample(p, float64(k)/float64(n))
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, order := range []int{2, 3, 8, 40} {
					c := literature.Round{Eps0: eps0, Population: n, Reports: k}
					lower, err1 := literature.GirgisLower(c, order)
					upper, err2 := literature.GirgisUpper(c, order)
					if err1 != nil || err2 != nil {
						t.Fatal(err1, err2)
					}
					mid := rdp.Divergence(p, float64(order))
					if !(lower <= mid*(1+1e-12)) || math.IsNaN(upper) || !(lower <= upper) {
						t.Errorf("eps0=%v k=%d n=%d order %d: lower %v, pair %v, theorem 1 %v", eps0, k, n, order, lower, mid, upper)
					}
				}
			}
		}
	}
}

// The published form is above the exact Rényi divergence of the Gaussian pair
// it bounds, with k/n; the printed one is not where inclusion is far from γ.
func TestSCIAgainstExactDivergence(t *testing.T) {
	for _, c := range []amplify.GaussianArrivalConfig{
		{Sigma: 1, Population: 3, Asked: 3, Gamma: .2}, {Sigma: 2, Population: 40, Asked: 40, Gamma: .1}, {Sigma: 5, Population: 2, Asked: 2, Gamma: .05},
	} {
		for _, order := range []int{2, 3, 5} {
			var sum float64
			for k := int64(1); k <= c.Population; k++ {
				weight := binomial(int(c.Population), int(k)) * math.Pow(c.Gamma, float64(k)) * math.Pow(1-c.Gamma, float64(c.Population-k))
				g, mu := float64(k)/float64(c.Population), float64(amplify.GaussianMu(c.Sigma, k))
				// E_q ((1−g) + g·p/q)^λ by its expansion: all terms positive.
				var moment float64
				for j := 0; j <= order; j++ {
					moment += binomial(order, j) * math.Pow(1-g, float64(order-j)) * math.Pow(g, float64(j)) * math.Exp(mu*mu*float64(j*(j-1))/2)
				}
				sum += weight * (moment - 1)
			}
			exact := math.Log1p(sum) / float64(order-1)
			got, err := literature.SCIEquation10(c, order, false)
			if err != nil || got < exact {
				t.Errorf("%+v, order %d: %v (%v) below exact %v", c, order, got, err, exact)
			}
			printed, err := literature.SCIEquation10(c, order, true)
			if err != nil {
				t.Fatal(err)
			}
			if c.Population == 2 && !(printed < exact/2) {
				t.Errorf("order %d: as printed %v, exact %v: the misprint is not seen", order, printed, exact)
			}
		}
	}
}
