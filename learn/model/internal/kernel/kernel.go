// Package kernel holds the inner loops of package model. Each exists in pure Go and, for
// processors with AVX2 and FMA, in generated assembly.
//
// Both sum in the same order and round once per multiply-add, so their results agree to the
// last bit, but for the rare double rounding in fused. Channels are last and come in
// sixteens.
package kernel

import (
	"fmt"
	"slices"
)

//go:generate go run ./gen -out avx2_amd64.s -stubs avx2_amd64.go -pkg kernel

// Kernel is one implementation of the inner loops. All functions overwrite what
// they write to unless they say otherwise, and panic if a slice is too short.
type Kernel struct {
	// Name is "portable" or "avx2".
	Name string
	// Walk computes for each offset p of the walk sixteen sums
	// init + Σ_t x[p + t-th position] · w[16t : 16t+16].
	Walk func(g *Walk, dst, x, w, init []float32)
	// Sum16 adds up rows of sixteen; src holds at least one.
	Sum16 func(dst, src []float32)
	// PoolForward takes max(0, ·) of all 2×2 windows at stride 1: rows × cols
	// pixels from (rows + 1) × (cols + 1), sixteen channels each.
	PoolForward func(dst, src []float32, rows, cols int)
	// PoolBackward adds to dsrc each window's gradient at the first of its
	// largest corners, if that is above 0.
	PoolBackward func(dsrc, ddst, src []float32, rows, cols int)
	// Dense computes init + Σ_t x[t] · w[t·width : (t+1)·width], with
	// width = len(dst).
	Dense func(dst, x, w, init []float32)
	// Rows computes the inner products of delta with the rows of w.
	Rows func(dst, w, delta []float32)
	// Outer computes x[t] · delta for all t, row by row.
	Outer func(dst, x, delta []float32)
	// Transpose16 transposes a 16 × 16 matrix; dst and src do not overlap.
	Transpose16 func(dst, src []float32)
	// Finite reports whether no value is infinite or NaN.
	Finite func(v []float32) bool
}

// Walk says which inputs a sum runs over. They lie in Runs runs of Length inputs each: the
// inputs of a run are Step apart, and each run begins Stride after the one before. Offsets
// holds the start of each output's inputs; outputs are DstStride apart. All distances count
// float32s. NewWalk checks a Walk, whose fields must not change afterwards.
type Walk struct {
	Offsets                    []int
	DstStride                  int
	Runs, Length, Step, Stride int

	dst, x, w int // lengths that the slices must have
	sixes     int
}

// NewWalk returns g ready for use, and panics unless all counts and distances
// are positive and offsets ascend from 0 or more.
func NewWalk(g Walk) *Walk {
	n := len(g.Offsets)
	if n < 1 || g.Runs < 1 || g.Length < 1 || g.Step < 0 || g.Stride < 0 || g.DstStride < 16 {
		panic(fmt.Sprintf("kernel: walk %+v is empty or negative", g))
	}
	if g.Offsets[0] < 0 || !slices.IsSorted(g.Offsets) {
		panic(fmt.Sprintf("kernel: offsets %v do not ascend", g.Offsets))
	}
	g.x = g.Offsets[n-1] + (g.Runs-1)*g.Stride + (g.Length-1)*g.Step + 1
	g.w = 16 * g.Runs * g.Length
	g.dst = (n-1)*g.DstStride + 16
	// The first 6·sixes outputs are computed six at a time, the rest five at a time. Except
	// for a few small n, that covers all outputs.
	g.sixes = n / 6
	for g.sixes > 0 && (n-6*g.sixes)%5 != 0 {
		g.sixes--
	}
	return &g
}

// check panics unless the walk stays inside the slices; the assembly does not check.
func (g *Walk) check(dst, x, w, init []float32) {
	if g.dst < 16 || g.dst > len(dst) || g.x > len(x) || g.w > len(w) || len(init) < 16 {
		panic(fmt.Sprintf("kernel: walk %+v leaves %d, %d, %d, %d values", *g, len(dst), len(x), len(w), len(init)))
	}
}

func checkPool(large, small []float32, rows, cols int) {
	if rows < 1 || cols < 1 || len(small) < 16*rows*cols || len(large) < 16*(rows+1)*(cols+1) {
		panic(fmt.Sprintf("kernel: pool of %d × %d pixels has %d from %d values", rows, cols, len(small), len(large)))
	}
}

func checkMatrix(w []float32, rows, cols int) {
	if rows < 1 || cols < 1 || len(w) < rows*cols {
		panic(fmt.Sprintf("kernel: %d values for a %d × %d matrix", len(w), rows, cols))
	}
}

func checkRows(dst, src []float32) {
	if len(dst) < 16 || len(src) < 16 || len(src)%16 != 0 {
		panic(fmt.Sprintf("kernel: %d sums of %d values, want 16 of a multiple of 16", len(dst), len(src)))
	}
}

func checkSquare(dst, src []float32) {
	if len(dst) < 256 || len(src) < 256 {
		panic(fmt.Sprintf("kernel: transpose of %d into %d values, want 256", len(src), len(dst)))
	}
}
