package external

import (
	"encoding/binary"
	"math"
	"testing"
)

// TestDecode compares decode with one value at a time, for all lengths and places of odd values.
func TestDecode(t *testing.T) {
	special := []float32{0, float32(math.Copysign(0, -1)), 1, -2.5, math.MaxFloat32, math.SmallestNonzeroFloat32, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}
	for n := range 40 {
		for shift := range special {
			var raw []byte
			in := make([]float32, n)
			for i := range in {
				in[i] = special[(i*i+shift)%len(special)]
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(in[i]))
			}
			for _, sign := range []uint32{0, 1 << 31} {
				got := make([]float32, n)
				odd := decode(got, raw, sign)
				var want int64
				for i, x := range in {
					if x-x != 0 {
						x = 0
						want++
					}
					if sign != 0 {
						x = -x
					}
					if math.Float32bits(got[i]) != math.Float32bits(x) {
						t.Fatalf("%v gives %v at %d", in, got, i)
					}
				}
				if odd != want {
					t.Fatalf("%v: %d odd values, want %d", in, odd, want)
				}
			}
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	dst, raw := make([]float32, chunkBytes/4), make([]byte, chunkBytes)
	b.SetBytes(chunkBytes)
	for b.Loop() {
		decode(dst, raw, 0)
	}
}
