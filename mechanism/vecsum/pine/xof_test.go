package pine

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/cloudflare/circl/simd/keccakf1600"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// TestTurboSHAKE compares with the values of RFC 9861, section 5, where message n is the first n
// bytes of 0, 1, …, 250, 0, 1, …
func TestTurboSHAKE(t *testing.T) {
	for _, c := range []struct {
		size   int
		domain byte
		want   string
	}{
		{0, 0x1f, "1e415f1c5983aff2169217277d17bb538cd945a397ddec541f1ce41af2c1b74c"},
		{1, 0x1f, "55cedd6f60af7bb29a4042ae832ef3f58db7299f893ebb9247247d856958daa9"},
		{17, 0x1f, "9c97d036a3bac819db70ede0ca554ec6e4c2a1a4ffbfd9ec269ca6a111161233"},
		{17 * 17, 0x1f, "96c77c279e0126f7fc07c9b07f5cdae1e0be60bdbe10620040e75d7223a624d2"},
	} {
		for _, lanes := range []int{2, 4} {
			s := spongeOf(lanes)
			m := make([]byte, c.size)
			for i := range m {
				m[i] = byte(i % 251)
			}
			s.write(m)
			s.finish(c.domain)
			got := make([]byte, 32)
			s.read(got)
			if hex.EncodeToString(got) != c.want {
				t.Errorf("%d bytes, %d states: %x", c.size, lanes, got)
			}
		}
	}
}

func spongeOf(lanes int) *sponge {
	s := &sponge{lanes: lanes}
	if lanes == 4 {
		s.state = s.four.Initialize(true)
	} else {
		s.state = s.two.Initialize(true)
	}
	return s
}

// TestSpongeInPieces holds that neither the pieces of writing nor those of reading matter, nor
// the number of states that are permuted together.
func TestSpongeInPieces(t *testing.T) {
	t.Logf("four states at a time: %v", keccakf1600.IsEnabledX4())
	src := rng.Replay(5)
	for _, size := range []int{0, 1, rate - 1, rate, rate + 1, 2*rate - 1, 2 * rate, 1000} {
		m := make([]byte, size)
		draw(src, m)
		var want []byte
		for trial := range 8 {
			s := spongeOf(2 + 2*(trial%2))
			for rest := m; len(rest) > 0; {
				n := 1 + int(src.Uint64()%uint64(len(rest)))
				s.write(rest[:n])
				rest = rest[n:]
			}
			s.finish(1)
			got := make([]byte, 700)
			for rest := got; len(rest) > 0; {
				n := 1 + int(src.Uint64()%uint64(len(rest)))
				s.read(rest[:n])
				rest = rest[n:]
			}
			if trial == 0 {
				want = got
			} else if !bytes.Equal(got, want) {
				t.Fatalf("%d bytes: trial %d differs", size, trial)
			}
		}
	}
}

// TestFillLeavesOutLargeNumbers holds rejection: a number that is no element takes no place.
func TestFillLeavesOutLargeNumbers(t *testing.T) {
	var raw []byte
	large := bytes.Repeat([]byte{255}, 8)
	for i := range 3000 {
		if i%7 == 0 {
			raw = append(raw, large...)
		}
		raw = f64(i).append(raw)
	}
	for _, n := range []int{1, 511, 512, 513, 2500} {
		got := make([]f64, n)
		from := &replayed{raw}
		fill(got, from)
		for i, x := range got {
			if x != f64(i) {
				t.Fatalf("%d elements: element %d is %d", n, i, x)
			}
		}
		if used := len(raw) - len(from.left); used != 8*(n+(n+6)/7) {
			t.Errorf("%d elements took %d bytes", n, used)
		}
	}
}

type replayed struct{ left []byte }

func (r *replayed) read(dst []byte) { r.left = r.left[copy(dst, r.left):] }

// BenchmarkSHA256 is that of SHA-256 before a permutation and right after it, which must not slow it down.
func BenchmarkSHA256(b *testing.B) {
	x, s := make([]byte, 20000), newSponge()
	for _, after := range []bool{false, true} {
		b.Run(fmt.Sprint("after=", after), func(b *testing.B) {
			b.SetBytes(int64(len(x)))
			for b.Loop() {
				if after {
					s.permute()
				}
				sha256.Sum256(x)
			}
		})
	}
}
