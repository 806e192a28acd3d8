package kernel

import "golang.org/x/sys/cpu"

// Best returns the fastest kernels this processor can run.
func Best() *Kernel {
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		return &avx2
	}
	return &portable
}

// avx2 checks lengths, gives the bulk to assembly and does the rest in Go.
var avx2 = Kernel{
	Name: "avx2",
	Walk: avx2Walk, Sum16: avx2Sum16, PoolForward: avx2PoolForward, PoolBackward: avx2PoolBackward,
	Dense: avx2Dense, Rows: avx2Rows, Outer: avx2Outer, Transpose16: avx2Transpose16, Finite: avx2Finite,
}

func avx2Walk(g *Walk, dst, x, w, init []float32) {
	g.check(dst, x, w, init)
	i := 0
	skip := g.Stride - g.Length*g.Step
	for ; i < 6*g.sixes; i += 6 {
		block6AVX2(&dst[i*g.DstStride], &x[0], &w[0], &init[0], &g.Offsets[i], g.DstStride, g.Runs, g.Length, g.Step, skip)
	}
	for ; i+5 <= len(g.Offsets); i += 5 {
		block5AVX2(&dst[i*g.DstStride], &x[0], &w[0], &init[0], &g.Offsets[i], g.DstStride, g.Runs, g.Length, g.Step, skip)
	}
	g.portable(i, dst, x, w, init)
}

func avx2Sum16(dst, src []float32) {
	checkRows(dst, src)
	sum16AVX2(&dst[0], &src[0], len(src)/16)
}

func avx2PoolForward(dst, src []float32, rows, cols int) {
	checkPool(src, dst, rows, cols)
	poolForwardAVX2(&dst[0], &src[0], rows, cols)
}

func avx2PoolBackward(dsrc, ddst, src []float32, rows, cols int) {
	checkPool(src, ddst, rows, cols)
	checkPool(dsrc, ddst, rows, cols)
	poolBackwardAVX2(&dsrc[0], &ddst[0], &src[0], rows, cols)
}

func avx2Dense(dst, x, w, init []float32) {
	width := len(dst)
	checkMatrix(w, len(x), width)
	init = init[:width]
	j := 0
	for ; j+32 <= width; j += 32 {
		dense32AVX2(&dst[j], &x[0], &w[j], &init[j], len(x), width)
	}
	if j < width {
		copy(dst[j:], init[j:])
		dense(dst[j:], x, w[j:], width)
	}
}

func avx2Rows(dst, w, delta []float32) {
	checkMatrix(w, len(dst), len(delta))
	done := 0
	if len(delta) == 32 && len(dst) >= 4 {
		rows32AVX2(&dst[0], &w[0], &delta[0], len(dst)/4)
		done = len(dst) / 4 * 4
	}
	rows(dst[done:], w[done*len(delta):], delta)
}

func avx2Outer(dst, x, delta []float32) {
	width := len(delta)
	checkMatrix(dst, len(x), width)
	j := 0
	for ; j+32 <= width; j += 32 {
		outer32AVX2(&dst[j], &x[0], &delta[j], len(x), width)
	}
	if j < width {
		outer(dst[j:], x, delta[j:], width)
	}
}

func avx2Transpose16(dst, src []float32) {
	checkSquare(dst, src)
	transpose16AVX2(&dst[0], &src[0])
}

func avx2Finite(v []float32) bool {
	if n := len(v) / 32; n > 0 && !finiteAVX2(&v[0], n) {
		return false
	}
	return portableFinite(v[len(v)/32*32:])
}
