package audit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// SumConfig describes an audit of vector sums, which asks whether one round is (Claimed,
// Delta)-private. A trial runs the whole code of every client of a round of MinUsers clients;
// all but the honest ones leave out their noise. It observes the summed counts along the
// difference of one client's two inputs. All other clients' inputs are fixed.
type SumConfig struct {
	Params vecsum.Params // Required, without Aggregated
	// Aggregated, if not nil, is a sum whose noise the aggregators add. The observer then knows
	// all other clients and one aggregator's noise: a trial runs one client's rounding and draws the
	// other aggregator's noise.
	Aggregated *vecsum.Aggregated
	Claimed    float64 // Required. ε to refute, above 0.
	Delta      float64 // Required.
	Trials     int64   // Required. Rounds to run, at least MinTrials.
	// Confidence, Seed, Workers and Progress are as in Config.
	Confidence float64
	Seed       uint64
	Workers    int
	Progress   func(done int64)
}

// maxSumClients bounds the number of clients in each round of an audit.
const maxSumClients = 10_000

func (c *SumConfig) complete() error {
	p := &c.Params
	if c.Aggregated != nil {
		if *p != (vecsum.Params{}) {
			return errors.New("audit: a sum has the noise of clients or of aggregators, not both")
		}
		if _, _, err := c.Aggregated.Sigma(1); err != nil { // it checks the rest
			return err
		}
	} else {
		if p.MinUsers == 0 {
			p.MinUsers = p.Users
		}
		if p.Honest == 0 {
			p.Honest = 1
		}
		if err := p.Validate(); err != nil {
			return err
		}
	}
	if err := dp.CheckDelta(c.Delta); err != nil {
		return err
	}
	if c.Confidence == 0 {
		c.Confidence = DefaultConfidence
	}
	switch {
	case p.Split:
		return fmt.Errorf("audit: sums with split signs are not audited")
	case p.MinUsers > maxSumClients:
		return fmt.Errorf("audit: n-min = %d must be at most %d: each of a round's clients is run", p.MinUsers, maxSumClients)
	case !(c.Claimed > 0 && c.Claimed <= math.MaxFloat64):
		return fmt.Errorf("audit: claimed eps = %v must be above 0 and finite", c.Claimed)
	case c.Trials < MinTrials:
		return fmt.Errorf("audit: trials = %d must be at least %d", c.Trials, MinTrials)
	case !(c.Confidence > 0 && c.Confidence < 1):
		return fmt.Errorf("audit: confidence = %v must lie strictly between 0 and 1", c.Confidence)
	case c.Workers < 0:
		return fmt.Errorf("audit: workers = %d must not be negative", c.Workers)
	}
	c.Workers = max(1, c.Workers)
	return nil
}

// sumPair is a pair of a client's inputs, x and y, which all other clients have, too. Sums are looked
// at along a direction.
type sumPair struct {
	name        string
	x, y, along []float32
}

// shape returns the length of an input, the bound on its norm, and of counts the most ones of an input.
func (c *SumConfig) shape() (dim int, radius float64, ones int) {
	if p := c.Aggregated; p != nil {
		return p.Dim, p.Radius, p.Ones
	}
	return c.Params.Dim, c.Params.Radius, c.Params.Ones
}

func sumPairs(dim int, radius float64, ones int) []sumPair {
	if ones > 0 { // as many ones as there may be, in places of their own if there is room
		p := sumPair{"ones elsewhere", make([]float32, dim), make([]float32, dim), make([]float32, dim)}
		for j := range min(2*ones, dim) {
			if j < ones {
				p.x[j], p.along[j] = 1, 1
			} else {
				p.y[j], p.along[j] = 1, -1
			}
		}
		return []sumPair{p}
	}
	axis, spread := make([]float32, dim), make([]float32, dim)
	axis[0] = float32(radius)
	for j := range spread {
		spread[j] = float32(radius / math.Sqrt(float64(dim)))
		if j%2 == 1 {
			spread[j] = -spread[j]
		}
	}
	opposite := func(name string, x []float32) sumPair {
		y := slices.Clone(x)
		for j := range y {
			y[j] = -y[j]
		}
		return sumPair{name, x, y, x}
	}
	pairs := []sumPair{opposite("opposite axes", axis)}
	if dim > 1 {
		pairs = append(pairs, opposite("opposite corners", spread))
	}
	return pairs
}

