package sample

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
)

func TestShuffleLaw(t *testing.T) {
	n := draws(t, 200_000)
	src := source(20)
	counts, probs := make([]int64, 121), make([]float64, 121)
	for range n {
		p := []int{0, 1, 2, 3, 4}
		Shuffle(src, p)
		rank := 0 // Lehmer code
		for i, v := range p {
			smaller := 0
			for _, w := range p[i+1:] {
				if w < v {
					smaller++
				}
			}
			rank = rank*(5-i) + smaller
		}
		counts[rank]++
	}
	for i := range 120 {
		probs[i] = 1. / 120
	}
	chiSquare(t, "permutations of 5", counts, probs, n)
}

// All subsets are equally likely, on each way through Subset: bits (k small
// enough), complement (k > n/2), and the hash set (n > 512k).
func TestSubsetLaw(t *testing.T) {
	n := draws(t, 200_000)
	for i, c := range []struct{ n, k, rankBins int }{
		{6, 3, 20}, {7, 2, 21}, {7, 5, 21}, {9, 8, 9}, {1200, 2, 37}, {700, 1, 35},
	} {
		src := source(21, uint64(i))
		total := new(big.Int).Binomial(int64(c.n), int64(c.k)).Int64()
		counts, probs := make([]int64, c.rankBins+1), make([]float64, c.rankBins+1)
		var dst []int
		for range n {
			dst = Subset(src, dst[:0], c.n, c.k)
			if len(dst) != c.k || !slices.IsSorted(dst) || dst[0] < 0 || dst[c.k-1] >= c.n || len(slices.Compact(slices.Clone(dst))) != c.k {
				t.Fatalf("Subset(%d, %d) = %v", c.n, c.k, dst)
			}
			rank := int64(0) // combinatorial number system
			for j, v := range dst {
				rank += new(big.Int).Binomial(int64(v), int64(j+1)).Int64()
			}
			counts[rank*int64(c.rankBins)/total]++
		}
		for b := range c.rankBins {
			// ranks r with ⌊r·bins/total⌋ = b
			lo := (int64(b)*total + int64(c.rankBins) - 1) / int64(c.rankBins)
			hi := (int64(b+1)*total + int64(c.rankBins) - 1) / int64(c.rankBins)
			probs[b] = float64(hi-lo) / float64(total)
		}
		chiSquare(t, fmt.Sprintf("subsets of %d in %d", c.k, c.n), counts, probs, n)
	}
}

func TestSubsetEdges(t *testing.T) {
	src := source(22)
	for _, c := range []struct{ n, k int }{{0, 0}, {5, 0}, {5, 5}, {1, 1}, {1 << 30, 3}, {64, 32}, {64, 33}} {
		got := Subset(src, []int{-7}, c.n, c.k)
		if len(got) != c.k+1 || got[0] != -7 {
			t.Errorf("Subset(%d, %d) appended %d elements", c.n, c.k, len(got)-1)
		}
		if !slices.IsSorted(got) {
			t.Errorf("Subset(%d, %d) is not ascending", c.n, c.k)
		}
	}
	if got := Subset(src, nil, 100, 100); got[0] != 0 || got[99] != 99 {
		t.Error("the subset of all is not all")
	}
}
