package dataset

import (
	"math"
	"slices"
	"testing"
)

func synthetic(t testing.TB, c SyntheticConfig) (rows *Table, truth []float64) {
	t.Helper()
	rows, truth, err := NewSynthetic(c)
	if err != nil {
		t.Fatal(err)
	}
	return rows, truth
}

var syntheticKinds = []SyntheticKind{SyntheticLogistic, SyntheticHinge, SyntheticAbsolute}

// A row has norm 1, and does not depend on how many there are. Held-out rows are others.
func TestSyntheticRows(t *testing.T) {
	for _, kind := range syntheticKinds {
		c := SyntheticConfig{Kind: kind, Dim: 6, Rows: 200, Seed: 4}
		rows, truth := synthetic(t, c)
		if err := rows.validate(); err != nil || rows.Len() != 200 {
			t.Fatal(rows.Len(), err)
		}
		c.Rows = 40
		few, again := synthetic(t, c)
		c.HeldOut = true
		others, _ := synthetic(t, c)
		if !slices.Equal(truth, again) {
			t.Errorf("%s: two truths for one seed", kind)
		}
		different := false
		for i := range rows.Len() {
			square := 0.0
			for _, v := range rows.Row(i) {
				square += float64(v) * float64(v)
			}
			if math.Abs(square-1) > 1e-6 {
				t.Fatalf("norm² %v", square)
			}
			if y := rows.Target(i); y != 1 && y != -1 && kind != SyntheticAbsolute {
				t.Fatalf("target %v", y)
			}
			different = different || rows.Row(i)[0] != rows.Row(0)[0]
			if i >= few.Len() {
				continue
			}
			if !slices.Equal(rows.Row(i), few.Row(i)) || rows.Target(i) != few.Target(i) {
				t.Fatalf("row %d is two rows", i)
			}
			if slices.Equal(rows.Row(i), others.Row(i)) {
				t.Fatalf("row %d is held out as well", i)
			}
		}
		if !different {
			t.Error("all rows are alike")
		}
	}
}

// Held-out rows follow the law: the right share of labels, the right noise, the
// right spectrum.
func TestSyntheticLaw(t *testing.T) {
	const n, d = 20000, 5
	for _, kind := range syntheticKinds {
		rows, w := synthetic(t, SyntheticConfig{Kind: kind, Dim: d, Rows: n, HeldOut: true, Seed: 9})
		if err := rows.validate(); err != nil {
			t.Fatal(err)
		}
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
		{}, {Kind: "x", Dim: 1, Rows: 1}, {Kind: SyntheticHinge, Rows: 1}, {Kind: SyntheticHinge, Dim: 1},
		{Kind: SyntheticHinge, Dim: 1, Rows: -1}, {Kind: SyntheticHinge, Dim: 1, Rows: 1, Noise: .5},
		{Kind: SyntheticHinge, Dim: 1, Rows: 1, Noise: math.NaN()}, {Kind: SyntheticLogistic, Dim: 1, Rows: 1, Noise: .1},
		{Kind: SyntheticAbsolute, Dim: 1, Rows: 1, Norm: -1}, {Kind: SyntheticAbsolute, Dim: 1, Rows: 1, Norm: math.Inf(1)},
		{Kind: SyntheticAbsolute, Dim: 1, Rows: 1, Decay: math.NaN()},
	} {
		if _, _, err := NewSynthetic(c); err == nil {
			t.Errorf("accepted %+v", c)
		}
	}
}
