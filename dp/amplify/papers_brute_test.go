package amplify_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/amplify/literature"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// renyi is the exact Rényi divergence of a pair, the larger of both orders.
func (d pair) renyi(order float64) float64 {
	one := func(p, q []float64) float64 {
		var s float64
		for i := range p {
			if p[i] > 0 {
				s += p[i] * math.Pow(p[i]/q[i], order-1)
			}
		}
		return math.Log(s) / (order - 1)
	}
	return math.Max(one(d.p, d.q), one(d.q, d.p))
}

// renyiClaims are the papers' upper bounds on a scenario's Rényi divergence.
func renyiClaims(t *testing.T, s scenario, order int) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	put := func(name string, v float64, err error) {
		if err != nil {
			t.Fatalf("%s: %s: %v", s.name, name, err)
		}
		out[name] = v
	}
	if s.k == 0 {
		c := literature.Round{Eps0: s.eps0, Population: int64(s.n), Gamma: s.gamma}
		b, err := literature.SCITheorem1(c, false)
		if err != nil {
			t.Fatal(err)
		}
		v, err := b(order)
		put("sci-thm1", v, err)
		for _, D := range []float64{0, 0.3, 0.9, 1} {
			b, err := literature.SCITheorem2(c, D, false)
			if err != nil {
				t.Fatal(err)
			}
			v, err := b(order)
			put(fmt.Sprintf("sci-thm2 Delta %v", D), v, err)
		}
		return out
	}
	r, err := literature.NewShuffleRenyi(s.eps0, int64(s.k))
	if err != nil {
		t.Fatal(err)
	}
	v, err := r.Divergence(float64(s.k)/float64(s.n), order, false)
	put("wbk", v, err)
	v, err = r.Divergence(float64(s.k)/float64(s.n), order, true)
	put("wbk-plain", v, err)
	if s.k == s.n {
		out["simple"] = r.SimpleDivergence(float64(order))
		m, err := literature.ShuffledMoment(s.eps0, int64(s.k), amplify.Clones(s.eps0), float64(order))
		put("eab-thm1", m/float64(order-1), err)
	}
	v, err = literature.GirgisUpper(literature.Round{Eps0: s.eps0, Population: int64(s.n), Reports: int64(s.k)}, order)
	put("girgis", v, err)
	return out
}

// deltaClaims are the papers' upper bounds on a scenario's δ, through Strong with
// a single round.
func deltaClaims(t *testing.T, s scenario) map[string]curve {
	t.Helper()
	out := map[string]curve{}
	put := func(name string, delta func(float64) float64) {
		c := literature.Strong{Eps0: s.eps0, Delta: delta, Gamma: float64(s.k) / float64(s.n), Rounds: 1, Exact: true}
		out[name] = func(eps float64) float64 {
			if eps < 0 { // replace-one is symmetric
				return -math.Expm1(eps) + math.Exp(eps)*c.DeltaAt(-eps)
			}
			return c.DeltaAt(eps)
		}
	}
	k := int64(s.k)
	put("closed", func(eps float64) float64 { return literature.ClonesClosed(s.eps0, k, eps) })
	symbols := []int{0}
	var K int
	if n, _ := fmt.Sscanf(s.name, "%d-RR", &K); n == 1 {
		symbols = append(symbols, K)
	}
	for _, K := range symbols {
		b, err := literature.NewBlanketed(s.eps0, k, K)
		if err != nil {
			t.Fatal(err)
		}
		put(fmt.Sprintf("hoeffding K=%d", K), func(eps float64) float64 { return b.Delta(eps, false) })
		put(fmt.Sprintf("bennett K=%d", K), func(eps float64) float64 { return b.Delta(eps, true) })
		if K > 0 {
			put(fmt.Sprintf("blanket K=%d", K), func(eps float64) float64 {
				d, err := b.ExactDelta(eps)
				if err != nil {
					t.Fatal(err)
				}
				return d
			})
		}
	}
	return out
}

