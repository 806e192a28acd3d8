package randomizer

import (
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// Facts is what a mechanism says about itself. It does not change.
type Facts struct {
	Name string // such as "privunit"
	Dim  int    // length of the input vector
	// MSE is an upper bound on E‖R(x)−x‖₂² for one report, R(x) its estimate, over all inputs x
	// in the ball, in the units of x squared. Each mechanism says where it is attained.
	MSE float64
	// Bits is the size of a report in the plainest encoding of fixed length, Bytes the size of
	// what [AppendReport] writes.
	Bits, Bytes int
	// Tries is the mean number of vectors of Dim values that a client expands for one report of a
	// [Keyed] mechanism's round; otherwise 0.
	Tries float64
	// Coordinates is the number of coordinates of the input that a report of a [Sparse]
	// mechanism is about; otherwise 0.
	Coordinates int
	// Largest is the largest norm, over all reports that Check accepts, of the vector that a
	// report stands for, divided by the radius of the ball and in the ball's own norm. One report
	// can move the mean of n reports by Largest clip norms over n, whatever its client's data is.
	// 0 if the mechanism does not say.
	//
	// Nobody can choose a report with encoding [Seed]. Largest is then how far the best of 2^40
	// seeds moves the mean in a direction that its client chooses (but for a chance of 5 %); in all
	// other directions it is like an honest report.
	Largest float64
}

// base is what all mechanisms have in common. The constructor sets it.
type base struct {
	facts  Facts
	radius float64 // of the ball of inputs; 1 for "krr"
	scale  float64 // what 1 in a sum of reports stands for, in the units of x
	// input and report are the largest ℓ₂ lengths of an input and of the vector that a report
	// stands for, in the units of x.
	input, report float64
}

// Facts returns what is known of the mechanism.
func (m *base) Facts() Facts { return m.facts }

// Estimate stores the unbiased mean of n inputs, in the units of x.
func (m *base) Estimate(mean []float64, sum []int64, n int64) {
	if n < 1 {
		clear(mean)
		return
	}
	scale := m.scale / float64(n)
	for i, s := range sum {
		mean[i] = scale * float64(s)
	}
}

// MeanBound bounds the mean of n honest reports; see [Mechanism]. It holds for all mechanisms:
// largest.md, section 2.
func (m *base) MeanBound(n int64) float64 {
	if n < 1 {
		return 0
	}
	k := float64(n)
	return m.input + tail.Bernstein(k*m.facts.MSE, m.report+m.input, logChance(2))/k
}

// pure is a mechanism with a pure guarantee.
type pure struct {
	base
	event dp.Report
}

// Event returns the guarantee of one report.
func (m *pure) Event() dp.Report { return m.event }
