package amplify

import (
	"fmt"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// atomsDelta reads δ(ε) off a pair's atoms.
func atomsDelta(p dp.Pair, eps float64) float64 {
	var d, used float64
	for _, a := range p.Atoms {
		d += a.Q*math.Max(0, math.Expm1(a.Loss)-math.Expm1(eps)) + math.Max(0, a.Q-math.Exp(eps+a.Loss)*a.Q)
		used += a.Q * (1 + math.Exp(a.Loss))
	}
	return d + math.Max(0, -math.Expm1(eps))*math.Max(0, 1-used) + p.Dropped()
}

// exactPair lists every outcome of a round.
func exactPair(t testing.TB, c RoundConfig) dp.Pair {
	t.Helper()
	p, err := Shuffle(ShuffleConfig{Eps0: c.Eps0, Reports: c.Reports, Rate: c.Rate, Tail: 1e-200})
	if err == nil {
		p, err = Subsample(p, float64(c.Reports)/float64(c.Population))
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestCurveIsThePair holds the closed form against the sum over outcomes.
func TestCurveIsThePair(t *testing.T) {
	for _, eps0 := range []float64{1e-3, .3, 1, 2, 4, 9, 30} {
		for _, k := range []int64{1, 2, 3, 10, 100, 1000} {
			if !longtest.On && k > 100 {
				continue // enumeration costs k²
			}
			for _, n := range []int64{k, 3 * k, 1000 * k} {
				for name, rate := range map[string]float64{"blanket": Blanket(eps0), "clones": Clones(eps0)} {
					c := RoundConfig{Eps0: eps0, Population: n, Reports: k, Rate: rate}
					curve, err := NewCurve(c)
					if err != nil {
						t.Fatal(err)
					}
					p := exactPair(t, c)
					top := SampledLoss(eps0, float64(k)/float64(n))
					for _, share := range []float64{-1.1, -.4, -.01, 0, 1e-4, .03, .2, .6, .95, 1, 1.2} {
						eps := share * top
						got, want := curve.Delta(eps), atomsDelta(p, eps)
						if !(got >= want*(1-1e-10)-1e-17) || !(got <= want*(1+1e-7)+1e-15) {
							t.Errorf("%s eps0=%v k=%d n=%d eps=%v: %.17g, sum over outcomes %.17g", name, eps0, k, n, eps, got, want)
						}
					}
				}
			}
		}
	}
}

// TestCurveBlocks: beyond curveRun values the blocks lose next to nothing.
func TestCurveBlocks(t *testing.T) {
	for _, k := range []int64{2e6, 1e9, 1e12} {
		c := RoundConfig{Eps0: 2, Population: k, Reports: k, Rate: Blanket(2)}
		curve, err := NewCurve(c)
		if err != nil {
			t.Fatal(err)
		}
		eps, err := curve.Epsilon(1e-9)
		if err != nil {
			t.Fatal(err)
		}
		// The central limit: u = (a−b)/m has deviation 1/√(rk), the loss is 2·tanh(ε₀/2)·u.
		mu := 2 * math.Tanh(1) / math.Sqrt(c.Rate*float64(k))
		gauss := func(eps float64) float64 {
			cdf := func(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
			return cdf(mu/2-eps/mu) - math.Exp(eps)*cdf(-mu/2-eps/mu)
		}
		if d := gauss(eps); !(d <= 1e-9*1.001) || !(d >= 1e-9*(1-2e-2)) {
			t.Errorf("k=%d: eps = %v, where the limit law has delta %v", k, eps, d)
		}
		if d := curve.Delta(eps); !(d <= 1e-9) {
			t.Errorf("k=%d: delta(eps(1e-9)) = %v", k, d)
		}
	}
}

// TestCurveOrder: the bound moves the way it must.
func TestCurveOrder(t *testing.T) {
	eps := func(c RoundConfig, delta float64) float64 {
		t.Helper()
		if c.Rate == 0 {
			c.Rate = Blanket(c.Eps0)
		}
		curve, err := NewCurve(c)
		if err != nil {
			t.Fatal(err)
		}
		e, err := curve.Epsilon(delta)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	base := RoundConfig{Eps0: 1.3, Population: 5000, Reports: 700}
	e := eps(base, 1e-6)
	more := base
	more.Eps0 = 1.31
	wider := base
	wider.Population = 5100
	fmt22 := base
	fmt22.Rate = Clones(base.Eps0)
	if !(eps(more, 1e-6) > e && eps(wider, 1e-6) < e && eps(base, 1e-7) > e && eps(fmt22, 1e-6) > e) {
		t.Error("not monotone in eps0, n, delta or rate")
	}
	last := math.Inf(1)
	for k := int64(1); k < 3e7; k *= 3 {
		e := eps(RoundConfig{Eps0: 2, Population: k, Reports: k}, 1e-7)
		if !(e <= last) || !(e <= 2*(1+1e-9)) {
			t.Errorf("k=%d: %v after %v", k, e, last)
		}
		last = e
	}
	// One report has no company: δ(ε) = (E − e^ε)/(E + 1).
	one := eps(RoundConfig{Eps0: 2, Population: 1, Reports: 1}, 1e-3)
	if want := math.Log(math.Exp(2) - 1e-3*(math.Exp(2)+1)); math.Abs(one/want-1) > 1e-6 {
		t.Errorf("one report: %v, want %v", one, want)
	}
}

func TestRoundConfigRefused(t *testing.T) {
	good := RoundConfig{Eps0: 1, Population: 10, Reports: 5, Rate: .5}
	for name, change := range map[string]func(*RoundConfig){
		"eps0 zero":     func(c *RoundConfig) { c.Eps0 = 0 },
		"eps0 negative": func(c *RoundConfig) { c.Eps0 = -1 },
		"eps0 NaN":      func(c *RoundConfig) { c.Eps0 = math.NaN() },
		"eps0 inf":      func(c *RoundConfig) { c.Eps0 = math.Inf(1) },
		"eps0 an ulp":   func(c *RoundConfig) { c.Eps0 = math.Nextafter(dp.MaxEps0, 100) },
		"k 0":           func(c *RoundConfig) { c.Reports = 0 },
		"k n+1":         func(c *RoundConfig) { c.Reports = 11 },
		"n 0":           func(c *RoundConfig) { c.Population = 0 },
		"n huge":        func(c *RoundConfig) { c.Population = 1<<52 + 1 },
		"rate 0":        func(c *RoundConfig) { c.Rate = 0 },
		"rate an ulp":   func(c *RoundConfig) { c.Rate = math.Nextafter(1, 2) },
		"rate NaN":      func(c *RoundConfig) { c.Rate = math.NaN() },
	} {
		c := good
		change(&c)
		if _, err := NewCurve(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := Round(c); err == nil {
			t.Errorf("%s: Round accepted", name)
		}
	}
	curve, err := NewCurve(good)
	if err != nil {
		t.Fatal(err)
	}
	for _, delta := range []float64{0, 1, -1, math.NaN(), math.Inf(1)} {
		if _, err := curve.Epsilon(delta); err == nil {
			t.Errorf("delta = %v accepted", delta)
		}
	}
	if d := curve.Delta(math.NaN()); d != 1 {
		t.Errorf("delta at NaN = %v", d)
	}
}

func FuzzCurve(f *testing.F) {
	f.Add(1.0, int64(100), int64(10), .1)
	f.Add(50.0, int64(1e12), int64(1e12), 1e-9)
	f.Add(1e-300, int64(7), int64(7), 0.0)
	f.Fuzz(func(t *testing.T, eps0 float64, n, k int64, eps float64) {
		c, err := NewCurve(RoundConfig{Eps0: eps0, Population: n, Reports: k, Rate: Blanket(eps0)})
		if err != nil {
			return
		}
		if d := c.Delta(eps); !(d >= 0 && d <= 1) {
			t.Errorf("delta = %v", d)
		}
		if e, err := c.Epsilon(1e-6); err != nil || !(e >= 0 && e <= eps0*(1+1e-9)) {
			t.Errorf("eps = %v of eps0 = %v (%v)", e, eps0, err)
		}
	})
}

func BenchmarkCurveEpsilon(b *testing.B) {
	for _, k := range []int64{1e3, 1e6, 1e9, 1e12} {
		b.Run(fmt.Sprintf("k=%g", float64(k)), func(b *testing.B) {
			for b.Loop() {
				c, err := NewCurve(RoundConfig{Eps0: 2, Population: k, Reports: k, Rate: Blanket(2)})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := c.Epsilon(1e-8); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
