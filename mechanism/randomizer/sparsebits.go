package randomizer

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// indexed is the form of reports that hold a fixed number of values, count, each with its
// index. The indices ascend, are distinct, and lie below among. Each value is 1 or −1, or all
// values are 1.
type indexed struct {
	among, count int
	unsigned     bool // all values are 1
}

// maxBits bounds the bits of a sparse report. Even at ε₀ = 50 the best number of bits is at
// most 23.
const maxBits = 1024

// newBits returns the reports of R_∞ and R_1 and the ε₀ of each of their bits, rounded down.
func newBits(c Config, among int) (b indexed, each float64, err error) {
	if err := c.check(true); err != nil {
		return b, 0, err
	}
	count := c.Bits
	if count == 0 {
		count = 1
	}
	if count < 1 || count > c.Dim || count > maxBits {
		return b, 0, fmt.Errorf("randomizer: %d coordinates or bits must lie between 1 and the smaller of dim = %d and %d", count, c.Dim, maxBits)
	}
	return indexed{among: among, count: count}, splitEps0(c.Eps0, count), nil
}

// bitsEvent is what a report of ε₀ = eps0 promises that is count bits, each flipped by binary
// randomized response of ε₀ = each; what else it shows does not depend on the input. The laws
// of two inputs differ most in total variation if all bits differ, as each is a mixture:
// by P[more than half of the bits are right] − P[more than half are wrong].
func bitsEvent(eps0 float64, count int, each float64) dp.Report {
	out := dp.Report{Class: dp.Generic, Eps0: eps0}
	if count == 1 {
		return out // any ε₀-LDP report may differ as much
	}
	n, s := int64(count), math.Exp(-each)
	right, wrong := 1/(1+s), s/(1+s)
	// Survival errs by 1e-12 and a little in each term.
	tv := tail.Survival(n, n/2+1, right, wrong) - tail.Survival(n, n/2+1, wrong, right) + 4e-12
	if a := tv / math.Expm1(eps0) * (1 + 1e-14); a < 1/(math.Exp(eps0)+1) {
		out.TV = a
	}
	return out
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

// draw stores a uniform subset of the indices in index, of length count, ascending (Floyd).
func (b *indexed) draw(src rng.Source, index []uint32) {
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

// NewReport returns a report with room for count indices and values.
func (b *indexed) NewReport() *Report {
	return &Report{Index: make([]uint32, b.count), Value: make([]int32, b.count)}
}

// Check validates shape and range; see [Mechanism]. Because indices ascend, a client cannot
// put all its values in one place.
func (b *indexed) Check(r *Report) error {
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
		if v := r.Value[i]; v != 1 && (b.unsigned || v != -1) {
			return fmt.Errorf("randomizer: report value %d must be 1 or, in a report of signs, -1", v)
		}
	}
	return nil
}

// Add adds a checked report to sum, each value at its index.
func (b *indexed) Add(sum []int64, r *Report) {
	for i, j := range r.Index {
		sum[j] += int64(r.Value[i])
	}
}

// sized returns f with the size of a report: ⌈log₂ among⌉ bits for each index and one for its
// sign, if there are signs.
func (b *indexed) sized(f Facts) Facts {
	each := bits.Len64(uint64(b.among - 1))
	if !b.unsigned {
		each++
	}
	f.Bits, f.Bytes = b.count*each, b.count*(4+4)
	return f
}
