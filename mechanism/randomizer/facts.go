package randomizer

import "github.com/riffle-dp/riffle/dp"

// facts has a mechanism's fixed properties. The constructor sets them.
type facts struct {
	name   string
	dim    int
	radius float64 // of the ball of inputs; 1 for "krr"
	scale  float64 // what 1 in a sum of reports stands for, in the units of x
	mse    float64
}

// Name returns the mechanism's name.
func (m *facts) Name() string { return m.name }

// Dim returns the length of the input.
func (m *facts) Dim() int { return m.dim }

// MSE bounds E‖R(x)−x‖₂²; the constructor says where the bound is attained.
func (m *facts) MSE() float64 { return m.mse }

// Estimate stores the unbiased mean of n inputs, in the units of x.
func (m *facts) Estimate(mean []float64, sum []int64, n int64) {
	if n < 1 {
		clear(mean)
		return
	}
	scale := m.scale / float64(n)
	for i, s := range sum {
		mean[i] = scale * float64(s)
	}
}

// pure is a mechanism with a pure guarantee.
type pure struct {
	sized
	event dp.Report
}

// Event returns the guarantee of one report.
func (m *pure) Event() dp.Report { return m.event }
