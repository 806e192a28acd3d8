package vecsum

import (
	"fmt"
	"math"
)

// Counts are sums of vectors of zeros and ones; vecsum.md, section 10.

// differing returns the most coordinates in which two vectors of dim zeros and ones differ, each of
// which has at most so many ones. It is the square of their largest distance.
func differing(ones, dim int) int64 { return min(2*int64(ones), int64(dim)) }

// onesRadius returns the largest norm of a vector of zeros and so many ones.
func onesRadius(ones int) float64 { return math.Sqrt(float64(ones)) }

// validateOnes checks the fields that mean something else for counts.
func (p Params) validateOnes() error {
	switch {
	case p.Ones < 1 || p.Ones > p.Dim:
		return fmt.Errorf("vecsum: ones = %d must lie between 1 and dim = %d", p.Ones, p.Dim)
	case p.Radius != onesRadius(p.Ones):
		return fmt.Errorf("vecsum: radius = %v of vectors with at most %d ones must be %v", p.Radius, p.Ones, onesRadius(p.Ones))
	case p.Norm != 0 || p.Split:
		return fmt.Errorf("vecsum: norm = %d and split signs are not for counts", p.Norm)
	}
	return nil
}

// encodeOnes overwrites counts with x times each, if x has zeros and at most so many ones. The
// error says that it has not; counts are then zeros.
func encodeOnes[C int32 | int64](x []float32, ones int, each int64, counts []C) error {
	have := 0
	for j, v := range x {
		switch v {
		case 0:
			counts[j] = 0
			continue
		case 1:
			counts[j] = C(each)
			have++
		default:
			have = ones + 1 // also NaN
		}
		if have > ones {
			clear(counts)
			return fmt.Errorf("%w is not of zeros and at most %d ones", ErrInput, ones)
		}
	}
	return nil
}
