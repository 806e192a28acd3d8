package vecsum

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// A design for a sigma has it, and hardly more.
func TestTightSigma(t *testing.T) {
	for _, sigma := range []float64{.05, .5} {
		for _, least := range []int64{950, 1000} {
			for _, honest := range []float64{0, .5} {
				if (least == 1000) != (honest > 0) && !longtest.On {
					continue
				}
				target := Target{Delta: 1e-6, Users: 1000, MinUsers: least, Honest: honest, Dim: 20, Radius: 3, Rounds: 5}
				target.Sigma = sigma
				p, err := Tight(target)
				if err != nil {
					t.Fatal(err)
				}
				got, _, err := p.Sigma(t.Context(), target.Delta, target.Rounds)
				if err != nil || !(got >= sigma && got < 1.05*sigma) {
					t.Errorf("sigma %v, n-min %d, honest %v: %v (%v)", sigma, least, honest, got, err)
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
		bad.Sigma = 1
		if _, err := Tight(bad); err == nil {
			t.Errorf("designs for %+v", bad)
		}
	}
	for _, sigma := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, err := Tight(Target{Sigma: sigma, Delta: 1e-6, Users: 10, Dim: 2, Radius: 1}); err == nil {
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
