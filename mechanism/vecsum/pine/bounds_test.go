package pine

import (
	"math"
	"testing"
)

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s = %.9g, want %.9g", what, got, want)
	}
}

// TestBounds compares with the formulas of pine.md, worked out by hand.
func TestBounds(t *testing.T) {
	p := mustNew(t, Config{Dim: 1930, Bound: 1 << 15})
	if e, r := p.points(); e != 32 || r != 64 {
		t.Fatalf("%v and %v points", e, r)
	}
	// Few hashes: the proof of the norm's value, 62/(2^64 − 32).
	near(t, "soundness", p.Soundness(0), math.Log2(62)-64, 1e-3)
	// Many: 2^T tries at 2^−100.
	near(t, "soundness", p.Soundness(60), -40, .1)
	near(t, "completeness", p.completeness(), math.Log2(160)-64, 1e-5)
	near(t, "zero knowledge", p.ZeroKnowledge(), math.Log2(100)+1-256*math.Log2E, 1e-5)
	two := mustNew(t, Config{Dim: 1930, Bound: 1 << 15, EqualityProofs: 2})
	near(t, "soundness", two.Soundness(0), -100, .05) // and 2^−105.7 for both proofs
	wide := mustNew(t, Config{Dim: 1930, Bound: 1 << 15, Field: 128})
	near(t, "soundness", wide.Soundness(0), -100, 1e-3)

	some := mustNew(t, Config{Dim: 10, Bound: 1000, Checks: 4, Successes: 3})
	near(t, "wraparound", some.wraparound(), math.Log2(5./16), 1e-5)
	ratio := 16384. / 1000
	near(t, "zero knowledge", some.ZeroKnowledge(), math.Log2(6)+2*(1-ratio*ratio*math.Log2E), 1e-4)

	// The draft's α leaves 2^−101 in the worst case, a bound just below a power of 2.
	for bound := int64(1); bound < 1<<31; bound = bound*17/16 + 1 {
		if got := mustNew(t, Config{Dim: 5, Bound: bound}).ZeroKnowledge(); got > -101 {
			t.Errorf("bound %d: zero knowledge %v", bound, got)
		}
	}
}

func TestSoundnessIsOrderedAndRefuses(t *testing.T) {
	p := mustNew(t, Config{Dim: 1930, Bound: 1 << 15})
	better := []*Pine{
		mustNew(t, Config{Dim: 1930, Bound: 1 << 15, Proofs: 3}),
		mustNew(t, Config{Dim: 1930, Bound: 1 << 15, EqualityProofs: 2}),
		mustNew(t, Config{Dim: 1930, Bound: 1 << 15, Checks: 120}),
		mustNew(t, Config{Dim: 1930, Bound: 1 << 15, Field: 128}),
	}
	worse := mustNew(t, Config{Dim: 1930, Bound: 1 << 15, Proofs: 1})
	last := math.Inf(-1)
	for h := 0.; h <= 64; h++ {
		got := p.Soundness(h)
		if got < last || got > 0 || got < h-100 {
			t.Errorf("2^%v hashes: %v after %v", h, got, last)
		}
		last = got
		for i, b := range better {
			if b.Soundness(h) > got {
				t.Errorf("2^%v hashes: configuration %d is worse", h, i)
			}
		}
		if worse.Soundness(h) < got {
			t.Errorf("2^%v hashes: one proof is better than two", h)
		}
	}
	for _, h := range []float64{-1, 64.1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		if got := p.Soundness(h); got != 0 {
			t.Errorf("%v hashes: %v", h, got)
		}
	}
	if got := mustNew(t, Config{Dim: 1930, Bound: 1 << 15, Checks: 10}).Soundness(30); got != 0 {
		t.Errorf("ten projections and 2^30 hashes: %v", got)
	}
}
