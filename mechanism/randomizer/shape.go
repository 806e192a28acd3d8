package randomizer

import "github.com/riffle-dp/riffle/dp"

// shape has a mechanism's fixed properties. The constructor sets it.
type shape struct {
	name   string
	dim    int     // length of the input
	values int     // in a report
	sparse bool    // a report has an index for each value
	scale  float64 // what one unit of a report stands for, in the units of x
	mse    float64
	size   int // of a report, in bits
}

// Name returns the mechanism's name.
func (s *shape) Name() string { return s.name }

// Dim returns the length of the input.
func (s *shape) Dim() int { return s.dim }

// NewReport returns a report of the right size, to be reused.
func (s *shape) NewReport() *Report {
	r := &Report{Value: make([]int32, s.values)}
	if s.sparse {
		r.Index = make([]uint32, s.values)
	}
	return r
}

// Add adds a checked report to sum.
func (s *shape) Add(sum []int64, r *Report) {
	if !s.sparse {
		addDense(sum, r)
		return
	}
	for i, j := range r.Index {
		sum[j] += int64(r.Value[i])
	}
}

// Estimate stores the unbiased mean of n inputs, in the units of x.
func (s *shape) Estimate(mean []float64, sum []int64, n int64) { estimate(mean, sum, n, s.scale) }

// MSE bounds the squared error of one report; see [Mechanism].
func (s *shape) MSE() float64 { return s.mse }

// Bits returns the size of a report in bits; see [Mechanism].
func (s *shape) Bits() int { return s.size }

// sized is the shape of a mechanism that bounds its reports.
type sized struct {
	shape
	largest float64
	// inputs and reports bound the ℓ₂ norms of an input and of the vector that a report
	// stands for.
	inputs, reports float64
}

// Largest bounds the norm of a report in radii; see [Sized].
func (s *sized) Largest() float64 { return s.largest }

// MeanBound is the general bound; see meanBound.
func (s *sized) MeanBound(n int64) float64 { return meanBound(n, s.inputs, s.reports, s.mse) }

// pure is the shape of a Randomizer.
type pure struct {
	sized
	event dp.Report
}

// Event says what one report promises; see [Randomizer].
func (p *pure) Event() dp.Report { return p.event }
