package randomizer

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// sparseBits is the common part of RInf and R1: a report of count signs, each with its index.
// The indices are a uniform subset of 0 … among−1, in ascending order.
type sparseBits struct {
	among, count int
	each         float64 // ε₀ of one bit, rounded down
}

// maxBits bounds the bits of a sparse report. Even at 50 nats more than 23 bits are worse
// than fewer.
const maxBits = 1024

func newBits(dim, among, count int, eps0 float64) (sparseBits, error) {
	if count == 0 {
		count = 1
	}
	if count < 1 || count > dim || count > maxBits {
		return sparseBits{}, fmt.Errorf("randomizer: %d coordinates or bits must lie between 1 and the smaller of dim = %d and %d", count, dim, maxBits)
	}
	return sparseBits{among: among, count: count, each: splitEps0(eps0, count)}, nil
}

// BestBits returns the number m ≤ dim of coordinates (of [RInf]) or bits (of [R1]) with the
// least error at ε₀ = eps0. It maximises m·tanh²(ε₀/2m): 1 below 3.057, then about ε₀/2.18.
// It returns 1 if dim or eps0 is out of range.
func BestBits(dim int, eps0 float64) int {
	if checkDim(dim) != nil || checkEps0(eps0) != nil {
		return 1
	}
	gain := func(m int) float64 {
		t := math.Tanh(eps0 / float64(2*m))
		return float64(m) * t * t
	}
	m := 1
	// tanh²(t)/t has one maximum, so the search ends at the first m that is no better.
	for m < min(dim, maxBits) && gain(m+1) > gain(m) {
		m++
	}
	return m
}

// draw stores a uniform subset in index, of length count, ascending (Floyd).
func (b sparseBits) draw(src rng.Source, index []uint32) {
	for k := range index {
		top := uint32(b.among - b.count + k)
		j := uint32(sample.Uniform(src, uint64(top)+1))
		at, taken := slices.BinarySearch(index[:k], j)
		if taken {
			j, at = top, k // larger than all drawn before
		}
		copy(index[at+1:k+1], index[at:k])
		index[at] = j
	}
}

// check refuses reports that draw and randomizedBit cannot have made. Because indices ascend,
// a client cannot put all its bits in one place.
func (b sparseBits) check(r *Report) error {
	if len(r.Index) != b.count || len(r.Value) != b.count {
		return fmt.Errorf("randomizer: report with %d indices and %d values must have %d of each", len(r.Index), len(r.Value), b.count)
	}
	for i, j := range r.Index {
		if int64(j) >= int64(b.among) {
			return fmt.Errorf("randomizer: report index %d must be below %d", j, b.among)
		}
		if i > 0 && j <= r.Index[i-1] {
			return fmt.Errorf("randomizer: report index %d after %d must ascend", j, r.Index[i-1])
		}
		if v := r.Value[i]; v != 1 && v != -1 {
			return fmt.Errorf("randomizer: report value %d must be 1 or -1", v)
		}
	}
	return nil
}

func (b sparseBits) size() int { return b.count * (bits.Len64(uint64(b.among-1)) + 1) }
