package sample

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mathext"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// falseAlarm is the probability with which one statistical check fails although
// the sampler is right. There are fewer than 1000 checks in this package, so a
// fresh seed fails somewhere with probability below 1e-6; the seeds are fixed.
const falseAlarm = 1e-9

// chiSquare checks counts against probabilities that need not sum to 1: the
// rest is one more cell. Cells expecting fewer than 20 are pooled.
func chiSquare(t *testing.T, name string, counts []int64, probs []float64, n int64) {
	t.Helper()
	var stat, pooledP float64
	var pooled, seen int64
	cells := 0
	rest := 1.
	add := func(c int64, p float64) {
		e := p * float64(n)
		stat += (float64(c) - e) * (float64(c) - e) / e
		cells++
	}
	for i, c := range counts {
		seen += c
		rest -= probs[i]
		if probs[i]*float64(n) < 20 {
			pooled += c
			pooledP += probs[i]
			continue
		}
		add(c, probs[i])
	}
	pooled += n - seen
	pooledP += math.Max(rest, 0)
	if pooledP*float64(n) >= 5 {
		add(pooled, pooledP)
	} else if float64(pooled) > 60 { // Poisson with mean < 5
		t.Errorf("%s: %d values in cells that expect %.3g", name, pooled, pooledP*float64(n))
	}
	if cells < 2 {
		t.Fatalf("%s: nothing to compare", name)
	}
	if p := mathext.GammaIncRegComp(float64(cells-1)/2, stat/2); p < falseAlarm {
		t.Errorf("%s: chi-square %.1f with %d degrees of freedom, p = %.2g", name, stat, cells-1, p)
	}
}

// proportion checks hits of n against probability p.
func proportion(t *testing.T, name string, hits, n int64, p float64) {
	t.Helper()
	mean := p * float64(n)
	if p == 0 || p == 1 {
		if float64(hits) != mean {
			t.Errorf("%s: %d hits of %d with probability %v", name, hits, n, p)
		}
		return
	}
	// Bernstein: P[|X−np| > s] ≤ 2·exp(−s²/(2(np(1−p)+s/3))).
	l := math.Log(2 / falseAlarm)
	s := l/3 + math.Sqrt(l*l/9+2*l*mean*(1-p))
	if math.Abs(float64(hits)-mean) > s {
		t.Errorf("%s: %d hits of %d, want %.1f ± %.1f", name, hits, n, mean, s)
	}
}

// script is a source of given words; it fails the test when they run out.
type script struct {
	t     *testing.T
	words []uint64
}

func (s *script) Uint64() uint64 {
	if len(s.words) == 0 {
		s.t.Fatal("more words read than expected")
	}
	w := s.words[0]
	s.words = s.words[1:]
	return w
}

func (s *script) Fill(dst []uint64) {
	for i := range dst {
		dst[i] = s.Uint64()
	}
}

// source gives each test its own stream.
func source(path ...uint64) rng.Source { return rng.Replay(20240611, path...) }

func draws(t *testing.T, full int64) int64 {
	t.Helper()
	if testing.Short() {
		return full / 8
	}
	return full
}
