package sample

import (
	"errors"
	"math"
	"math/big"
	"math/bits"
	"unsafe"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// Table draws exactly from one log-concave law on the integers, in a time that does not grow
// with the law's parameters: about one word a value. It is made by [NewBinomial],
// [NewPoisson], [NewLaplace] or [NewDiscreteGaussian] and may be used by many goroutines at
// once.
//
// A staircase of blocks lies above the law. Alias columns of integer weight propose a block;
// the value in it is accepted by comparing a uniform real, drawn as far as needed, with an
// enclosure of the law, computed as narrowly as needed (table.md). Proposals beyond 2^10 tail
// blocks are refused, which moves less than 2^−1000 of mass.
type Table struct {
	law  law
	mode int64
	// coins, at most 64, is above 0 if the law is the number of heads of that many fair
	// coins.
	coins   int
	shift   uint // log2 of a block's width
	spread  uint // log2 of how much wider the blocks of the tails are
	scale   uint64
	columns *[tableColumns]column
	blocks  []block
}

// law is the law that a Table draws from, with x counted from the mode. Probabilities must
// fall away from the mode on both sides, log-concave.
type law interface {
	// ratio encloses Pr[mode+x]/Pr[mode]; (0, 0) where the law has no mass.
	ratio(x int64) (lo, hi float64)
	// exact returns the ratio with a relative error of at most (8|x|+8)·2^−prec.
	exact(x int64, prec uint) *big.Float
}

const (
	tableBits    = 9 // log2 of the number of columns
	tableColumns = 1 << tableBits
	tableWeight  = 1 << 32               // weight of all blocks together
	columnWeight = 1 << (32 - tableBits) // weight of one column
)

// column is a column of the alias table. It divides its weight at limit between the blocks
// self and other.
type column struct {
	limit       uint32
	self, other uint16
}

// block stands for the values base, base+dir, … of one width. Let u be the lead bits of a
// uniform real. A value that lies off steps from base is certainly accepted if u < quick +
// slope·(width−1−off).
type block struct {
	base, dir    int64
	quick, slope uint64
	weight       uint64 // height of the staircase, in units of 1/scale
	kind         blockKind
}

type blockKind uint8

const (
	plain  blockKind = iota
	beyond           // a tail: block j ≥ 0 beyond the last, each half as high as the one before
	refuse           // the remaining weight, which is refused
)

// newTable builds the staircase of a law with the given mode and standard deviation; the
// latter only decides how well the staircase fits. Far out the law must fall by half over
// 2^spread blocks.
func newTable(l law, mode int64, sd float64, spread uint) (*Table, error) {
	t := &Table{law: l, mode: mode, spread: spread, columns: new([tableColumns]column)}
	for t.shift < 30 && float64(int64(2)<<t.shift) <= sd/6 {
		t.shift++
	}
	var heights []float64
	total := 0.
	for _, side := range [2]struct{ first, dir int64 }{{0, 1}, {-1, -1}} {
		prev := 0. // ratio at the end of the block before, which is nearer to the mode
		if side.first == -1 && t.shift == 0 {
			prev = 1
		}
		for k := 0; ; k++ {
			x := side.first + side.dir*int64(k)<<t.shift
			lo, hi := l.ratio(x)
			if hi == 0 {
				break // the support ends
			}
			if k > tableColumns/2-2 {
				return nil, errors.New("sample: the law is too wide for its table")
			}
			b := block{base: mode + x, dir: side.dir}
			if _, next := l.ratio(x + side.dir<<(t.shift+spread)); hi < 0x1p-34 && (2*next <= lo || 2*hi <= prev) {
				b.kind = beyond
				hi *= float64(uint64(2) << spread) // 1 + 1/2 + 1/4 + …
			}
			t.blocks = append(t.blocks, b)
			heights = append(heights, hi)
			total += hi
			prev = lo
			if b.kind == beyond {
				break
			}
		}
	}
	t.scale = uint64((tableWeight - 4*tableColumns) / total * (1 - 0x1p-40))
	var weights []uint64
	left := uint64(tableWeight)
	for i := range t.blocks {
		b := &t.blocks[i]
		w := uint64(math.Ceil(heights[i] * float64(t.scale) * (1 + 0x1p-50)))
		if b.kind == beyond {
			b.weight = (w-1)>>(1+spread) + 1
			w = b.weight << (1 + spread)
		} else {
			b.weight = w
			t.setQuick(b)
		}
		weights = append(weights, w)
		left -= w
	}
	t.blocks = append(t.blocks, block{kind: refuse})
	t.setColumns(append(weights, left))
	return t, nil
}

// setQuick finds a line below the acceptance probability of b's values. The logarithm of a
// log-concave law lies above its chord, and e^z ≥ 1 + z.
func (t *Table) setQuick(b *block) {
	last := int64(1)<<t.shift - 1
	x := b.base - t.mode
	end, endHi := t.law.ratio(x + b.dir*last)
	if end <= 0 {
		return
	}
	share := end * float64(t.scale) / float64(b.weight)
	b.quick = uint64(math.Ldexp(share*(1-0x1p-40), 32-int(t.shift)))
	if last > 0 {
		lo, _ := t.law.ratio(x)
		if rise := math.Log(lo / endHi); rise > 0 {
			b.slope = uint64(float64(b.quick) * rise / float64(last) * (1 - 0x1p-30))
		}
	}
}

// setColumns distributes integer weights that sum to tableWeight over columns
// of equal weight (Walker 1974; Vose 1991).
func (t *Table) setColumns(weights []uint64) {
	weights = append(weights, make([]uint64, tableColumns-len(weights))...)
	var small, large []uint16
	for i, w := range weights {
		if w < columnWeight {
			small = append(small, uint16(i))
		} else {
			large = append(large, uint16(i))
		}
	}
	for len(small) > 0 {
		s := small[len(small)-1]
		small = small[:len(small)-1]
		l := large[len(large)-1]
		t.columns[s] = column{uint32(weights[s]), s, l}
		weights[l] -= columnWeight - weights[s]
		if weights[l] < columnWeight {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	for _, l := range large { // exactly full columns
		t.columns[l] = column{columnWeight, l, l}
	}
}

// Draw returns one value.
func (t *Table) Draw(src rng.Source) int64 {
	w := src.Uint64()
	if t.coins > 0 {
		return int64(bits.OnesCount64(w >> (64 - t.coins)))
	}
	return t.finish(src, w)
}

// Fill fills dst with independent values. The values drawn depend on len(dst):
// each takes one word, and a few take more after all the words of their block.
func (t *Table) Fill(src rng.Source, dst []int64) {
	for len(dst) > tableBlock {
		t.fill(src, dst[:tableBlock])
		dst = dst[tableBlock:]
	}
	if len(dst) > 0 {
		t.fill(src, dst)
	}
}

// tableBlock is a number of words that fits the first-level cache.
const tableBlock = 512

func (t *Table) fill(src rng.Source, dst []int64) {
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&dst[0])), len(dst))
	src.Fill(words)
	if t.coins > 0 {
		drop := 64 - t.coins
		for i, w := range words {
			words[i] = uint64(bits.OnesCount64(w >> drop))
		}
		return
	}
	dst = dst[:len(words)]
	columns, blocks := t.columns, t.blocks
	shift := t.shift & 63
	mask := uint64(1)<<shift - 1
	for i, w := range words {
		c := &columns[w&(tableColumns-1)]
		id := c.self
		if uint32(w)>>tableBits >= c.limit {
			id = c.other
		}
		b := &blocks[id]
		off := w >> 32 & mask
		if w>>32>>shift < b.quick+b.slope*(mask-off) {
			dst[i] = b.base + b.dir*int64(off)
		} else {
			dst[i] = t.finish(src, w)
		}
	}
}

