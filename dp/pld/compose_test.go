package pld

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// response is binary randomized response: one loss and its mirror image.
func response(eps0 float64) dp.Pair {
	return dp.Pair{Atoms: []dp.Atom{{Q: 1 / (math.Exp(eps0) + 1), Loss: eps0}}}
}

// gaussian is N(μ,1) against N(0,1) cut into cells; the mass of each cell lies
// on its two ends so that it is kept under both laws, and the mass beyond the
// last cell is a remainder.
func gaussian(mu float64) dp.Pair {
	const cells, reach = 6000, 9.
	above := func(x float64) float64 { return math.Erfc(x/math.Sqrt2) / 2 }
	loss := func(x float64) float64 { return mu*x - mu*mu/2 }
	var p dp.Pair
	for i := range cells {
		a := mu/2 + reach*float64(i)/cells
		b := mu/2 + reach*float64(i+1)/cells
		q, mass := above(a)-above(b), above(a-mu)-above(b-mu)
		share := (mass/q*math.Exp(-loss(a)) - 1) / math.Expm1(loss(b)-loss(a))
		share = math.Min(1, math.Max(0, share+1e-6))
		if i > 0 {
			p.Atoms = append(p.Atoms, dp.Atom{Q: q * (1 - share), Loss: loss(a)})
		}
		p.Atoms = append(p.Atoms, dp.Atom{Q: q * share, Loss: loss(b)})
	}
	p.Remainders = []dp.Remainder{{Mass: above(reach - mu), MaxLoss: math.Inf(1)}}
	return p
}

// gaussianDelta is the closed form for N(μ,1) against N(0,1): Balle and Wang
// 2018, Theorem 8.
func gaussianDelta(mu, eps float64) float64 {
	phi := func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
	return phi(mu/2-eps/mu) - math.Exp(eps)*phi(-mu/2-eps/mu)
}

