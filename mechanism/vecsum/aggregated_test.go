package vecsum

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// discrete returns the probabilities of −top … top of the discrete Gaussian with parameter v.
func discrete(v float64, top int) []float64 {
	out, sum := make([]float64, 2*top+1), 0.
	for i := range out {
		x := float64(i - top)
		out[i] = math.Exp(-x * x / (2 * v))
		sum += out[i]
	}
	for i := range out {
		out[i] /= sum
	}
	return out
}

// The theorem of section 9, by enumeration: the divergence of the discrete Gaussian mechanism in
// one and two dimensions, over all shifts up to a length, is at most that of the Gaussian
// mechanism with r² less, and the charge. Here r² may be small, so that the charge is seen.
func TestDiscreteGaussianAgainstGaussian(t *testing.T) {
	tightest := 0.
	for _, v := range []float64{1, 1.5, 3, 8, 40} {
		for _, r2 := range []float64{.2, .5, .9, 2, 5} {
			if r2 >= v {
				continue
			}
			if v > 8 && !longtest.On {
				continue
			}
			top := int(12*math.Sqrt(v)) + 14
			one := discrete(v, top)
			at := func(i int) float64 {
				if i < -top || i > top {
					return 0
				}
				return one[i+top]
			}
			for a := 0; a <= 6; a++ {
				for b := 0; b <= a; b++ {
					if a+b == 0 {
						continue
					}
					mu := math.Hypot(float64(a), float64(b)) / math.Sqrt(v-r2)
					for _, eps := range []float64{0, .1, .7, 2, 5, 9} {
						exact, e := 0., math.Exp(eps)
						for x := -top; x <= top+a; x++ {
							if b == 0 {
								exact += math.Max(0, at(x-a)-e*at(x))
								continue
							}
							for y := -top; y <= top+b; y++ {
								exact += math.Max(0, at(x-a)*at(y-b)-e*at(x)*at(y))
							}
						}
						gauss := gaussDelta(mu, eps)
						bound := gauss + (1+e)*smoothing(r2, 2)
						if exact > bound*(1+1e-9)+1e-15 {
							t.Errorf("v = %v, r2 = %v, shift (%d, %d), eps = %v: delta %v above %v", v, r2, a, b, eps, exact, bound)
						}
						if gauss > 1e-9 {
							tightest = math.Max(tightest, exact/bound)
						}
					}
				}
			}
		}
	}
	if tightest < .95 {
		t.Errorf("the bound is met to %v only: is the enumeration right?", tightest)
	}
}

// Without the charge, and with the whole variance credited to the Gaussian, the claim is false.
func TestWholeVarianceIsUnsound(t *testing.T) {
	const v, eps = 1., 3.
	one, exact := discrete(v, 40), 0.
	for x := -39; x <= 40; x++ {
		before := 0.
		if x+40 < len(one) {
			before = one[x+40]
		}
		exact += math.Max(0, one[x-1+40]-math.Exp(eps)*before)
	}
	if gauss := gaussDelta(1/math.Sqrt(v), eps); exact <= gauss {
		t.Errorf("delta %v of the discrete Gaussian is within %v: the test above is blind", exact, gauss)
	}
}

// The kernel of the proof: what it makes of a Gaussian on the reals is as near to the discrete
// Gaussian as the theorem says.
func TestKernelDistance(t *testing.T) {
	for _, c := range []struct{ v, r2 float64 }{{1, .1}, {1, .3}, {2, .2}, {2, .4}, {5, .15}} {
		const h = 1. / 256
		top := int(9*math.Sqrt(c.v)) + 3
		made := make([]float64, 2*top+1)
		s2 := c.v - c.r2
		for y := -float64(top); y <= float64(top); y += h {
			density := math.Exp(-y*y/(2*s2)) / math.Sqrt(2*math.Pi*s2) * h
			var weights []float64
			sum := 0.
			for i := range made {
				x := float64(i-top) - y
				weights = append(weights, math.Exp(-x*x/(2*c.r2)))
				sum += weights[i]
			}
			for i, w := range weights {
				made[i] += density * w / sum
			}
		}
		tv := 0.
		for i, p := range discrete(c.v, top) {
			tv += math.Abs(p-made[i]) / 2
		}
		if most := smoothing(c.r2, 1); !(tv <= most) || !(tv > 1e-9) {
			t.Errorf("%+v: distance %v, bound %v", c, tv, most)
		}
	}
}

