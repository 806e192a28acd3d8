package randomizer

import (
	"math"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// This file has PrivUnit's loops over all coordinates. Products that are added to are wrapped
// in float64(), which forbids the compiler to fuse them, so the loops give the same bits on
// machines with and without fused multiply-add. (The heights still use math.Exp and math.Log,
// which may differ in a last bit.)

// sums are Σ x·z, Σ z², Σ x².
type sums struct{ xz, zz, xx float64 }

const (
	// sumBlock is the number of coordinates that are summed in four interleaved chains before
	// the chains are added up. It is large enough to be fast and small enough to keep
	// rounding errors small.
	sumBlock = 256
	// sumGroup is the number of blocks that are added up before they join the total.
	sumGroup = 64
)

// sumChain returns the largest number of additions that one term of gaussianSums passes
// through.
func sumChain(dim int) int {
	blocks := (dim + sumBlock - 1) / sumBlock
	groups := (blocks + sumGroup - 1) / sumGroup
	return sumBlock/4 + 3 + 2 + min(blocks, sumGroup) + groups
}

// gaussianSums fills z with normal values and returns the sums over z and x.
func gaussianSums(src rng.Source, z []float64, x []float32) sums {
	var total, group sums
	inGroup := 0
	for len(z) > 0 {
		n := min(len(z), 2*sumBlock)
		sample.Gaussian(src, z[:n])
		for n > 0 {
			k := min(n, sumBlock)
			b := blockSums(z[:k], x[:k])
			group.xz += b.xz
			group.zz += b.zz
			group.xx += b.xx
			if inGroup++; inGroup == sumGroup {
				total.add(group)
				group, inGroup = sums{}, 0
			}
			z, x, n = z[k:], x[k:], n-k
		}
	}
	total.add(group)
	return total
}

func (s *sums) add(b sums) {
	s.xz += b.xz
	s.zz += b.zz
	s.xx += b.xx
}

// blockSums sums one block in four chains.
func blockSums(z []float64, x []float32) sums {
	var a0, a1, a2, a3, b0, b1, b2, b3, c0, c1, c2, c3 float64
	x = x[:len(z)]
	i := 0
	for ; i+3 < len(z); i += 4 {
		zs, xs := (*[4]float64)(z[i:]), (*[4]float32)(x[i:])
		z0, z1, z2, z3 := zs[0], zs[1], zs[2], zs[3]
		x0, x1, x2, x3 := float64(xs[0]), float64(xs[1]), float64(xs[2]), float64(xs[3])
		a0 += float64(z0 * x0)
		a1 += float64(z1 * x1)
		a2 += float64(z2 * x2)
		a3 += float64(z3 * x3)
		b0 += float64(z0 * z0)
		b1 += float64(z1 * z1)
		b2 += float64(z2 * z2)
		b3 += float64(z3 * z3)
		c0 += float64(x0 * x0)
		c1 += float64(x1 * x1)
		c2 += float64(x2 * x2)
		c3 += float64(x3 * x3)
	}
	for ; i < len(z); i++ {
		v, w := z[i], float64(x[i])
		a0 += float64(v * w)
		b0 += float64(v * v)
		c0 += float64(w * w)
	}
	return sums{(a0 + a1) + (a2 + a3), (b0 + b1) + (b2 + b3), (c0 + c1) + (c2 + c3)}
}

// products returns Σ x² and Σ x·z, summed as gaussianSums does.
func products(x []float32, z []float64) (xx, xz float64) {
	var total, group sums
	inGroup := 0
	for len(z) > 0 {
		k := min(len(z), sumBlock)
		group.add(blockSums(z[:k], x[:k]))
		if inGroup++; inGroup == sumGroup {
			total.add(group)
			group, inGroup = sums{}, 0
		}
		z, x = z[k:], x[k:]
	}
	total.add(group)
	return total.xx, total.xz
}

// roundMagic added to a double below 2^51 in size leaves the nearest integer in
// the low bits.
const roundMagic = 0x1.8p52

// round stores along·x + across·z, rounded to integers (ties to even).
func round(dst []int32, x []float32, z []float64, along, across float64) {
	x, z = x[:len(dst)], z[:len(dst)]
	for len(dst) >= 4 && len(x) >= 4 && len(z) >= 4 {
		y0 := float64(along*float64(x[0])) + float64(across*z[0])
		y1 := float64(along*float64(x[1])) + float64(across*z[1])
		y2 := float64(along*float64(x[2])) + float64(across*z[2])
		y3 := float64(along*float64(x[3])) + float64(across*z[3])
		dst[0] = int32(math.Float64bits(y0 + roundMagic))
		dst[1] = int32(math.Float64bits(y1 + roundMagic))
		dst[2] = int32(math.Float64bits(y2 + roundMagic))
		dst[3] = int32(math.Float64bits(y3 + roundMagic))
		dst, x, z = dst[4:], x[4:], z[4:]
	}
	for i := range dst {
		y := float64(along*float64(x[i])) + float64(across*z[i])
		dst[i] = int32(math.Float64bits(y + roundMagic))
	}
}

// addRounded adds along·x + across·z, rounded to integers (ties to even), to sum; in units of 1 with
// roundMagic, of 1/seedUnit with wideMagic. It does not cut: values must be below 2^51 units.
func addRounded(sum []int64, x []float32, z []float64, along, across, magic float64) {
	zero := int64(math.Float64bits(magic))
	x, z = x[:len(sum)], z[:len(sum)]
	for i := range sum {
		y := float64(along*float64(x[i])) + float64(across*z[i])
		sum[i] += int64(math.Float64bits(y+magic)) - zero
	}
}

// roundWide stores along·x + z in units of 1/seedUnit, rounded to integers (ties to even) and cut
// at ±MaxInt32.
func roundWide(dst []int32, x []float32, z []float64, along float64) {
	if fits(dst, x, z, along) {
		return
	}
	for i := range dst {
		y := float64(along*float64(x[i])) + z[i]
		dst[i] = int32(max(-math.MaxInt32, min(whole(y), math.MaxInt32)))
	}
}

// wideMagic is roundMagic for units of 1/seedUnit. Its low 32 bits are 0, so those of a sum with
// it are the integer, if that fits.
const wideMagic = roundMagic / seedUnit

// fits is roundWide without the cut, and says whether nothing had to be cut.
func fits(dst []int32, x []float32, z []float64, along float64) bool {
	const least = 0x4178000000000000 - 1<<31 // the bits of wideMagic − 8
	var beyond uint64
	x, z = x[:len(dst)], z[:len(dst)]
	for len(dst) >= 4 && len(x) >= 4 && len(z) >= 4 {
		b0 := math.Float64bits(float64(along*float64(x[0])) + z[0] + wideMagic)
		b1 := math.Float64bits(float64(along*float64(x[1])) + z[1] + wideMagic)
		b2 := math.Float64bits(float64(along*float64(x[2])) + z[2] + wideMagic)
		b3 := math.Float64bits(float64(along*float64(x[3])) + z[3] + wideMagic)
		beyond |= (b0 - least) | (b1 - least) | (b2 - least) | (b3 - least)
		dst[0], dst[1], dst[2], dst[3] = int32(b0), int32(b1), int32(b2), int32(b3)
		dst, x, z = dst[4:], x[4:], z[4:]
	}
	for i := range dst {
		b := math.Float64bits(float64(along*float64(x[i])) + z[i] + wideMagic)
		beyond |= b - least
		dst[i] = int32(b)
	}
	return beyond>>32 == 0
}

// whole returns the integer nearest to y·seedUnit, |y| < 2^22.
func whole(y float64) int64 {
	return int64(math.Float64bits(y+wideMagic)) - 0x4178000000000000
}
