package vecsum

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

func mustTight(t testing.TB, target Target) Params {
	t.Helper()
	p, err := Tight(target)
	if err != nil {
		t.Fatalf("%+v: %v", target, err)
	}
	return p
}

// Noise variance within 7 % of the analytic Gaussian's, and what the paper's
// constants cost beside it: issue 5's grid.
func TestTightVariance(t *testing.T) {
	const delta = 1e-6
	for _, n := range []int64{1000, 10_000, 60_000, 1_000_000} {
		for i, d := range []int{10, 100, 10_000} {
			for j, eps := range []float64{.1, 1, 4} {
				if i != j && !longtest.On {
					continue
				}
				target := Target{Eps: eps, Delta: delta, Users: n, Dim: d, Radius: 1}
				p := mustTight(t, target)
				central := 4 / math.Pow(gaussMu(eps, delta), 2)
				r := p.Variance(n) / central
				if !(r >= 1 && r <= 1.07) {
					t.Errorf("n = %d, d = %d, eps = %v: variance %v times the Gaussian's", n, d, eps, r)
				}
				got, err := p.Epsilon(delta, 1)
				if err != nil || got > eps || got < eps*.995 {
					t.Errorf("n = %d, d = %d: eps = %v for %v (%v)", n, d, got, eps, err)
				}
				theirs, err := paper(target)
				if err != nil {
					t.Fatal(err)
				}
				// 410 … 760 times the standard deviation; the document's table.
				if s := math.Sqrt(theirs.Variance(n) / p.Variance(n)); s < 400 || s > 770 {
					t.Errorf("n = %d, d = %d, eps = %v: the paper's standard deviation is %v times ours", n, d, eps, s)
				}
			}
		}
	}
}

// Entries of the document's table, to 5 %: they were made with another rounding
// of the overhead.
func TestTightAgainstDocument(t *testing.T) {
	for _, c := range []struct {
		n    int64
		d    int
		eps  float64
		g, b int64
		q    int
	}{
		{1000, 10, 1, 287, 6144, 23}, {1000, 100, .1, 304, 510_000, 29}, {10_000, 100, 1, 314, 735, 24},
		{60_000, 10_000, 1, 683, 580, 27}, {1_000_000, 100, 4, 2126, 26, 32},
	} {
		p := mustTight(t, Target{Eps: c.eps, Delta: 1e-6, Users: c.n, Dim: c.d, Radius: 1, Overhead: .045})
		near := func(a, b int64) bool { return math.Abs(float64(a)/float64(b)-1) < .05 }
		if !near(p.Grid, c.g) || !near(p.Noise.Bits, c.b) || p.Modulus() != c.q {
			t.Errorf("n = %d, d = %d, eps = %v: g = %d, b = %d, q = 2^%d; document %d, %d, 2^%d", c.n, c.d, c.eps, p.Grid, p.Noise.Bits, p.Modulus(), c.g, c.b, c.q)
		}
	}
}

