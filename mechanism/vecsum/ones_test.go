package vecsum

import (
	"errors"
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// The sensitivity of every round of few coordinates, by all pairs of what clients may send: of counts
// it is attained.
func TestOnesSensitivityBrute(t *testing.T) {
	for dim := 1; dim <= 8; dim++ {
		for ones := 1; ones <= dim; ones++ {
			const grid = 3
			p := Params{Users: 1, Dim: dim, Radius: onesRadius(ones), Grid: grid, Ones: ones, Noise: Noise{Kind: Binomial, Bits: 1}}
			if err := p.Validate(); err != nil {
				t.Fatal(err)
			}
			most := 0
			for a := range uint(1) << dim {
				for b := range uint(1) << dim {
					if bits.OnesCount(a) <= ones && bits.OnesCount(b) <= ones {
						most = max(most, bits.OnesCount(a^b))
					}
				}
			}
			shift, norm, counts := p.sensitivity()
			if want := grid * math.Sqrt(float64(most)); shift != grid || int(counts) != most || norm < want || norm > want*(1+1e-15) {
				t.Errorf("dim %d, ones %d: shift %d, norm %v, %d counts, want %d, %v, %d", dim, ones, shift, norm, counts, grid, want, most)
			}
			a := Aggregated{Steps: grid, Ones: ones, Dim: dim}
			if want := grid * math.Sqrt(float64(most)) / 2; math.Abs(a.half()-want) > 1e-15*want {
				t.Errorf("dim %d, ones %d: half the distance is %v, want %v", dim, ones, a.half(), want)
			}
		}
	}
}

// In few dimensions a coarse grid bounds the distance, not the ball.
func TestCoarseGrid(t *testing.T) {
	p := Params{Users: 100, Dim: 1, Radius: 1, Grid: 1, Norm: Norm(1, 1, NormBeta), Noise: Noise{Kind: Skellam, Variance: .05}}
	if _, norm, _ := p.sensitivity(); norm < 1 || norm > 1+1e-15 {
		t.Errorf("a coordinate of 0 or 1 changes by %v", norm)
	}
	eps, err := p.Epsilon(1e-6, 1)
	if err != nil || !(eps > 1.5 && eps < 4) {
		t.Errorf("eps = %v, %v", eps, err)
	}
	p.Ones, p.Norm = 1, 0
	if same, err := p.Epsilon(1e-6, 1); err != nil || math.Abs(same-eps) > 1e-12 {
		t.Errorf("as counts: eps = %v, want %v, %v", same, eps, err)
	}
}

func TestOnesAreSummed(t *testing.T) {
	const n, d, m = 60, 5, 2
	inputs := func(i int) []float32 {
		x := make([]float32, d)
		x[i%d], x[3*i%d] = 1, 1
		return x
	}
	want := make([]float64, d)
	for i := range n {
		for j, v := range inputs(i) {
			want[j] += float64(v)
		}
	}
	p := mustTight(t, Target{Eps: 1, Delta: 1e-5, Users: n, Dim: d, Ones: m})
	e, err := NewEncoder(p)
	if err != nil {
		t.Fatal(err)
	}
	sum, one := make([]int64, d), make([]int32, d)
	for i := range n {
		if err := e.Round(rng.Replay(1), inputs(i), one); err != nil {
			t.Fatal(err)
		}
		for j, c := range one {
			sum[j] += int64(c) + p.Noise.Bits/2
		}
	}
	if p.Noise.Bits%2 != 0 {
		t.Fatalf("%d bits: the test needs an even number", p.Noise.Bits)
	}
	got := make([]float64, d)
	if err := p.Estimate(got, sum, n); err != nil {
		t.Fatal(err)
	}
	a, err := NewAggregatedOnes(n, d, m, 3)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]float64, d)
	for i := range n {
		a.Round(rng.Replay(1), inputs(i), one)
		for j, c := range one {
			all[j] += a.Step() * float64(c)
		}
	}
	for j := range want {
		if math.Abs(got[j]-want[j]) > 1e-9 || math.Abs(all[j]-want[j]) > 1e-9 {
			t.Errorf("coordinate %d: %v of clients, %v of aggregators, want %v", j, got[j], all[j], want[j])
		}
	}
}

