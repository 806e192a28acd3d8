package dataset

import (
	"math"
	"testing"
)

func synthetic(t testing.TB, c SyntheticConfig) *Synthetic {
	t.Helper()
	s, err := NewSynthetic(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var syntheticKinds = []SyntheticKind{SyntheticLogistic, SyntheticHinge, SyntheticAbsolute}

// A client's row does not depend on what was read before, and with Examples it
// is one of the population's.
func TestSyntheticClients(t *testing.T) {
	for _, kind := range syntheticKinds {
		for _, examples := range []int{0, 40} {
			s := synthetic(t, SyntheticConfig{Kind: kind, Dim: 6, Clients: 200, Examples: examples, Seed: 4})
			a, b := s.Reader(), s.Reader()
			x, again := make([]float32, 6), make([]float32, 6)
			var rows *Table
			if examples > 0 {
				rows, _ = s.Rows(0)
				if rows.Len() != examples {
					t.Fatalf("%d rows", rows.Len())
				}
			}
			different := false
			last := float32(0)
			for i := range int64(200) {
				y := a(i, x)
				if z := b(199-i, again); z != 1 && z != -1 && kind != SyntheticAbsolute {
					t.Fatalf("target %v", z)
				}
				if z := b(i, again); z != y {
					t.Fatalf("client %d has targets %v and %v", i, y, z)
				}
				square := 0.0
				for j := range x {
					if x[j] != again[j] {
						t.Fatalf("client %d has two rows", i)
					}
					square += float64(x[j]) * float64(x[j])
				}
				if math.Abs(square-1) > 1e-6 {
					t.Fatalf("norm² %v", square)
				}
				different = different || x[0] != last
				last = x[0]
				if rows == nil {
					continue
				}
				row := s.draw.Example(i, 0)
				want := 0.0
				if rows.Regression() {
					want = float64(rows.Targets[row])
				} else {
					want = float64(2*rows.Y[row] - 1)
				}
				if want != y || rows.Row(row)[3] != x[3] {
					t.Fatalf("client %d is not example %d", i, row)
				}
			}
			if !different {
				t.Error("all rows are alike")
			}
		}
	}
}

// Held-out rows follow the law: the right share of labels, the right noise, the
// right spectrum.
func TestSyntheticLaw(t *testing.T) {
	const n, d = 20000, 5
	for _, kind := range syntheticKinds {
		s := synthetic(t, SyntheticConfig{Kind: kind, Dim: d, Clients: 10, Seed: 9})
		rows, err := s.Rows(n)
		if err != nil || rows.validate() != nil {
			t.Fatal(err, rows.validate())
		}
		w := s.Truth()
		spectrum := make([]float64, d)
		var sum, variance float64
		for i := range n {
			score := 0.0
			for j, v := range rows.Row(i) {
				score += w[j] * float64(v)
				spectrum[j] += float64(v) * float64(v) / n
			}
			var e, v float64 // an error with mean 0, and its variance
			switch kind {
			case SyntheticLogistic:
				p := 1 / (1 + math.Exp(-score))
				e, v = float64(rows.Y[i])-p, p*(1-p)
				if score < 0 { // a flipped sign would show here
					e = -e
				}
			case SyntheticHinge:
				if (score >= 0) != (rows.Y[i] == 1) {
					e = 1
				}
				e, v = e-.05, .05*.95
			case SyntheticAbsolute:
				e = float64(rows.Targets[i]) - score
				e, v = e*e-.09, 2*.09*.09
			}
			sum, variance = sum+e, variance+v
		}
		// Five standard deviations (< 1e-6); the seed is fixed.
		if z := sum / math.Sqrt(variance); math.Abs(z) > 5 {
			t.Errorf("%s: targets are %v standard deviations off", kind, z)
		}
		for j := 1; j < d; j++ {
			if spectrum[j] >= spectrum[j-1] {
				t.Errorf("%s: spectrum %v does not decay", kind, spectrum)
			}
		}
		norm := 0.0
		for _, v := range w {
			norm += v * v
		}
		if math.Abs(norm-25) > 1e-9 {
			t.Errorf("‖w‖² = %v, want 25", norm)
		}
	}
}

func TestSyntheticRefuses(t *testing.T) {
	for _, c := range []SyntheticConfig{
		{}, {Kind: "x", Dim: 1, Clients: 1}, {Kind: SyntheticHinge, Clients: 1}, {Kind: SyntheticHinge, Dim: 1},
		{Kind: SyntheticHinge, Dim: 1, Clients: 1, Examples: -1}, {Kind: SyntheticHinge, Dim: 1, Clients: 1, Noise: .5},
		{Kind: SyntheticHinge, Dim: 1, Clients: 1, Noise: math.NaN()}, {Kind: SyntheticLogistic, Dim: 1, Clients: 1, Noise: .1},
		{Kind: SyntheticAbsolute, Dim: 1, Clients: 1, Norm: -1}, {Kind: SyntheticAbsolute, Dim: 1, Clients: 1, Norm: math.Inf(1)},
		{Kind: SyntheticAbsolute, Dim: 1, Clients: 1, Decay: math.NaN()},
	} {
		if _, err := NewSynthetic(c); err == nil {
			t.Errorf("accepted %+v", c)
		}
	}
	s := synthetic(t, SyntheticConfig{Kind: SyntheticHinge, Dim: 2, Clients: 3})
	if _, err := s.Rows(0); err == nil {
		t.Error("no held-out rows")
	}
	for _, client := range []int64{-1, 3} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("client %d of 3", client)
				}
			}()
			s.Reader()(client, make([]float32, 2))
		}()
	}
}
