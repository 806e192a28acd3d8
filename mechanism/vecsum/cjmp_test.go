package vecsum

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// Lemma A.1 by enumeration: at the ε it gives, the exact divergence of Bin(m, p)
// from its shift is at most δ, in both orders.
func TestLemmaA1Brute(t *testing.T) {
	checked := 0
	for _, m := range []int64{400, 1500, 4000} {
		for _, p := range []float64{.5, .3, .1} {
			pmf := binomialPMF(m, p)
			for _, delta := range []float64{.1, 1e-3, 1e-6} {
				for _, shift := range []float64{1, 3, 10} {
					c, err := lossPerStep(float64(m), p, shift, delta)
					if err != nil {
						continue
					}
					checked++
					for k := 1; k <= int(shift); k++ {
						for _, sign := range []int{1, -1} {
							if d := exactDelta(pmf, sign*k, c*float64(k)); d > delta {
								t.Errorf("Bin(%d, %v), delta %v, shift %d: exact delta %v", m, p, delta, sign*k, d)
							}
						}
					}
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d cases meet the lemma's conditions", checked)
	}
}

// The paper's parameters meet its theorem, at an honest fraction γ the
// corollary's ε/γ, and the tight accounting finds far less.
func TestPaper(t *testing.T) {
	for _, n := range []int64{1000, 60_000} {
		for _, d := range []int{1, 10, 1000} {
			for _, eps := range []float64{.1, 1, 15} {
				const delta = 1e-6
				p, err := paper(Target{Eps: eps, Delta: delta, Users: n, Dim: d, Radius: 3})
				if err != nil {
					t.Fatal(err)
				}
				got, err := thm32(p, delta)
				if err != nil || got > eps {
					t.Errorf("n = %d, d = %d, eps = %v: Theorem 3.2 gives %v (%v)", n, d, eps, got, err)
				}
				if eps <= 1 {
					for _, gamma := range []float64{1. / 3, .5, .9, 1} {
						q := p
						q.Honest = gamma
						robust, err := robustA9(q, delta)
						// Rounding the number of honest clients down costs a little.
						if err != nil || robust > eps/gamma*(1+2/float64(n)) || robust < got {
							t.Errorf("n = %d, d = %d, eps = %v, gamma = %v: Corollary A.9 gives %v (%v)", n, d, eps, gamma, robust, err)
						}
					}
				}
				// The scalar lemma at its own epsilon and delta: ε̂ and δ/(d+1).
				share := delta / float64(d+1)
				hat := eps / (18 * math.Sqrt(math.Log(1/share)))
				for _, distance := range []float64{0, .01, .5, 1} {
					got, err := lemma31(p, distance, share)
					if want := hat * (2/float64(p.Grid) + distance); err != nil || got > want*(1+1e-9) {
						t.Errorf("n = %d, d = %d, eps = %v: Lemma 3.1 at %v gives %v, above %v (%v)", n, d, eps, distance, got, want, err)
					}
				}
			}
		}
	}
	// Where the tight accounting can follow, it gives far less.
	p := Params{Users: 1, Dim: 1, Radius: 1, Grid: 8, Norm: Norm(1, 8, 0), Noise: Noise{Kind: Binomial, Bits: 200_000}}
	tight, err1 := p.Epsilon(1e-6, 1)
	thm, err2 := thm32(p, 1e-6)
	if err1 != nil || err2 != nil || !(tight < thm/3) {
		t.Errorf("tight %v (%v), theorem %v (%v)", tight, err1, thm, err2)
	}
}

func TestPaperRefuses(t *testing.T) {
	good := Target{Eps: 1, Delta: 1e-6, Users: 1000, Dim: 10, Radius: 1}
	for name, change := range map[string]func(*Target){
		"eps above 15": func(x *Target) { x.Eps = 15.01 },
		"delta half":   func(x *Target) { x.Delta = .5 },
		"rounds":       func(x *Target) { x.Rounds = 2 },
		"skellam":      func(x *Target) { x.Kind = Skellam },
		"split":        func(x *Target) { x.Split = true },
	} {
		target := good
		change(&target)
		if _, err := paper(target); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	p, err := paper(good)
	if err != nil {
		t.Fatal(err)
	}
	p.Honest = .33
	if _, err := robustA9(p, 1e-6); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("gamma below a third: %v", err)
	}
	p.Noise.P, p.Honest = .6, 1
	if _, err := thm32(p, 1e-6); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("p above 1/2: %v", err)
	}
	p.Noise, p.MinUsers = Noise{Kind: Binomial, Bits: 1}, 50
	if _, err := thm32(p, 1e-6); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("too few bits: %v", err)
	}
	if _, err := lemma31(p, 1.5, 1e-6); err == nil {
		t.Error("a distance above 1 was accepted")
	}
	p.Noise = Noise{Kind: Skellam, Variance: 1e6}
	if _, err := thm32(p, 1e-6); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("skellam noise: %v", err)
	}
}

// Outside the conditions of its theorem a bound is refused, and an unknown one is too.
func TestCJMPRefuses(t *testing.T) {
	p, err := paper(Target{Eps: 1, Delta: 1e-6, Users: 1000, Dim: 2, Radius: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{MethodThm32, MethodA9} {
		if eps, err := CJMP(method, p, 1e-6); err != nil || !(eps > 0 && eps <= 1) {
			t.Errorf("%s: eps %v, %v", method, eps, err)
		}
	}
	if _, err := CJMP(MethodLemma31, p, 1e-6); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("two coordinates under Lemma 3.1: %v", err)
	}
	p.Honest = .9
	if _, err := CJMP(MethodThm32, p, 1e-6); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("honest fraction .9 under Theorem 3.2: %v", err)
	}
	if _, err := CJMP(MethodGDP, p, 1e-6); err == nil {
		t.Error("CJMP has a bound of ours")
	}
}
