package mechanism

import (
	"fmt"
	"math"
	"sync"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// VectorSum is a round of vecsum as a mechanism. A client's report is its noisy counts, of
// which nobody sees more than the sum; the coordinator's tally stands for the aggregators.
type VectorSum struct {
	vecsum.Params // of the round; they do not change

	facts    randomizer.Facts
	promise  dp.Report
	limit    int64 // largest count of a client
	encoders sync.Pool
}

var _ randomizer.Randomizer = (*VectorSum)(nil)

// NewVectorSum returns the mechanism of a round. sigma is the σ of each client's noise, in
// units of the clip norm: see vecsum.Params.Sigma.
func NewVectorSum(p vecsum.Params, sigma float64) (*VectorSum, error) {
	if _, err := vecsum.NewEncoder(p); err != nil {
		return nil, err
	}
	m := &VectorSum{Params: p, promise: dp.Report{Class: dp.Gaussian, Sigma: sigma}}
	m.facts = randomizer.Facts{
		Name: sumPrefix + string(p.Noise.Kind), // how clients make their noise
		Dim:  p.Dim,
		MSE:  float64(p.Dim) * p.Variance(1), // of one report's share of the estimate, including rounding
		// A client's message to the aggregator that does not get the seed.
		Bits:    p.Streams() * p.Modulus(),
		Largest: p.Largest(),
	}
	m.facts.Bytes = (p.Streams()*min(32, p.Modulus()) + 7) / 8
	// The limit is the largest count of one client: its grid value plus its bits, or plus 40
	// standard deviations of unbounded noise. The cut is not accounted for, because the overhead
	// of vecsum.Tight keeps the variance above 4, where it has mass e^−200.
	m.limit = p.Grid + p.Noise.Bits + int64(math.Ceil(40*math.Sqrt(p.Noise.Variance)))
	if m.limit > math.MaxInt32 {
		return nil, fmt.Errorf("mechanism: counts up to %d exceed a report's 32 bits", m.limit)
	}
	m.encoders.New = func() any {
		e, err := vecsum.NewEncoder(p)
		if err != nil {
			panic(err) // cannot fail: it was made before
		}
		return &sumWorker{encoder: e}
	}
	return m, nil
}

type sumWorker struct {
	encoder *vecsum.Encoder
	counts  []int64 // with their noise; made when they are first needed
}

// Facts returns the constants of the round.
func (m *VectorSum) Facts() randomizer.Facts { return m.facts }

// Event is the promise of the sum of any admitted number of reports, as if each had Gaussian
// noise. It says nothing about a single report.
func (m *VectorSum) Event() dp.Report { return m.promise }

// NewReport returns a report of one count per coordinate.
func (m *VectorSum) NewReport() *randomizer.Report {
	return &randomizer.Report{Value: make([]int32, m.Params.Streams())}
}

// Randomize writes a client's noisy counts.
func (m *VectorSum) Randomize(src rng.Source, x []float32, r *randomizer.Report) {
	m.write(x, func(w *sumWorker, x []float32) error {
		if w.counts == nil {
			w.counts = make([]int64, m.Params.Streams())
		}
		err := w.encoder.Encode(src, x, w.counts)
		value, most := r.Value[:len(w.counts)], m.limit
		for j, c := range w.counts {
			value[j] = int32(max(-most, min(most, c)))
		}
		return err
	})
}

// Rounding is a VectorSum whose simulated clients add no noise: AddNoise draws it for all of
// them.
type Rounding struct{ *VectorSum }

// Randomize rounds x without adding noise.
func (m Rounding) Randomize(src rng.Source, x []float32, r *randomizer.Report) {
	m.write(x, func(w *sumWorker, x []float32) error { return w.encoder.Round(src, x, r.Value) })
}

// AddOnes adds what Randomize writes of a vector that has ones at places, each named once, and zeros
// elsewhere. It says whether the mechanism counts ones; if not it adds nothing.
func (m Rounding) AddOnes(sum []int64, places []int) bool {
	return addOnes(sum, places, m.Ones, m.Grid)
}

func addOnes(sum []int64, places []int, ones int, each int64) bool {
	if len(places) <= ones { // more count as zeros, as they do for a client
		for _, j := range places {
			sum[j] += each
		}
	}
	return ones > 0
}

// write encodes x.
func (m *VectorSum) write(x []float32, encode func(w *sumWorker, x []float32) error) {
	w := m.encoders.Get().(*sumWorker)
	defer m.encoders.Put(w)
	if err := encode(w, x); err != nil {
		// An input that is not finite counts as zero. Any other error, as of an input of the wrong
		// length, is a bug.
		if err := encode(w, make([]float32, len(x))); err != nil {
			panic(err)
		}
	}
}

// Check bounds a client's counts.
func (m *VectorSum) Check(r *randomizer.Report) error {
	if len(r.Value) != m.Params.Streams() || len(r.Index) != 0 {
		return fmt.Errorf("mechanism: report with %d counts must have %d", len(r.Value), m.Params.Streams())
	}
	for _, v := range r.Value {
		if int64(v) > m.limit || int64(v) < -m.limit {
			return fmt.Errorf("mechanism: count %d beyond %d", v, m.limit)
		}
	}
	return nil
}

// Add adds checked counts.
func (m *VectorSum) Add(sum []int64, r *randomizer.Report) {
	sum = sum[:len(r.Value)]
	for j, v := range r.Value {
		sum[j] += int64(v)
	}
}

// MeanBound implements randomizer.Mechanism.
func (m *VectorSum) MeanBound(n int64) float64 { return m.Params.MeanBound(n, randomizer.MeanChance) }

// Estimate stores the unbiased mean of n inputs; zeros if no round is opened with n clients.
func (m *VectorSum) Estimate(mean []float64, sum []int64, n int64) {
	if err := m.Params.Estimate(mean, sum, n); err != nil {
		clear(mean)
		return
	}
	for j := range mean {
		mean[j] /= float64(n)
	}
}
