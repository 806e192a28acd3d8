package proved

import "testing"

// TestSoundness holds what proved.md states.
func TestSoundness(t *testing.T) {
	for d, want := range map[int][4]float64{1930: {-58.0, -58.0, -57.7, -39.9}, 13706: {-57.0, -57.0, -56.8, -39.9}} {
		r := mustNew(t, Config{Dim: d, Bound: 1<<15 + 59, Users: 60_000})
		for i, hashes := range []float64{0, 20, 40, 60} {
			if got := r.pine.Soundness(hashes); got > want[i] || got < want[i]-.15 {
				t.Errorf("d = %d, 2^%v hashes: 2^%v, want 2^%v", d, hashes, got, want[i])
			}
		}
	}
}
