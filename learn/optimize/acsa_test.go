package optimize

import (
	"errors"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// quad is f(θ) = ½Σ h_j(θ_j − m_j)².
type quad struct{ h, m []float64 }

func (q quad) oracle(theta, mean []float64) error {
	for j := range mean {
		mean[j] = q.h[j] * (theta[j] - q.m[j])
	}
	return nil
}

func (q quad) value(theta []float64) float64 {
	sum := 0.0
	for j, v := range theta {
		sum += q.h[j] * (v - q.m[j]) * (v - q.m[j]) / 2
	}
	return sum
}

// noisy adds independent normal values of standard deviation sigma.
func noisy(exact oracle, src rng.Source, sigma float64) oracle {
	return func(theta, mean []float64) error {
		if err := exact(theta, mean); err != nil {
			return err
		}
		for j := range mean {
			mean[j] += sigma * sample.Normal(src)
		}
		return nil
	}
}

func model(o *Optimizer) []float64 {
	out := make([]float64, len(o.Point()))
	o.Model(out)
	return out
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

var bowl = quad{h: []float64{4, 1, .1, .01, 2.5}, m: []float64{1, -1, 2, 3, .2}}

// Without noise: gap ≤ cD²/T² for every T, for the least c and the document's.
func TestACSAOnAQuadratic(t *testing.T) {
	const beta = 4
	d := math.Sqrt(1 + 1 + 4 + 9 + .04)
	for _, c := range []float64{2 * beta, 4 * beta} {
		for rounds := int64(1); rounds <= 150; rounds++ {
			for _, radius := range []float64{0, d} {
				o := must(newACSA(acsaConfig{Dim: 5, Rounds: rounds, Curvature: c, Radius: radius}))
				if err := drive(o, bowl.oracle, rounds); err != nil {
					t.Fatal(err)
				}
				gap := bowl.value(model(o))
				if bound := acsaBound(rounds, d, c, beta, 0); gap > bound*(1+1e-12) || bound > c*d*d/float64(rounds*rounds) {
					t.Errorf("c = %v, T = %d: gap %v, bound %v", c, rounds, gap, bound)
				}
			}
		}
	}
}

// Two steps by hand, c = 4: a = 1, 2/3, 1/2, steps 1/4 and 2/4.
func TestACSAByHand(t *testing.T) {
	o := must(newACSA(acsaConfig{Dim: 1, Rounds: 3, Curvature: 4, Start: []float64{8}}))
	for i, want := range []struct{ gradient, md, theta, ag float64 }{
		{12, 8, 5, 5},              // θ = 8 − 12/4, ag = θ
		{6, 5, 2, 2./3*2 + 1./3*5}, // md = θ = ag, θ = 5 − 6·2/4
		{4, 2.5, -1, .5*-1 + .5*3}, // md = ½·2 + ½·3, θ = 2 − 4·3/4
	} {
		if got := o.Point()[0]; math.Abs(got-want.md) > 1e-12 {
			t.Errorf("step %d is taken at %v, want %v", i+1, got, want.md)
		}
		if err := o.Step([]float64{want.gradient}); err != nil {
			t.Fatal(err)
		}
		if math.Abs(o.at.(*acsa).theta[0]-want.theta) > 1e-12 || math.Abs(model(o)[0]-want.ag) > 1e-12 {
			t.Errorf("step %d: theta %v, ag %v, want %+v", i+1, o.at.(*acsa).theta[0], model(o)[0], want)
		}
	}
}

// A phase begins at the model of the one before, as if it were alone.
func TestPhasesStartAtTheModel(t *testing.T) {
	first, second := acsaConfig{Dim: 5, Rounds: 4, Curvature: 9}, acsaConfig{Dim: 5, Rounds: 3, Curvature: 30}
	p := must(newACSA(first, second))
	a := must(newACSA(first))
	for _, o := range []*Optimizer{p, a} {
		if err := drive(o, bowl.oracle, 4); err != nil {
			t.Fatal(err)
		}
	}
	second.Start = model(a)
	b := must(newACSA(second))
	for _, o := range []*Optimizer{p, b} {
		if err := drive(o, bowl.oracle, 3); err != nil {
			t.Fatal(err)
		}
	}
	want := model(b)
	for j, v := range model(p) {
		if v != want[j] {
			t.Errorf("phases reach %v, one after the other %v", model(p), want)
			break
		}
	}
}

// With noise the mean gap over runs stays below the bound, and below the
// document's for c ≥ 4β.
func TestACSAWithNoise(t *testing.T) {
	const beta, runs = 4, 60
	d := math.Sqrt(1 + 1 + 4 + 9 + .04)
	for _, sigma := range []float64{.1, 1, 5} {
		v := 5 * sigma * sigma
		for _, rounds := range []int64{1, 3, 10, 60} {
			best := acsaCurvature(rounds, d, beta, v)
			document := 4*beta + math.Sqrt(2./3)*math.Pow(float64(rounds), 1.5)*math.Sqrt(v)/d
			for _, c := range []float64{best, document} {
				sum := 0.0
				for run := range uint64(runs) {
					o := must(newACSA(acsaConfig{Dim: 5, Rounds: rounds, Curvature: c}))
					if err := drive(o, noisy(bowl.oracle, rng.Replay(7, run, uint64(rounds)), sigma), rounds); err != nil {
						t.Fatal(err)
					}
					sum += bowl.value(model(o))
				}
				bound := acsaBound(rounds, d, c, beta, v)
				// Gaps are quadratic in normal values: their spread is at most
				// about their mean, and 60 runs average it. The seeds are fixed.
				if mean := sum / runs; mean > bound {
					t.Errorf("sigma = %v, T = %d, c = %v: mean gap %v above %v", sigma, rounds, c, mean, bound)
				}
				n := float64(rounds)
				if coarse := c*d*d/(n*n) + 2*n*v/(3*c); c == document && bound > coarse*(1+1e-12) && n > 1 {
					t.Errorf("T = %d: bound %v above the document's %v", rounds, bound, coarse)
				}
			}
		}
	}
}

// One step on ½‖θ‖² leads towards 0.
func TestStepsDescend(t *testing.T) {
	start := []float64{3, -4}
	for name, o := range map[string]*Optimizer{
		"averaged": must(newAveraged(averagedConfig{Dim: 2, Rounds: 5, Step: .1, Start: start})),
		"acsa":     must(newACSA(acsaConfig{Dim: 2, Rounds: 5, Curvature: 10, Start: start})),
		"phases":   must(newACSA(acsaConfig{Dim: 2, Rounds: 1, Curvature: 10, Start: start}, acsaConfig{Dim: 2, Rounds: 1, Curvature: 10})),
	} {
		if p := o.Point(); p[0] != 3 || p[1] != -4 {
			t.Errorf("%s starts at %v", name, p)
		}
		if err := drive(o, quadratic([]float64{0, 0}), 1); err != nil {
			t.Fatal(err)
		}
		if p := o.Point(); !(p[0] > 0 && p[0] < 3 && p[1] < 0 && p[1] > -4) {
			t.Errorf("%s went from %v to %v", name, start, p)
		}
	}
}

// chain is Nesterov's worst function for d = 2T + 1, β = 4: ½θᵀAθ − θ_1 with the
// second differences A; the minimum is θ_j = 1 − j/(d + 1), at −½·d/(d + 1).
func chain(d int) (oracle oracle, value func([]float64) float64, distance float64) {
	oracle = func(theta, mean []float64) error {
		for j := range mean {
			mean[j] = 2 * theta[j]
			if j > 0 {
				mean[j] -= theta[j-1]
			}
			if j+1 < d {
				mean[j] -= theta[j+1]
			}
		}
		mean[0]--
		return nil
	}
	value = func(theta []float64) float64 {
		grad := make([]float64, d)
		_ = oracle(theta, grad)
		sum := 0.0
		for j, g := range grad {
			sum += theta[j] * g / 2
		}
		return sum - theta[0]/2 + float64(d)/float64(d+1)/2
	}
	for j := 1; j <= d; j++ {
		x := 1 - float64(j)/float64(d+1)
		distance += x * x
	}
	return oracle, value, math.Sqrt(distance)
}

// Acceleration is real: on the hard chain gap/D² falls like T^−2, plain
// descent's like T^−1.5 at best.
func TestHardChainSlopes(t *testing.T) {
	const beta = 4
	relative := func(rounds int64, make func(d int) *Optimizer) float64 {
		d := int(2*rounds + 1)
		oracle, value, distance := chain(d)
		o := make(d)
		if err := drive(o, oracle, rounds); err != nil {
			t.Fatal(err)
		}
		return value(model(o)) / (distance * distance)
	}
	for rounds := int64(8); rounds < 256; rounds *= 2 {
		slope := func(make func(rounds int64) func(int) *Optimizer) float64 {
			return math.Log2(relative(2*rounds, make(2*rounds)) / relative(rounds, make(rounds)))
		}
		fast := slope(func(rounds int64) func(int) *Optimizer {
			return func(d int) *Optimizer {
				return must(newACSA(acsaConfig{Dim: d, Rounds: rounds, Curvature: 2 * beta}))
			}
		})
		slow := slope(func(int64) func(int) *Optimizer {
			return func(d int) *Optimizer { return newSGD(t, CLDPSGDConfig{Dim: d, Schedule: constant(1. / beta)}) }
		})
		t.Logf("T = %d to %d: slopes %.3f and %.3f", rounds, 2*rounds, fast, slow)
		if fast > -1.8 || fast < -2.05 || slow > -1.3 || slow < -1.52 {
			t.Errorf("T = %d to %d: slope %v accelerated, %v plain", rounds, 2*rounds, fast, slow)
		}
	}
}

// The mean is of the points where gradients were taken, not of what came out.
func TestAveragedIndices(t *testing.T) {
	o := must(newAveraged(averagedConfig{Dim: 1, Rounds: 3, Step: 1, Start: []float64{5}}))
	for i, want := range []float64{5, 5, 4.5, 4} { // of 5, 4, 3
		if got := model(o)[0]; got != want {
			t.Errorf("after %d steps the model is %v, want %v", i, got, want)
		}
		if i < 3 {
			if err := o.Step([]float64{1}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func stagedOptimizers() map[string]func() *Optimizer {
	start := []float64{.5, 0, -.5}
	return map[string]func() *Optimizer{
		"averaged": func() *Optimizer {
			return must(newAveraged(averagedConfig{Dim: 3, Rounds: 12, Step: .3, Radius: 2, Start: start}))
		},
		"acsa": func() *Optimizer {
			return must(newACSA(acsaConfig{Dim: 3, Rounds: 12, Curvature: 9, Radius: 2, Start: start}))
		},
		"phases": func() *Optimizer {
			return must(newACSA([]acsaConfig{
				{Dim: 3, Rounds: 5, Curvature: 9, Radius: 2, Start: start}, {Dim: 3, Rounds: 3, Curvature: 12, Radius: 2},
				{Dim: 3, Rounds: 4, Curvature: 20, Radius: 2},
			}...))
		},
	}
}

func sameState(a, b State) bool {
	if a.Steps != b.Steps || len(a.Vectors) != len(b.Vectors) {
		return false
	}
	for name, v := range a.Vectors {
		for j := range v {
			if v[j] != b.Vectors[name][j] {
				return false
			}
		}
	}
	return true
}

func TestStagedRestore(t *testing.T) {
	target := quadratic([]float64{1, 2, 3})
	for name, fresh := range stagedOptimizers() {
		whole := fresh()
		for cut := int64(0); cut <= 12; cut++ {
			first, second := fresh(), fresh()
			if err := drive(first, target, cut); err != nil {
				t.Fatal(err)
			}
			if err := second.Restore(first.State()); err != nil {
				t.Fatal(name, err)
			}
			if second.State().Steps != cut || !sameState(first.State(), second.State()) {
				t.Errorf("%s: state after %d steps does not come back", name, cut)
			}
			if err := drive(second, target, 12-cut); err != nil {
				t.Fatal(err)
			}
			if cut == 0 {
				whole = second
			}
			a, b := model(whole), model(second)
			for j := range a {
				if a[j] != b[j] || whole.Point()[j] != second.Point()[j] {
					t.Errorf("%s: %v after a restore at %d, want %v", name, b, cut, a)
				}
			}
			if err := second.Step([]float64{0, 0, 0}); !errors.Is(err, ErrFinished) {
				t.Errorf("%s: a step past the last: %v", name, err)
			}
		}
	}
}

func TestStagedRefusals(t *testing.T) {
	for name, fresh := range stagedOptimizers() {
		o := fresh()
		if err := drive(o, quadratic([]float64{1, 2, 3}), 6); err != nil {
			t.Fatal(err)
		}
		before := o.State()
		for _, g := range [][]float64{nil, {1, 2}, {1, math.NaN(), 0}, {math.Inf(-1), 0, 0}} {
			if err := o.Step(g); err == nil {
				t.Errorf("%s took the step %v", name, g)
			} else if !sameState(before, o.State()) {
				t.Errorf("%s: a refused step changed the state", name)
			}
		}
		o = fresh()
		good := before
		for _, bad := range []State{
			{}, {Steps: -1, Vectors: good.Vectors}, {Steps: 13, Vectors: good.Vectors},
			{Steps: 1, Vectors: map[string][]float64{"theta": {1}}},
			{Steps: 1, Vectors: map[string][]float64{"theta": {1, 2, 3}, "sum": {1, 2, math.NaN()}, "ag": {1, 2, 3}}},
			{Steps: 1, Vectors: map[string][]float64{"theta": {1, 2, 3}, "other": {1, 2, 3}}},
		} {
			start := o.State()
			if err := o.Restore(bad); err == nil {
				t.Errorf("%s restored %+v", name, bad)
			} else if !sameState(start, o.State()) {
				t.Errorf("%s: a refused state changed it", name)
			}
		}
	}
	nan, good := []float64{math.NaN()}, acsaConfig{Dim: 1, Rounds: 1, Curvature: 1}
	for _, c := range []acsaConfig{
		{Rounds: 1, Curvature: 1}, {Dim: 1, Curvature: 1}, {Dim: 1, Rounds: 1}, {Dim: 1, Rounds: 1, Curvature: math.Inf(1)},
		{Dim: 1, Rounds: 1, Curvature: 1, Radius: -1}, {Dim: 1, Rounds: 1, Curvature: 1, Start: nan}, {Dim: 2, Rounds: 1, Curvature: 1, Start: []float64{1}},
	} {
		if _, err := newACSA(c); err == nil {
			t.Errorf("accepted %+v", c)
		}
		if _, err := newACSA(good, c); err == nil {
			t.Errorf("accepted the phase %+v", c)
		}
		if _, err := newAveraged(averagedConfig{Dim: c.Dim, Rounds: c.Rounds, Step: c.Curvature, Radius: c.Radius, Start: c.Start}); err == nil {
			t.Errorf("accepted averaged %+v", c)
		}
	}
	if _, err := newACSA(); err == nil {
		t.Error("accepted no phases")
	}
	for _, second := range []acsaConfig{{Dim: 2, Rounds: 1, Curvature: 1}, {Dim: 1, Rounds: 1, Curvature: 1, Radius: 3}, {Dim: 1, Rounds: 1, Curvature: 1, Start: []float64{0}}} {
		if _, err := newACSA(good, second); err == nil {
			t.Errorf("accepted the second phase %+v", second)
		}
	}
}
