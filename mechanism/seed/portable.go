package seed

import (
	_ "embed"
	"encoding/binary"
	"math/bits"
)

// quantiles is the table of the normal quantile, 1024 rows of four 32-bit integers.
// testdata/expand.py computes it; docs/SPEC.md says what it means.
//
//go:embed quantile.bin
var quantiles string

// rows is the decoded table. It is computed once and never written again.
var rows = decode()

func decode() *[1024][4]int32 {
	t := new([1024][4]int32)
	raw := []byte(quantiles)
	for i := range t {
		for j := range t[i] {
			t[i][j] = int32(binary.LittleEndian.Uint32(raw[16*i+4*j:]))
		}
	}
	return t
}

// value maps a uniform word to a standard normal value in units of 2^−28. The top bit is the
// sign. The other 63 bits v stand for the upper tail v/2^64. The number of v's leading zeros and
// the five bits after its first 1 choose a row, the 27 bits after those the place in it; there
// the value is a cubic. The v below 2^32, with 31 leading zeros, are one range, divided into 32
// equal parts.
//
// The time does not depend on the word, but for the row's place in the cache.
func value(word uint64) int32 {
	zeros := bits.LeadingZeros32(uint32(word>>32)&0x7fffffff) - 1
	r := uint32(word << 1 << min(zeros+1, 31) >> 32)
	c := &rows[uint(zeros<<5|int(r>>27))&1023]
	t := int64(int32(r<<5 ^ 1<<31))
	y := c[2] + int32(int64(c[3])*t>>32)
	y = c[1] + int32(int64(y)*t>>32)
	y = c[0] + int32(int64(y)*t>>32)
	sign := int32(int64(word) >> 63)
	return y ^ sign - sign
}

// kernel is one implementation of the inner loops. words holds eight bytes for each value.
type kernel struct {
	name string
	// add adds the values to sum.
	add func(sum []int64, words []byte)
	// dot adds x[i]·value[i] to lanes[i mod 8], in order, from zero, for a multiple of eight values.
	dot func(lanes *[8]float64, x []float64, words []byte)
}

var portable = kernel{"portable", portableAdd, portableDot}

func portableAdd(sum []int64, words []byte) {
	words = words[:8*len(sum)]
	for i := range sum {
		sum[i] += int64(value(binary.LittleEndian.Uint64(words[8*i:])))
	}
}

func portableDot(lanes *[8]float64, x []float64, words []byte) {
	*lanes = [8]float64{}
	words = words[:8*len(x)]
	for i, v := range x {
		// The conversion keeps compilers from fusing the product and the sum.
		lanes[i&7] += float64(v * float64(value(binary.LittleEndian.Uint64(words[8*i:]))))
	}
}
