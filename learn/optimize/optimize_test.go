package optimize

import (
	"math"
	"testing"
)

func newSGD(t *testing.T, c CLDPSGDConfig) *Optimizer {
	t.Helper()
	o, err := NewCLDPSGD(c)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func constant(rate float64) Schedule { return func(int64) float64 { return rate } }

// quadratic is the gradient of ½‖θ − c‖².
func quadratic(c []float64) oracle {
	return func(theta, mean []float64) error {
		for j := range mean {
			mean[j] = theta[j] - c[j]
		}
		return nil
	}
}

func TestReachesAKnownMinimum(t *testing.T) {
	want := []float64{1, -2, .5}
	for _, c := range []CLDPSGDConfig{
		{Schedule: constant(.3)},
		{Schedule: constant(.05), Momentum: .9},
		{Schedule: constant(.3), Momentum: .2, AverageFrom: 200},
		{Schedule: constant(.3), Radius: 5},
	} {
		c.Dim = 3
		o := newSGD(t, c)
		if err := drive(o, quadratic(want), 400); err != nil {
			t.Fatal(err)
		}
		got := make([]float64, 3)
		o.Model(got)
		for j := range got {
			if math.Abs(got[j]-want[j]) > 1e-6 {
				t.Errorf("%+v: reached %v, want %v", c, got, want)
			}
		}
	}
}

// The minimum over a ball of a distance to a point outside is its projection.
func TestProjectionFindsTheConstrainedMinimum(t *testing.T) {
	o := newSGD(t, CLDPSGDConfig{Dim: 2, Schedule: constant(.5), Radius: 1})
	if err := drive(o, quadratic([]float64{3, 4}), 100); err != nil {
		t.Fatal(err)
	}
	if x := o.Point(); math.Abs(x[0]-.6) > 1e-12 || math.Abs(x[1]-.8) > 1e-12 {
		t.Errorf("reached %v, want (.6, .8)", x)
	}
	huge := []float64{1e300, 1e300}
	project(huge, 1)
	if math.Abs(huge[0]-math.Sqrt(.5)) > 1e-12 {
		t.Errorf("projection of large values overflowed: %v", huge)
	}
}

func TestMomentumAndAverageByHand(t *testing.T) {
	o := newSGD(t, CLDPSGDConfig{Dim: 1, Schedule: constant(1), Momentum: .5, AverageFrom: 2})
	model := make([]float64, 1)
	for i, want := range []struct{ theta, model float64 }{
		{-1, -1},                   // v = 1
		{-2.5, -2.5},               // v = 1.5, the average begins
		{-4.25, (-2.5 - 4.25) / 2}, // v = 1.75
	} {
		if err := o.Step([]float64{1}); err != nil {
			t.Fatal(err)
		}
		o.Model(model)
		if o.Point()[0] != want.theta || model[0] != want.model {
			t.Errorf("step %d: point %v model %v, want %+v", i+1, o.Point(), model, want)
		}
	}
}

func TestRefusedStepChangesNothing(t *testing.T) {
	o := newSGD(t, CLDPSGDConfig{Dim: 2, Schedule: constant(1e200), Momentum: .5, AverageFrom: 1})
	if err := o.Step([]float64{1, 1}); err != nil {
		t.Fatal(err)
	}
	before := o.State()
	for _, g := range [][]float64{{1}, {1, math.NaN()}, {math.Inf(1), 0}, {1e200, 0}} {
		if err := o.Step(g); err == nil {
			t.Errorf("took the step %v", g)
		}
	}
	after := o.State()
	if before.Steps != after.Steps || before.Vectors["theta"][0] != after.Vectors["theta"][0] ||
		before.Vectors["velocity"][1] != after.Vectors["velocity"][1] || before.Vectors["average"][0] != after.Vectors["average"][0] {
		t.Errorf("state changed from %v to %v", before, after)
	}
}

func TestRestoreContinuesBitForBit(t *testing.T) {
	c := CLDPSGDConfig{Dim: 3, Schedule: must(ParseSchedule("0.3,0.1@7")), Momentum: .9, Radius: 2, AverageFrom: 5}
	target := quadratic([]float64{1, 2, 3})
	whole := newSGD(t, c)
	if err := drive(whole, target, 12); err != nil {
		t.Fatal(err)
	}
	first := newSGD(t, c)
	if err := drive(first, target, 6); err != nil {
		t.Fatal(err)
	}
	second := newSGD(t, c)
	if err := second.Restore(first.State()); err != nil {
		t.Fatal(err)
	}
	if err := drive(second, target, 6); err != nil {
		t.Fatal(err)
	}
	a, b := make([]float64, 3), make([]float64, 3)
	whole.Model(a)
	second.Model(b)
	for j := range a {
		if a[j] != b[j] || whole.Point()[j] != second.Point()[j] {
			t.Errorf("%v after a restore, want %v", b, a)
		}
	}
	if second.Restore(State{Steps: 1, Vectors: map[string][]float64{"theta": {1}}}) == nil {
		t.Error("restored a state of another dimension")
	}
}

func TestSchedules(t *testing.T) {
	rate, err := ParseSchedule("0.3,0.18@420, 0.1@500")
	if err != nil {
		t.Fatal(err)
	}
	for step, want := range map[int64]float64{1: .3, 419: .3, 420: .18, 499: .18, 500: .1, 1e6: .1} {
		if got := rate(step); got != want {
			t.Errorf("rate at %d is %v, want %v", step, got, want)
		}
	}
	for _, bad := range []string{"", "0", "-1", "NaN", "Inf", "x", "1@3", "1,2", "1,2@1", "1,2@5,3@5", "1,2@x", "1,,2@3"} {
		if _, err := ParseSchedule(bad); err == nil {
			t.Errorf("accepted lr %q", bad)
		}
	}
}

func TestTheorem3Schedule(t *testing.T) {
	// p = 2: G² = L² + MSE/k = 4 + 21 = 25; η_4 = 10/(5·2) = 1.
	s, err := NewTheorem3(Theorem3Config{Diameter: 10, Lipschitz: 2, Norm: 2, Dim: 100, MSE: 210, Reports: 10})
	if err != nil {
		t.Fatal(err)
	}
	if got := s(4); math.Abs(got-1) > 1e-15 {
		t.Errorf("rate %v, want 1", got)
	}
	// p = ∞: d^(1−2/p) = d, so G² = 100·4 + 21.
	s, err = NewTheorem3(Theorem3Config{Diameter: 10, Lipschitz: 2, Norm: math.Inf(1), Dim: 100, MSE: 210, Reports: 10})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s(1), 10/math.Sqrt(421); math.Abs(got-want) > 1e-15 {
		t.Errorf("rate %v, want %v", got, want)
	}
	if _, err := NewTheorem3(Theorem3Config{Diameter: 0, Lipschitz: 2, Norm: 2, Dim: 1, Reports: 1}); err == nil {
		t.Error("accepted an unbounded feasible set")
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []CLDPSGDConfig{
		{Dim: 0, Schedule: constant(1)}, {Dim: 1}, {Dim: 1, Schedule: constant(1), Momentum: 1},
		{Dim: 1, Schedule: constant(1), Momentum: math.NaN()}, {Dim: 1, Schedule: constant(1), Radius: -1},
		{Dim: 1, Schedule: constant(1), Radius: math.Inf(1)}, {Dim: 1, Schedule: constant(1), AverageFrom: -1},
		{Dim: 1, Schedule: constant(1), Start: []float64{1, 2}},
	} {
		if _, err := NewCLDPSGD(c); err == nil {
			t.Errorf("accepted %+v", c)
		}
	}
}

// oracle evaluates the noisy mean gradient at theta into mean.
type oracle func(theta, mean []float64) error

// drive drives o for the given number of steps.
func drive(o *Optimizer, oracle oracle, steps int64) error {
	mean := make([]float64, len(o.Point()))
	for range steps {
		if err := oracle(o.Point(), mean); err != nil {
			return err
		}
		if err := o.Step(mean); err != nil {
			return err
		}
	}
	return nil
}