// Other laws, split signs, rounds, cohorts, honest fractions: what is designed is
// met, and not by much.
func TestTightMeetsTarget(t *testing.T) {
	base := Target{Eps: 1, Delta: 1e-6, Users: 5000, Dim: 50, Radius: 3}
	for name, change := range map[string]func(*Target){
		"plain":          func(*Target) {},
		"split":          func(x *Target) { x.Split = true },
		"skellam":        func(x *Target) { x.Kind = Skellam },
		"discrete":       func(x *Target) { x.Kind = DiscreteGaussian },
		"skellam, split": func(x *Target) { x.Kind, x.Split = Skellam, true },
		"rounds":         func(x *Target) { x.Rounds = 1000 },
		"cohort":         func(x *Target) { x.MinUsers = 4000 },
		"honest":         func(x *Target) { x.Honest = .1 },
		"tiny eps":       func(x *Target) { x.Eps, x.Delta = .01, 1e-9 },
		"large eps":      func(x *Target) { x.Eps = 20 },
		"scalar":         func(x *Target) { x.Dim = 1 },
		"one user":       func(x *Target) { x.Users = 1 },
		"few users":      func(x *Target) { x.Users = 7 },
		"coarse":         func(x *Target) { x.Overhead = 1 },
	} {
		target := base
		change(&target)
		p := mustTight(t, target)
		rounds := max(1, target.Rounds)
		eps, err := p.Epsilon(target.Delta, rounds)
		if err != nil || eps > target.Eps || eps < target.Eps*.99 {
			t.Errorf("%s: eps = %v for %v (%v)", name, eps, target.Eps, err)
		}
		if _, err := NewEncoder(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A transport that hides imperfectly is charged for it.
func TestThroughTransport(t *testing.T) {
	p := mustTight(t, Target{Eps: 1, Delta: 1e-6, Users: 1000, Dim: 5, Radius: 1})
	c, err := p.curve(1e-12)
	if err != nil {
		t.Fatal(err)
	}
	mix, err := NewShuffled(Mix, Config{Params: p, Security: 30})
	if err != nil {
		t.Fatal(err)
	}
	shares, err := NewShares(Config{Params: p})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.through(shares, 5); got != c {
		t.Errorf("shares changed %+v to %+v", c, got)
	}
	extra := c.through(mix, 4).delta(1) - c.delta(1)
	if want := 4 * (1 + math.E) * 0x1p-30; math.Abs(extra/want-1) > 1e-6 {
		t.Errorf("split-and-mix adds %v to delta, want %v", extra, want)
	}
}

// Signs split or not, the total variance is the same.
func TestSplitCostsNothing(t *testing.T) {
	target := Target{Eps: 1, Delta: 1e-6, Users: 10_000, Dim: 100, Radius: 1}
	a := mustTight(t, target)
	target.Split = true
	b := mustTight(t, target)
	if r := b.Variance(10_000) / a.Variance(10_000); math.Abs(r-1) > .02 {
		t.Errorf("split variance is %v of the plain one", r)
	}
}

// Split sensitivity by enumeration: all pairs of small integer vectors within
// the norm.
func TestSensitivityBrute(t *testing.T) {
	for _, split := range []bool{false, true} {
		for _, grid := range []int64{2, 3, 4, 5} {
			p := Params{Users: 1, Dim: 2, Radius: 1, Grid: grid, Norm: Norm(2, grid, .3), Noise: Noise{Kind: Binomial, Bits: 1}, Split: split}
			shift, norm, counts := p.sensitivity()
			var vectors [][]int64
			lo, hi := int64(0), grid
			if split {
				lo, hi = -grid, grid
			}
			for a := lo; a <= hi; a++ {
				for b := lo; b <= hi; b++ {
					if split && 4*(a*a+b*b) <= p.Norm {
						vectors = append(vectors, []int64{max(a, 0), max(b, 0), max(-a, 0), max(-b, 0)})
					}
					if x, y := 2*a-grid, 2*b-grid; !split && x*x+y*y <= p.Norm {
						vectors = append(vectors, []int64{a, b})
					}
				}
			}
			var worst, worstShift, worstCounts int64
			for _, v := range vectors {
				for _, w := range vectors {
					var s, c int64
					for j := range v {
						k := v[j] - w[j]
						s += k * k
						worstShift = max(worstShift, k)
						if k != 0 {
							c++
						}
					}
					worst, worstCounts = max(worst, s), max(worstCounts, c)
				}
			}
			if math.Sqrt(float64(worst)) > norm || worstShift > shift || worstCounts > counts {
				t.Errorf("grid %d, split %v: shift %d, norm² %d, %d counts; claimed %d, %v, %d", grid, split, worstShift, worst, worstCounts, shift, norm*norm, counts)
			}
		}
	}
}

// More noise, more honest clients, a finer window never cost more. Oracle 5b.
func TestCurveMonotone(t *testing.T) {
	eps := func(change func(*Params)) float64 {
		p := Params{Users: 1000, Dim: 10, Radius: 1, Grid: 100, Norm: Norm(10, 100, 1e-9), Noise: Noise{Kind: Binomial, Bits: 1000}}
		change(&p)
		e, err := p.Epsilon(1e-6, 1)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	before := math.Inf(1)
	for _, b := range []int64{700, 900, 1000, 1001, 1500} {
		if e := eps(func(p *Params) { p.Noise.Bits = b }); e >= before {
			t.Errorf("%d bits: eps = %v after %v", b, e, before)
		} else {
			before = e
		}
	}
	before = math.Inf(1)
	for _, h := range []float64{.1, .33, .5, .9, 1} {
		if e := eps(func(p *Params) { p.Honest = h }); e >= before {
			t.Errorf("honest %v: eps = %v after %v", h, e, before)
		} else {
			before = e
		}
	}
	before = 0
	for _, g := range []int64{50, 100, 101, 200} {
		if e := eps(func(p *Params) { p.Grid, p.Norm = g, Norm(10, g, 1e-9) }); e <= before {
			t.Errorf("grid %d: eps = %v after %v", g, e, before)
		} else {
			before = e
		}
	}
}

// A design for all, held by few: VECSUM-SCO.md section 3.6, δ = 1e-6.
func TestHonestFraction(t *testing.T) {
	for _, c := range []struct{ eps, gamma, want float64 }{
		{1, .9, 1.06}, {1, .75, 1.17}, {1, .5, 1.46}, {1, .33, 1.81}, {1, .1, 3.5}, {4, .9, 4.25}, {4, .5, 5.93}, {4, .1, 15.5},
	} {
		p := mustTight(t, Target{Eps: c.eps, Delta: 1e-6, Users: 100_000, Dim: 100, Radius: 1})
		p.Honest = c.gamma
		got, err := p.Epsilon(1e-6, 1)
		if err != nil || math.Abs(got/c.want-1) > .01 {
			t.Errorf("eps = %v, gamma = %v: %v, want %v (%v)", c.eps, c.gamma, got, c.want, err)
		}
	}
}

func TestTightRefuses(t *testing.T) {
	good := Target{Eps: 1, Delta: 1e-6, Users: 1000, Dim: 10, Radius: 1}
	for name, change := range map[string]func(*Target){
		"eps 0":        func(x *Target) { x.Eps = 0 },
		"eps NaN":      func(x *Target) { x.Eps = math.NaN() },
		"eps too much": func(x *Target) { x.Eps = 51 },
		"delta 0":      func(x *Target) { x.Delta = 0 },
		"delta 1":      func(x *Target) { x.Delta = 1 },
		"no users":     func(x *Target) { x.Users = 0 },
		"min users":    func(x *Target) { x.MinUsers = 1001 },
		"honest":       func(x *Target) { x.Honest = 1.01 },
		"none honest":  func(x *Target) { x.Honest = 1e-4 },
		"dim":          func(x *Target) { x.Dim = -1 },
		"radius":       func(x *Target) { x.Radius = math.Inf(-1) },
		"rounds":       func(x *Target) { x.Rounds = -1 },
		"overhead":     func(x *Target) { x.Overhead = -1 },
		"kind":         func(x *Target) { x.Kind = "gaussian" },
	} {
		target := good
		change(&target)
		if p, err := Tight(target); err == nil {
			t.Errorf("%s: accepted as %+v", name, p)
		}
		if p, err := paper(target); err == nil {
			t.Errorf("%s: accepted by the paper's as %+v", name, p)
		}
	}
}

// Targets beyond the limits are an answer, not a misuse.
func TestTightHasLimits(t *testing.T) {
	for _, target := range []Target{
		{Eps: 1e-6, Delta: 1e-12, Users: 1000, Dim: 10, Radius: 1},
		{Eps: 1e-6, Delta: 1e-12, Users: 1000, Dim: 10, Radius: 1, Kind: Skellam},
		{Eps: 1, Delta: 1e-300, Users: 1000, Dim: 10, Radius: 1},
		{Eps: 1, Delta: 1e-6, Users: 1e12, Dim: 10, Radius: 1, Kind: DiscreteGaussian},
	} {
		if p, err := Tight(target); !errors.Is(err, dp.ErrNoBound) {
			t.Errorf("%+v: %+v, %v", target, p, err)
		}
	}
}

func TestCurve(t *testing.T) {
	c := Curve{Mu: .5, Tail: 1e-9, Ratio: 1e-6}
	before := 1.
	for eps := 0.; eps < 6; eps += .1 {
		d := c.delta(eps)
		if !(d <= before) || !(d >= gaussDelta(.5, eps)) {
			t.Errorf("delta(%v) = %v after %v", eps, d, before)
		}
		before = d
	}
	for _, delta := range []float64{1e-2, 1e-5, 1e-8} {
		eps, err := c.epsilon(delta)
		if err != nil || c.delta(eps) > delta || c.delta(eps*(1-1e-8)) <= delta {
			t.Errorf("delta = %v: eps = %v gives %v (%v)", delta, eps, c.delta(eps), err)
		}
	}
	if _, err := c.epsilon(1e-10); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("a delta below the tail: %v", err)
	}
	// e^ε·Distance rises, so not every δ above its least is met by every ε.
	if eps, err := (Curve{Mu: 1, Distance: 1e-9}).epsilon(1e-6); err != nil || !(eps < 6) {
		t.Errorf("with a distance: eps = %v (%v)", eps, err)
	}
	two, twice := compose(c, c), c.times(2)
	if math.Abs(two.Mu/twice.Mu-1) > 1e-12 || math.Abs(two.Tail/twice.Tail-1) > 1e-12 || math.Abs(two.Mu/(.5*math.Sqrt2)-1) > 1e-12 {
		t.Errorf("composed %+v, twice %+v", two, twice)
	}
	for _, bad := range []Curve{{Mu: math.NaN()}, {Mu: -1}, {Mu: 1, Tail: math.NaN()}, {Mu: 1, Ratio: -1}, {Mu: math.Inf(1)}, {Mu: 1, Tail: 2}} {
		if d := bad.delta(1); d != 1 {
			t.Errorf("%+v: delta = %v", bad, d)
		}
	}
}
