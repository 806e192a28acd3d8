package rng

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
	"testing"
)

// The stream is part of every recorded run: changing it breaks them all.
func TestReplaySequence(t *testing.T) {
	for _, c := range []struct {
		seed uint64
		path []uint64
		want [4]uint64
	}{
		{1, nil, [4]uint64{0xcc0ac4bbba7c17b3, 0x8a6c0b1b978fd08c, 0x35bdaad09a79da9c, 0xfe28a2f1184f33d3}},
		{1, []uint64{0}, [4]uint64{0x2fcd2106646b69cb, 0x6c12b2eb1d3ae620, 0x606b35716b67cdce, 0x2e123cd77445794a}},
		{1, []uint64{7, 80, 59999}, [4]uint64{0xb62a1315ba6591e5, 0x69ca263ccd609bd7, 0xa4b900c5620cab32, 0x883198553c5f98fa}},
		{1<<64 - 1, []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}, [4]uint64{0x9c89ff8d58ac1f27, 0x6bea3787dd3926c8, 0x51149c73f097b6f8, 0xa7b7a06aadb4009e}},
	} {
		s := Replay(c.seed, c.path...)
		var got [4]uint64
		for i := range got {
			got[i] = s.Uint64()
		}
		if got != c.want {
			t.Errorf("Replay(%d, %v) = %#x, want %#x", c.seed, c.path, got, c.want)
		}
	}
}

func TestPathsAreDistinct(t *testing.T) {
	seen := map[uint64]string{}
	add := func(name string, s Source) {
		w := s.Uint64()
		if other, ok := seen[w]; ok {
			t.Errorf("%s and %s begin with the same word", name, other)
		}
		seen[w] = name
	}
	add("1", Replay(1))
	add("1/0", Replay(1, 0))
	add("1/0/0", Replay(1, 0, 0))
	add("0", Replay(0))
	add("0/1", Replay(0, 1))
	add("0/1/1", Replay(0, 1, 1))
	add("1/1", Replay(1, 1))
	add("1/256", Replay(1, 256))
	add("1/2,1", Replay(1, 2, 1))
	add("1/1,2", Replay(1, 1, 2))
}

// Fill and Uint64 in any mixture give the words that Uint64 alone gives.
func TestFillIsTheSameStream(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	want := make([]uint64, 20000)
	for i, s := 0, Replay(5, 6); i < len(want); i++ {
		want[i] = s.Uint64()
	}
	for range 20 {
		s := Replay(5, 6)
		for i := 0; i < len(want); {
			if r.IntN(2) == 0 {
				if w := s.Uint64(); w != want[i] {
					t.Fatalf("word %d: %#x, want %#x", i, w, want[i])
				}
				i++
				continue
			}
			dst := make([]uint64, min(r.IntN(1<<r.IntN(11)), len(want)-i))
			for j := range dst {
				dst[j] = 123 // old content must not show
			}
			s.Fill(dst)
			for j, w := range dst {
				if w != want[i+j] {
					t.Fatalf("word %d: %#x, want %#x", i+j, w, want[i+j])
				}
			}
			i += len(dst)
		}
	}
}

// The counter carries over from its low to its high half, as cipher.NewCTR's
// does: both ways of reading meet at any point.
func TestCounterCarries(t *testing.T) {
	for n := range 40 {
		a, b := Replay(1, 2), Replay(1, 2)
		a.hi, a.lo = 1<<64-1, 1<<64-3
		b.hi, b.lo = a.hi, a.lo
		want := make([]uint64, 100)
		a.Fill(want)
		got := make([]uint64, 100)
		for i := range n {
			got[i] = b.Uint64()
		}
		b.Fill(got[n:])
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%d words one by one: word %d is %#x, want %#x", n, i, got[i], want[i])
			}
		}
	}
}

func TestResetIsReplay(t *testing.T) {
	s := Replay(9, 1, 2, 3)
	for n := range 70 {
		s.Fill(make([]uint64, n))
		s.Uint64()
		s.Reset(4, uint64(n))
		fresh := Replay(9, 4, uint64(n))
		for i := range 100 {
			if a, b := s.Uint64(), fresh.Uint64(); a != b {
				t.Fatalf("path %d, word %d: %#x after Reset, %#x fresh", n, i, a, b)
			}
		}
	}
}