// threshold is an event: the projection lies above a cut or, if swapped, not above it.
type threshold struct {
	pair    int
	cut     float64
	above   bool
	swapped bool    // the event is likelier under y
	bound   float64 // a guess of the bound that a test would show
}

func (t threshold) holds(v float64) bool { return v > t.cut == t.above }

// describe says in words what the event is.
func (t threshold) describe() string {
	side, likelier := "at most", "first"
	if t.above {
		side = "above"
	}
	if t.swapped {
		likelier = "second"
	}
	return fmt.Sprintf("sum along the difference %s %.6g, likelier for the %s", side, t.cut, likelier)
}

// mostChosen bounds the number of projections stored to choose the event.
const mostChosen = 1 << 20

// RunSum runs an audit of vector sums. Half of the trials choose a pair of inputs and a
// threshold, the other half tests that one event: a true claim is refuted with probability at
// most 1 − Confidence. It returns ctx's error if cancelled; all other errors name a field of
// c out of range.
func RunSum(ctx context.Context, c SumConfig) (Result, error) {
	if err := c.complete(); err != nil {
		return Result{}, err
	}
	s := &sumSampler{ctx: ctx, config: c}
	if _, err := s.newRound(); err != nil {
		return Result{}, err
	}
	pairs := sumPairs(c.shape())
	choose := max(1, min(mostChosen, c.Trials/2/int64(2*len(pairs))))
	test := (c.Trials - choose*int64(2*len(pairs))) / 2
	alpha := 1 - c.Confidence
	best := threshold{bound: math.Inf(-1)}
	for i, p := range pairs {
		var seen [2][]float64
		for side := range seen {
			seen[side] = make([]float64, choose)
			if err := s.each(stageChoose, i, side, p, choose, func(k int64, v float64) { seen[side][k] = v }); err != nil {
				return Result{}, err
			}
			slices.Sort(seen[side])
		}
		if t := chooseThreshold(seen, c.Delta, test, alpha); t.bound > best.bound {
			best = t
			best.pair = i
		}
	}
	r := Result{Claimed: c.Claimed, Confidence: c.Confidence, Draws: test, Witness: pairs[best.pair].name + ": " + best.describe()}
	for side := range r.Hits {
		var hits atomic.Int64
		if err := s.each(stageTest, best.pair, side, pairs[best.pair], test, func(_ int64, v float64) {
			if best.holds(v) {
				hits.Add(1)
			}
		}); err != nil {
			return Result{}, err
		}
		r.Hits[side] = hits.Load()
	}
	likelier, other := r.Hits[0], r.Hits[1]
	if best.swapped {
		likelier, other = other, likelier
	}
	r.LowerBound = lowerBoundAt(c.Delta, likelier, other, test, alpha)
	r.Refuted = r.LowerBound > c.Claimed
	return r, nil
}

// chooseThreshold returns the most promising event, given sorted projections, for a test of as
// many rounds as test says.
func chooseThreshold(seen [2][]float64, delta float64, test int64, alpha float64) threshold {
	best := threshold{bound: math.Inf(-1)}
	n := len(seen[0])
	scale, z := float64(test)/float64(n), math.Sqrt(2*math.Log(2/alpha))
	for _, from := range seen {
		for logit := -8.; logit <= 8; logit += .125 {
			cut := from[min(n-1, int(float64(n)/(1+math.Exp(-logit))))]
			for _, above := range []bool{true, false} {
				for _, swapped := range []bool{false, true} {
					t := threshold{cut: cut, above: above, swapped: swapped}
					var hits [2]float64
					for side := range hits {
						// k is the first index with a value above the cut.
						k, _ := slices.BinarySearchFunc(seen[side], cut, func(v, cut float64) int {
							if v > cut {
								return 1
							}
							return -1
						})
						if hits[side] = float64(k); above {
							hits[side] = float64(n - k)
						}
					}
					a, b := hits[0], hits[1]
					if swapped {
						a, b = b, a
					}
					if t.bound = guess(a-delta*float64(n), b, scale, z); t.bound > best.bound {
						best = t
					}
				}
			}
		}
	}
	return best
}

