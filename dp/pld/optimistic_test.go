package pld

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// randomOutcomes is a pair of laws with count outcomes, losses rising.
func randomOutcomes(r *rand.Rand, count int, size float64) []dp.Atom {
	p, q := make([]float64, count), make([]float64, count)
	var sp, sq float64
	for i := range p {
		q[i] = r.ExpFloat64()
		p[i] = q[i] * math.Exp(size*r.NormFloat64())
		sp, sq = sp+p[i], sq+q[i]
	}
	out := make([]dp.Atom, count)
	for i := range out {
		out[i] = dp.Atom{Q: q[i] / sq, Loss: math.Log(p[i] / sp * sq / q[i])}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Loss < out[j].Loss })
	return out
}

func sumDelta(outcomes []dp.Atom, eps float64) float64 {
	var d float64
	for _, a := range outcomes {
		d += math.Max(0, a.Q*(math.Exp(a.Loss)-math.Exp(eps)))
	}
	return d
}

// TestFloorBelow: for every ε, both signs, the merged pair has less δ; fine
// grids lose little.
func TestFloorBelow(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for range 60 {
		outcomes := randomOutcomes(r, 1+r.IntN(40), .5)
		for _, step := range []float64{1e-4, .01, .3, 2} {
			f, err := newFloor(outcomes, step)
			if err != nil {
				t.Fatal(err)
			}
			var mass float64
			for _, m := range f.mass {
				mass += m
			}
			if !(mass <= 1+1e-12) {
				t.Fatalf("mass %v", mass)
			}
			for eps := -2.; eps < 2; eps += .13 {
				var d float64
				for i, m := range f.mass {
					if x := float64(f.low+int64(i)) * step; x > eps {
						d += m * -math.Expm1(eps-x)
					}
				}
				want := sumDelta(outcomes, eps)
				if !(d <= want*(1+1e-12)+1e-15) {
					t.Errorf("step %v eps %v: merged %.15g above %.15g", step, eps, d, want)
				}
				if step == 1e-4 && !(d >= want-2e-4) {
					t.Errorf("step %v eps %v: merged %.15g far below %.15g", step, eps, d, want)
				}
			}
		}
	}
}

// TestComposeFloorBelow: against exact compositions of a few random outcomes.
func TestComposeFloorBelow(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	tight := 0.
	for range 25 {
		outcomes := randomOutcomes(r, 2+r.IntN(4), .4)
		all := []dp.Atom{{Q: 1}}
		const times = 4
		for range times {
			var next []dp.Atom
			for _, a := range all {
				for _, b := range outcomes {
					next = append(next, dp.Atom{Q: a.Q * b.Q, Loss: a.Loss + b.Loss})
				}
			}
			all = next
		}
		for _, step := range []float64{1e-4, .03} {
			for _, tilt := range []float64{0, 1, 5} {
				f, err := newFloor(outcomes, step)
				if err != nil {
					t.Fatal(err)
				}
				l, err := composeFloor(f, times, tilt)
				if err != nil {
					t.Fatal(err)
				}
				for eps := 0.; eps < 3; eps += .21 {
					got, want := l.Delta(eps), sumDelta(all, eps)
					if !(got <= want) {
						t.Errorf("step %v tilt %v eps %v: %.15g above the true %.15g", step, tilt, eps, got, want)
					}
					if want > 1e-4 {
						tight = math.Max(tight, got/want)
					}
					if want > 1e-9 && want < 1 {
						if e := l.Epsilon(want); e > eps {
							t.Errorf("step %v tilt %v: epsilon(true delta) = %v above %v", step, tilt, e, eps)
						}
					}
				}
			}
		}
	}
	if tight < .999 {
		t.Errorf("the best lower bound reaches %v of the truth", tight)
	}
}