// finish turns the word w into a value; it draws more words if it needs them.
//
//go:noinline
func (t *Table) finish(src rng.Source, w uint64) int64 {
	mask := uint64(1)<<t.shift - 1
	for ; ; w = src.Uint64() {
		c := &t.columns[w&(tableColumns-1)]
		id := c.self
		if uint32(w)>>tableBits >= c.limit {
			id = c.other
		}
		b := &t.blocks[id]
		off := w >> 32 & mask
		u := w >> 32 >> t.shift
		far := 0
		switch b.kind {
		case plain:
			if u < b.quick+b.slope*(mask-off) {
				return b.base + b.dir*int64(off)
			}
		case beyond:
			far = halvings(src)
			if t.spread > 0 {
				off |= src.Uint64() >> (64 - t.spread) << t.shift
			}
		case refuse:
			continue
		}
		if far > 1<<10 {
			continue
		}
		v := b.base + b.dir*int64(off+uint64(far)<<(t.shift+t.spread))
		if t.accept(src, v-t.mode, b.weight, far, u) {
			return v
		}
	}
}

// halvings returns j ≥ 0 with probability 2^−(j+1).
func halvings(src rng.Source) int {
	for j := 0; ; j += 64 {
		if w := src.Uint64(); w != 0 || j > 1<<10 {
			return j + bits.LeadingZeros64(w)
		}
	}
}

