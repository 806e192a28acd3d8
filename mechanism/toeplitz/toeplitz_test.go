package toeplitz

import (
	"math"
	"math/big"
	"testing"
)

// strategies for small tests: the package's own and hand-made ones.
func strategies(t testing.TB) []Strategy {
	t.Helper()
	out := []Strategy{Identity(0), Identity(3), {Bits: 1, Weights: []int64{2, 1}}, {Bits: 0, Weights: []int64{1, 1, 1}}, {Bits: 2, Weights: []int64{4, 4, 1, 1, 0, 0}}}
	for _, band := range []int{1, 2, 5, 12} {
		s, err := squareRoot(band, 6)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	for _, every := range []int64{1, 2, 3, 7} {
		s, err := Banded(12, every, 6)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
	return out
}

func TestSquaredByItsDefinition(t *testing.T) {
	for _, s := range strategies(t) {
		for every := int64(1); every < 20; every++ {
			var sum big.Int
			for rounds := range int64(60) {
				want, _ := new(big.Rat).SetFrac(&sum, big.NewInt(1<<(2*s.Bits))).Float64()
				if got := s.Squared(rounds, every); got != want { // all fit in a float64
					t.Fatalf("%v: squared(%d, %d) = %v, want %v", s, rounds, every, got, want)
				}
				var m int64
				for at := int64(0); at <= rounds; at += every {
					if rounds-at < int64(len(s.Weights)) {
						m += s.Weights[rounds-at]
					}
				}
				if got := s.row(rounds, every); got != m {
					t.Fatalf("%v: row(%d, %d) = %d, want %d", s, rounds, every, got, m)
				}
				sum.Add(&sum, big.NewInt(m*m))
			}
		}
	}
}

func TestInvalidStrategiesAreNoBound(t *testing.T) {
	many := make([]int64, MostWeights+1)
	many[0] = 1
	for _, s := range []Strategy{
		{}, {Bits: 3}, {Bits: -1, Weights: []int64{1}}, {Bits: 17, Weights: []int64{1 << 17}}, {Bits: 3, Weights: []int64{7}},
		{Bits: 3, Weights: []int64{8, 9}}, {Bits: 3, Weights: []int64{8, 3, 4}}, {Bits: 3, Weights: []int64{8, -1}},
		{Bits: 3, Weights: []int64{8, math.MinInt64}}, {Weights: many},
	} {
		if s.Validate() == nil {
			t.Errorf("%v is taken for valid", s)
		}
		if got := s.Squared(5, 2); !math.IsInf(got, 1) {
			t.Errorf("%v: squared = %v", s, got)
		}
		if _, _, err := s.errorsBy(5); err == nil {
			t.Errorf("%v has errors", s)
		}
		if got := s.row(0, 1); got != math.MaxInt64 {
			t.Errorf("%v: row = %v", s, got)
		}
		if _, err := NewRecovery(s, 1); err == nil {
			t.Errorf("%v is undone", s)
		}
	}
	s := Identity(4)
	for _, r := range [][3]int64{{-1, 1, 1}, {0, 1, 0}, {2, 1, 1}, {0, math.MaxInt64, -1}} {
		if got := s.Between(r[0], r[1], r[2]); !math.IsInf(got, 1) {
			t.Errorf("between%v = %v", r, got)
		}
	}
}

// The first four are what L-BFGS over real weights reached elsewhere.
func TestBandedGains(t *testing.T) {
	for _, c := range []struct {
		rounds, every int64
		least         float64
	}{{100, 5, 1.964}, {100, 20, 2.769}, {400, 5, 2.118}, {400, 20, 3.5}, {2000, 50, 5.7}} {
		s, err := Banded(c.rounds, c.every, 12)
		if err != nil {
			t.Fatal(err)
		}
		rms, most, err := s.Gain(c.rounds, c.every)
		if err != nil || rms < c.least || rms > c.least*1.01 || most < rms {
			t.Errorf("T = %d, every %d: gains %v and %v, want at least %v, %v", c.rounds, c.every, rms, most, c.least, err)
		}
	}
}

// What cannot be counted is worth no noise, and rounds that add nothing any.
func TestTogether(t *testing.T) {
	s := Strategy{Bits: 1, Weights: []int64{2, 1}}
	for _, c := range []struct {
		from, to, every int64
		want            float64
	}{{0, 1, 3, 6}, {0, 2, 3, 6 / math.Sqrt(1.25)}, {1, 2, 3, 12}, {2, 3, 3, math.Inf(1)}, {-1, 2, 3, 0}, {2, 1, 3, 0}, {0, 1, 0, 0}} {
		if got := s.Together(6, c.from, c.to, c.every); !(got <= c.want && got >= c.want*(1-1e-14)) {
			t.Errorf("rounds %d to %d, every %d: %v, want %v", c.from, c.to, c.every, got, c.want)
		}
	}
	if got := (Strategy{Bits: 1, Weights: []int64{2, 3}}).Together(6, 0, 1, 3); got != 0 {
		t.Errorf("weights that rise: %v", got)
	}
}