// Every proved upper bound holds for every tiny mechanism, sample and check-in.
func TestPaperBoundsAgainstMechanisms(t *testing.T) {
	per := longtest.Pick(1, 3)
	if testing.Short() {
		per = 1
	}
	checks, near := 0, 0.0
	scenarios(41, per, func(s scenario) {
		if strings.HasPrefix(s.name, "adaptive") {
			return // Girgis et al. fix the randomizer
		}
		for _, order := range []int{2, 3, 7, 25} {
			truth := s.exact.renyi(float64(order))
			for name, claim := range renyiClaims(t, s, order) {
				checks++
				if !(claim >= truth*(1-1e-12)-1e-15) {
					t.Errorf("%s: %s of order %d is %v, truth %v", s.name, name, order, claim, truth)
				}
				near = math.Max(near, truth/claim)
			}
		}
		if s.k > 0 {
			for name, claim := range deltaClaims(t, s) {
				checks++
				if gap, at := excess(s.exact, s.eps0, claim); gap > tolerance {
					t.Errorf("%s: %s is %v too small at epsilon %v", s.name, name, gap, at)
				}
			}
		}
	})
	t.Logf("%d comparisons, the nearest truth reaches %.4f of a bound", checks, near)
	if near < .99 {
		t.Errorf("no mechanism comes near a bound: %v", near)
	}
}

// ternarySame bounds ζ(α)^α of m reports, all but one of equal input: Girgis et al. 2021
// (arXiv), Theorem 6. Package literature has its logarithm, with the same golden values.
func ternarySame(eps0, m float64, alpha int) float64 {
	e, a := math.Exp(eps0), float64(alpha)
	if alpha == 2 {
		return 4 * (e - 1) * (e - 1) / (m * e)
	}
	return a * math.Gamma(a/2) * math.Pow(2*(e*e-1)*(e*e-1)/(m*e*e), a/2)
}

// ternaryShuffle bounds ζ(α)^α of a shuffle of k reports: Girgis et al. 2021 (arXiv), Theorem 4.
func ternaryShuffle(eps0 float64, k, alpha int) float64 {
	e, m := math.Exp(eps0), float64(k-1)
	return ternarySame(eps0, math.Floor(m/(2*e))+1, alpha) + math.Pow(e-1/e, float64(alpha))*math.Exp(-m/(8*e))
}

// The ternary divergences of Girgis et al. hold for random mechanisms.
func TestTernaryAgainstMechanisms(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, eps0 := range []float64{.2, 1, 3} {
		verts := vertices(3, math.Exp(eps0))
		for range 40 {
			m := randomMechanism(r, verts, 4)
			for k := 2; k <= 5; k++ {
				others := make([]int, k-1)
				alike := r.IntN(2) == 0
				for i := range others {
					if others[i] = r.IntN(3); alike {
						others[i] = 2 // as the third dataset
					}
				}
				p, q := m.neighbours(0, 1, others)
				_, third := m.neighbours(0, 2, others)
				P, Q, R := histogram(p), histogram(q), histogram(third)
				for _, alpha := range []int{2, 3, 9} {
					var truth float64
					for i := range R {
						if R[i] > 0 {
							truth += R[i] * math.Pow(math.Abs(P[i]-Q[i])/R[i], float64(alpha))
						}
					}
					claim := ternaryShuffle(eps0, k, alpha)
					if !(claim*(1+1e-12) >= truth) {
						t.Errorf("Theorem 4 at eps0 %v, k %d, alpha %d: %v, truth %v", eps0, k, alpha, claim, truth)
					}
					if !alike {
						continue
					}
					claim = ternarySame(eps0, float64(k), alpha)
					if !(claim*(1+1e-12) >= truth) {
						t.Errorf("Theorem 6 at eps0 %v, m %d, alpha %d: %v, truth %v", eps0, k, alpha, claim, truth)
					}
				}
			}
		}
	}
}

