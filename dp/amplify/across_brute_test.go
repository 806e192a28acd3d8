package amplify_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// crossings are the E₁ = e^cross that are tried for E: from where nearly all reports are clones.
func crossings(E float64) []float64 {
	least := 2 * E / (E + 1)
	return []float64{least * (1 + 1e-9), math.Sqrt(least * E), E, 2 * E, E * E}
}

func across(t *testing.T, eps0, cross float64, n int) curve {
	return familyRound(t, must(amplify.ClonesFamily(eps0, amplify.BlanketAcross(eps0, cross))), n, n)
}

// crossed draws the victim's two laws, as inputs 0 and 1, and three of others, on so many symbols:
// the victim's ratio is at most E, and its ratio to others at most E₁.
func crossed(r *rand.Rand, verts []mechanism, E1 float64, symbols int) mechanism {
	m := randomMechanism(r, verts, symbols)
	out := mechanism{nil, nil, nil, nil, nil}
	below := make([]float64, symbols)
	rest := 1.
	for y := range symbols {
		for x := range 2 {
			v := 0.
			if y < len(m[x]) {
				v = m[x][y]
			}
			out[x] = append(out[x], v)
			below[y] = max(below[y], v/E1)
		}
		rest -= below[y]
	}
	for x := 2; x < 5; x++ {
		var add []float64
		var sum float64
		for range symbols {
			add = append(add, math.Pow(r.Float64(), 6))
			sum += add[len(add)-1]
		}
		for y := range symbols {
			out[x] = append(out[x], below[y]+max(0, rest)*add[y]/sum)
		}
	}
	return out
}

// Random clients, everybody else with laws of their own, also drawn anew for each past: never above
// the bound, for ε of both signs and both orders.
func TestAcrossAgainstRandomClients(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 1))
	worst := math.Inf(-1)
	for _, eps0 := range []float64{.3, 1.5, 3} {
		E := math.Exp(eps0)
		verts := vertices(2, E)
		for _, E1 := range crossings(E) {
			for n := 1; n <= 5; n++ {
				claim := across(t, eps0, math.Log(E1), n)
				for range longtest.Pick(10, 60) {
					others := make([]int, n-1)
					for i := range others {
						others[i] = 2 + r.IntN(3)
					}
					a, b := crossed(r, verts, E1, 3).neighbours(0, 1, others)
					gap, at := excess(pair{histogram(a), histogram(b)}, eps0, claim)
					if worst = max(worst, gap); gap > tolerance {
						t.Errorf("E=%v E1=%v n=%d others=%v eps=%v: truth exceeds by %v", E, E1, n, others, at, gap)
					}
					if n > 3 {
						continue
					}
					past := orderedPair(n, 3, 0, 1, others, history(func() mechanism { return crossed(r, verts, E1, 3) }))
					gap, at = excess(past, eps0, claim)
					if worst = max(worst, gap); gap > tolerance {
						t.Errorf("E=%v E1=%v n=%d others=%v adaptive, eps=%v: truth exceeds by %v", E, E1, n, others, at, gap)
					}
				}
			}
		}
	}
	t.Logf("largest truth - bound %.3g", worst)
}

// Linear programming over the victim's two laws and two laws of others.
func TestAcrossByLP(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 2))
	tightest := 0.
	for _, eps0 := range []float64{.5, 2} {
		E := math.Exp(eps0)
		for _, E1 := range crossings(E) {
			// p, q, π, π′: the cone of p ≤ Eq, q ≤ Ep and p, q ≤ E₁π, E₁π′.
			rs := [][]float64{{E, 1, E / E1, E / E1}, {1, E, E / E1, E / E1}, {1, 1, 1 / E1, 1 / E1}, {0, 0, 1, 0}, {0, 0, 0, 1}}
			for n := 1; n <= 4; n++ {
				if n == 4 && !longtest.On {
					continue
				}
				claim := across(t, eps0, math.Log(E1), n)
				for _, share := range []float64{-.5, 0, .2, .6} {
					others := make([]int, n-1)
					for i := range others {
						others[i] = 2 + r.IntN(2)
					}
					got, _ := climbOn(r, rs, n, share*eps0, 0, 1, others)
					want := claim(share * eps0)
					if !(got <= want+tolerance) {
						t.Errorf("E=%v E1=%v n=%d others=%v eps=%v: %.17g above the bound %.17g", E, E1, n, others, share*eps0, got, want)
					}
					if base := max(0, -math.Expm1(share*eps0)); n > 2 {
						tightest = max(tightest, (got-base)/(want-base))
					}
				}
			}
		}
	}
	t.Logf("the worst clients found reach %.5f of the bound", tightest)
	if tightest < .999 {
		t.Errorf("the search reaches only %v of the bound", tightest)
	}
}

