package amplify_test

import (
	"math"
	"testing"
)

// suite runs the checker over all scenarios and returns the largest excess of
// the truth over the claim. It is what the real bounds are put through; the
// tests in this file show that it is not blind.
func suite(seed uint64, perSize int, claim func(scenario) curve) (gap float64, where scenario, at float64, count int) {
	gap = math.Inf(-1)
	scenarios(seed, perSize, func(s scenario) {
		c := claim(s)
		if c == nil {
			return
		}
		count++
		if g, eps := excess(s.exact, s.eps0, c); g > gap {
			gap, where, at = g, s, eps
		}
	})
	return gap, where, at, count
}

func TestCheckerPassesSoundReference(t *testing.T) {
	gap, s, at, count := suite(11, 6, refClaim)
	if gap > tolerance {
		t.Errorf("%s eps0=%v eps=%v: truth exceeds the reference by %v", s.name, s.eps0, at, gap)
	}
	t.Logf("%d scenarios, largest truth - bound = %.3g", count, gap)
}

// Every mutant is a mistake that somebody has made. The checker must find a
// concrete mechanism that refutes it, by a margin far above rounding.
func TestCheckerCatchesMutants(t *testing.T) {
	mutants := []struct {
		name  string
		least float64 // the excess must be at least this
		claim func(scenario) curve
	}{
		{"one side of the hybrid used for both signs", 1e-3, func(s scenario) curve {
			if s.k == 0 || s.k == s.n {
				return nil
			}
			return oneSided(refShuffle(s.k, s.eps0, blanketRate(s.eps0)), float64(s.k)/float64(s.n)).hockey
		}},
		{"lower tail of the clones dropped (C = 0)", 1e-3, func(s scenario) curve {
			if s.k != s.n || s.k < 3 {
				return nil
			}
			d := refShuffle(s.k, s.eps0, blanketRate(s.eps0))
			clear(d.p[:2])
			clear(d.q[:2])
			return d.hockey
		}},
		{"upper tail of the clones dropped (C = k-1)", 1e-3, func(s scenario) curve {
			if s.k != s.n || s.k < 3 {
				return nil
			}
			d := refShuffle(s.k, s.eps0, blanketRate(s.eps0))
			clear(d.p[len(d.p)-s.k-1:])
			clear(d.q[len(d.q)-s.k-1:])
			return d.hockey
		}},
		{"clone mass renormalised after the cut", 1e-4, func(s scenario) curve {
			if s.k != s.n || s.k < 2 {
				return nil
			}
			d := refShuffle(s.k, s.eps0, blanketRate(s.eps0))
			var sum float64
			for i := range d.p {
				if i < 2 {
					d.p[i], d.q[i] = 0, 0
				}
				sum += d.p[i]
			}
			for i := range d.p {
				d.p[i] /= sum
				d.q[i] /= sum
			}
			return d.hockey
		}},
		{"inclusion gamma instead of k/n in check-in", 0.05, func(s scenario) curve {
			if s.k != 0 {
				return nil
			}
			return refCheckIn(s.n, s.gamma, s.eps0, func(int) float64 { return s.gamma }).hockey
		}},
		{"one more clone than there is", 1e-4, func(s scenario) curve {
			if s.k != s.n {
				return nil
			}
			return refShuffle(s.k+1, s.eps0, blanketRate(s.eps0)).hockey
		}},
		{"clone rate 1 - 1/E", 1e-3, func(s scenario) curve {
			if s.k != s.n {
				return nil
			}
			return refShuffle(s.k, s.eps0, max(blanketRate(s.eps0), 1-math.Exp(-s.eps0))).hockey
		}},
		{"sampling rate applied to epsilon linearly", 1e-3, func(s scenario) curve {
			if s.k == 0 || s.k == s.n {
				return nil
			}
			d, g := refShuffle(s.k, s.eps0, blanketRate(s.eps0)), float64(s.k)/float64(s.n)
			return func(eps float64) float64 { return g * d.hockey(eps/g) }
		}},
	}
	for _, m := range mutants {
		gap, s, at, _ := suite(11, 6, m.claim)
		if !(gap > m.least) {
			t.Errorf("%s: not caught, largest excess %v", m.name, gap)
			continue
		}
		t.Logf("%s: caught, excess %.4g at eps=%.3g eps0=%v (%s)", m.name, gap, at, s.eps0, s.name)
	}
}

