package amplify_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// history remembers a mechanism for each history of reports, made when it is first asked for.
func history(make func() mechanism) func(history []int) mechanism {
	known := map[string]mechanism{}
	return func(history []int) mechanism {
		key := fmt.Sprint(history)
		m, ok := known[key]
		if !ok {
			m = make()
			known[key] = m
		}
		return m
	}
}

// varied draws an ε₀-LDP mechanism on 3 inputs and 3 symbols whose total-variation parameter is
// a, if it can: mixed with one law for all inputs, it varies less.
func varied(r *rand.Rand, verts []mechanism, eps0, a float64) mechanism {
	m := randomMechanism(r, verts, 3)
	if r.IntN(3) == 0 { // inputs 0 and 1 as far apart as possible, the third beyond both
		E := math.Exp(eps0)
		m = mechanism{{E, 1, 1}, {1, E, 1}, {1, 1, E}}
		for x := range m {
			for y := range m[x] {
				m[x][y] /= E + 2
			}
		}
	}
	share := math.Min(1, a/m.variation(eps0))
	common := []float64{r.Float64(), r.Float64(), r.Float64()}
	if r.IntN(2) == 0 {
		common = []float64{0, 0, 1}
	}
	sum := common[0] + common[1] + common[2]
	out := make(mechanism, 3)
	for x := range out {
		for y := range 3 {
			p := (1 - share) * common[y] / sum
			if y < len(m[x]) {
				p += share * m[x][y]
			}
			out[x] = append(out[x], p)
		}
	}
	return out
}

// Reports whose randomizer and input depend on the earlier reports of their round, each of a class whatever
// came before: never above the class's bound, for ε of both signs and both orders. Later reports of
// a larger variation, or with fewer symbols, are found out.
func TestClassesAdaptiveWithinRound(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 4))
	worst, caught, near := math.Inf(-1), map[string]int{}, 0.
	for _, eps0 := range []float64{.5, 2, 3.5} {
		verts := vertices(3, math.Exp(eps0))
		// Rows of K-ary response or of Laplace noise in four bins, each input mapped anew for each history.
		mapped := func(rows mechanism) mechanism {
			symbols := r.Perm(len(rows[0]))
			m := make(mechanism, 3)
			for x := range m {
				row := rows[r.IntN(len(rows))]
				for _, y := range symbols {
					m[x] = append(m[x], row[y])
				}
			}
			return m
		}
		laplace := func() mechanism {
			below := func(x, at float64) float64 { // scale 2/ε₀, inputs in [−1, 1]
				d := (at - x) * eps0 / 2
				if d < 0 {
					return math.Exp(d) / 2
				}
				return 1 - math.Exp(-d)/2
			}
			lo, hi := -r.Float64(), r.Float64()
			var rows mechanism
			for _, x := range []float64{-1, 1, 2*r.Float64() - 1} {
				rows = append(rows, []float64{below(x, lo), below(x, hi) - below(x, lo), 1 - below(x, hi)})
			}
			return rows
		}
		type class struct {
			family       amplify.Family
			make, mutant func() mechanism
		}
		classes := map[string]class{
			"krr":     {must(amplify.KRR(eps0, 4)), func() mechanism { return mapped(krr(4, eps0)) }, func() mechanism { return mapped(append(krr(3, eps0), krr(3, eps0)...)) }},
			"laplace": {must(amplify.Laplace(eps0)), laplace, nil},
		}
		for _, share := range []float64{.2, .6} {
			a := share / (math.Exp(eps0) + 1)
			classes[fmt.Sprint("tv ", share)] = class{must(amplify.KnownTV(eps0, a)), func() mechanism { return varied(r, verts, eps0, a) },
				func() mechanism { return varied(r, verts, eps0, 1.5*a) }}
		}
		for name, c := range classes {
			for n := 1; n <= 4; n++ {
				claim := familyRound(t, c.family, n, n)
				for range longtest.Pick(12, 60) {
					var others []int
					for range n - 1 {
						others = append(others, r.IntN(3))
					}
					next := history(c.make)
					symbols := len(next(nil)[0])
					if symbols > 3 && n == 4 {
						continue
					}
					truth := orderedPair(n, symbols, 0, 1, others, next)
					gap, at := excess(truth, eps0, claim)
					if worst = max(worst, gap); gap > tolerance {
						t.Errorf("%s eps0=%v n=%d eps=%v: truth exceeds by %v", name, eps0, n, at, gap)
					}
					near = max(near, truth.hockey(0)/claim(0))
					if c.mutant == nil || n == 1 {
						continue
					}
					later := history(c.mutant)
					mutant := orderedPair(n, symbols, 0, 1, others, func(past []int) mechanism {
						m := next(past)
						if len(past) > 0 {
							m = later(past)
						}
						for x := range m {
							for len(m[x]) < symbols {
								m[x] = append(m[x], 0)
							}
						}
						return m
					})
					if gap, _ := excess(mutant, eps0, claim); gap > 1e-6 {
						caught[name]++
					}
				}
			}
		}
	}
	t.Logf("largest truth - bound %.3g, at eps = 0 at best %.4f of it; others found out %v", worst, near, caught)
	if near < .99 || caught["tv 0.2"] < 3 || caught["tv 0.6"] < 3 || caught["krr"] < 3 {
		t.Errorf("the comparison is blind: at best %v of the bound, mutants found out %v", near, caught)
	}
}
