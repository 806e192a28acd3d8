package statistic

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

func binomialPMF(n int, p float64) []float64 {
	out := []float64{1}
	for range n {
		next := make([]float64, len(out)+1)
		for i, m := range out {
			next[i] += m * (1 - p)
			next[i+1] += m * p
		}
		out = next
	}
	return out
}

// Laws agree with laws computed another way, and their cumulants with the laws.
func TestLawsOfNoise(t *testing.T) {
	skellam := func(v float64) lattice { // by its definition, a difference of Poisson variables
		const top = 120
		poisson := make([]float64, top)
		for k := range poisson {
			lg, _ := math.Lgamma(float64(k) + 1)
			poisson[k] = math.Exp(float64(k)*math.Log(v/2) - v/2 - lg)
		}
		p := lattice{0, poisson}
		return p.plus(p.mirrored())
	}
	sk, narrow := skellam(7*1.9), skellam(.001)
	three := gaussianNoise(.7).sum(1)
	for name, c := range map[string]struct {
		got, want lattice
		one       source
		times     float64
	}{
		"binomial":         {binomialNoise(5, .5).sum(8), lattice{-20, binomialPMF(40, .5)}, binomialNoise(5, .5), 8},
		"skewed binomial":  {binomialNoise(5, .2).sum(9), lattice{-9, binomialPMF(45, .2)}, binomialNoise(5, .2), 9},
		"skellam":          {skellamNoise(1.9).sum(7), sk, skellamNoise(1.9), 7},
		"narrow skellam":   {skellamNoise(.001).sum(1), narrow, skellamNoise(.001), 1},
		"three gaussian":   {gaussianNoise(.7).sum(3), three.plus(three).plus(three), gaussianNoise(.7), 3},
		"wide gaussian":    {gaussianNoise(36).sum(4), gaussianNoise(36).sum(1).plus(gaussianNoise(36).sum(1)).plus(gaussianNoise(36).sum(1).plus(gaussianNoise(36).sum(1))), gaussianNoise(36), 4},
		"gaussian of many": {gaussianNoise(2.5).sum(1001), lattice{-1500, gaussianMass(2502.5, 1500)}, gaussianNoise(2.5), 1001},
	} {
		at := func(l lattice, x float64) float64 {
			if i := math.Round(x - l.from); i >= 0 && int(i) < len(l.mass) {
				return l.mass[int(i)]
			}
			return 0
		}
		var sum, mean, v, k4 float64
		for i, m := range c.got.mass {
			x := c.got.from + float64(i)
			if w := at(c.want, x); math.Abs(m-w) > 1e-9*w+1e-13 {
				t.Errorf("%s: %v has chance %v, want %v", name, x, m, w)
			}
			sum, mean, v, k4 = sum+m, mean+m*x, v+m*x*x, k4+m*x*x*x*x
		}
		k4 -= 3 * v * v
		if math.Abs(sum-1) > 1e-12 || math.Abs(mean) > 1e-10 || math.Abs(v/(c.one.cumulants[0]*c.times)-1) > 1e-9 || math.Abs(k4-c.one.cumulants[2]*c.times) > 1e-6*v*v {
			t.Errorf("%s: mass %v, mean %v, cumulants %v and %v, want %v times %v", name, sum, mean, v, k4, c.one.cumulants, c.times)
		}
	}
}

func gaussianMass(v float64, top int) []float64 {
	out := make([]float64, 2*top+1)
	for i := range out {
		x := float64(i - top)
		out[i] = math.Exp(-x*x/(2*v)) / math.Sqrt(2*math.Pi*v)
	}
	return out
}

// The intervals of a law hold the truth as often as they say: exactly, over the law.
func TestIntervalsHoldExactly(t *testing.T) {
	for name, c := range map[string]struct {
		params  vecsum.Noise
		clients int64
		off     float64 // allowed, for the lattice
	}{
		"fair bits":       {vecsum.Noise{Kind: vecsum.Binomial, Bits: 1}, 400, .012},
		"skewed bits":     {vecsum.Noise{Kind: vecsum.Binomial, Bits: 2, P: .03}, 1000, .012},
		"wide skewed":     {vecsum.Noise{Kind: vecsum.Binomial, Bits: 2, P: .03}, 206_186, .004},
		"wide bits":       {vecsum.Noise{Kind: vecsum.Binomial, Bits: 30}, 5000, .001},
		"skellam":         {vecsum.Noise{Kind: vecsum.Skellam, Variance: .02}, 1000, .02},
		"wide skellam":    {vecsum.Noise{Kind: vecsum.Skellam, Variance: 30}, 5000, .001},
		"gaussian":        {vecsum.Noise{Kind: vecsum.DiscreteGaussian, Variance: 1.5}, 30, .015},
		"narrow gaussian": {vecsum.Noise{Kind: vecsum.DiscreteGaussian, Variance: .2}, 100, .02},
	} {
		p := vecsum.Params{Users: c.clients, Dim: 4, Ones: 1, Radius: 1, Grid: 1, Noise: c.params}
		law, err := OfClients(p, c.clients)
		if err != nil {
			t.Fatal(err)
		}
		// The exact law, also where the package uses cumulants.
		exact := clientNoise(c.params).sum(c.clients)
		for _, chance := range []float64{.95, .999, math.Pow(.95, 1./1024)} {
			var below, above float64
			for i, m := range exact.mass {
				e := exact.from + float64(i)
				low, high := law.interval(1000+e, chance)
				if 1000 < low-1e-9 {
					below += m
				}
				if 1000 > high+1e-9 {
					above += m
				}
			}
			var sure float64
			for i, m := range exact.mass {
				if low, high := law.surely().interval(1000+exact.from+float64(i), chance); low-1e-9 <= 1000 && 1000 <= high+1e-9 {
					sure += m
				}
			}
			// Above the tables' largest variance it is near the chance, on either side.
			if least := chance - map[bool]float64{true: 1e-12, false: (1 - chance) / 100}[len(law.(*noise).exact.mass) > 0]; sure < least {
				t.Errorf("%s at %v: surely covers %v", name, chance, sure)
			}
			tail := (1 - chance) / 2
			if off := c.off * 20 * (1 - chance); math.Abs(below-tail) > off/2 || math.Abs(above-tail) > off/2 {
				t.Errorf("%s at %v: missed below with %v, above with %v, want %v", name, chance, below, above, tail)
			}
		}
	}
}

