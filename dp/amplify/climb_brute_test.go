package amplify_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// Linear programming looks for the mechanism that hurts most, for every k ≤ n
// ≤ 4, neighbours 0 and 1 and others on 0, 1 or a third input, ε of both signs.
// The bound must hold at each, and must be nearly attained somewhere or the
// search (or the bound) is useless.
func TestWorstMechanismByLP(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	tightest, count := 0.0, 0
	for _, eps0 := range longtest.Pick([]float64{0.3, 3}, []float64{0.3, 1.2, 3}) {
		for n := 1; n <= 4; n++ {
			for k := 1; k <= n; k++ {
				if n == 4 && (!longtest.On || k == 3) {
					continue
				}
				g := float64(k) / float64(n)
				top := math.Log1p(g * math.Expm1(eps0))
				for i, f := range []float64{-0.5, 0, 0.3, 0.8} {
					eps := f * top
					for x := range 3 {
						if !longtest.On && (i+x)%2 == 1 {
							continue
						}
						others := make([]int, n-1)
						for i := range others {
							others[i] = x
						}
						if n > 2 && x == 2 {
							others[0] = r.IntN(2)
						}
						got, m := climb(r, 3, k, eps0, eps, 0, 1, others)
						if d := m.ldp(); d > eps0+1e-9 {
							t.Fatalf("climb left the polytope: loss %v at eps0 = %v", d, eps0)
						}
						s := scenario{fmt.Sprintf("LP n=%d k=%d others=%v", n, k, others), n, k, 0, eps0, pair{}, m.variation(eps0), 0}
						for name, c := range claims(s) {
							count++
							want := c(eps)
							if !(got <= want+tolerance) {
								t.Errorf("%s: %s eps0=%v eps=%v: exact %.17g above bound %.17g", name, s.name, eps0, eps, got, want)
							}
						}
						if base := max(0, 1-math.Exp(eps)); k > 1 { // excess over the trivial part
							tightest = max(tightest, (got-base)/(refClaim(s)(eps)-base))
						}
					}
				}
			}
		}
	}
	t.Logf("%d comparisons; the worst mechanism found reaches %.4f of the bound (k > 1)", count, tightest)
	if tightest < 0.999 { // it is attained at n = k = 2
		t.Errorf("the search reaches only %v of the bound", tightest)
	}
}