func TestAggregatedSigma(t *testing.T) {
	for _, sigma := range []float64{1, 7.5, 90, 4000, 1e6} {
		for _, dim := range []int{1, 4, 1930, 1 << 20} {
			if sigma > 1e5 && dim > 1e5 {
				continue // more noise than is drawn
			}
			p, err := NewAggregated(60000, dim, .2, sigma)
			if err != nil {
				t.Fatal(err)
			}
			got, tail, err := p.Sigma(50)
			if err != nil || got < sigma || got > sigma*(1+1e-4) || !(tail < 1e-20) {
				t.Errorf("sigma = %v, dim = %d: %+v is worth %v, tail %v, %v", sigma, dim, p, got, tail, err)
			}
			if 4*(p.Bound-p.Steps)*(p.Bound-p.Steps) < int64(dim) {
				t.Errorf("dim = %d: bound %d for %d steps", dim, p.Bound, p.Steps)
			}
		}
	}
	p, _ := NewAggregated(10, 3, 1, 1)
	if _, tail, err := p.Sigma(1e9); err != nil || !(tail >= 3*2*math.Exp(-2*math.Pi*math.Pi*spread)*1e9*math.Exp(MostEps)) || tail > 1e-29 {
		t.Errorf("1e9 rounds: tail %v, %v", tail, err)
	}
	if _, _, err := p.Sigma(0); err == nil {
		t.Error("no rounds were counted")
	}
	if _, err := NewAggregated(10, 3, 1, 1e9); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("sigma = 1e9: %v", err)
	}
	for want, change := range map[string]func(*Aggregated){
		"norm bound":      func(p *Aggregated) { p.Bound = p.Steps },
		"users = 0":       func(p *Aggregated) { p.Users = 0 },
		"noise variance":  func(p *Aggregated) { p.Variance = spread },
		"exceed 2^61":     func(p *Aggregated) { p.Users, p.Bound, p.Steps = 1<<40, 1<<23, 1<<20 },
		"radius = NaN":    func(p *Aggregated) { p.Radius = math.NaN() },
		"steps in the ra": func(p *Aggregated) { p.Steps = 0 },
	} {
		q := p
		change(&q)
		if err := q.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", q, err, want)
		}
	}
}

// Rounded inputs keep to the norm whatever the input, and are unbiased.
func TestAggregatedRounding(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	src := rng.Replay(3, 4)
	for _, dim := range []int{1, 2, 3, 17, 600} {
		p, err := NewAggregated(100, dim, 2, 1)
		if err != nil {
			t.Fatal(err)
		}
		// A coarse grid makes rounding matter.
		p.Steps, p.Bound = 8, 8+halfRoot(dim)
		counts, mean := make([]int32, dim), make([]float64, dim)
		x := make([]float32, dim)
		var square float64
		for j := range x {
			x[j] = float32(r.NormFloat64())
			square += float64(x[j]) * float64(x[j])
		}
		scale := 8 / math.Max(2, math.Sqrt(square))
		const tries = 4000
		for range tries {
			p.Round(src, x, counts)
			norm := int64(0)
			for j, c := range counts {
				norm += int64(c) * int64(c)
				mean[j] += float64(c) / tries
				if math.Abs(float64(c)-float64(x[j])*scale) > 1 {
					t.Fatalf("dim %d: coordinate %v became %d", dim, float64(x[j])*scale, c)
				}
			}
			if norm > p.Bound*p.Bound {
				t.Fatalf("dim %d: squared norm %d above %d²", dim, norm, p.Bound)
			}
		}
		for j := range mean { // 6 deviations of a mean of values within ½ of a step
			if d := math.Abs(mean[j] - float64(x[j])*scale); d > 6*.5/math.Sqrt(tries) && dim > 40 {
				t.Errorf("dim %d: mean %v of %v", dim, mean[j], float64(x[j])*scale)
			}
		}
	}
	p, _ := NewAggregated(100, 4, 2, 1)
	counts := []int32{1, 2, 3, 4}
	for _, x := range [][]float32{{0, float32(math.NaN()), 0, 0}, {0, float32(math.Inf(1)), 0, 0}, {1, 2}} {
		p.Round(src, x, counts)
		for _, c := range counts {
			if c != 0 {
				t.Errorf("%v became %v", x, counts)
			}
		}
	}
	// Nine of these coordinates rounded up, which happens some ten times here, are too long.
	p, _ = NewAggregated(100, 14, float64(float32(math.Sqrt(14))), 1)
	p.Steps, p.Bound = 8, 10
	x := make([]float32, p.Dim)
	for j := range x {
		x[j] = 1
	}
	counts = make([]int32, p.Dim)
	for range 300000 {
		p.Round(src, x, counts)
		norm := int32(0)
		for _, c := range counts {
			norm += c * c
		}
		if norm > 100 {
			t.Fatalf("%v: squared norm %d above 100", counts, norm)
		}
	}
}

func TestAggregatedNoise(t *testing.T) {
	const dim = 20000
	p, err := NewAggregated(1000, dim, 1, 3)
	if err != nil {
		t.Fatal(err)
	}
	sum := make([]int64, dim)
	if err := p.AddNoise(rng.Replay(1, 9), sum, 1000); err != nil {
		t.Fatal(err)
	}
	square := 0.
	for _, c := range sum {
		v := float64(c) / float64(p.Steps)
		square += v * v / dim
	}
	// Two aggregators' noise of the worth 3; 6 deviations are 6·√(2/20000).
	if want := 2 * 9. * math.Pow(float64(p.Bound)/float64(p.Steps), 2); math.Abs(square/want-1) > .06 {
		t.Errorf("variance %v, want %v", square, want)
	}
	if got := p.NoiseVariance(0); math.Abs(got/square-1) > .06 {
		t.Errorf("NoiseVariance = %v, measured %v", got, square)
	}
	if length, most := math.Sqrt(square*dim)/1000, p.MeanBound(1000, 1e-9, 1); !(length <= most) {
		t.Errorf("a mean of noise of length %v, bound %v", length, most)
	}
	sum[7] = 1000*p.Bound + int64(p.reach(1000)) + 1
	if err := p.CheckSum(sum, 1000); err == nil {
		t.Error("a sum that no clients have was taken")
	}
	if err := p.CheckSum(sum[:5], 1000); err == nil {
		t.Error("a short sum was taken")
	}
	clear(sum)
	for _, n := range []int64{0, 1001} {
		if p.CheckSum(sum, n) == nil || p.AddNoise(rng.Replay(1), sum, n) == nil {
			t.Errorf("%d clients were taken", n)
		}
	}
}
