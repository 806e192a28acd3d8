package solve

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

func mustPanMean(t interface {
	Helper()
	Fatal(...any)
}, c panMeanConfig) *panMean {
	t.Helper()
	m, err := newPanMean(c)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Whatever a client sends, its integer vector lies in the ball of radius shift/2.
func TestPanMeanSensitivity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := rapid.IntRange(1, 40).Draw(t, "d")
		clip := math.Pow(10, rapid.Float64Range(-4, 4).Draw(t, "log10 clip"))
		m := mustPanMean(t, panMeanConfig{Dim: d, Batch: 3, Clip: clip, Sigma: clip})
		grad := rapid.SliceOfN(rapid.Float32(), d, d).Draw(t, "grad")
		if rapid.Bool().Draw(t, "edge") {
			for j := range grad {
				grad[j] = float32(clip / math.Sqrt(float64(d)))
			}
		}
		grad[0] = rapid.SampledFrom([]float32{grad[0], float32(math.NaN()), float32(math.Inf(1)), math.MaxFloat32, float32(clip)}).Draw(t, "first")
		m.quantise(grad)
		shift, _ := m.shift()
		var sum uint64
		for _, k := range m.steps {
			sum += uint64(k * k)
		}
		if 4*sum > uint64(shift)*uint64(shift) {
			t.Fatalf("norm² %d steps, at most %d", sum, shift*shift/4)
		}
	})
}

func TestPanMeanQuantises(t *testing.T) {
	m := mustPanMean(t, panMeanConfig{Dim: 3, Batch: 2, Clip: 2, Sigma: .5})
	for _, c := range []struct {
		grad []float32
		want [3]float64
	}{
		{[]float32{.5, -1, 0}, [3]float64{.5, -1, 0}},
		{[]float32{3, 0, -4}, [3]float64{1.2, 0, -1.6}}, // clipped from 5 to 2
		{[]float32{float32(math.NaN()), 1, 0}, [3]float64{0, 1, 0}},
		{[]float32{float32(math.Inf(-1)), 1, 0}, [3]float64{-2, 0, 0}},
	} {
		m.quantise(c.grad)
		for j, k := range m.steps {
			got := float64(k) * m.unit()
			if math.Abs(got-c.want[j]) > m.unit() || math.Abs(got) > math.Abs(c.want[j])+1e-12 {
				t.Errorf("%v: coordinate %d is %v, want %v", c.grad, j, got, c.want[j])
			}
		}
	}
}

// Two draws of the stated size are in a mean, one in the state before it.
func TestPanMeanNoise(t *testing.T) {
	const runs, sigma, batch = 4000, .25, 4
	m := mustPanMean(t, panMeanConfig{Dim: 1, Batch: batch, Clip: 1, Sigma: sigma})
	_, variance := m.shift()
	if s := math.Sqrt(float64(variance)) * m.unit() / batch; s < sigma || s > sigma*(1+1e-9) {
		t.Errorf("sigma %v, want %v", s, sigma)
	}
	var sum, square, inner float64
	mean := make([]float64, 1)
	for run := range uint64(runs) {
		src := rng.Replay(31, run)
		if err := m.begin(src); err != nil {
			t.Fatal(err)
		}
		for range batch {
			if err := m.add(src, []float32{.5}); err != nil {
				t.Fatal(err)
			}
		}
		before := float64(m.sum[0])*m.unit()/batch - .5
		if err := m.end(src, mean); err != nil {
			t.Fatal(err)
		}
		if m.sum[0] != 0 || m.steps[0] != 0 {
			t.Fatal("a closed batch leaves something behind")
		}
		e := mean[0] - .5
		sum, square, inner = sum+e, square+e*e, inner+before*before
	}
	// Five standard errors of a mean and of variances: below 1e-6 in all, and
	// the seeds are fixed.
	if z := sum / math.Sqrt(2*sigma*sigma*runs); math.Abs(z) > 5 {
		t.Errorf("mean off by %v standard errors", z)
	}
	for _, c := range []struct{ got, want float64 }{{square / runs, 2 * sigma * sigma}, {inner / runs, sigma * sigma}} {
		if math.Abs(c.got/c.want-1) > 5*math.Sqrt(2./runs) {
			t.Errorf("variance %v, want %v", c.got, c.want)
		}
	}
}

func TestPanMeanRefuses(t *testing.T) {
	src := rng.Replay(1)
	m := mustPanMean(t, panMeanConfig{Dim: 2, Batch: 1, Clip: 1, Sigma: 1})
	mean := make([]float64, 2)
	g := []float32{1, 0}
	if m.add(src, g) == nil || m.end(src, mean) == nil {
		t.Error("worked without a batch")
	}
	if err := m.begin(src); err != nil {
		t.Fatal(err)
	}
	if m.begin(src) == nil || m.end(src, mean) == nil || m.add(src, g[:1]) == nil {
		t.Error("accepted a second batch, an empty one or a short gradient")
	}
	if err := m.add(src, g); err != nil {
		t.Fatal(err)
	}
	if m.add(src, g) == nil || m.end(src, mean[:1]) == nil {
		t.Error("accepted too many clients or a short mean")
	}
	if err := m.end(src, mean); err != nil {
		t.Fatal(err)
	}
	nan := math.NaN()
	for _, c := range []panMeanConfig{
		{}, {Dim: 1, Batch: 1, Clip: 1}, {Dim: 1, Batch: 1, Sigma: 1}, {Dim: 1, Clip: 1, Sigma: 1}, {Batch: 1, Clip: 1, Sigma: 1},
		{Dim: 1, Batch: 1, Clip: nan, Sigma: 1}, {Dim: 1, Batch: 1, Clip: 1, Sigma: nan}, {Dim: 1, Batch: 1, Clip: 1, Sigma: 1 << 20},
		{Dim: 1 << 23, Batch: 1, Clip: 1, Sigma: 1}, {Dim: 1, Batch: 1<<32 + 1, Clip: 1, Sigma: 1},
	} {
		if _, err := newPanMean(c); err == nil {
			t.Errorf("accepted %+v", c)
		}
	}
	// A coarser grid where the noise is large.
	if u := mustPanMean(t, panMeanConfig{Dim: 1, Batch: 1, Clip: 1, Sigma: 1 << 18}).unit(); u != 1./(1<<9) {
		t.Errorf("unit %v", u)
	}
}

// A pan-private run, client by client through panMean: its means have the
// plan's noise, and the model stays within the bound.
func TestPanPrivateStream(t *testing.T) {
	task, r := solved(t, Config{
		Synthetic: "logistic", N: 5000, Dim: 50, Optimizer: "pan-private", Trust: "central", Epsilon: 1, Delta: 1e-6, Radius: 8, Seed: 3, Workers: 2,
	})
	first := task.Plan.Stages[0]
	if zeta := task.Plan.Deviation(first.Batch); math.Abs(first.Sigma/zeta-math.Sqrt2) > 1e-12 {
		t.Errorf("sigma %v for two draws of %v", first.Sigma, zeta)
	}
	start := math.Ln2 - r.Optimum // the logistic loss of the model 0
	t.Logf("pan-private: %d rounds of %d, bound %.4f, excess %.4f of %.4f", task.Rounds, first.Batch, task.Bound, r.Excess, start)
	if r.Excess > task.Bound || r.Excess > start {
		t.Errorf("excess %v, bound %v, at the start %v", r.Excess, task.Bound, start)
	}
}
