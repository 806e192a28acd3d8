package toeplitz

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/internal/golden"
)

// inverse returns C⁻¹ of the rounds released, by forward substitution on the matrix.
func inverse(s Strategy, released []int) [][]float64 {
	n := len(released)
	out := make([][]float64, n)
	for col := range n {
		x := make([]float64, n)
		for i := range n {
			var v float64
			if i == col {
				v = 1
			}
			for j := range i {
				if lag := released[i] - released[j]; lag < len(s.Weights) {
					v -= float64(s.Weights[lag]) / float64(s.Weights[0]) * x[j]
				}
			}
			x[i] = v
		}
		out[col] = x
	}
	return out
}

// The norms of the rows of A·C⁻¹, computed as matrices.
func TestErrorsByMatrices(t *testing.T) {
	for _, s := range tried(t) {
		var released []int
		var squares float64
		for rounds := 1; rounds <= 30; rounds++ {
			released = append(released, rounds-1)
			inv := inverse(s, released)
			var row float64 // of the last prefix sum
			for col := range rounds {
				var b float64
				for i := range rounds {
					b += inv[col][i]
				}
				row += b * b
			}
			squares += row
			rms, most, err := s.errorsBy(int64(rounds))
			if err != nil || math.Abs(rms/math.Sqrt(squares/float64(rounds))-1) > 1e-10 || math.Abs(most/math.Sqrt(row)-1) > 1e-10 {
				t.Fatalf("%v: errors(%d) = %v, %v, %v, want %v, %v", s, rounds, rms, most, err, math.Sqrt(squares/float64(rounds)), math.Sqrt(row))
			}
		}
	}
}

// Whichever rounds are void, a prefix sum has each round's noise with a factor between 0 and 1.
func TestFactorsAreProbabilities(t *testing.T) {
	const T = 9
	for _, s := range tried(t) {
		for void := range 1 << T {
			var released []int
			for r := range T {
				if void>>r&1 == 0 {
					released = append(released, r)
				}
			}
			for col, x := range inverse(s, released) {
				var b float64
				for i := col; i < len(x); i++ {
					if b += x[i]; b < -1e-12 || b > 1+1e-12 {
						t.Fatalf("%v, released %v: round %d has the noise of %d with factor %v", s, released, released[i], released[col], b)
					}
				}
			}
		}
	}
}

// Where rows have settled the rest is added at once; without that the sums must be the same.
func TestErrorsOfManyRounds(t *testing.T) {
	for _, s := range tried(t) {
		const rounds = 20000
		p := gaps(s.Weights)
		b := []float64{1}
		var all, weighted float64
		for k := range rounds {
			if k > 0 {
				var v float64
				for j := range min(k, len(p)) {
					v += p[j] / float64(s.Weights[0]) * b[k-1-j]
				}
				b = append(b, v)
			}
			all += b[k] * b[k]
			weighted += all
		}
		rms, most, err := s.errorsBy(rounds)
		if err != nil || math.Abs(rms/math.Sqrt(weighted/rounds)-1) > 1e-9 || math.Abs(most/math.Sqrt(all)-1) > 1e-9 {
			t.Errorf("%v: errors %v, %v, %v, want %v, %v", s, rms, most, err, math.Sqrt(weighted/rounds), math.Sqrt(all))
		}
	}
	if rms, most, err := Identity(3).errorsBy(1 << 50); err != nil || math.Abs(most-1<<25) > 1e-3 || math.Abs(rms*math.Sqrt2/most-1) > 1e-9 {
		t.Errorf("independent noise: %v, %v, %v", rms, most, err)
	}
	// Equal weights renew at multiples of 3 for ever.
	if _, _, err := (Strategy{Weights: []int64{1, 1, 1}}).errorsBy(1 << 40); err == nil {
		t.Error("errors that do not settle are given")
	}
	for _, r := range []int64{0, -1, math.MinInt64, math.MaxInt64} {
		if _, _, err := Identity(3).errorsBy(r); err == nil {
			t.Errorf("errors of %d rounds", r)
		}
	}
	if _, _, err := Identity(3).Gain(5, 0); err == nil {
		t.Error("a gain at every = 0")
	}
}

// No matrix has a smaller error than the dense optimum, and banded ones come near: within 5 %
// where `every` divides the rounds, within 18 % where the last participations are cut short.
func TestAgainstDenseOptimum(t *testing.T) {
	for _, g := range golden.Table(t, "dense.tsv", 44) {
		rounds, every := int64(g[0]), int64(g[1])
		if !(g[2] <= g[3] && g[3] <= g[2]*(1+2e-9)) {
			t.Fatalf("T = %d, every %d: bounds %v and %v", rounds, every, g[2], g[3])
		}
		over := func(s Strategy) float64 {
			rms, _, err := s.errorsBy(rounds)
			if err != nil {
				t.Fatal(err)
			}
			return rms * math.Sqrt(s.Squared(rounds, every)) / g[2]
		}
		s, err := Banded(rounds, every, 16)
		if err != nil {
			t.Fatal(err)
		}
		most := 1.18
		if rounds%every == 0 {
			most = 1.05
		}
		got := over(s)
		t.Logf("T = %d, every %d: %.4f of the optimum", rounds, every, got)
		if got > most {
			t.Errorf("T = %d, every %d: %.4f of the optimum", rounds, every, got)
		}
		for _, s := range append(tried(t), s) {
			if v := over(s); v < 1-1e-12 {
				t.Errorf("T = %d, every %d: %v has %.9f of the least error", rounds, every, s, v)
			}
		}
		// A band wider than `every` is no better than a thousandth.
		if c, err := rounded(optimal(rounds, every, rounds), 16); err != nil || over(c) < got*.999 {
			t.Errorf("T = %d, every %d: all weights give %.4f, the band %.4f, %v", rounds, every, over(c), got, err)
		}
		if rounds > 1 && rounds <= every {
			for b := 1; b <= MostBuffers; b++ {
				s, err := bufferedStrategy(rounds, every, b, 16)
				if v := over(s); err != nil || v > 1.2 || v < got*(1-1e-4) {
					t.Errorf("T = %d, every %d, %d buffers: %.4f of the optimum, %v", rounds, every, b, v, err)
				}
			}
		}
	}
}

// Clients that take part in every round: no Toeplitz strategy gains more than √(9/8) (toeplitz.md, section 6).
func TestFullParticipationGainsLittle(t *testing.T) {
	all := tried(t)
	for _, rounds := range []int64{2, 3, 10, 100} {
		for range 3 {
			s, err := rounded(optimal(rounds, 1, rounds), 12)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		for _, s := range all {
			rms, most, err := s.Gain(rounds, 1)
			if err != nil || rms > 1+1e-9 || most > 1+1e-9 {
				t.Errorf("T = %d: %v gains %v and %v, %v", rounds, s, rms, most, err)
			}
		}
	}
}