// TestComposeFloorGaussian: below the closed form, and near.
func TestComposeFloorGaussian(t *testing.T) {
	// Outcomes of a finely cut Gaussian are a merged Gaussian: less δ.
	const mu, cells, times = .01, 4000, 10000
	cdf := func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
	var outcomes []dp.Atom
	for i := range cells {
		a, b := -9+18*float64(i)/cells, -9+18*float64(i+1)/cells
		q, p := cdf(b)-cdf(a), cdf(b-mu)-cdf(a-mu)
		if a > 0 {
			q, p = cdf(-a)-cdf(-b), cdf(mu-a)-cdf(mu-b)
		}
		if q > 0 && p > 0 {
			outcomes = append(outcomes, dp.Atom{Q: q, Loss: math.Log(p / q)})
		}
	}
	sort.Slice(outcomes, func(i, j int) bool { return outcomes[i].Loss < outcomes[j].Loss })
	f, err := newFloor(outcomes, mu/30)
	if err != nil {
		t.Fatal(err)
	}
	for delta, tilt := range map[float64]float64{1e-3: 3, 1e-6: 5, 1e-9: 6} {
		l, err := composeFloor(f, times, tilt)
		if err != nil {
			t.Fatal(err)
		}
		got, want := l.Epsilon(delta), gaussianEps(1, delta)
		if !(got <= want) || !(got >= want*.998) {
			t.Errorf("delta %v: %v, closed form %v", delta, got, want)
		}
	}
}

func TestFloorRefused(t *testing.T) {
	good := []dp.Atom{{Q: .5, Loss: .1}, {Q: .5, Loss: -.1}}
	for name, try := range map[string]func() error{
		"step 0":    func() error { _, err := newFloor(good, 0); return err },
		"step NaN":  func() error { _, err := newFloor(good, math.NaN()); return err },
		"empty":     func() error { _, err := newFloor(nil, .1); return err },
		"NaN loss":  func() error { _, err := newFloor([]dp.Atom{{Q: 1, Loss: math.NaN()}}, .1); return err },
		"inf loss":  func() error { _, err := newFloor([]dp.Atom{{Q: 1, Loss: math.Inf(1)}}, .1); return err },
		"mass":      func() error { _, err := newFloor([]dp.Atom{{Q: 1.1}}, .1); return err },
		"fine step": func() error { _, err := newFloor(good, 1e-12); return err },
		"beyond int64": func() error {
			_, err := newFloor([]dp.Atom{{Q: .5, Loss: -16.3}, {Q: .5, Loss: 1.2e-18}}, 1.2e-18)
			return err
		},
		"far loss": func() error { _, err := newFloor([]dp.Atom{{Q: 1, Loss: 1e300}}, 1e-9); return err },
		"times":    func() error { f, _ := newFloor(good, .1); _, err := composeFloor(f, 0, 1); return err },
		"tilt":     func() error { f, _ := newFloor(good, .1); _, err := composeFloor(f, 1, math.NaN()); return err },
	} {
		if try() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// FuzzNewFloor: ends, and never leaks more, also where quotients round.
func FuzzNewFloor(f *testing.F) {
	f.Add(.1, .3, .05, .2)
	f.Add(.7, -.7, .7/3, 1e-9)
	f.Fuzz(func(t *testing.T, a, b, step, share float64) {
		if !(share > 0 && share < 1) || !(math.Abs(a) < 50) || !(math.Abs(b) < 50) {
			return
		}
		outcomes := []dp.Atom{{Q: share * .5, Loss: a}, {Q: (1 - share) * .5, Loss: b}}
		g, err := newFloor(outcomes, step)
		if err != nil {
			return
		}
		for _, eps := range []float64{-1, 0, .1, 1} {
			var d float64
			for i, m := range g.mass {
				if x := float64(g.low+int64(i)) * step; x > eps {
					d += m * -math.Expm1(eps-x)
				}
			}
			if want := sumDelta(outcomes, eps); !(d <= want*(1+1e-9)+1e-12) {
				t.Errorf("a=%v b=%v step=%v eps=%v: %v above %v", a, b, step, eps, d, want)
			}
		}
	})
}

func BenchmarkComposeFloor(b *testing.B) {
	outcomes := randomOutcomes(rand.New(rand.NewPCG(1, 1)), 2000, 1e-4)
	f, err := newFloor(outcomes, 2e-6)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := composeFloor(f, 100000, 200); err != nil {
			b.Fatal(err)
		}
	}
}
