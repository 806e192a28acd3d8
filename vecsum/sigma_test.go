package vecsum

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/rng"
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
		sigma, tail, err := p.Sigma(1e-6, 7)
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
			curve, err := q.Curve(p.tau(1e-6, 7))
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
	if _, _, err := p.Sigma(1e-6, 1); !errors.Is(err, dp.ErrNoBound) {
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
		sum, row, all := make([]int64, p.Dim), make([]int64, p.Dim), make([]int64, p.Dim)
		for range 20 {
			if err := e.Encode(src, zero, row); err != nil {
				t.Fatal(err)
			}
			for j, c := range row {
				sum[j] += c
			}
			if err := e.Round(src, zero, row); err != nil {
				t.Fatal(err)
			}
			for j, c := range row {
				all[j] += c
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

// A design for a sigma has it, and hardly more.
func TestTightSigma(t *testing.T) {
	for _, sigma := range []float64{.05, .5} {
		for _, least := range []int64{950, 1000} {
			for _, honest := range []float64{0, .5} {
				target := Target{Delta: 1e-6, Users: 1000, MinUsers: least, Honest: honest, Dim: 20, Radius: 3, Rounds: 5}
				p, got, err := TightSigma(sigma, target)
				if err != nil {
					t.Fatal(err)
				}
				again, _, err := p.Sigma(target.Delta, target.Rounds)
				if err != nil || again != got || !(got >= sigma && got < 1.05*sigma) {
					t.Errorf("sigma %v, n-min %d, honest %v: %v, then %v (%v)", sigma, least, honest, got, again, err)
				}
				if p.Users != 1000 || p.MinUsers != least {
					t.Errorf("cohorts %d to %d", p.MinUsers, p.Users)
				}
			}
		}
	}
	for _, bad := range []Target{
		{Delta: 1e-6, Users: 10, Dim: 2, Radius: 1, Eps: 1},
		{Delta: 1e-6, Users: 10, Dim: 2, Radius: 1, Mu: 1},
		{Delta: 2, Users: 10, Dim: 2, Radius: 1},
		{Delta: 1e-6, Users: 0, Dim: 2, Radius: 1},
	} {
		if _, _, err := TightSigma(1, bad); err == nil {
			t.Errorf("designs for %+v", bad)
		}
	}
	for _, sigma := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, _, err := TightSigma(sigma, Target{Delta: 1e-6, Users: 10, Dim: 2, Radius: 1}); err == nil {
			t.Errorf("designs for sigma %v", sigma)
		}
	}
}

// Delta and Epsilon are inverse to each other, but for the window's choice.
func TestDeltaInvertsEpsilon(t *testing.T) {
	p, err := Tight(Target{Eps: 2, Delta: 1e-6, Users: 500, Dim: 5, Radius: 1, Rounds: 3})
	if err != nil {
		t.Fatal(err)
	}
	for _, delta := range []float64{1e-2, 1e-6, 1e-12, 1e-30} {
		eps, err := p.Epsilon(delta, 3)
		if err != nil {
			t.Fatal(err)
		}
		back, err := p.Delta(eps, 3)
		if err != nil || !(back > .9*delta && back < 1.05*delta) {
			t.Errorf("delta %v: eps %v has delta %v (%v)", delta, eps, back, err)
		}
	}
	for _, eps := range []float64{-1, math.NaN(), math.Inf(1)} {
		if _, err := p.Delta(eps, 1); err == nil {
			t.Errorf("answers eps %v", eps)
		}
	}
	if _, err := p.Delta(1, 0); err == nil {
		t.Error("answers no rounds")
	}
	p.Noise.Bits = 1
	p.Users, p.MinUsers = 4, 4
	if d, err := p.Delta(1, 1); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("four coins: delta %v, %v", d, err)
	}
}