func gaussianEps(mu, delta float64) float64 {
	lo, hi := 0., 100.
	for range 200 {
		if mid := (lo + hi) / 2; gaussianDelta(mu, mid) > delta {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

func mustDiscretize(t testing.TB, p dp.Pair, step float64) Loss {
	t.Helper()
	l, err := Discretize(p, step)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustCompose(t testing.TB, tilt float64, parts ...Part) *Composed {
	t.Helper()
	c, err := Compose(parts, tilt)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The Gaussian composes to a Gaussian: ε is never below it and close.
func TestGaussianComposition(t *testing.T) {
	const mu, times = .001, 100000
	l := mustDiscretize(t, gaussian(mu), 5e-5)
	total := mu * math.Sqrt(times)
	for _, delta := range []float64{1e-2, 1e-4, 1e-6, 1e-9} {
		exact := gaussianEps(total, delta)
		tilt := exact/(total*total) + .5
		got := mustCompose(t, tilt, Part{Loss: l, Times: times}).Epsilon(delta)
		if !(got >= exact) || !(got <= exact*1.001) {
			t.Errorf("delta = %v: eps = %.9g, closed form %.9g", delta, got, exact)
		}
	}
}

// A tilt chooses where a composition is sharp, never whether it is right.
func TestTiltKeepsTheBound(t *testing.T) {
	const eps0, times = .1, 400
	l := mustDiscretize(t, response(eps0), eps0)
	for _, eps := range []float64{0, 2, 5, 8} {
		exact := responseDelta(eps0, times, eps)
		best := math.Inf(1)
		for _, tilt := range []float64{0, .5, 1, 2, 4} {
			got := mustCompose(t, tilt, Part{Loss: l, Times: times}).Delta(eps)
			if !(got >= exact*(1-1e-9)) {
				t.Errorf("eps = %v, tilt %v: delta = %v below the true %v", eps, tilt, got, exact)
			}
			best = math.Min(best, got)
		}
		if best > exact*(1+1e-6)+1e-290 {
			t.Errorf("eps = %v: no tilt comes near the true %v, best %v", eps, exact, best)
		}
	}
}

// responseDelta is δ(ε) of binary randomized response composed: the sum over
// the number of truthful answers.
func responseDelta(eps0 float64, times int, eps float64) float64 {
	var sum float64
	for a := range times + 1 {
		loss := float64(2*a-times) * eps0
		if loss <= eps {
			continue
		}
		l1, _ := math.Lgamma(float64(times + 1))
		l2, _ := math.Lgamma(float64(a + 1))
		l3, _ := math.Lgamma(float64(times - a + 1))
		p := math.Exp(l1 - l2 - l3 - float64(a)*math.Log1p(math.Exp(-eps0)) - float64(times-a)*math.Log1p(math.Exp(eps0)))
		sum += p * -math.Expm1(eps-loss)
	}
	return sum
}

// Composing once is reading δ off the atoms.
func TestComposeOnce(t *testing.T) {
	p := dp.Pair{Atoms: []dp.Atom{{Q: .01, Loss: 1.7}, {Q: .1, Loss: .3}, {Q: 1e-6, Loss: 4}}}
	l := mustDiscretize(t, p, 1e-3)
	c := mustCompose(t, 1, Part{Loss: l, Times: 1})
	for _, eps := range []float64{0, .1, .299, 1, 1.69, 3, 3.9} {
		var exact float64
		for _, a := range p.Atoms {
			exact += math.Max(0, a.Q*(math.Exp(a.Loss)-math.Exp(eps)))
		}
		if got := c.Delta(eps); !(got >= exact) || !(got <= exact*1.001+1e-8) {
			t.Errorf("eps = %v: delta = %v, atoms say %v", eps, got, exact)
		}
	}
}

// Rounds that are alike may be given together or apart.
func TestHeterogeneousEqualsHomogeneous(t *testing.T) {
	l := mustDiscretize(t, response(.2), .05)
	together := mustCompose(t, 1, Part{Loss: l, Times: 30})
	apart := mustCompose(t, 1, Part{Loss: l, Times: 7}, Part{Loss: l, Times: 22}, Part{Loss: l, Times: 1})
	for _, eps := range []float64{0, .7, 2, 4} {
		if a, b := together.Delta(eps), apart.Delta(eps); math.Abs(a-b) > 1e-7*a {
			t.Errorf("eps = %v: %v together, %v apart", eps, a, b)
		}
	}
}

// Coarser grids, dropped mass and more rounds only cost.
func TestCompositionOrder(t *testing.T) {
	p := gaussian(.3)
	fine := mustCompose(t, 1, Part{Loss: mustDiscretize(t, p, .01), Times: 20})
	coarse := mustCompose(t, 1, Part{Loss: mustDiscretize(t, p, .16), Times: 20})
	cut := mustCompose(t, 1, Part{Loss: mustDiscretize(t, Truncate(p, 1e-6), .01), Times: 20})
	longer := mustCompose(t, 1, Part{Loss: mustDiscretize(t, p, .01), Times: 21})
	last := 1.
	for eps := 0.; eps < 6; eps += .37 {
		d := fine.Delta(eps)
		if d > last {
			t.Errorf("delta rises to %v at eps = %v", d, eps)
		}
		last = d
		for name, c := range map[string]*Composed{"coarse": coarse, "truncated": cut, "longer": longer} {
			if !(c.Delta(eps) >= d*(1-1e-6)) {
				t.Errorf("%s: delta(%v) = %v below %v", name, eps, c.Delta(eps), d)
			}
		}
	}
	for _, delta := range []float64{.3, 1e-3, 1e-6} {
		if eps := fine.Epsilon(delta); fine.Delta(eps) > delta {
			t.Errorf("eps = %v for delta = %v has delta %v", eps, delta, fine.Delta(eps))
		}
	}
	// Mass at infinity is never forgiven.
	if got, want := cut.Delta(1e3), 1e-7; got < want {
		t.Errorf("far out delta = %v, but at least %v was dropped", got, want)
	}
}

// Truncation keeps domination: the mass it drops counts in full.
func TestTruncate(t *testing.T) {
	p := dp.Pair{Atoms: []dp.Atom{{Q: 1e-9, Loss: 3}, {Q: .1, Loss: .5}, {Q: 1e-12, Loss: 5}}}
	cut := Truncate(p, 1e-8)
	if len(cut.Atoms) != 2 {
		t.Fatalf("%d atoms left, want those of loss .5 and 3", len(cut.Atoms))
	}
	if want := 1e-12 * math.Exp(5); !(cut.Dropped() >= want) || cut.Dropped() > want*1.001 {
		t.Errorf("dropped %v, want %v", cut.Dropped(), want)
	}
	if same := Truncate(p, 0); len(same.Atoms) != 3 || same.Dropped() != 0 {
		t.Error("nothing may be dropped for nothing")
	}
}

func TestPldRefusals(t *testing.T) {
	p := response(1)
	for _, step := range []float64{0, -1, math.NaN(), math.Inf(1), 1e-9} {
		if _, err := Discretize(p, step); err == nil {
			t.Errorf("step %v accepted", step)
		}
	}
	if _, err := Discretize(dp.Pair{Atoms: []dp.Atom{{Q: .5, Loss: 1}}}, .1); err == nil {
		t.Error("a pair of mass above 1 accepted")
	}
	l := mustDiscretize(t, p, .5)
	other := mustDiscretize(t, p, .25)
	lost := l
	lost.Infinite = 1
	for name, c := range map[string]struct {
		parts []Part
		tilt  float64
	}{
		"nothing":      {nil, 0},
		"tilt NaN":     {[]Part{{Loss: l, Times: 1}}, math.NaN()},
		"tilt below 0": {[]Part{{Loss: l, Times: 1}}, math.Nextafter(0, -1)},
		"tilt Inf":     {[]Part{{Loss: l, Times: 1}}, math.Inf(1)},
		"tilt huge":    {[]Part{{Loss: l, Times: 1}}, 1e9},
		"steps":        {[]Part{{Loss: l, Times: 1}, {Loss: other, Times: 1}}, 0},
		"no times":     {[]Part{{Loss: l, Times: 0}}, 0},
		"all lost":     {[]Part{{Loss: lost, Times: 1}}, 0},
	} {
		if _, err := Compose(c.parts, c.tilt); err == nil {
			t.Errorf("%s accepted", name)
		}
	}
	if _, err := Compose([]Part{{Loss: mustDiscretize(t, p, 1e-5), Times: 1e12}}, 0); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("a grid too large: %v", err)
	}
	c := mustCompose(t, 0, Part{Loss: l, Times: 3})
	for _, eps := range []float64{math.NaN(), -1} {
		if got := c.Delta(eps); got != 1 {
			t.Errorf("delta(%v) = %v, want 1", eps, got)
		}
	}
}

// Whatever the pair, δ is a probability that covers the pair itself.
func FuzzCompose(f *testing.F) {
	f.Add(.1, 1., .01, 3., 5, .5, .3)
	f.Add(1e-9, 40., .4, 1e-3, 1000, 0., 1.)
	f.Fuzz(func(t *testing.T, q1, l1, q2, l2 float64, times int, tilt, eps float64) {
		for _, v := range []float64{q1, l1, q2, l2} {
			if !(v > 0) || v > 50 {
				t.Skip()
			}
		}
		if q1*(1+math.Exp(l1))+q2*(1+math.Exp(l2)) > 1 || times < 1 || times > 1e6 || !(eps >= 0) {
			t.Skip()
		}
		p := dp.Pair{Atoms: []dp.Atom{{Q: q1, Loss: l1}, {Q: q2, Loss: l2}}}
		l, err := Discretize(p, math.Max(l1, l2)/100)
		if err != nil {
			return
		}
		c, err := Compose([]Part{{Loss: l, Times: int64(times)}}, tilt)
		if err != nil {
			return
		}
		var exact float64
		for _, a := range p.Atoms {
			exact += math.Max(0, a.Q*(math.Exp(a.Loss)-math.Exp(eps)))
		}
		d := c.Delta(eps)
		if math.IsNaN(d) || d > 1 || d < exact*(1-1e-8) {
			t.Errorf("delta(%v) = %v after %d rounds, one has %v", eps, d, times, exact)
		}
		if e := c.Epsilon(1e-6); math.IsNaN(e) || c.Delta(e) > 1e-6 && !math.IsInf(e, 1) {
			t.Errorf("eps = %v, delta there %v", e, c.Delta(e))
		}
	})
}

func BenchmarkCompose(b *testing.B) {
	l := mustDiscretize(b, gaussian(.001), 1e-4)
	for b.Loop() {
		mustCompose(b, 12, Part{Loss: l, Times: 100000}).Epsilon(1e-6)
	}
}
