package optimize

import (
	"math"
	"reflect"
	"testing"
)

// TestAdam compares steps with the algorithm as it is published, written out for one coordinate.
func TestAdam(t *testing.T) {
	gradients := [][]float64{{3, -1e-3, 0}, {-1, 1e-3, 0}, {2, 2e-3, 0}, {.5, 0, 0}}
	o := newSGD(t, CLDPSGDConfig{Dim: 3, Schedule: constant(.1), Momentum: .9, Second: .99})
	for _, g := range gradients {
		if err := o.Step(g); err != nil {
			t.Fatal(err)
		}
	}
	for j := range 3 {
		theta, m, v := 0.0, 0.0, 0.0
		for i, g := range gradients {
			m = .9*m + .1*g[j]
			v = .99*v + .01*g[j]*g[j]
			k := float64(i + 1)
			theta -= .1 * (m / (1 - math.Pow(.9, k))) / (math.Sqrt(v/(1-math.Pow(.99, k))) + 1e-8)
		}
		if got := o.Point()[j]; math.Abs(got-theta) > 1e-12 {
			t.Errorf("coordinate %d is %v, want %v", j, got, theta)
		}
	}
	first := newSGD(t, CLDPSGDConfig{Dim: 3, Schedule: constant(.1), Second: .99})
	if err := first.Step(gradients[0]); err != nil || math.Abs(first.Point()[0]+.1) > 1e-6 || math.Abs(first.Point()[1]-.1) > 1e-6 {
		t.Errorf("the first step leads to %v, %v", first.Point(), err)
	}
}

func TestAdamReachesAKnownMinimum(t *testing.T) {
	want := []float64{1, -2, .5}
	o := newSGD(t, CLDPSGDConfig{Dim: 3, Schedule: func(t int64) float64 { return .3 / math.Sqrt(float64(t)) }, Momentum: .9, Second: .99})
	if err := drive(o, quadratic(want), 4000); err != nil {
		t.Fatal(err)
	}
	for j, x := range o.Point() {
		if math.Abs(x-want[j]) > 1e-3 {
			t.Errorf("reached %v, want %v", o.Point(), want)
		}
	}
}

// TestAdamGoesOn restores the state between two steps.
func TestAdamGoesOn(t *testing.T) {
	config := CLDPSGDConfig{Dim: 3, Schedule: constant(.1), Momentum: .5, Second: .9, AverageFrom: 2}
	whole := newSGD(t, config)
	if err := drive(whole, quadratic([]float64{1, 2, 3}), 7); err != nil {
		t.Fatal(err)
	}
	half := newSGD(t, config)
	if err := drive(half, quadratic([]float64{1, 2, 3}), 3); err != nil {
		t.Fatal(err)
	}
	rest := newSGD(t, config)
	if err := rest.Restore(half.State()); err != nil {
		t.Fatal(err)
	}
	if err := drive(rest, quadratic([]float64{1, 2, 3}), 4); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(rest.State(), whole.State()) {
		t.Errorf("%v, want %v", rest.State(), whole.State())
	}
	plain := config
	plain.Second = 0
	if err := newSGD(t, plain).Restore(half.State()); err == nil {
		t.Error("SGD took Adam's state")
	}
	for _, second := range []float64{-.1, 1, math.NaN(), math.Inf(1)} {
		config.Second = second
		if _, err := NewCLDPSGD(config); err == nil {
			t.Errorf("accepted second = %v", second)
		}
	}
	// A step that overflows changes nothing.
	o := newSGD(t, CLDPSGDConfig{Dim: 1, Schedule: constant(.1), Second: .99})
	if err := o.Step([]float64{1e300}); err == nil {
		t.Error("a square overflows")
	} else if o.Point()[0] != 0 || o.State().Vectors["square"][0] != 0 {
		t.Errorf("%v", o.State())
	}
}
