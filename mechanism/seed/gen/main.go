// Command gen writes the AVX2 kernel of package seed.
package main

import (
	"slices"

	"github.com/mmcloughlin/avo/attr"
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	. "github.com/mmcloughlin/avo/reg"
)

// constants holds the numbers that the kernel needs in all eight lanes.
var constants = []uint32{127, 157, 159, 31, 0x1f0, 1 << 31}

func main() {
	Package("github.com/riffle-dp/riffle/mechanism/seed")
	ConstraintExpr("amd64")
	base := GLOBL("lanes", attr.RODATA|attr.NOPTR)
	for i, c := range constants {
		for lane := range 8 {
			DATA(32*i+4*lane, U32(c))
		}
	}
	all := func(c uint32) Mem { return base.Offset(32 * slices.Index(constants, c)) }
	add(all)
	dot(all)
	Generate()
}

func text(name, signature string) {
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
}

func arg(name string) Register { return Load(Param(name), GP64()) }

func at(base Register, disp int) Mem { return Mem{Base: base, Disp: disp} }

// loop emits code that runs body for each group of eight values; there is at least one.
func loop(groups Register, body func()) {
	Label("group")
	body()
	DECQ(groups.(GPVirtual))
	JNZ(LabelRef("group"))
}

// eight turns the eight words at words into values; it is value in portable.go.
func eight(words, rows Register, index Mem, all func(uint32) Mem) VecVirtual {
	a, b, low, high := YMM(), YMM(), YMM(), YMM()
	VMOVUPS(at(words, 0), a)
	VMOVUPS(at(words, 32), b)
	// Lanes hold words 0 1 4 5 2 3 6 7 until the end.
	VSHUFPS(U8(0x88), b, a, low)
	VSHUFPS(U8(0xdd), b, a, high)
	sign := YMM()
	VPSRAD(U8(31), high, sign)

	// The exponent of the upper 31 bits as a float counts their leading zeros. The bit after
	// the first is cleared, so that the conversion cannot round up to a power of two.
	h, exponent := YMM(), YMM()
	VPSLLD(U8(1), high, h)
	VPSRLD(U8(1), h, h)
	VPSRLD(U8(1), h, exponent)
	VPANDN(h, exponent, exponent)
	VCVTDQ2PS(exponent, exponent)
	VPSRLD(U8(23), exponent, exponent)

	// r holds the 32 bits after the first 1. A shift by more than 31 leaves 0.
	r, part, zero := YMM(), YMM(), YMM()
	VMOVDQU(all(159), r)
	VPSUBD(exponent, r, r)
	VPSLLVD(r, h, r)
	VPXOR(zero, zero, zero)
	VPSUBD(all(127), exponent, part)
	VPMAXSD(zero, part, part)
	VPSRLVD(part, low, part)
	VPOR(part, r, r)

	// The row's place in bytes: 512 for each leading zero, 16 for each of 32 parts.
	place := YMM()
	VMOVDQU(all(157), place)
	VPSUBD(exponent, place, place)
	VPMINUD(all(31), place, place)
	VPSLLD(U8(9), place, place)
	VPSRLD(U8(23), r, part)
	VPAND(all(0x1f0), part, part)
	VPOR(part, place, place)
	VMOVDQU(place, index)

	t, tOdd := YMM(), YMM()
	VPSLLD(U8(5), r, t)
	VPXOR(all(1<<31), t, t)
	VPSRLQ(U8(32), t, tOdd)

	// Rows i and i+4 lie in the halves of one register; then the coefficients are gathered.
	var row [4]VecVirtual
	for i := range row {
		row[i] = YMM()
		lower, upper := GP64(), GP64()
		MOVL(index.Offset(4*i), lower.As32())
		MOVL(index.Offset(4*i+16), upper.As32())
		VMOVDQU(Mem{Base: rows, Index: lower, Scale: 1}, row[i].AsX())
		VINSERTI128(U8(1), Mem{Base: rows, Index: upper, Scale: 1}, row[i], row[i])
	}
	var pair, c [4]VecVirtual
	for i := range pair {
		pair[i], c[i] = YMM(), YMM()
	}
	VPUNPCKLDQ(row[1], row[0], pair[0])
	VPUNPCKHDQ(row[1], row[0], pair[1])
	VPUNPCKLDQ(row[3], row[2], pair[2])
	VPUNPCKHDQ(row[3], row[2], pair[3])
	for i := range 2 {
		VPUNPCKLQDQ(pair[2+i], pair[i], c[2*i])
		VPUNPCKHQDQ(pair[2+i], pair[i], c[2*i+1])
	}

	y := c[3]
	for i := 2; i >= 0; i-- {
		even, odd := YMM(), YMM()
		VPSRLQ(U8(32), y, odd)
		VPMULDQ(t, y, even)
		VPMULDQ(tOdd, odd, odd)
		VPSRLQ(U8(32), even, even)
		VPBLENDD(U8(0xaa), odd, even, even)
		VPADDD(even, c[i], c[i])
		y = c[i]
	}
	VPXOR(sign, y, y)
	VPSUBD(sign, y, y)
	VPERMQ(U8(0xd8), y, y)
	ADDQ(U8(64), words.(GPVirtual))
	return y
}

// halves calls f for the values 0 … 3 and 4 … 7.
func halves(y VecVirtual, f func(half int, x Op)) {
	f(0, y.AsX())
	upper := XMM()
	VEXTRACTI128(U8(1), y, upper)
	f(1, upper)
}

func add(all func(uint32) Mem) {
	text("addAVX2", "func(sum *int64, words *byte, rows *[4]int32, groups int)")
	index := AllocLocal(32)
	sum, words, rows, groups := arg("sum"), arg("words"), arg("rows"), arg("groups")
	loop(groups, func() {
		y := eight(words, rows, index, all)
		halves(y, func(half int, x Op) {
			wide := YMM()
			VPMOVSXDQ(x, wide)
			VPADDQ(at(sum, 32*half), wide, wide)
			VMOVDQU(wide, at(sum, 32*half))
		})
		ADDQ(U8(64), sum.(GPVirtual))
	})
	VZEROUPPER()
	RET()
}

// dot adds up eight sums side by side, without fused multiply-adds.
func dot(all func(uint32) Mem) {
	text("dotAVX2", "func(lanes *float64, x *float64, words *byte, rows *[4]int32, groups int)")
	index := AllocLocal(32)
	x, words, rows, groups := arg("x"), arg("words"), arg("rows"), arg("groups")
	acc := [2]VecVirtual{YMM(), YMM()}
	for _, a := range acc {
		VXORPD(a, a, a)
	}
	loop(groups, func() {
		y := eight(words, rows, index, all)
		halves(y, func(half int, v Op) {
			wide := YMM()
			VCVTDQ2PD(v, wide)
			VMULPD(at(x, 32*half), wide, wide)
			VADDPD(wide, acc[half], acc[half])
		})
		ADDQ(U8(64), x.(GPVirtual))
	})
	lanes := arg("lanes")
	for half, a := range acc {
		VMOVUPD(a, at(lanes, 32*half))
	}
	VZEROUPPER()
	RET()
}