// A law with rounding holds for inputs rounded at random, and is wider than one without.
func TestRoundingWidens(t *testing.T) {
	p := vecsum.Params{Users: 500, Dim: 1, Radius: 1, Grid: 4, Norm: vecsum.Norm(1, 4, 0), Noise: vecsum.Noise{Kind: vecsum.Skellam, Variance: .2}}
	law, err := OfClients(p, 500)
	if err != nil {
		t.Fatal(err)
	}
	if want := .25 * (100 + 125); math.Abs(law.variance(0)-want) > 1e-9 {
		t.Errorf("variance %v, want %v", law.variance(0), want)
	}
	low, high := law.interval(0, .95)
	if sd := math.Sqrt(law.variance(0)); math.Abs(high/sd-1.96) > .01 || math.Abs(low+high) > 1e-9 {
		t.Errorf("%v to %v is not 1.96 of %v", low, high, sd)
	}
	// Inputs in the middle between two grid points have that variance.
	src := rng.Replay(19, 1)
	encoder, err := vecsum.NewEncoder(p)
	if err != nil {
		t.Fatal(err)
	}
	const reps = 2000
	counts, missed := make([]int32, 1), 0
	for range reps {
		sum := []int64{0}
		for range 500 {
			if err := encoder.Round(src, []float32{.25}, counts); err != nil {
				t.Fatal(err)
			}
			sum[0] += int64(counts[0])
		}
		if err := p.AddNoise(src, sum, 500); err != nil {
			t.Fatal(err)
		}
		estimate := make([]float64, 1)
		if err := p.Estimate(estimate, sum, 500); err != nil {
			t.Fatal(err)
		}
		if low, high := law.interval(estimate[0], .95); 125 < low || 125 > high {
			missed++
		}
	}
	if share := float64(missed) / reps; share < .035 || share > .065 {
		t.Errorf("missed %v of the time", share)
	}
}

// Both noises of aggregators and a curator's are as their samplers draw them.
func TestWholeNoise(t *testing.T) {
	agg, err := vecsum.NewAggregatedOnes(1000, 3, 1, 4)
	if err != nil {
		t.Fatal(err)
	}
	a, err := OfAggregators(agg, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if v := a.variance(0); math.Abs(v/agg.NoiseVariance(1000)-1) > 1e-9 || len(a.sources()) != 1 {
		t.Errorf("aggregators: variance %v, want %v; %v", v, agg.NoiseVariance(1000), a.sources())
	}
	broken := agg
	broken.Radius = math.Inf(1)
	for _, bad := range []struct {
		p       vecsum.Aggregated
		clients int64
	}{{agg, 0}, {agg, 1001}, {broken, 1000}, {vecsum.Aggregated{}, 1}} {
		if _, err := OfAggregators(bad.p, bad.clients); err == nil {
			t.Errorf("%d clients of %+v accepted", bad.clients, bad.p)
		}
	}
	c, err := OfCurator(1, 30, 5, true)
	if err != nil {
		t.Fatal(err)
	}
	g, err := sample.NewDiscreteGaussian(sample.Ratio{Num: 30, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	src, missed := rng.Replay(19, 2), 0
	for range 20000 {
		if low, high := c.interval(float64(g.Draw(src)), .95); low > 0 || high < 0 {
			missed++
		}
	}
	if share := float64(missed) / 20000; share < .043 || share > .062 {
		t.Errorf("curator: missed %v of the time", share)
	}
	for _, bad := range []struct{ step, variance float64 }{{0, 1}, {math.NaN(), 1}, {1, 0}, {1, math.NaN()}, {1, math.Inf(1)}} {
		if _, err := OfCurator(bad.step, bad.variance, 1, true); err == nil {
			t.Errorf("%v accepted", bad)
		}
	}
}