// What is not a vector of zeros and few ones counts as zeros.
func TestOtherInputsAreZeros(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	p := Params{Users: 5, Dim: 4, Radius: onesRadius(2), Grid: 7, Ones: 2, Noise: Noise{Kind: Binomial, Bits: 3}}
	a, err := NewAggregatedOnes(5, 4, 2, 1)
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewEncoder(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range [][]float32{{1, 1, 1, 0}, {1, 1, 1, 1}, {.5, 0, 0, 0}, {0, 0, 0, 2}, {-1, 0, 0, 0}, {1, 0, nan, 0}, {inf, 0, 0, 0}, {1, 0, 0}, {1, 0, 0, 0, 0},
		{1, 0, 0, math.Nextafter32(1, 0)}, {1, 0, 0, math.SmallestNonzeroFloat32}} {
		counts := []int64{9, 9, 9, 9}
		if err := e.Encode(rng.Replay(1), x, counts); !errors.Is(err, ErrInput) || !slices.Equal(counts, make([]int64, 4)) {
			t.Errorf("%v became %v, %v", x, counts, err)
		}
		some := []int32{9, 9, 9, 9}
		if a.Round(rng.Replay(1), x, some); !slices.Equal(some, make([]int32, 4)) {
			t.Errorf("%v became %v", x, some)
		}
	}
	minus := float32(math.Copysign(0, -1))
	for _, x := range [][]float32{{0, minus, 1, 0}, {1, 0, 1, 0}, {0, 0, 0, 0}} {
		some := make([]int32, 4)
		if err := e.Round(rng.Replay(1), x, some); err != nil {
			t.Error(err)
		}
		for j, v := range x {
			if some[j] != 7*int32(v) {
				t.Errorf("%v became %v", x, some)
			}
		}
		a.Round(rng.Replay(1), x, some)
		for j, v := range x {
			if int64(some[j]) != a.Steps*int64(v) {
				t.Errorf("%v became %v", x, some)
			}
		}
	}
}

func TestOnesAreValidated(t *testing.T) {
	p := mustTight(t, Target{Eps: 1, Delta: 1e-5, Users: 100, Dim: 9, Ones: 4})
	for want, change := range map[string]func(*Params){
		"ones = -1": func(p *Params) { p.Ones = -1 },
		"ones = 10": func(p *Params) { p.Ones = 10 },
		"radius":    func(p *Params) { p.Ones = 3 },
		"norm = 1":  func(p *Params) { p.Norm = 1 },
		"split":     func(p *Params) { p.Split = true },
	} {
		q := p
		change(&q)
		if err := q.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", q, err, want)
		}
	}
	q := p
	q.Ones = 0
	if q.Norm = Norm(9, q.Grid, 0); q.Validate() != nil {
		t.Error(q.Validate())
	}
	if p.Tag(RoundID{}, "x") == q.Tag(RoundID{}, "x") {
		t.Error("rounds of counts and of vectors have one tag")
	}
	a, err := NewAggregatedOnes(100, 9, 4, 2)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Aggregated){
		"ones = -1":  func(p *Aggregated) { p.Ones = -1 },
		"ones = 10":  func(p *Aggregated) { p.Ones = 10 },
		"radius":     func(p *Aggregated) { p.Ones = 3 },
		"norm bound": func(p *Aggregated) { p.Bound = p.Steps*2 - 1 },
	} {
		q := a
		change(&q)
		if err := q.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", q, err, want)
		}
	}
	for _, c := range []struct{ dim, ones int }{{0, 1}, {3, 0}, {3, 4}, {1 << 25, 1}} {
		if _, err := NewAggregatedOnes(100, c.dim, c.ones, 1); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
	if p, err := NewAggregatedOnes(100, 1<<24, 1<<24, 2); err != nil || p.Steps != 8 {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := NewAggregatedOnes(100, 5, 1, 1e9); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("sigma = 1e9: %v", err)
	}
}

// The noise of counts is that of the Gaussian mechanism for their distance, but for a few per cent.
func TestOnesNeedLittleNoise(t *testing.T) {
	for _, n := range []int64{20, 1000, 1_000_000} {
		for _, c := range []struct{ dim, ones int }{{1, 1}, {2, 1}, {1024, 1}, {1023, 10}, {7, 5}} {
			for _, eps := range []float64{.1, 1, 5} {
				p := mustTight(t, Target{Eps: eps, Delta: 1e-5, Users: n, Dim: c.dim, Ones: c.ones})
				want := math.Sqrt(float64(differing(c.ones, c.dim))) / gaussMu(eps, 1e-5)
				if got := math.Sqrt(p.Variance(n)); got < want || got > 1.06*want {
					t.Errorf("n = %d, %+v, eps = %v: noise of %v, Gaussian %v", n, c, eps, got, want)
				}
			}
		}
	}
	for _, c := range []struct{ dim, ones int }{{1, 1}, {1024, 1}, {1023, 10}} {
		for _, sigma := range []float64{.3, 2, 700} {
			a, err := NewAggregatedOnes(1e6, c.dim, c.ones, sigma)
			if err != nil {
				t.Fatal(err)
			}
			got, tail, err := a.Sigma(3)
			if err != nil || got < sigma || got > sigma*(1+1e-4) || tail > 1e-20 {
				t.Errorf("%+v: sigma = %v is worth %v, tail %v, %v", c, sigma, got, tail, err)
			}
			want := sigma * math.Sqrt(float64(differing(c.ones, c.dim))) / 2
			if noise := math.Sqrt(a.NoiseVariance(1e6) / 2); noise < want || noise > want*(1+1e-4) {
				t.Errorf("%+v: sigma = %v is noise of %v a coordinate, want %v", c, sigma, noise, want)
			}
		}
	}
}
