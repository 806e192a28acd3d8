package kernel

// Portable returns the kernels in pure Go, against which the others are tested.
func Portable() *Kernel { return &portable }

var portable = Kernel{
	Name: "portable",
	Walk: portableWalk, Sum16: portableSum16, PoolForward: portablePoolForward, PoolBackward: portablePoolBackward,
	Dense: portableDense, Rows: portableRows, Outer: portableOuter, Transpose16: portableTranspose16, Finite: portableFinite,
}

func portableWalk(g *Walk, dst, x, w, init []float32) {
	g.check(dst, x, w, init)
	g.portable(0, dst, x, w, init)
}

// portable computes the walk's outputs from the offset with index from on.
func (g *Walk) portable(from int, dst, x, w, init []float32) {
	for i, start := range g.Offsets[from:] {
		out := (*[16]float32)(dst[(from+i)*g.DstStride:])
		eight((*[8]float32)(out[:]), (*[8]float32)(init), x[start:], w, g)
		eight((*[8]float32)(out[8:]), (*[8]float32)(init[8:]), x[start:], w[8:], g)
	}
}

// eight computes eight of the sixteen sums, as many as stay in registers.
func eight(dst, init *[8]float32, x, w []float32, g *Walk) {
	a0, a1, a2, a3 := init[0], init[1], init[2], init[3]
	a4, a5, a6, a7 := init[4], init[5], init[6], init[7]
	t := 0
	for run := range g.Runs {
		at := run * g.Stride
		for range g.Length {
			v := x[at]
			u := (*[8]float32)(w[t:])
			a0 = fused(a0, v, u[0])
			a1 = fused(a1, v, u[1])
			a2 = fused(a2, v, u[2])
			a3 = fused(a3, v, u[3])
			a4 = fused(a4, v, u[4])
			a5 = fused(a5, v, u[5])
			a6 = fused(a6, v, u[6])
			a7 = fused(a7, v, u[7])
			at += g.Step
			t += 16
		}
	}
	*dst = [8]float32{a0, a1, a2, a3, a4, a5, a6, a7}
}

func portableSum16(dst, src []float32) {
	checkRows(dst, src)
	sum := [16]float32{}
	for ; len(src) > 0; src = src[16:] {
		row := (*[16]float32)(src)
		for c := range sum {
			sum[c] += row[c]
		}
	}
	copy(dst, sum[:])
}

func portablePoolForward(dst, src []float32, rows, cols int) {
	checkPool(src, dst, rows, cols)
	wide := 16 * (cols + 1)
	for r := range rows {
		for i := range 16 * cols {
			at := r*wide + i
			top := max(src[at], src[at+16], src[at+wide], src[at+wide+16])
			dst[r*16*cols+i] = max(0, top)
		}
	}
}

func portablePoolBackward(dsrc, ddst, src []float32, rows, cols int) {
	checkPool(src, ddst, rows, cols)
	checkPool(dsrc, ddst, rows, cols)
	wide := 16 * (cols + 1)
	for r := range rows {
		for i := range 16 * cols {
			at := r*wide + i
			top := max(src[at], src[at+16], src[at+wide], src[at+wide+16])
			if !(top > 0) {
				continue
			}
			switch g := ddst[r*16*cols+i]; top {
			case src[at]:
				dsrc[at] += g
			case src[at+16]:
				dsrc[at+16] += g
			case src[at+wide]:
				dsrc[at+wide] += g
			default:
				dsrc[at+wide+16] += g
			}
		}
	}
}

func portableDense(dst, x, w, init []float32) {
	width := len(dst)
	checkMatrix(w, len(x), width)
	copy(dst, init[:width])
	dense(dst, x, w, width)
}

// dense adds the product of x and a matrix w to dst; the rows of w are stride apart.
func dense(dst, x, w []float32, stride int) {
	for t, v := range x {
		row := w[t*stride:][:len(dst)]
		for j, u := range row {
			dst[j] = fused(dst[j], v, u)
		}
	}
}

func portableRows(dst, w, delta []float32) {
	checkMatrix(w, len(dst), len(delta))
	rows(dst, w, delta)
}

// rows sums in eight lanes and then adds the lanes in pairs, like the assembly.
func rows(dst, w, delta []float32) {
	for t := range dst {
		row := w[t*len(delta):][:len(delta)]
		var lane [8]float32
		for j, u := range delta {
			lane[j%8] = fused(lane[j%8], row[j], u)
		}
		low := (lane[0] + lane[1]) + (lane[2] + lane[3])
		high := (lane[4] + lane[5]) + (lane[6] + lane[7])
		dst[t] = low + high
	}
}

func portableOuter(dst, x, delta []float32) {
	checkMatrix(dst, len(x), len(delta))
	outer(dst, x, delta, len(delta))
}

// outer writes len(delta) columns; rows of dst are stride apart.
func outer(dst, x, delta []float32, stride int) {
	for t, v := range x {
		row := dst[t*stride:][:len(delta)]
		for j, u := range delta {
			row[j] = v * u
		}
	}
}

func portableTranspose16(dst, src []float32) {
	checkSquare(dst, src)
	for i := range 16 {
		for j := range 16 {
			dst[16*j+i] = src[16*i+j]
		}
	}
}

func portableFinite(v []float32) bool {
	for _, f := range v {
		// f − f is 0 for a finite value and NaN otherwise.
		if f-f != 0 {
			return false
		}
	}
	return true
}