func TestGoroutineOrderDoesNotMatter(t *testing.T) {
	const clients = 64
	var want, got [clients]uint64
	for i := range want {
		want[i] = Replay(3, 1, uint64(i)).Uint64()
	}
	var wg sync.WaitGroup
	for i := clients - 1; i >= 0; i-- {
		wg.Go(func() { got[i] = Replay(3, 1, uint64(i)).Uint64() })
	}
	wg.Wait()
	if got != want {
		t.Error("streams depend on the order in which they were made")
	}
}

// Sanity of both kinds: every bit is set half the time, words do not repeat,
// and neighbouring words are uncorrelated. Replay is fixed; for Secure the
// limit of 7 standard deviations on 128 statistics gives a false alarm with
// probability below 4e-10.
func TestBitsAreBalanced(t *testing.T) {
	for name, s := range map[string]Source{"secure": Secure(), "replay": Replay(11)} {
		const n = 1 << 15
		words := make([]uint64, n)
		s.Fill(words[:n/2])
		for i := n / 2; i < n; i++ {
			words[i] = s.Uint64()
		}
		limit := 7 * math.Sqrt(n) / 2
		var ones, changed [64]int
		for i, w := range words {
			for b := range 64 {
				ones[b] += int(w >> b & 1)
				changed[b] += int((w ^ bits.RotateLeft64(words[(i+1)%n], 1)) >> b & 1)
			}
		}
		for b := range 64 {
			if d := math.Abs(float64(ones[b]) - n/2); d > limit {
				t.Errorf("%s: bit %d set %d times of %d", name, b, ones[b], n)
			}
			if d := math.Abs(float64(changed[b]) - n/2); d > limit {
				t.Errorf("%s: bit %d agrees with its neighbour %d times of %d", name, b, n-changed[b], n)
			}
		}
		seen := map[uint64]bool{}
		for _, w := range words {
			if seen[w] {
				t.Errorf("%s: word %#x came twice in %d", name, w, n) // probability 3e-11
			}
			seen[w] = true
		}
	}
}

func TestSecureKeepsNoUsedWords(t *testing.T) {
	s := Secure().(*secure)
	s.Uint64()
	s.Fill(make([]uint64, 10))
	for i, w := range s.buf {
		if (i < s.next) != (w == 0) { // an unused word is 0 with probability 2^-64
			t.Fatalf("word %d of the buffer is %#x with %d used", i, w, s.next)
		}
	}
}

func BenchmarkReplayNew(b *testing.B) {
	b.ReportAllocs()
	var sum, i uint64
	for b.Loop() {
		sum += Replay(1, 2, 3, i).Uint64()
		i++
	}
}

func BenchmarkStreamReset(b *testing.B) {
	b.ReportAllocs()
	s := Replay(1)
	var sum, i uint64
	for b.Loop() {
		s.Reset(2, 3, i)
		sum += s.Uint64()
		i++
	}
}

func benchFill(b *testing.B, s Source) {
	dst := make([]uint64, 512)
	b.SetBytes(8 * 512)
	for b.Loop() {
		s.Fill(dst)
	}
	b.ReportMetric(512*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mwords/s")
}

func BenchmarkReplayFill(b *testing.B) { benchFill(b, Replay(1)) }
func BenchmarkSecureFill(b *testing.B) { benchFill(b, Secure()) }

// What Replay would be on ChaCha8; the reason for AES-CTR.
func BenchmarkChaCha8Fill(b *testing.B) { benchFill(b, chacha{rand.NewChaCha8([32]byte{1})}) }

type chacha struct{ *rand.ChaCha8 }

func (c chacha) Fill(dst []uint64) {
	for i := range dst {
		dst[i] = c.Uint64()
	}
}

func BenchmarkReplayUint64(b *testing.B) {
	s := Replay(1)
	var sum uint64
	for b.Loop() {
		sum += s.Uint64()
	}
}

func BenchmarkSecureUint64(b *testing.B) {
	s := Secure()
	var sum uint64
	for b.Loop() {
		sum += s.Uint64()
	}
}
