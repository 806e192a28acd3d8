package randomizer

import (
	"fmt"
	"math/bits"
	"slices"
)

// dense is a report with a value for each coordinate.
type dense struct {
	values int
	limit  int32 // largest absolute value
	signs  bool  // values are 1 or −1, so that each takes one bit
	// whole returns an error if the values, which are within limit, are together larger than an
	// honest client's; nil if any such values may be honest.
	whole func(values []int32) error
}

// NewReport returns a dense report.
func (d *dense) NewReport() *Report { return &Report{Value: make([]int32, d.values)} }

// Check validates shape, range and size; see [Mechanism].
func (d *dense) Check(r *Report) error {
	if r.Index != nil || len(r.Value) != d.values {
		return fmt.Errorf("randomizer: report with %d indices and %d values must be dense with %d values", len(r.Index), len(r.Value), d.values)
	}
	limit := d.limit
	for _, v := range r.Value {
		if v > limit || v < -limit {
			return fmt.Errorf("randomizer: report value %d must be at most %d in size", v, limit)
		}
	}
	if d.signs && slices.Contains(r.Value, 0) {
		return fmt.Errorf("randomizer: report value 0 must be 1 or -1")
	}
	if d.whole != nil {
		return d.whole(r.Value)
	}
	return nil
}

// Add adds a checked report to sum.
func (d *dense) Add(sum []int64, r *Report) {
	v := r.Value
	sum = sum[:len(v)]
	for len(v) >= 4 && len(sum) >= 4 {
		sum[0] += int64(v[0])
		sum[1] += int64(v[1])
		sum[2] += int64(v[2])
		sum[3] += int64(v[3])
		v, sum = v[4:], sum[4:]
	}
	for i, w := range v {
		sum[i] += int64(w)
	}
}

// sized returns f with the size of a report: enough for the largest value and a sign, per
// coordinate, or one bit if there are only signs.
func (d *dense) sized(f Facts) Facts {
	each := 1
	if !d.signs {
		each += bits.Len32(uint32(d.limit))
	}
	f.Bits = d.values * each
	f.Bytes = (f.Bits + 7) / 8
	return f
}
