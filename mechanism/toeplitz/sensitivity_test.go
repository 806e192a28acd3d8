package toeplitz

import (
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// anyStrategy returns a strategy of n random non-increasing weights, some alike, some 0.
func anyStrategy(src rng.Source, n, bits int) Strategy {
	var word [1]uint64
	w := []int64{1 << bits}
	for len(w) < n {
		src.Fill(word[:])
		last := w[len(w)-1]
		w = append(w, min(last, int64(word[0]%uint64(last+last/2+1))))
	}
	return Strategy{Bits: bits, Weights: w}
}

// tried returns the strategies of small tests, n weights at most.
func tried(t testing.TB) []Strategy {
	out := strategies(t)
	src := rng.Replay(20, 1)
	for n := range 12 {
		out = append(out, anyStrategy(src, n+1, 5))
	}
	return out
}

// patterns calls f with every set of rounds below T whose gaps are at least every.
func patterns(rounds, every int64, f func(p []int64)) {
	var grow func(p []int64, from int64)
	grow = func(p []int64, from int64) {
		f(p)
		for t := from; t < rounds; t++ {
			grow(append(p, t), t+every)
		}
	}
	grow(nil, 0)
}

// row returns Σ sign·w_{t−s} over a pattern's rounds s ≤ t; signs of nil are 1.
func row(w []int64, p []int64, signs []int64, t int64) (sum int64) {
	for i, s := range p {
		if s > t || t-s >= int64(len(w)) {
			continue
		}
		if signs == nil {
			sum += w[t-s]
		} else {
			sum += signs[i] * w[t-s]
		}
	}
	return sum
}

func square(v int64) float64 { return float64(v) * float64(v) }

// Every pattern, every prefix of 12 rounds: none is above Squared, and one reaches it.
func TestNoPatternIsWorse(t *testing.T) {
	const T = 12
	for _, s := range tried(t) {
		for every := int64(1); every <= T+1; every++ {
			var worst [T]float64
			var alone [T]int64 // the most in one row
			patterns(T, every, func(p []int64) {
				var sum float64
				for r := range int64(T) {
					m := row(s.Weights, p, nil, r)
					sum += square(m)
					worst[r], alone[r] = max(worst[r], sum), max(alone[r], m)
				}
			})
			for r, m := range alone {
				if t0 := int64(r); s.row(t0-t0%every, every) != m {
					t.Fatalf("%v: row %d alone has up to %d, every %d", s, r, m, every)
				}
			}
			for r, v := range worst {
				if want := math.Ldexp(v, -2*s.Bits); s.Squared(int64(r)+1, every) != want {
					t.Fatalf("%v: squared(%d, %d) = %v, worst pattern %v", s, r+1, every, s.Squared(int64(r)+1, every), want)
				}
			}
		}
	}
}

// With weights that rise another pattern is worse, so they are refused.
func TestRisingWeightsAreUnsound(t *testing.T) {
	s := Strategy{Weights: []int64{1, 0, 0, 9}}
	bound := s.squares(s.rows(2), 4, 2).Int64()
	var worst float64
	patterns(4, 2, func(p []int64) {
		var sum float64
		for r := range int64(4) {
			sum += square(row(s.Weights, p, nil, r))
		}
		worst = max(worst, sum)
	})
	if bound != 83 || worst != 101 {
		t.Errorf("the formula gives %v and the worst pattern %v, want 83 and 101", bound, worst)
	}
	if s.Validate() == nil || !math.IsInf(s.Squared(4, 2), 1) {
		t.Error("rising weights are taken")
	}
}

// An adversary decides in each round, upon all it has seen, whether the client takes part, the sign of its
// vector, which of its earlier rounds are in the row, and whether the row is released.
func TestAdversaryThatChoosesRows(t *testing.T) {
	const T = 6
	for _, s := range tried(t) {
		for every := int64(1); every <= T; every++ {
			var worst [T + 1]float64
			var play func(at int64, p, signs []int64, sum float64)
			play = func(at int64, p, signs []int64, sum float64) {
				worst[at] = max(worst[at], sum)
				if at == T {
					return
				}
				// What is in this row does not bind later ones, so the worst choice is enough.
				joined := func(p, signs []int64) {
					var most float64
					for in := range 1 << len(p) { // 0: void, or not released
						var d int64
						for i := range p {
							if in>>i&1 == 1 {
								d += row(s.Weights, p[i:i+1], signs[i:i+1], at)
							}
						}
						most = max(most, square(d))
					}
					play(at+1, p, signs, sum+most)
				}
				joined(p, signs)
				if len(p) == 0 || at-p[len(p)-1] >= every {
					for _, sign := range []int64{1, -1} {
						joined(append(slices.Clone(p), at), append(slices.Clone(signs), sign))
					}
				}
			}
			play(0, nil, nil, 0)
			for r, v := range worst {
				if got := s.Squared(int64(r), every); got != math.Ldexp(v, -2*s.Bits) {
					t.Fatalf("%v: squared(%d, %d) = %v, an adversary gets %v", s, r, every, got, math.Ldexp(v, -2*s.Bits))
				}
			}
		}
	}
}

// The two data sets have the client take part in rounds of their own. Vectors of half the length keep to the
// bound; with whole ones it would not hold.
func TestParticipationThatDependsOnData(t *testing.T) {
	const T = 6
	above := 0
	for _, s := range []Strategy{Identity(3), {Bits: 2, Weights: []int64{4, 3, 3, 1}}, anyStrategy(rng.Replay(3, 2), 5, 4)} {
		for every := int64(1); every <= T; every++ {
			var rows [][T]int64 // of every pattern with signs
			patterns(T, every, func(p []int64) {
				for signs := range 1 << len(p) {
					v := make([]int64, len(p))
					for i := range v {
						v[i] = int64(1 - 2*(signs>>i&1))
					}
					var m [T]int64
					for r := range m {
						m[r] = row(s.Weights, p, v, int64(r))
					}
					rows = append(rows, m)
				}
			})
			var bound [T]float64
			for r := range bound {
				bound[r] = math.Ldexp(s.Squared(int64(r)+1, every), 2*s.Bits)
			}
			for _, a := range rows {
				for _, b := range rows {
					var sum float64
					for r := range a {
						if sum += square(a[r] - b[r]); sum/4 > bound[r] {
							t.Fatalf("%v, every %d: %v against %v gives %v in rounds to %d, bound %v", s, every, a, b, sum/4, r, bound[r])
						}
						if sum > bound[r] {
							above++
						}
					}
				}
			}
		}
	}
	if above == 0 {
		t.Error("vectors of whole length keep to the bound too: the test is blind")
	}
}

// A void round keeps its number and its charge. Left out of either, the figures are too small.
func TestVoidRoundsCount(t *testing.T) {
	// Rounds 0, 1, 2, of which 1 is void; the client is in 0 and 2, as every = 2 allows. Numbered by
	// what was released it is in 0 and 1, and adds 1 and then 1 + ½.
	s := Strategy{Bits: 1, Weights: []int64{2, 1}}
	spent := (square(row(s.Weights, []int64{0, 1}, nil, 0)) + square(row(s.Weights, []int64{0, 1}, nil, 1))) / 4
	if charged := s.Squared(2, 2); spent != 3.25 || charged != 1.25 {
		t.Errorf("numbered by releases: spent %v, charged %v, want 3.25 and 1.25", spent, charged)
	}
	// Independent noise, round 0 void, the client in round 1: what round 1 adds to the charge is 0.
	one := Identity(0)
	if spent, charged := square(row(one.Weights, []int64{1}, nil, 1)), one.Between(1, 2, 2); spent != 1 || charged != 0 {
		t.Errorf("charged for released rounds only: spent %v, charged %v, want 1 and 0", spent, charged)
	}
	if charged := one.Squared(2, 2); charged != 1 {
		t.Errorf("charged for both rounds: %v, want 1", charged)
	}
}

func TestSquaredOfManyRounds(t *testing.T) {
	src := rng.Replay(5, 5)
	for _, n := range []int{1, 2, 3, 17, 100} {
		s := anyStrategy(src, n, 7)
		for _, every := range []int64{1, 2, 16, 17, 18, 99, 100, 101, 1000, 400000} {
			const rounds = 200000
			m := make([]int64, rounds)
			var sum float64 // all below 2^53
			for r := range int64(rounds) {
				if r < int64(n) {
					m[r] = s.Weights[r]
				}
				if r >= every {
					m[r] += m[r-every]
				}
				sum += square(m[r])
			}
			if got := math.Ldexp(s.Squared(rounds, every), 2*s.Bits); sum > 1<<53 || got != sum {
				t.Fatalf("%d weights, every %d: %v, want %v", n, every, got, sum)
			}
			// Far beyond, any whole period costs the same.
			period := s.Between(rounds, rounds+every, every)
			far := s.Between(rounds, rounds+every*(1<<40/every), every)
			if want := period * float64(1<<40/every); !(far >= want*(1-1e-15) && far <= want*(1+1e-15)) {
				t.Fatalf("%d weights, every %d: %v over 2^40 rounds, want %v", n, every, far, want)
			}
		}
	}
}

func TestSquaredIsRoundedUp(t *testing.T) {
	// 3^2·(2^53+1)… needs more than 53 bits: rows of 3 each from round 1 on.
	s := Strategy{Bits: 1, Weights: []int64{2, 1}}
	const rounds = 1<<53 + 2 // (4 + 9·(2^53+1))/4
	if got, low := s.Squared(rounds, 1), (4+9*float64(1<<53))/4; got <= low {
		t.Errorf("squared = %v, want above %v", got, low)
	}
	if got := s.Squared(math.MaxInt64, 1); !(got >= 9./4*(1<<63-2)) || math.IsInf(got, 1) {
		t.Errorf("squared of 2^63−1 rounds = %v", got)
	}
	if got := s.Squared(math.MaxInt64, math.MaxInt64); got != 1.25 {
		t.Errorf("one participation costs %v, want 1.25", got)
	}
	if n := testing.AllocsPerRun(5, func() { s.Squared(1e9, 7) }); n > 40 {
		t.Errorf("%v allocations for 1e9 rounds", n)
	}
}

func FuzzStrategy(f *testing.F) {
	f.Add(3, []byte{8, 5, 5, 2}, int64(10), int64(3))
	f.Add(0, []byte{1, 1, 1, 0}, int64(1), int64(math.MaxInt64))
	f.Add(2, []byte{4, 5}, int64(math.MaxInt64), int64(1))
	f.Fuzz(func(t *testing.T, bits int, raw []byte, rounds, every int64) {
		s := Strategy{Bits: bits}
		falling := true
		for k, b := range raw {
			s.Weights = append(s.Weights, int64(b))
			falling = falling && (k == 0 || b <= raw[k-1])
		}
		fits := bits >= 0 && bits <= MostBits && len(raw) > 0 && falling && int64(raw[0]) == 1<<bits
		if (s.Validate() == nil) != fits {
			t.Fatalf("%v: %v", s, s.Validate())
		}
		got := s.Squared(rounds, every)
		if !fits || rounds < 0 || every < 1 {
			if !math.IsInf(got, 1) {
				t.Fatalf("%v: squared(%d, %d) = %v", s, rounds, every, got)
			}
			return
		}
		if rounds == 0 {
			return
		}
		if before := s.Squared(rounds-1, every); !(got >= 1 && got <= math.MaxFloat64 && before <= got) {
			t.Fatalf("%v: squared(%d, %d) = %v after %v", s, rounds, every, got, before)
		}
		if m := s.row(rounds-1, every); m < 0 || s.Between(rounds-1, rounds, every) != math.Ldexp(square(m), -2*s.Bits) {
			t.Fatalf("%v: row(%d, %d) = %d, and it adds %v", s, rounds-1, every, m, s.Between(rounds-1, rounds, every))
		}
	})
}