// The published check-in proof uses γ for every k. Known size of the mistake:
// two clients, γ = .2, ε₀ = 3, gap .114 in δ.
func TestCheckInTrapSize(t *testing.T) {
	const eps0, gamma = 3, 0.2
	wrong := refCheckIn(2, gamma, eps0, func(int) float64 { return gamma })
	right := refCheckIn(2, gamma, eps0, func(k int) float64 { return float64(k) / 2 })
	worst := math.Inf(-1)
	for x := range 2 {
		a, b := krr(2, eps0).neighbours(0, 1, []int{x})
		d := checkInPair(a, b, gamma)
		if g, at := excess(d, eps0, right.hockey); g > tolerance {
			t.Errorf("k/n: truth above the bound by %v at eps=%v", g, at)
		}
		for i := range 600 {
			eps := 0.01 * float64(i-300)
			worst = max(worst, d.hockey(eps)-wrong.hockey(eps), d.swap().hockey(eps)-wrong.hockey(eps))
		}
	}
	t.Logf("largest gap %.4f", worst)
	if worst < 0.1 {
		t.Errorf("gap %v, want about .114", worst)
	}
}

// Two rounds in which the other clients hold the first value in one round and
// the second in the other: a bound that composes each order with itself and
// takes the larger one misses it; the mirrored hybrid does not.
func TestMaxOfCompositionsIsRefuted(t *testing.T) {
	worst, sound := math.Inf(-1), math.Inf(-1)
	for _, eps0 := range []float64{0.5, 1, 2, 3} {
		m := krr(2, eps0)
		a0, b0 := m.neighbours(0, 1, []int{0})
		a1, b1 := m.neighbours(0, 1, []int{1})
		one, two := sampledPair(a0, b0, 1), sampledPair(a1, b1, 1)
		truth := one.times(two)
		// What "max of two compositions" would claim, even for this mechanism.
		claim := func(eps float64) float64 {
			return max(one.times(one).hockey(eps), two.times(two).hockey(eps))
		}
		mirrored := refSampled(refShuffle(1, eps0, blanketRate(eps0)), 0.5)
		safe := mirrored.times(mirrored)
		for i := -200; i <= 200; i++ {
			eps := 2 * eps0 * float64(i) / 200
			worst = max(worst, truth.hockey(eps)-claim(eps))
			sound = max(sound, truth.hockey(eps)-safe.hockey(eps))
		}
	}
	t.Logf("truth above max of compositions by %.4g, above the mirrored hybrid by %.4g", worst, sound)
	if worst < 1e-3 {
		t.Errorf("the trap is not sprung: excess %v", worst)
	}
	if sound > tolerance {
		t.Errorf("mirrored hybrid exceeded by %v", sound)
	}
}

// Binary randomized response, dataset-aware, sampled: neither order of the base
// pair dominates the other, so mirroring one of them is too small.
func TestOneSidedBinaryMirrorIsRefuted(t *testing.T) {
	worst, sound := math.Inf(-1), math.Inf(-1)
	for _, eps0 := range []float64{0.5, 1, 2, 3} {
		m := krr(2, eps0)
		for k := 2; k <= 4; k++ {
			n := k + 1
			a, b := m.neighbours(0, 1, make([]int, k-1))
			base := pair{histogram(a), histogram(b)}
			g := float64(k) / float64(n)
			first, second := refSampled(base, g), refSampled(base.swap(), g)
			for x := range 2 {
				others := make([]int, n-1)
				for i := range others {
					others[i] = x
				}
				a, b := m.neighbours(0, 1, others)
				d := sampledPair(a, b, k)
				g1, _ := excess(d, eps0, first.hockey)
				g2, _ := excess(d, eps0, second.hockey)
				both, _ := excess(d, eps0, func(eps float64) float64 { return max(first.hockey(eps), second.hockey(eps)) })
				worst = max(worst, min(g1, g2))
				sound = max(sound, both)
			}
		}
	}
	t.Logf("truth above the better one-sided mirror by %.4g, above both by %.4g", worst, sound)
	if worst < 1e-4 {
		t.Errorf("the trap is not sprung: excess %v", worst)
	}
	if sound > tolerance {
		t.Errorf("pointwise max of both orders exceeded by %v", sound)
	}
}
