//go:build soak

package amplify_test

import "testing"

// Every bound against 1,080 random mechanisms and more, n ≤ 6, all k, check-in,
// ε of both signs, both orders. Some minutes.
func TestBoundsAgainstManyMechanisms(t *testing.T) {
	worst := map[string]float64{}
	count := 0
	scenariosTo(6, 101, 60, func(s scenario) {
		count++
		for name, c := range claims(s) {
			gap, at := excess(s.exact, s.eps0, c)
			if old, ok := worst[name]; !ok || gap > old {
				worst[name] = gap
			}
			if gap > tolerance {
				t.Errorf("%s: %s eps0=%v eps=%v: truth exceeds the bound by %v", name, s.name, s.eps0, at, gap)
			}
		}
	})
	t.Logf("%d rounds; largest truth - bound: %v", count, worst)
}
