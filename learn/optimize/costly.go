package optimize

import "math"

// costlyNoise is ReportNoise whose mean squared error takes long to compute, for instance
// because it is solved for a budget. Batches and rounds are chosen with interpolated noise;
// the noise and the Bound that a Plan states are exact. It is not safe for concurrent use.
type costlyNoise struct {
	dim   int
	mse   func(clients, uses int64) float64
	found map[[2]int64]float64
}

var _ Noise = (*costlyNoise)(nil)

// NewCostlyNoise returns the noise of reports of the given dimension. mse returns the mean
// squared error of one report; clients is the number of people in the batch, and uses is the
// number of rounds in which each of them takes part. mse returns +Inf if no such noise exists.
// It is called at most once for the same two numbers.
func NewCostlyNoise(dim int, mse func(clients, uses int64) float64) Noise {
	return &costlyNoise{dim, mse, map[[2]int64]float64{}}
}

// deviation interpolates the mean squared error between the values of clients and uses at
// which it is computed.
func (c *costlyNoise) deviation(clients, uses int64) float64 {
	mse := between(clients, func(clients int64) float64 {
		return between(uses, func(uses int64) float64 { return c.at(clients, uses) })
	})
	return ReportNoise{MSE: mse, Dim: c.dim}.deviation(clients, uses)
}

func (c *costlyNoise) at(clients, uses int64) float64 {
	key := [2]int64{clients, uses}
	mse, known := c.found[key]
	if !known {
		mse = c.mse(clients, uses)
		c.found[key] = mse
	}
	return mse
}

// exactly is a costlyNoise without interpolation.
type exactly struct{ *costlyNoise }

func (e exactly) deviation(clients, uses int64) float64 {
	return ReportNoise{MSE: e.at(clients, uses), Dim: e.dim}.deviation(clients, uses)
}

// exact returns the problem without interpolation of its noise; a plan states this noise.
func (p Problem) exact() Problem {
	if c, ok := p.Noise.(*costlyNoise); ok {
		p.Noise = exactly{c}
	}
	return p
}

// between interpolates f, on logarithms, between powers of 4.
func between(x int64, f func(int64) float64) float64 {
	low := int64(1)
	for low <= x/4 {
		low *= 4
	}
	if x <= low {
		return f(low)
	}
	part := math.Log(float64(x)/float64(low)) / math.Log(4)
	return math.Exp((1-part)*math.Log(f(low)) + part*math.Log(f(4*low)))
}
