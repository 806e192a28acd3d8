package sample

import (
	"math/bits"
	"slices"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// Shuffle brings s into a uniformly random order (Fisher and Yates), exactly.
func Shuffle[T any](src rng.Source, s []T) {
	for i := len(s) - 1; i > 0; i-- {
		j := Uniform(src, uint64(i)+1)
		s[i], s[j] = s[j], s[i]
	}
}

// Subset appends to dst a uniformly random subset of {0, …, n−1} with k
// elements, ascending, and returns the extended slice; exact. It needs
// 0 ≤ k ≤ n. Memory O(k), time O(k) or O(k log k).
func Subset(src rng.Source, dst []int, n, k int) []int {
	if k < 0 || k > n {
		panic("sample: subset larger than its set")
	}
	if k > n/2 { // choose the elements that are left out
		away := Subset(src, nil, n, n-k)
		next := 0
		for i := range n {
			if next < len(away) && away[next] == i {
				next++
			} else {
				dst = append(dst, i)
			}
		}
		return dst
	}
	// Floyd: for j = n−k … n−1 take a uniform i ≤ j, or j itself if i was taken.
	if n/64 <= 8*k { // a bit per element costs no more than a table of k
		taken := make([]uint64, n/64+1)
		for j := n - k; j < n; j++ {
			i := Uniform(src, uint64(j)+1)
			if taken[i/64]>>(i%64)&1 == 1 {
				i = uint64(j)
			}
			taken[i/64] |= 1 << (i % 64)
		}
		for w, word := range taken {
			for ; word != 0; word &= word - 1 {
				dst = append(dst, 64*w+bits.TrailingZeros64(word))
			}
		}
		return dst
	}
	taken := make(map[uint64]struct{}, k)
	from := len(dst)
	for j := n - k; j < n; j++ {
		i := Uniform(src, uint64(j)+1)
		if _, ok := taken[i]; ok {
			i = uint64(j)
		}
		taken[i] = struct{}{}
		dst = append(dst, int(i))
	}
	slices.Sort(dst[from:])
	return dst
}
