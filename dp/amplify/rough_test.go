package amplify

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/tail"
)

// A crowd of three parts, or of binary randomized response, whose δ is summed term by term.
type straightforward struct {
	name       string
	family     Family
	bigE, a, c float64
	binary     bool
}

// delta is δ of k reports at g = e^ε.
func (s straightforward) delta(k int64, g float64) (sum float64) {
	if s.binary {
		for ones := range k {
			sum = math.Max(sum, s.oneDataset(k, ones, g))
		}
		return sum
	}
	third := (1 - s.a*(s.bigE+1)) / s.c
	for pair := int64(1); pair <= k; pair++ {
		w := math.Exp(tail.LogPMF(k, pair, 2*s.a, 1-2*s.a))
		for b := range k - pair + 1 {
			v := w * math.Exp(tail.LogPMF(k-pair, b, third/(1-2*s.a), 1-third/(1-2*s.a)))
			if v == 0 {
				continue
			}
			for first := range pair + 1 {
				x := (s.bigE-g)*float64(first) - (g*s.bigE-1)*float64(pair-first) - s.c*(g-1)*float64(b)
				sum += v * math.Exp(tail.LogPMF(pair, first, .5, .5)) * math.Max(0, x)
			}
		}
	}
	return sum / float64(k)
}

// oneDataset is δ of binary randomized response if so many of the others hold 1.
func (s straightforward) oneDataset(k, ones int64, g float64) (most float64) {
	p := s.bigE / (s.bigE + 1)
	law := []float64{1}
	for i := range k - 1 {
		high := p
		if i >= ones {
			high = 1 - p
		}
		next := make([]float64, len(law)+1)
		for x, w := range law {
			next[x], next[x+1] = next[x]+w*(1-high), next[x+1]+w*high
		}
		law = next
	}
	above := 0.
	for x := len(law); x >= 0; x-- { // the threshold
		if x < len(law) {
			above += law[x]
		}
		at := 0.
		if x > 0 {
			at = law[x-1]
		}
		most = math.Max(most, (p-g*(1-p))*at-(g-1)*above)
	}
	return most
}

// arrival is δ of a round in which each of n clients reports with probability gamma.
func (s straightforward) arrival(n int64, gamma, eps float64) (sum float64) {
	for k := int64(1); k <= n; k++ {
		share := float64(k) / float64(n)
		if g := 1 + math.Expm1(eps)/share; g < s.bigE {
			sum += math.Exp(tail.LogPMF(n, k, gamma, 1-gamma)) * share * s.delta(k, g)
		}
	}
	return sum
}

func deltaAt(p dp.Pair, eps float64) float64 {
	sum := p.Dropped()
	for _, a := range p.Atoms {
		if a.Loss > eps {
			sum += a.Q * math.Exp(eps) * math.Expm1(a.Loss-eps)
		}
	}
	return sum
}

// Fine and rough pairs of random small rounds against sums over all counts: never below, and not far above.
func TestMixturesAgainstSums(t *testing.T) {
	r := rand.New(rand.NewPCG(81, 2))
	log := func(low, high float64) float64 { return low * math.Pow(high/low, r.Float64()) }
	for range longtest.Pick(2, 60) {
		eps0 := log(.1, 6)
		bigE := math.Exp(eps0)
		symbols := 2 + r.IntN(30)
		a := log(.02, .999) / (bigE + 1)
		noise := -math.Expm1(-eps0/2) / math.Expm1(eps0)
		krr, err1 := KRR(eps0, symbols)
		tv, err2 := KnownTV(eps0, a)
		laplace, err3 := Laplace(eps0)
		rr2, err4 := RR2(eps0)
		clones, err5 := ClonesFamily(eps0, Blanket(eps0))
		for _, err := range []error{err1, err2, err3, err4, err5} {
			if err != nil {
				t.Fatal(err)
			}
		}
		n, gamma := int64(10+r.IntN(longtest.Pick(12, 24))), log(.2, 1)
		for _, s := range []straightforward{
			{name: "krr", family: krr, bigE: bigE, a: 1 / (bigE + float64(symbols) - 1), c: 1},
			{name: "tv", family: tv, bigE: bigE, a: a, c: bigE},
			{name: "laplace", family: laplace, bigE: bigE, a: noise, c: bigE},
			{name: "clones", family: clones, bigE: bigE, a: 1 / (bigE + 1), c: 1},
			{name: "rr2", family: rr2, bigE: bigE, binary: true},
		} {
			var pairs [4]dp.Pair
			round, arrival := FamilyRound{Population: n, Reports: n}, FamilyArrival{Population: n, Asked: n, Gamma: gamma}
			for i, f := range []Family{s.family, s.family.Rough()} {
				var err error
				if pairs[i], err = f.Round(round); err != nil {
					t.Fatal(err)
				}
				if pairs[2+i], err = f.Arrival(arrival); err != nil {
					t.Fatal(err)
				}
			}
			for _, x := range []float64{0, .03, .2, .5, .8} {
				eps := x * eps0
				// So small rounds cost more of ε than larger ones: 2 %, and roughly 15 %.
				slack := [2]float64{.02, .15}
				var want float64
				for i, p := range pairs {
					truth := func(eps float64) float64 {
						if i >= 2 {
							return s.arrival(n, gamma, eps)
						}
						return s.delta(n, math.Exp(eps))
					}
					if i%2 == 0 { // the next pair is of the same law
						want = truth(eps)
					}
					got := deltaAt(p, eps)
					most := truth(eps*(1-slack[i%2])) * (1 + slack[i%2])
					if !(got >= want*(1-1e-10)-1e-300) || !(got <= most+1e-9) {
						t.Errorf("%s, pair %d: eps0 = %v, K = %d, a = %v, n = %d, gamma = %v: delta(%v) = %.12g, true %.12g, at most %.12g", s.name, i, eps0, symbols, a, n, gamma, eps, got, want, most)
					}
				}
			}
		}
	}
}