// attaining are the clients of across.md: binary randomized response among those who say either
// symbol with probability r/2, and something else otherwise.
func attaining(E, E1 float64) mechanism {
	half := E / (E1 * (E + 1))
	return mechanism{{E / (E + 1), 1 / (E + 1), 0}, {1 / (E + 1), E / (E + 1), 0}, {half, half, max(0, 1-2*half)}}
}

func same(n, x int) []int {
	out := make([]int, n-1)
	for i := range out {
		out[i] = x
	}
	return out
}

// Some clients lose just what is claimed. Larger rates, the others' own budget in place of the ratio, and the pair of
// a sample are found out.
func TestAcrossMutants(t *testing.T) {
	off := 0.
	caught := map[string]float64{}
	for _, eps0 := range []float64{.5, 2} {
		E := math.Exp(eps0)
		for _, E1 := range crossings(E) {
			for n := 2; n <= 5; n++ {
				a, b := attaining(E, E1).neighbours(0, 1, same(n, 2))
				truth := pair{histogram(a), histogram(b)}
				exact, claim := refShuffle(n, eps0, min(1, amplify.BlanketAcross(eps0, math.Log(E1)))), across(t, eps0, math.Log(E1), n)
				for i := -5; i <= 5; i++ {
					eps := float64(i) / 5 * eps0
					off = max(off, math.Abs(truth.hockey(eps)-exact.hockey(eps)))
					if d := claim(eps) - truth.hockey(eps); !(d > -tolerance && d < 1e-3) {
						t.Errorf("E=%v E1=%v n=%d eps=%v: the bound is %v above clients who attain it", E, E1, n, eps, d)
					}
				}
				for name, rate := range map[string]float64{"2/(E1+1)": 2 / (E1 + 1), "1/E1 + 1/E": 1/E1 + 1/E, "2E/(E1+1)": 2 * E / (E1 + 1), "2/(E+1)": 2 / (E + 1)} {
					if rate <= amplify.BlanketAcross(eps0, math.Log(E1))*(1+1e-9) || rate > 1 {
						continue
					}
					gap, _ := excess(truth, eps0, familyRound(t, must(amplify.ClonesFamily(eps0, rate)), n, n))
					caught[name] = max(caught[name], gap)
				}
				for k := 1; k < n; k++ {
					gap, _ := excess(sampledPair(a, b, k), eps0, familyRound(t, must(amplify.ClonesFamily(eps0, amplify.BlanketAcross(eps0, math.Log(E1)))), n, k))
					caught["chance"] = max(caught["chance"], gap)
				}
			}
		}
	}
	if off > 1e-12 {
		t.Errorf("the clients of the note are %v off the bound", off)
	}
	// Binary responses of e³ among some of e¹: the ratio is e³(e+1)/(e³+1), not e.
	for n := 2; n <= 5; n++ {
		m := append(krr(2, 3), krr(2, 1)...)
		for x := 2; x < 4; x++ {
			a, b := m.neighbours(0, 1, same(n, x))
			truth := pair{histogram(a), histogram(b)}
			gap, _ := excess(truth, 3, across(t, 3, 1, n))
			caught["others' budget"] = max(caught["others' budget"], gap)
			if gap, at := excess(truth, 3, across(t, 3, 3+math.Log((math.E+1)/(math.Exp(3)+1)), n)); gap > tolerance {
				t.Errorf("responses of e^3 among some of e^1, n = %d: at %v truth exceeds by %v", n, at, gap)
			}
		}
	}
	t.Logf("excess of mutants: %v", caught)
	for _, name := range []string{"2/(E1+1)", "1/E1 + 1/E", "2E/(E1+1)", "2/(E+1)", "chance", "others' budget"} {
		if !(caught[name] > 1e-4) {
			t.Errorf("%s is not found out: excess %v", name, caught[name])
		}
	}
}

func TestBlanketAcross(t *testing.T) {
	for _, eps0 := range []float64{1e-3, 1, 8, 50} {
		if got, want := amplify.BlanketAcross(eps0, eps0), amplify.Blanket(eps0); math.Abs(got/want-1) > 1e-14 {
			t.Errorf("eps0 = %v: %v across clients with the same randomizer, %v", eps0, got, want)
		}
		if amplify.BlanketAcross(eps0, 1e-9) != 1 || amplify.BlanketAcross(eps0, eps0+1) >= amplify.Blanket(eps0) {
			t.Errorf("eps0 = %v: rates %v and %v", eps0, amplify.BlanketAcross(eps0, 1e-9), amplify.BlanketAcross(eps0, eps0+1))
		}
	}
}
