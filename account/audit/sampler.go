package audit

import (
	"context"
	"math"
	"slices"
	"sync"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// stage is a part of an audit. Each part has its own randomness.
type stage uint64

const (
	stagePilot stage = iota
	stageRank
	stageSieve
	stageChoose
	stageTest
)

// A report is described by three features: how far it points from one input to the other, how
// long it is, and which of few possible reports it is.
const (
	along = iota
	length
	identity
	features
)

// buckets is the number of values that identity is hashed to.
const buckets = 1024

var featureNames = [features]string{"direction", "length", "identity"}

// study is one pair of inputs with its cells and the counts in them.
type study struct {
	index   int
	pair    Pair
	between []float64
	// edges are those of the cells of the features along and length: cell k holds the values v
	// with exactly k edges ≤ v.
	edges   [identity][]float64
	ranks   tally
	promise float64
}

// tally counts reports: by input, feature and cell.
type tally [2][features][]int64

func (st *study) newTally() tally {
	var t tally
	for side := range t {
		for f, e := range st.edges {
			t[side][f] = make([]int64, len(e)+1)
		}
		t[side][identity] = make([]int64, buckets)
	}
	return t
}

func (t tally) add(u tally) {
	for side := range t {
		for f := range t[side] {
			for k, n := range u[side][f] {
				t[side][f][k] += n
			}
		}
	}
}

// chunk is the number of reports that share a source.
const chunk = 1024

type sampler struct {
	ctx    context.Context
	config Config

	mu   sync.Mutex
	done int64
}

func newSampler(ctx context.Context, c Config) *sampler { return &sampler{ctx: ctx, config: c} }

// observer is one goroutine's view of reports.
type observer struct {
	mechanism randomizer.Mechanism
	report    *randomizer.Report
	sum       []int64
}

func (s *sampler) newObserver() *observer {
	m := s.config.Mechanism
	return &observer{mechanism: m, report: m.NewReport(), sum: make([]int64, m.Facts().Dim)}
}

// seen is the part of a report that is stored.
type seen struct {
	value  [identity]float64
	bucket int
}

// observe draws one report of x. A report that the mechanism itself would
// refuse is an event of its own.
func (o *observer) observe(src rng.Source, x []float32, between []float64) seen {
	o.mechanism.Randomize(src, x, o.report)
	if o.mechanism.Check(o.report) != nil {
		return seen{value: [identity]float64{math.Inf(1), math.Inf(1)}}
	}
	clear(o.sum)
	o.mechanism.Add(o.sum, o.report)
	var dot, square float64
	for i, v := range o.sum {
		// The product is not fused, so results do not depend on the machine.
		dot += float64(float64(v) * between[i])
		square += float64(float64(v) * float64(v))
	}
	return seen{[identity]float64{dot, square}, bucketOf(o.report)}
}

// bucketOf hashes a report to 1 … buckets−1; 0 is for reports that Check refuses.
func bucketOf(r *randomizer.Report) int {
	h := uint64(14695981039346656037) // FNV, word by word, then mixed
	mix := func(w uint32) { h = (h ^ uint64(w)) * 1099511628211 }
	for _, j := range r.Index {
		mix(j)
	}
	for _, v := range r.Value {
		mix(uint32(v))
	}
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	return 1 + int(h>>32%(buckets-1))
}

// each draws n reports of both inputs of a study. Every worker calls begin once and visit for
// each of its reports. When it is done it calls end, one worker at a time.
func (s *sampler) each(at stage, st *study, n int64, begin func() (visit func(side int, trial int64, v seen), end func())) error {
	chunks := (n + chunk - 1) / chunk
	var next int64
	var wg sync.WaitGroup
	for range s.config.Workers {
		wg.Go(func() {
			o := s.newObserver()
			visit, end := begin()
			defer func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				end()
			}()
			for {
				s.mu.Lock()
				c := next
				next++
				s.mu.Unlock()
				if c >= 2*chunks || s.ctx.Err() != nil {
					return
				}
				side, first := int(c&1), c/2*chunk
				x := st.pair.X
				if side == 1 {
					x = st.pair.Y
				}
				src := rng.Replay(s.config.Seed, uint64(at), uint64(st.index), uint64(c))
				last := min(n, first+chunk)
				for k := first; k < last; k++ {
					visit(side, k, o.observe(src, x, st.between))
				}
				s.progress(last - first)
			}
		})
	}
	wg.Wait()
	return s.ctx.Err()
}

func (s *sampler) progress(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done += n
	if s.config.Progress != nil {
		s.config.Progress(s.done)
	}
}

// study chooses the cells of a pair of inputs from a pilot of n reports of each input.
func (s *sampler) study(index int, p Pair, n int64) (*study, error) {
	st := &study{index: index, pair: p, between: p.between()}
	var values [identity][]float64
	for f := range values {
		values[f] = make([]float64, 2*n)
	}
	err := s.each(stagePilot, st, n, func() (func(int, int64, seen), func()) {
		return func(side int, trial int64, v seen) {
			for f := range values {
				values[f][int64(side)*n+trial] = v.value[f]
			}
		}, func() {}
	})
	for f := range values {
		st.edges[f] = edges(values[f])
	}
	return st, err
}

// edges returns the edges of cells: 256 quantiles, finer towards both ends, where a few values
// may show what the bulk does not. It adds edges around the values seen most often, if they
// were seen twice, so that each of them has a cell of its own.
func edges(values []float64) []float64 {
	slices.Sort(values)
	n := len(values)
	var out []float64
	for k := range 256 {
		out = append(out, values[k*n/256])
	}
	for k := 1; k < n/256; k += 1 + k/2 {
		out = append(out, values[k], values[n-1-k])
	}
	type atom struct {
		value float64
		times int
	}
	var atoms []atom
	for i := 0; i < n; {
		j := i + 1
		for j < n && values[j] == values[i] {
			j++
		}
		if j-i > 1 {
			atoms = append(atoms, atom{values[i], j - i})
		}
		i = j
	}
	slices.SortStableFunc(atoms, func(a, b atom) int { return b.times - a.times })
	for _, a := range atoms[:min(len(atoms), 64)] {
		out = append(out, a.value, math.Nextafter(a.value, math.Inf(1)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// cell returns the number of edges ≤ v.
func cell(edges []float64, v float64) int {
	lo, hi := 0, len(edges)
	for lo < hi {
		if mid := (lo + hi) / 2; edges[mid] <= v {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// count draws n reports of both inputs of a study.
func (s *sampler) count(at stage, st *study, n int64) (tally, error) {
	total := st.newTally()
	err := s.each(at, st, n, func() (func(int, int64, seen), func()) {
		own := st.newTally()
		return func(side int, _ int64, v seen) {
			t := &own[side]
			for f := range st.edges {
				t[f][cell(st.edges[f], v.value[f])]++
			}
			t[identity][v.bucket]++
		}, func() { total.add(own) }
	})
	return total, err
}
