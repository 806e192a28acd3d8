package amplify_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// adaptive returns a randomizer for each history of reports: the steps stay, and all else is
// drawn anew. Inputs 0 and 1 are the victim's; the other clients' law may be one of theirs, the
// common part with something useless, or a mixture.
func adaptive(r *rand.Rand, tails []float64, height float64) func(history []int) mechanism {
	known := map[string]mechanism{}
	return func(history []int) mechanism {
		key := fmt.Sprint(history)
		if m, ok := known[key]; ok {
			return m
		}
		base := opposite(tails, height, facing(tails))
		m, to := make(mechanism, 4), r.Perm(len(base[0]))
		first := r.IntN(2)
		share := r.Float64()
		for x := range m {
			m[x] = make([]float64, len(to))
			for v, at := range to {
				switch x {
				case 0, 1:
					m[x][at] = base[x^first][v]
				case 2:
					m[x][at] = base[2][v]
				default: // a client whose input depends on what came before
					m[x][at] = share*base[0][v] + (1-share)*base[1+first][v]
				}
			}
		}
		if r.IntN(4) == 0 {
			m[1] = m[0] // a report that does not depend on the victim's input
		}
		known[key] = m
		return m
	}
}

// Reports whose randomizer and input depend on the earlier reports of their round, seen in order
// after the clients were permuted: never above the bound, for random such protocols, ε of both
// signs and both orders. Steps that grow with the past are found out.
func TestRisingAdaptiveWithinRound(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 2))
	worst, caught := math.Inf(-1), 0
	for _, tails := range [][]float64{{.3}, {.1}, {.35, .1}} {
		for _, eps0 := range []float64{.5, 2, 3.5} {
			height := math.Expm1(eps0) / float64(len(tails))
			s := amplify.Steps{Height: height, Tails: tails}
			f := must(amplify.Rising(s))
			cap := f
			if len(tails) == 1 {
				cap = must(amplify.Cap(eps0, tails[0]/(1+tails[0]*height)*(1+1e-12)))
			}
			for n := 1; n <= 4; n++ {
				if len(tails) > 1 && n == 4 && !longtest.On {
					continue
				}
				claim, ofCap := familyRound(t, f, n, n), familyRound(t, cap, n, n)
				for range longtest.Pick(6, 40) {
					next := adaptive(r, tails, height)
					var others []int
					for range n - 1 {
						others = append(others, r.IntN(4))
					}
					truth := orderedPair(n, len(next(nil)[0]), 0, 1, others, next)
					for name, c := range map[string]curve{"rising": claim, "cap": ofCap} {
						gap, at := excess(truth, s.Eps0(), c)
						if worst = math.Max(worst, gap); gap > tolerance {
							t.Errorf("%s %v eps0=%v n=%d eps=%v: truth exceeds by %v", name, tails, eps0, n, at, gap)
						}
					}
					// The mutant's later reports have steps that are a quarter higher.
					higher := adaptive(r, tails, height*1.25)
					mutant := orderedPair(n, len(next(nil)[0]), 0, 1, others, func(history []int) mechanism {
						if len(history) > 0 {
							return higher(history)
						}
						return next(history)
					})
					if gap, _ := excess(mutant, s.Eps0(), claim); n > 1 && gap > 1e-6 {
						caught++
					}
				}
			}
		}
	}
	t.Logf("largest truth - bound %.3g; higher steps found out %d times", worst, caught)
	if worst < -1e-3 || caught < 10 {
		t.Errorf("the comparison is blind: largest truth - bound %v, higher steps found out %d times", worst, caught)
	}
}