// accept returns true with probability ratio(x)·scale·2^far/weight, where u
// holds the first 32−shift bits of the uniform real to compare with.
func (t *Table) accept(src rng.Source, x int64, weight uint64, far int, u uint64) bool {
	lo, hi := t.law.ratio(x)
	if hi == 0 {
		return false
	}
	lead := 32 - int(t.shift)
	next := src.Uint64()
	real := math.Ldexp(float64(u)+float64(next)*0x1p-64, -lead)
	factor := math.Ldexp(float64(t.scale)/float64(weight), far)
	if real+0x1p-48 <= lo*factor*(1-0x1p-48) {
		return true
	}
	if real-0x1p-48 >= hi*factor*(1+0x1p-48) {
		return false
	}
	return t.acceptExactly(src, x, weight, far, u<<32|next>>32, next<<32, lead+64)
}

// acceptExactly decides when float64 is not precise enough. The uniform real begins with the
// known bits: the low known−64+32 bits of high, then 32 bits at the top of low.
func (t *Table) acceptExactly(src rng.Source, x int64, weight uint64, far int, high, low uint64, known int) bool {
	v := new(big.Int).SetUint64(high)
	v.Lsh(v, 32).Add(v, new(big.Int).SetUint64(low>>32))
	for prec := uint(192); ; prec *= 2 {
		for uint(known) < prec {
			v.Lsh(v, 64).Add(v, new(big.Int).SetUint64(src.Uint64()))
			known += 64
		}
		wide := func() *big.Float { return new(big.Float).SetPrec(2*prec + 128) }
		p := wide().Set(t.law.exact(x, prec))
		p.Mul(p, wide().SetUint64(t.scale)).SetMantExp(p, far)
		// Compares p/weight with v/2^known without a division; products by integers and
		// powers of two are exact at this precision.
		p.SetMantExp(p, known)
		size := x
		if size < 0 {
			size = -size
		}
		slack := wide().SetMantExp(wide().SetInt64(8*size+8), -int(prec))
		slack.Mul(slack, p)
		below := wide().SetInt(new(big.Int).Add(v, big.NewInt(1)))
		below.Mul(below, wide().SetUint64(weight))
		above := wide().SetInt(v)
		above.Mul(above, wide().SetUint64(weight))
		// The slack is doubled because it is relative to the computed value.
		slack.Add(slack, slack)
		if below.Cmp(wide().Sub(p, slack)) <= 0 {
			return true
		}
		if above.Cmp(wide().Add(p, slack)) >= 0 {
			return false
		}
	}
}