// sumSampler runs rounds.
type sumSampler struct {
	ctx    context.Context
	config SumConfig

	mu   sync.Mutex
	done int64
}

// newRound returns a function that adds a round to sum: of one client with x, and others.
func (s *sumSampler) newRound() (func(src rng.Source, x, others []float32, sum []int64) error, error) {
	if s.config.Aggregated != nil {
		return s.newAggregated(*s.config.Aggregated)
	}
	q := s.config.Params
	honest := int64(math.Floor(q.Honest * float64(q.MinUsers)))
	e, err := vecsum.NewEncoder(q)
	counts, rounded := make([]int64, q.Dim), make([]int32, q.Dim)
	return func(src rng.Source, x, others []float32, sum []int64) (err error) {
		for i := range q.MinUsers {
			in := others
			if i == 0 {
				in = x
			}
			// The first client, whose input differs, always adds its noise.
			if i < honest {
				err = e.Encode(src, in, counts)
			} else {
				err = e.Round(src, in, rounded)
				for j, v := range rounded {
					counts[j] = int64(v)
				}
			}
			if err != nil {
				return err
			}
			for j, v := range counts {
				sum[j] += v
			}
		}
		return nil
	}, err
}

// newAggregated is newRound for a sum whose noise the aggregators add. The other clients and the
// other aggregator are known to the observer, who subtracts what they add.
func (s *sumSampler) newAggregated(p vecsum.Aggregated) (func(src rng.Source, x, _ []float32, sum []int64) error, error) {
	noise, err := sample.NewDiscreteGaussian(sample.Ratio{Num: p.Variance, Den: 1})
	counts := make([]int32, p.Dim)
	return func(src rng.Source, x, _ []float32, sum []int64) error {
		p.Round(src, x, counts)
		noise.Fill(src, sum)
		for j, v := range counts {
			sum[j] += int64(v)
		}
		return nil
	}, err
}

// sumChunk rounds share a stream of randomness.
const sumChunk = 256

// each runs n rounds in which the first client has x, or y on side 1, and the others have
// y. It calls visit with each round's projection, from several goroutines at once for
// different rounds.
func (s *sumSampler) each(at stage, pair, side int, p sumPair, n int64, visit func(k int64, v float64)) error {
	x, others := p.x, p.y
	if side == 1 {
		x = others
	}
	dim, radius, _ := s.config.shape()
	var wg sync.WaitGroup
	var next int64
	var failed error
	for range s.config.Workers {
		wg.Go(func() {
			round, err := s.newRound()
			sum := make([]int64, dim)
			for err == nil {
				s.mu.Lock()
				first := next
				next += sumChunk
				s.mu.Unlock()
				if first >= n || s.ctx.Err() != nil {
					break
				}
				src := rng.Replay(s.config.Seed, uint64(at), uint64(pair), uint64(side), uint64(first))
				last := min(n, first+sumChunk)
				for k := first; k < last && err == nil; k++ {
					clear(sum)
					err = round(src, x, others, sum)
					var dot float64
					for j, v := range sum {
						// The product is not fused, so results do not depend on the machine.
						dot += float64(float64(v) * float64(p.along[j]) / radius)
					}
					visit(k, dot)
				}
				s.progress(last - first)
			}
			if err != nil {
				s.mu.Lock()
				failed = err
				s.mu.Unlock()
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	return s.ctx.Err()
}

func (s *sumSampler) progress(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done += n
	if s.config.Progress != nil {
		s.config.Progress(s.done)
	}
}