// The closed forms lie above the pairs that they bound, and Balle et al.'s
// inequalities above their expectation.
func TestClosedFormsAboveWhatTheyBound(t *testing.T) {
	shown := 0
	for _, eps0 := range []float64{.05, .3, 1, 2, 4} {
		for _, k := range []int64{30, 300, 5000, 1e5, 1e7} {
			for kind, closed := range map[string]func(float64, int64, float64) float64{"clones": literature.ClonesClosed, "blanket": literature.Feldman2023} {
				c, err := amplify.NewCurve(amplify.RoundConfig{Eps0: eps0, Population: k, Reports: k, Rate: rateOf(kind, eps0)})
				if err != nil {
					t.Fatal(err)
				}
				for u := 1e-4; u < 1; u *= 1.25 {
					d := closed(eps0, k, u*eps0)
					if d < 1 {
						shown++
					}
					if exact := c.Delta(u * eps0); !(d >= exact*(1-1e-3)-1e-280) {
						t.Errorf("%s closed form at eps0 %v, k %d, eps %v: %v below %v", kind, eps0, k, u*eps0, d, exact)
					}
				}
			}
			for _, K := range []int{2, 3, 20} {
				if k > 300 {
					continue
				}
				b, err := literature.NewBlanketed(eps0, k, K)
				if err != nil {
					t.Fatal(err)
				}
				any, err := literature.NewBlanketed(eps0, k, 0)
				if err != nil {
					t.Fatal(err)
				}
				for _, u := range []float64{.01, .1, .3, .6, .9} {
					exact, err := b.ExactDelta(u * eps0)
					if err != nil {
						t.Fatal(err)
					}
					for i, d := range []float64{b.Delta(u*eps0, false), b.Delta(u*eps0, true), any.Delta(u*eps0, false), any.Delta(u*eps0, true)} {
						if d < 1 {
							shown++
						}
						if !(d >= exact-1e-15) {
							t.Errorf("inequality %d at eps0 %v, k %d, K %d, eps %v: %v below %v", i, eps0, k, K, u*eps0, d, exact)
						}
					}
				}
			}
		}
	}
	if shown < 500 {
		t.Errorf("only %d closed forms say anything", shown)
	}
}

// Two symbols' exact blanket is the clones pair of the blanket's rate.
func TestBlanketOfTwoSymbolsIsTheClonesPair(t *testing.T) {
	for _, eps0 := range []float64{.2, 1, 3} {
		for _, k := range []int64{1, 2, 17, 400} {
			b, err := literature.NewBlanketed(eps0, k, 2)
			if err != nil {
				t.Fatal(err)
			}
			c, err := amplify.NewCurve(amplify.RoundConfig{Eps0: eps0, Population: k, Reports: k, Rate: amplify.Blanket(eps0)})
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range []float64{0, .05, .3, .9} {
				got, err := b.ExactDelta(u * eps0)
				want := c.Delta(u * eps0)
				if err != nil || math.Abs(got-want) > 1e-8*want+1e-22*math.Exp(eps0) {
					t.Errorf("eps0 %v, k %d, eps %v: %v, pair %v (%v)", eps0, k, u*eps0, got, want, err)
				}
			}
		}
	}
}

// The closed form of strong composition lies above the exact one; the two
// readings of either agree.
func TestStrongCompositionOrder(t *testing.T) {
	for _, eps := range []float64{1e-7, 1e-3, .05, 1, 8} {
		for _, T := range []int64{1, 2, 3, 30, 1e4, 1e8, 1e12} {
			r := literature.Repeated{Eps: eps, Rounds: T}
			x := literature.Repeated{Eps: eps, Rounds: T, Exact: true}
			for _, delta := range []float64{1e-12, 1e-6, .01, .4} {
				closed, exact := r.Epsilon(delta), x.Epsilon(delta)
				room := delta*1e-9 + 2e-11 + 4e-14*math.Sqrt(float64(T))
				if !(exact <= closed) || !(exact >= 0) {
					t.Errorf("%+v delta %v: exact %v, closed %v", r, delta, exact, closed)
				}
				if d := x.Delta(closed); !(d <= delta+room) {
					t.Errorf("%+v: exact delta at the closed epsilon of %v is %v", r, delta, d)
				}
				if d := r.Delta(closed); !(math.Abs(d-delta) <= 1e-4*delta) && d != 0 {
					t.Errorf("%+v: closed delta at the closed epsilon of %v is %v", r, delta, d)
				}
				for _, f := range []float64{.5, .9, .999} {
					if c, d := r.Delta(f*closed), x.Delta(f*closed); !(d <= c+room) {
						t.Errorf("%+v at %v: exact delta %v above closed %v", r, f*closed, d, c)
					}
				}
			}
		}
	}
}
