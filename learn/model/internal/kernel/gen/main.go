// Command gen writes the AVX2 kernels of package kernel.
package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

func main() {
	Package("github.com/riffle-dp/riffle/learn/model/internal/kernel")
	ConstraintExpr("amd64")
	block(6)
	block(5)
	sum16()
	poolForward()
	poolBackward()
	dense32()
	rows32()
	outer32()
	transpose16()
	finite()
	Generate()
}

func text(name, signature string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
}

func arg(name string) Register { return Load(Param(name), GP64()) }

// floats turns a count of float32 into bytes.
func floats(name string) Register {
	r := arg(name)
	SHLQ(U8(2), r.(GPVirtual))
	return r
}

func at(base Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

// loop emits code that runs body count times. count is at least 1; the loop counts it down to
// 0.
func loop(label string, count Register, body func()) {
	Label(label)
	body()
	DECQ(count.(GPVirtual))
	JNZ(LabelRef(label))
}

func done() {
	VZEROUPPER()
	RET()
}

// block emits the kernel of all matrix products: 2p sums of eight floats stay in registers; a
// step loads 16 weights once and multiplies them by p inputs. Six inputs need 12 registers
// for sums, 2 for weights and 1 for an input: 15 of 16.
func block(p int) {
	text(fmt.Sprintf("block%dAVX2", p), "func(dst, x, w, init *float32, off *int, dstStride, runs, length, step, skip int)")
	x, off := arg("x"), arg("off")
	ptr := make([]Register, p)
	for i := range ptr {
		r := GP64()
		MOVQ(at(off, 8*i), r)
		LEAQ(Mem{Base: x, Index: r, Scale: 4}, r)
		ptr[i] = r
	}
	first := arg("init")
	acc := make([][2]VecVirtual, p)
	for i := range acc {
		acc[i] = [2]VecVirtual{YMM(), YMM()}
		for h, a := range acc[i] {
			VMOVUPS(at(first, 32*h), a)
		}
	}
	w, runs, step, skip := arg("w"), arg("runs"), floats("step"), floats("skip")
	idx, count := GP64(), GP64()
	XORQ(idx, idx)
	loop("run", runs, func() {
		Load(Param("length"), count)
		loop("term", count, func() {
			w0, w1 := YMM(), YMM()
			VMOVUPS(at(w, 0), w0)
			VMOVUPS(at(w, 32), w1)
			for i := range ptr {
				b := YMM()
				VBROADCASTSS(Mem{Base: ptr[i], Index: idx, Scale: 1}, b)
				VFMADD231PS(b, w0, acc[i][0])
				VFMADD231PS(b, w1, acc[i][1])
			}
			ADDQ(step, idx)
			ADDQ(U8(64), w.(GPVirtual))
		})
		ADDQ(skip, idx)
	})
	dst, stride := arg("dst"), floats("dstStride")
	for i := range acc {
		VMOVUPS(acc[i][0], at(dst, 0))
		VMOVUPS(acc[i][1], at(dst, 32))
		if i < p-1 {
			ADDQ(stride, dst.(GPVirtual))
		}
	}
	done()
}

func sum16() {
	text("sum16AVX2", "func(dst, src *float32, n int)")
	src, n := arg("src"), arg("n")
	a, b := YMM(), YMM()
	VXORPS(a, a, a)
	VXORPS(b, b, b)
	loop("row", n, func() {
		VADDPS(at(src, 0), a, a)
		VADDPS(at(src, 32), b, b)
		ADDQ(U8(64), src.(GPVirtual))
	})
	dst := arg("dst")
	VMOVUPS(a, at(dst, 0))
	VMOVUPS(b, at(dst, 32))
	done()
}

// window loads the four corners of a pooling window and their largest value.
func window(src, below Register, half int) (corner [4]VecVirtual, top VecVirtual) {
	for i := range corner {
		corner[i] = YMM()
		VMOVUPS(at([2]Register{src, below}[i/2], 64*(i%2)+32*half), corner[i])
	}
	top = YMM()
	other := YMM()
	VMAXPS(corner[0], corner[1], top)
	VMAXPS(corner[2], corner[3], other)
	VMAXPS(other, top, top)
	return corner, top
}

func poolForward() {
	text("poolForwardAVX2", "func(dst, src *float32, rows, cols int)")
	dst, src, rows, cols := arg("dst"), arg("src"), arg("rows"), arg("cols")
	below, count, zero := GP64(), GP64(), YMM()
	VXORPS(zero, zero, zero)
	MOVQ(cols, below)
	INCQ(below)
	SHLQ(U8(6), below)
	ADDQ(src, below)
	loop("row", rows, func() {
		MOVQ(cols, count)
		loop("pixel", count, func() {
			for half := range 2 {
				_, top := window(src, below, half)
				VMAXPS(zero, top, top)
				VMOVUPS(top, at(dst, 32*half))
			}
			for _, p := range []Register{dst, src, below} {
				ADDQ(U8(64), p.(GPVirtual))
			}
		})
		ADDQ(U8(64), src.(GPVirtual))
		ADDQ(U8(64), below)
	})
	done()
}

// poolBackward sends each window's gradient to its first largest corner.
func poolBackward() {
	text("poolBackwardAVX2", "func(dsrc, ddst, src *float32, rows, cols int)")
	dsrc, ddst, src, rows, cols := arg("dsrc"), arg("ddst"), arg("src"), arg("rows"), arg("cols")
	below, dbelow, count, zero := GP64(), GP64(), GP64(), YMM()
	VXORPS(zero, zero, zero)
	MOVQ(cols, below)
	INCQ(below)
	SHLQ(U8(6), below)
	MOVQ(below, dbelow)
	ADDQ(src, below)
	ADDQ(dsrc, dbelow)
	loop("row", rows, func() {
		MOVQ(cols, count)
		loop("pixel", count, func() {
			for half := range 2 {
				corner, top := window(src, below, half)
				g, mask := YMM(), YMM()
				const greater, equal = 0x1e, 0x00 // the comparison's predicate: ordered, quiet
				VCMPPS(U8(greater), zero, top, mask)
				VANDPS(at(ddst, 32*half), mask, g)
				for i, c := range corner {
					m := at([2]Register{dsrc, dbelow}[i/2], 64*(i%2)+32*half)
					share := g
					if i < 3 {
						share = YMM()
						VCMPPS(U8(equal), c, top, mask)
						VANDPS(g, mask, share)
						VANDNPS(g, mask, g)
					}
					VADDPS(m, share, share)
					VMOVUPS(share, m)
				}
			}
			for _, p := range []Register{dsrc, ddst, src, below, dbelow} {
				ADDQ(U8(64), p.(GPVirtual))
			}
		})
		for _, p := range []Register{dsrc, src, below, dbelow} {
			ADDQ(U8(64), p.(GPVirtual))
		}
	})
	done()
}

func dense32() {
	text("dense32AVX2", "func(dst, x, w, init *float32, n, stride int)")
	x, w, first, n, stride := arg("x"), arg("w"), arg("init"), arg("n"), floats("stride")
	var acc [4]VecVirtual
	for i := range acc {
		acc[i] = YMM()
		VMOVUPS(at(first, 32*i), acc[i])
	}
	b := YMM()
	loop("term", n, func() {
		VBROADCASTSS(at(x, 0), b)
		for i := range acc {
			VFMADD231PS(at(w, 32*i), b, acc[i])
		}
		ADDQ(U8(4), x.(GPVirtual))
		ADDQ(stride, w.(GPVirtual))
	})
	dst := arg("dst")
	for i := range acc {
		VMOVUPS(acc[i], at(dst, 32*i))
	}
	done()
}

// rows32 computes the dot products of delta with rows of 32 elements, four rows at a time.
func rows32() {
	text("rows32AVX2", "func(dst, w, delta *float32, quads int)")
	dst, w, delta, quads := arg("dst"), arg("w"), arg("delta"), arg("quads")
	var d, row [4]VecVirtual
	for i := range d {
		d[i], row[i] = YMM(), YMM()
		VMOVUPS(at(delta, 32*i), d[i])
	}
	loop("quad", quads, func() {
		for r := range row {
			VMULPS(at(w, 128*r), d[0], row[r])
			for i := 1; i < 4; i++ {
				VFMADD231PS(at(w, 128*r+32*i), d[i], row[r])
			}
		}
		VHADDPS(row[1], row[0], row[0])
		VHADDPS(row[3], row[2], row[2])
		VHADDPS(row[2], row[0], row[0])
		high := XMM()
		VEXTRACTF128(U8(1), row[0], high)
		VADDPS(row[0].AsX(), high, high)
		VMOVUPS(high, at(dst, 0))
		ADDQ(U8(16), dst.(GPVirtual))
		ADDQ(U32(512), w.(GPVirtual))
	})
	done()
}

func outer32() {
	text("outer32AVX2", "func(dst, x, delta *float32, n, stride int)")
	dst, x, delta, n, stride := arg("dst"), arg("x"), arg("delta"), arg("n"), floats("stride")
	var d [4]VecVirtual
	for i := range d {
		d[i] = YMM()
		VMOVUPS(at(delta, 32*i), d[i])
	}
	b := YMM()
	loop("row", n, func() {
		VBROADCASTSS(at(x, 0), b)
		for i := range d {
			v := YMM()
			VMULPS(d[i], b, v)
			VMOVUPS(v, at(dst, 32*i))
		}
		ADDQ(U8(4), x.(GPVirtual))
		ADDQ(stride, dst.(GPVirtual))
	})
	done()
}

// transpose16 transposes four 8×8 quarters in registers.
func transpose16() {
	text("transpose16AVX2", "func(dst, src *float32)")
	dst, src := arg("dst"), arg("src")
	for quarter := range 4 {
		r, c := quarter/2, quarter%2
		var a, b [8]VecVirtual
		for i := range a {
			a[i], b[i] = YMM(), YMM()
			VMOVUPS(at(src, 64*(8*r+i)+32*c), a[i])
		}
		// Pairs of rows are interleaved, then pairs of pairs, then halves.
		for i := 0; i < 8; i += 2 {
			VUNPCKLPS(a[i+1], a[i], b[i])
			VUNPCKHPS(a[i+1], a[i], b[i+1])
		}
		for i := 0; i < 8; i += 4 {
			for j := range 2 {
				VSHUFPS(U8(0x44), b[i+2+j], b[i+j], a[i+2*j])
				VSHUFPS(U8(0xee), b[i+2+j], b[i+j], a[i+2*j+1])
			}
		}
		for i := range 4 {
			VPERM2F128(U8(0x20), a[i+4], a[i], b[i])
			VPERM2F128(U8(0x31), a[i+4], a[i], b[i+4])
		}
		for i := range b {
			VMOVUPS(b[i], at(dst, 64*(8*c+i)+32*r))
		}
	}
	done()
}

// finite adds up 0·v: the sum is 0 unless some v is infinite or NaN. Four sums run side by
// side to hide the latency of an addition.
func finite() {
	text("finiteAVX2", "func(v *float32, blocks int) bool")
	v, n := arg("v"), arg("blocks")
	zero, mask := YMM(), GP32()
	VXORPS(zero, zero, zero)
	var sum [4]VecVirtual
	for i := range sum {
		sum[i] = YMM()
		VXORPS(sum[i], sum[i], sum[i])
	}
	loop("block", n, func() {
		for i := range sum {
			VFMADD231PS(at(v, 32*i), zero, sum[i])
		}
		ADDQ(U32(128), v.(GPVirtual))
	})
	for i := 1; i < len(sum); i++ {
		VADDPS(sum[i], sum[0], sum[0])
	}
	const equal = 0x00
	VCMPPS(U8(equal), zero, sum[0], sum[0])
	VMOVMSKPS(sum[0], mask)
	CMPL(mask, U32(0xff))
	ok := GP8()
	SETEQ(ok)
	Store(ok, ReturnIndex(0))
	done()
}
