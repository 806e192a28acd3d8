package vecsum

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// Every cohort's μ is at most that of Gaussian reports with the σ returned, and
// the σ gives away no more than its 1 %.
func TestSigmaCoversEveryCohort(t *testing.T) {
	for _, c := range []struct {
		kind      NoiseKind
		least, of int64
		honest    float64
	}{
		{Binomial, 60, 60, 1}, {Binomial, 100, 220, 1}, {Skellam, 40, 70, 1}, {Binomial, 50, 80, .8},
	} {
		p, err := Tight(Target{Mu: .4, Delta: 1e-6, Users: c.least, Honest: c.honest, Dim: 5, Radius: 1, Rounds: 7, Kind: c.kind})
		if err != nil {
			t.Fatal(err)
		}
		p.Users, p.MinUsers = c.of, c.least
		sigma, tail, err := p.Sigma(t.Context(), 1e-6, 7)
		if err != nil {
			t.Fatal(err)
		}
		if !(tail <= 1e-9) {
			t.Errorf("%+v: tail %v", c, tail)
		}
		worst := 0.
		for k := c.least; k <= c.of; k += 3 {
			q := p
			q.MinUsers = k
			curve, err := q.curve(p.tau(1e-6, 7))
			if err != nil {
				t.Fatal(err)
			}
			worst = math.Max(worst, curve.Mu*sigma*math.Sqrt(float64(k))/2)
		}
		if !(worst <= 1) || worst < .98 {
			t.Errorf("%+v: mu is up to %v of what sigma promises, want at most 1 and at least .98", c, worst)
		}
	}
	p, err := Tight(Target{Mu: 8, Delta: 1e-6, Users: 60, Dim: 5, Radius: 1, Kind: DiscreteGaussian})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Sigma(t.Context(), 1e-6, 1); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("discrete Gaussian noise: %v", err)
	}
	for _, bad := range []Target{
		{Mu: -1, Delta: 1e-6, Users: 9, Dim: 2, Radius: 1}, {Mu: math.NaN(), Delta: 1e-6, Users: 9, Dim: 2, Radius: 1},
		{Mu: 1, Eps: 1, Delta: 1e-6, Users: 9, Dim: 2, Radius: 1}, {Mu: math.Inf(1), Delta: 1e-6, Users: 9, Dim: 2, Radius: 1},
	} {
		if _, err := Tight(bad); err == nil {
			t.Errorf("accepted %+v", bad)
		}
	}
}

// The noise of many at once has the variance of their noise one by one.
func TestAddNoiseIsTheNoiseOfAll(t *testing.T) {
	p, err := Tight(Target{Mu: 1, Delta: 1e-5, Users: 20, Dim: 400, Radius: 1})
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewEncoder(p)
	if err != nil {
		t.Fatal(err)
	}
	src, zero := rng.Replay(4), make([]float32, p.Dim)
	variance := func(counts []int64) float64 {
		var mean, square float64
		for _, c := range counts {
			mean += float64(c) / float64(p.Dim)
		}
		for _, c := range counts {
			square += (float64(c) - mean) * (float64(c) - mean)
		}
		return square / float64(p.Dim-1)
	}
	var each, once float64
	const reps = 60
	for range reps {
		sum, row, rounded, all := make([]int64, p.Dim), make([]int64, p.Dim), make([]int32, p.Dim), make([]int64, p.Dim)
		for range 20 {
			if err := e.Encode(src, zero, row); err != nil {
				t.Fatal(err)
			}
			for j, c := range row {
				sum[j] += c
			}
			if err := e.Round(src, zero, rounded); err != nil {
				t.Fatal(err)
			}
			for j, c := range rounded {
				all[j] += int64(c)
			}
		}
		if err := p.AddNoise(src, all, 20); err != nil {
			t.Fatal(err)
		}
		each += variance(sum) / reps
		once += variance(all) / reps
	}
	// 24,000 values each: a variance's relative deviation is √(2/24000) = .9 %;
	// 6 of √2 of them fail with probability 2e-9.
	if math.Abs(each/once-1) > .08 {
		t.Errorf("variance %v one by one, %v at once", each, once)
	}
	if p.AddNoise(src, make([]int64, p.Dim), 19) == nil || p.AddNoise(src, make([]int64, 3), 20) == nil {
		t.Error("added the noise of too few clients, or to counts of another length")
	}
}

func TestHugeNormIsRefused(t *testing.T) {
	p := Params{Users: 1, Dim: 1, Radius: 1, Grid: 4, Norm: math.MaxInt64, Noise: Noise{Kind: Binomial, Bits: 8}}
	for _, split := range []bool{false, true} {
		p.Split = split
		if err := p.Validate(); err == nil {
			t.Errorf("split %v: accepted norm %d", split, p.Norm)
		}
	}
}
