package toeplitz

import "testing"

// One round of a model of 7,850 parameters, with a band of 50.
func BenchmarkRecovery(b *testing.B) {
	s, err := Banded(2000, 50, 12)
	if err != nil {
		b.Fatal(err)
	}
	r, err := NewRecovery(s, 7850)
	if err != nil {
		b.Fatal(err)
	}
	y := make([]int64, 7850)
	round := int64(0)
	for ; round < 50; round++ {
		if _, err := r.Recover(round, y); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Recover(round, y); err != nil {
			b.Fatal(err)
		}
		round++
	}
}

func BenchmarkBanded(b *testing.B) {
	for b.Loop() {
		if _, err := Banded(2000, 50, 12); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBuffered(b *testing.B) {
	for b.Loop() {
		if _, err := bufferedStrategy(2000, 50, 3, 12); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSquared(b *testing.B) {
	s, err := Banded(2000, 50, 12)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Squared(1e9, 50)
	}
}
