package mechanism

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func TestAggregatedSum(t *testing.T) {
	const n, d = 50, 2000
	p, err := vecsum.NewAggregated(n, d, 3, 2)
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(1)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewAggregatedSum(p, sigma, n)
	if err != nil {
		t.Fatal(err)
	}
	if e := m.Event(); e != (dp.Report{Class: dp.GaussianSum, Sigma: sigma}) {
		t.Errorf("promise %+v", e)
	}
	src := rng.Replay(1, 2)
	sum, r := make([]int64, d), m.NewReport()
	x, want := make([]float32, d), make([]float64, d)
	for i := range n {
		for j := range x {
			x[j] = float32(math.Sin(float64(i*j))) / 20
			want[j] += float64(x[j]) / n
		}
		m.Randomize(src, x, r)
		if err := m.Check(r); err != nil {
			t.Fatal(err)
		}
		m.Add(sum, r)
	}
	bare := append([]int64(nil), sum...)
	if err := m.AddNoise(src, sum, n); err != nil {
		t.Fatal(err)
	}
	if err := m.CheckSum(sum, n); err != nil {
		t.Fatal(err)
	}
	mean, square := make([]float64, d), 0.
	m.Estimate(mean, sum, n)
	for j := range mean {
		square += (mean[j] - want[j]) * (mean[j] - want[j])
	}
	// The facts' share of each report, over their number: 6 deviations of a χ² of d degrees.
	if got := square * n / m.Facts().MSE; math.Abs(got-1) > 6*math.Sqrt(2./d) {
		t.Errorf("mean squared error is %v of what the facts say", got)
	}
	m.Estimate(mean, bare, n)
	for j := range mean {
		if math.Abs(mean[j]-want[j]) > 3./(1<<15) {
			t.Fatalf("coordinate %d: %v without noise, want %v", j, mean[j], want[j])
		}
	}
	if err := m.AddNoise(src, sum, n+1); err == nil {
		t.Error("noise for more clients than there are")
	}
	for j := range r.Value {
		r.Value[j] = 1000
	}
	if err := m.Check(r); err == nil {
		t.Error("a report above the norm bound was taken")
	}
	// No task may describe it: a client would send its vector bare.
	if _, err := New(wire.Mechanism{Name: m.Facts().Name, Dim: d, Clip: 3, ClipMode: "norm", Sum: wire.Sum{Noise: "by-aggregators", Users: n, MinUsers: n, Grid: 2, Norm: 4 + d}}); err == nil {
		t.Error("a task describes a sum whose clients add no noise")
	}
}
