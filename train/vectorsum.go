package train

import (
	"fmt"
	"math"
	"sync"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/randomizer"
	"github.com/riffle-dp/riffle/rng"
	"github.com/riffle-dp/riffle/vecsum"
)

// vectorSum is a round of vecsum as a mechanism: a client's report are its
// noisy counts, of which nobody sees more than the sum. The coordinator's tally
// stands for the aggregators.
type vectorSum struct {
	params   vecsum.Params
	promise  dp.Report
	limit    int64 // of a client's count
	encoders sync.Pool
}

var _ randomizer.Randomizer = (*vectorSum)(nil)

func newVectorSum(p vecsum.Params, sigma float64) (*vectorSum, error) {
	if _, err := vecsum.NewEncoder(p); err != nil {
		return nil, err
	}
	m := &vectorSum{params: p, promise: dp.Report{Class: dp.Gaussian, Sigma: sigma}}
	// What one client's count can be: its grid value, its bits, or 40 standard
	// deviations of noise that has no end.
	m.limit = p.Grid + p.Noise.Bits + int64(math.Ceil(40*math.Sqrt(p.Noise.Variance)))
	if m.limit > math.MaxInt32 {
		return nil, fmt.Errorf("counts up to %d exceed a report's 32 bits", m.limit)
	}
	m.encoders.New = func() any {
		e, err := vecsum.NewEncoder(p)
		if err != nil {
			panic(err) // it was made before
		}
		return &sumWorker{e, make([]int64, p.Streams())}
	}
	return m, nil
}

type sumWorker struct {
	encoder *vecsum.Encoder
	counts  []int64
}

// Name says how clients make their noise.
func (m *vectorSum) Name() string { return "vector-sum-" + string(m.params.Noise.Kind) }

// Dim returns the length of the input.
func (m *vectorSum) Dim() int { return m.params.Dim }

// Event is what the sum of any admitted number of reports promises, as if each
// had Gaussian noise; it says nothing about a single report.
func (m *vectorSum) Event() dp.Report { return m.promise }

// NewReport returns a report of one count a coordinate.
func (m *vectorSum) NewReport() *randomizer.Report {
	return &randomizer.Report{Value: make([]int32, m.params.Streams())}
}

// Randomize writes a client's noisy counts.
func (m *vectorSum) Randomize(src rng.Source, x []float32, r *randomizer.Report) {
	m.write(x, r, func(w *sumWorker) error { return w.encoder.Encode(src, x, w.counts) },
		func(w *sumWorker) error { return w.encoder.Blank(src, w.counts) })
}

// Round is Randomize without noise, for a simulation that adds it by AddNoise.
func (m *vectorSum) Round(src rng.Source, x []float32, r *randomizer.Report) {
	m.write(x, r, func(w *sumWorker) error { return w.encoder.Round(src, x, w.counts) },
		func(w *sumWorker) error { return w.encoder.Round(src, make([]float32, len(x)), w.counts) })
}

// rounding is a vectorSum whose clients add no noise.
type rounding struct{ *vectorSum }

// Randomize rounds.
func (m rounding) Randomize(src rng.Source, x []float32, r *randomizer.Report) { m.Round(src, x, r) }

func (m *vectorSum) write(x []float32, r *randomizer.Report, encode, blank func(*sumWorker) error) {
	w := m.encoders.Get().(*sumWorker)
	defer m.encoders.Put(w)
	if err := encode(w); err != nil {
		// What is not finite counts as nothing. Any other error is a bug.
		if err := blank(w); err != nil {
			panic(err)
		}
	}
	for j, c := range w.counts {
		r.Value[j] = int32(max(-m.limit, min(m.limit, c)))
	}
}

// AddNoise adds the noise of n clients to their summed counts, with its exact law.
func (m *vectorSum) AddNoise(src rng.Source, sum []int64, n int64) error {
	return m.params.AddNoise(src, sum, n)
}

// Check bounds a client's counts.
func (m *vectorSum) Check(r *randomizer.Report) error {
	if len(r.Value) != m.params.Streams() || len(r.Index) != 0 {
		return fmt.Errorf("train: report with %d counts must have %d", len(r.Value), m.params.Streams())
	}
	for _, v := range r.Value {
		if int64(v) > m.limit || int64(v) < -m.limit {
			return fmt.Errorf("train: count %d beyond %d", v, m.limit)
		}
	}
	return nil
}

// Add adds checked counts.
func (m *vectorSum) Add(sum []int64, r *randomizer.Report) {
	for j, v := range r.Value {
		sum[j] += int64(v)
	}
}

// Estimate stores the unbiased mean of n inputs; zeros for a number of clients
// that no round is opened with.
func (m *vectorSum) Estimate(mean []float64, sum []int64, n int64) {
	if err := m.params.Estimate(mean, sum, n); err != nil {
		clear(mean)
		return
	}
	for j := range mean {
		mean[j] /= float64(n)
	}
}

// MSE is that of one report's share of the estimate, rounding included.
func (m *vectorSum) MSE() float64 { return float64(m.params.Dim) * m.params.Variance(1) }

// Bits is what one aggregator gets from a client, but for the seed.
func (m *vectorSum) Bits() int { return m.params.Streams() * m.params.Modulus() }

// summed says that only sums of reports are seen.
func (c Config) summed() bool { return c.Trust == "vector-sum" || c.Trust == "distributed" }

// accountedDelta is the δ that the accountant is asked at.
func (c Config) accountedDelta() float64 {
	if c.summed() {
		return c.Delta * (1 - vecsum.TailShare - c.transportShare())
	}
	return c.Delta
}

// newVectorSum designs a round: the least noise for which sums of n-min reports
// or more are at least as private as those of Gaussian reports with Sigma.
func (c Config) newVectorSum(dim int) (*vectorSum, error) {
	most := c.Population
	switch dp.Participation(c.Participation) {
	case dp.Sampled:
		most = c.K
	case dp.Once:
		blocks, err := c.blocks()
		if err != nil {
			return nil, err
		}
		most = blocks.Smallest() + 1
	}
	p, sigma, err := vecsum.TightSigma(c.Sigma, vecsum.Target{Delta: c.Delta, Users: most, MinUsers: c.NMin, Honest: c.Honest, Dim: dim,
		Radius: c.Clip, Rounds: c.Rounds, Kind: vecsum.NoiseKind(c.Noise)})
	if err != nil {
		return nil, err
	}
	return newVectorSum(p, sigma)
}
