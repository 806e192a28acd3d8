// Package kernel holds the inner loops of package model, each in pure Go and,
// where the processor has AVX2 and FMA, in generated assembly.
//
// Both sum in the same order; the assembly rounds once per multiply-add, the
// portable code may round twice. Channels are last and come in sixteens.
package kernel

import "fmt"

//go:generate go run ./gen -out avx2_amd64.s -stubs avx2_amd64.go -pkg kernel

// Kernel is one implementation of the inner loops. All methods overwrite what
// they write to unless they say otherwise, and panic if a slice is too short.
type Kernel interface {
	// Name is "portable" or "avx2".
	Name() string
	// Walk computes for each offset p of the walk sixteen sums
	// init + Σ_t x[p + t-th position] · w[16t : 16t+16].
	Walk(g *Walk, dst, x, w, init []float32)
	// Sum16 adds up rows of sixteen; src holds at least one.
	Sum16(dst, src []float32)
	// PoolForward takes max(0, ·) of all 2×2 windows at stride 1: rows × cols
	// pixels from (rows + 1) × (cols + 1), sixteen channels each.
	PoolForward(dst, src []float32, rows, cols int)
	// PoolBackward adds to dsrc each window's gradient at the first of its
	// largest corners, if that is above 0.
	PoolBackward(dsrc, ddst, src []float32, rows, cols int)
	// Dense computes init + Σ_t x[t] · w[t·width : (t+1)·width], with
	// width = len(dst).
	Dense(dst, x, w, init []float32)
	// Rows computes the inner products of delta with the rows of w.
	Rows(dst, w, delta []float32)
	// Outer computes x[t] · delta for all t, row by row.
	Outer(dst, x, delta []float32)
	// Transpose16 transposes a 16 × 16 matrix; dst and src do not overlap.
	Transpose16(dst, src []float32)
	// Finite reports whether no value is infinite or NaN.
	Finite(v []float32) bool
}

// Walk says which inputs a sum runs over: Runs runs of Length inputs, Step
// apart, with one run beginning Stride after the one before. Offsets holds the
// start of each output; outputs are DstStride apart. Units are float32s.
type Walk struct {
	Offsets                    []int
	DstStride                  int
	Runs, Length, Step, Stride int
}

// check panics unless the walk stays inside the slices.
func (g *Walk) check(dst, x, w, init []float32) {
	last := len(g.Offsets) - 1
	if last < 0 || g.Runs < 1 || g.Length < 1 || g.Step < 0 || g.Stride < 0 || g.DstStride < 0 {
		panic(fmt.Sprintf("kernel: walk %+v is empty or negative", *g))
	}
	// Offsets ascend; that is checked here too, as assembly trusts them.
	for i, o := range g.Offsets[1:] {
		if o < g.Offsets[i] {
			panic(fmt.Sprintf("kernel: offset %d after %d", o, g.Offsets[i]))
		}
	}
	if g.Offsets[0] < 0 ||
		g.Offsets[last]+(g.Runs-1)*g.Stride+(g.Length-1)*g.Step >= len(x) ||
		16*g.Runs*g.Length > len(w) || last*g.DstStride+16 > len(dst) || len(init) < 16 {
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
