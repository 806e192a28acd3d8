package simulate

import (
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// idle clients have zero gradients and note who was asked for one: all that
// moves the model is noise.
type idle struct {
	mu    *sync.Mutex
	asked map[int64]bool
}

func newIdle() idle { return idle{new(sync.Mutex), map[int64]bool{}} }

func (p idle) worker() func(id int64, theta, grad []float32) {
	return func(id int64, theta, grad []float32) {
		clear(grad)
		p.mu.Lock()
		p.asked[id] = true
		p.mu.Unlock()
	}
}

// took runs one round and returns who took part, ascending.
func (p idle) took(t *testing.T, s *Simulation) (ids []int64) {
	t.Helper()
	clear(p.asked)
	rounds(t, s, 1)
	for id := range p.asked {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Noise is independent between clients and between rounds: the mean of n zero
// reports has squared length MSE/n up to its spread, in every round, and the
// noise of two rounds is not correlated. One stream used for all clients would
// give MSE, one for all rounds a correlation of 1. The squared length over
// MSE/n is χ²/d with d = 12 up to corrections of 1/n: outside (.02, 6) with
// probability below 1e-8; a correlation of two independent directions in 12
// dimensions exceeds .97 with probability below 1e-6.
func TestNoiseIsDrawnAnewForEveryClientAndRound(t *testing.T) {
	const n = 500
	s, co := build(t, setup{n: n, participation: dp.All, worker: newIdle().worker, seed: 5})
	var noise [][]float64
	before := slices.Clone(co.Parameters)
	for range 4 {
		rounds(t, s, 1)
		step, square := make([]float64, len(before)), 0.
		for j, v := range co.Parameters {
			step[j] = float64(before[j]-v) / .5 // the rate
			square += step[j] * step[j]
		}
		before = slices.Clone(co.Parameters)
		if share := square * n / s.config.Mechanism.Facts().MSE; share < .02 || share > 6 {
			t.Errorf("the mean's squared length is %.3g of MSE/n", share)
		}
		for j := range step {
			step[j] /= math.Sqrt(square)
		}
		for i, other := range noise {
			var c float64
			for j := range step {
				c += step[j] * other[j]
			}
			if math.Abs(c) > .97 {
				t.Errorf("noise of rounds %d and %d has correlation %.3f", i+1, len(noise)+1, c)
			}
		}
		noise = append(noise, step)
	}
}

// Who takes part is drawn anew in every round, in each of the ways; two
// rounds agree by chance with probability below 1e-100.
func TestParticipantsAreDrawnAnew(t *testing.T) {
	const n = 1000
	for _, c := range []setup{
		{participation: dp.Sampled, k: 500}, {participation: dp.CheckIn, rate: .5}, {participation: dp.All, dropout: .5},
	} {
		p := newIdle()
		c.n, c.worker = n, p.worker
		s, _ := build(t, c)
		first := p.took(t, s)
		if slices.Equal(first, p.took(t, s)) {
			t.Errorf("participation %s: the same clients in two rounds", c.participation)
		}
	}
}

// Coins, drop-outs and ids come from different streams: over seeds, the first
// client's report arrives with probability rate·(1−dropout). 4000 runs at ¼
// have sd 27.4; ±6 sd fail with probability 2e-9. Were both coins the same
// word, it would never arrive.
func TestDropoutIsIndependentOfCheckIn(t *testing.T) {
	if streams := []int{streamShuffler, streamCoins, streamDropout, streamIDs, streamReport}; len(slices.Compact(slices.Sorted(slices.Values(streams)))) != 5 {
		t.Fatalf("streams %v are not distinct", streams)
	}
	const n = 4
	hits, runs := 0, 4000
	for seed := range runs {
		p := newIdle()
		s, _ := build(t, setup{n: n, participation: dp.CheckIn, rate: .5, dropout: .5, worker: p.worker, seed: uint64(seed), workers: 1, plain: true})
		batch, err := s.collect(s.config.Coordinator.Announce())
		if err == nil && slices.Contains(batch.Payloads, 0) {
			hits++
		}
	}
	if math.Abs(float64(hits)-1000) > 6*27.4 {
		t.Errorf("the first client's report arrived in %d of %d runs, want about 1000", hits, runs)
	}
}
