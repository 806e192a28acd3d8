package certificate

import (
	"fmt"
	"math/big"
	"math/bits"
)

// law is a measure on losses low·h, (low+1)·h, … and infinity, in units of 2^-bits. It bounds
// the loss of a composed pair under P from above: for every F that is convex and falling in
// e^−L, E F(L) under it is at least the pair's. δ(ε) after any further rounds is such an F.
// Three operations raise E F, and only these are done to a law: rounding a mass up, moving
// mass to larger losses, and splitting a mass so that it is kept under both P and Q.
type law struct {
	low    int64
	mass   []*big.Int
	lost   *big.Int // mass at infinity
	rounds int64
}

// maxCells is the size from which a law is put on a grid of twice the step.
const maxCells = 1 << 15

// composer composes laws on grids of one common step.
type composer struct {
	bits  uint
	step  *big.Float
	times int64      // rounds in all
	top   *big.Float // mass that may be moved to infinity, over all rounds
	// linear: values are added up whose mean is to be kept, not E e^−L. See sums.go.
	linear bool
}

// fixed rounds a real up, and adds the bound on its error.
func (c *composer) fixed(x *big.Float) *big.Int {
	n, _ := new(big.Float).SetMantExp(x, int(c.bits)).Int(nil)
	return n.Add(n, big.NewInt(2))
}

// budget returns the share of mass for a number of rounds, rounded down.
func (c *composer) budget(mass *big.Float, rounds int64) *big.Int {
	x := quo(mul(mass, whole(rounds)), whole(c.times))
	n, _ := new(big.Float).SetMantExp(x, int(c.bits)).Int(nil)
	return n
}

// up divides by 2^bits and rounds up.
func (c *composer) up(x *big.Int) *big.Int {
	if x.Sign() == 0 {
		return x
	}
	x = new(big.Int).Rsh(x, c.bits)
	return x.Add(x, big.NewInt(1))
}

func total(mass []*big.Int) *big.Int {
	sum := new(big.Int)
	for _, m := range mass {
		sum.Add(sum, m)
	}
	return sum
}

// slot is the number of words in which a sum of products of masses fits.
func (c *composer) slot() int { return (2*int(c.bits)+16)/bits.UintSize + 1 }

// steps is about the work of a product of laws of so many masses.
func (c *composer) steps(a, b int) int64 { return int64(a+b) * int64(c.slot()) / 8 }

// product returns the law of the sum of two independent losses. The convolution is
// one product of integers: masses are the digits of a number, in a base so large
// that sums of products cannot carry.
func (c *composer) product(a, b law) (law, error) {
	limit := new(big.Int).Lsh(big.NewInt(1), c.bits+8)
	fa, fb := total(a.mass), total(b.mass)
	if fa.Cmp(limit) > 0 || fb.Cmp(limit) > 0 {
		return law{}, fmt.Errorf("%w: masses add to more than 256", ErrRejected)
	}
	slot := c.slot()
	pack := func(mass []*big.Int) *big.Int {
		words := make([]big.Word, len(mass)*slot)
		for i, m := range mass {
			copy(words[i*slot:(i+1)*slot], m.Bits())
		}
		return new(big.Int).SetBits(words)
	}
	x := pack(a.mass)
	y := x
	if &a.mass[0] != &b.mass[0] {
		y = pack(b.mass)
	}
	words := new(big.Int).Mul(x, y).Bits()
	out := law{low: a.low + b.low, rounds: a.rounds + b.rounds, mass: make([]*big.Int, len(a.mass)+len(b.mass)-1)}
	for i := range out.mass {
		from, to := min(i*slot, len(words)), min((i+1)*slot, len(words))
		out.mass[i] = c.up(new(big.Int).SetBits(words[from:to:to]))
	}
	// The sum is infinite unless both losses are finite.
	ta, tb := new(big.Int).Add(fa, a.lost), new(big.Int).Add(fb, b.lost)
	ta.Mul(ta, tb)
	out.lost = c.up(ta.Sub(ta, fa.Mul(fa, fb)))
	c.trim(&out)
	return out, nil
}

// trim shortens a law at both ends: it moves the largest losses to infinity, and raises the
// smallest to one common loss, as long as their mass is negligible.
func (c *composer) trim(l *law) {
	budget, cut := c.budget(c.top, l.rounds), new(big.Int)
	end := len(l.mass)
	for ; end > 1; end-- {
		next := new(big.Int).Add(cut, l.mass[end-1])
		if next.Cmp(budget) > 0 {
			break
		}
		cut = next
	}
	l.lost.Add(l.lost, cut)
	budget, cut = c.budget(two(-34), l.rounds), new(big.Int)
	from := 0
	for ; from < end-1; from++ {
		next := new(big.Int).Add(cut, l.mass[from])
		if next.Cmp(budget) > 0 {
			break
		}
		cut = next
	}
	l.mass, l.low = l.mass[from:end], l.low+int64(from)
	l.mass[0] = new(big.Int).Add(l.mass[0], cut)
}

// coarsen puts a law on the grid of twice the step. Mass f of an odd loss x goes
// to its neighbours x ± h in the shares that keep f and f·e^−x.
func (c *composer) coarsen(l law) law {
	upper := c.fixed(real(.5))
	if !c.linear {
		upper = c.fixed(quo(real(1), add(real(1), exp(new(big.Float).Neg(c.step)))))
	}
	half := func(j int64) int64 { return j >> 1 } // rounds down
	out := law{low: half(l.low), lost: l.lost, rounds: l.rounds}
	out.mass = make([]*big.Int, half(l.low+int64(len(l.mass)))-out.low+1)
	for i := range out.mass {
		out.mass[i] = new(big.Int)
	}
	for i, f := range l.mass {
		j := l.low + int64(i)
		at := out.mass[half(j)-out.low:]
		if j&1 == 0 {
			at[0].Add(at[0], f)
			continue
		}
		up := c.up(new(big.Int).Mul(f, upper))
		if up.Cmp(f) > 0 {
			up = f
		}
		at[1].Add(at[1], up)
		at[0].Add(at[0], new(big.Int).Sub(f, up))
	}
	return out
}

// power composes a law with itself, c.times times in all.
func (c *composer) power(ctx *work, base law) (law, error) {
	out := base
	multiply := func(by *law) (err error) {
		if err := ctx.step(c.steps(len(out.mass), len(by.mass))); err != nil {
			return err
		}
		if out, err = c.product(out, *by); err != nil {
			return err
		}
		for len(out.mass) > maxCells {
			if c.step.Cmp(real(1000)) > 0 {
				return fmt.Errorf("%w: losses too large for the checker", ErrRejected)
			}
			out, base = c.coarsen(out), c.coarsen(base)
			c.step = mul(c.step, real(2))
		}
		return nil
	}
	doublings := bits.Len64(uint64(c.times)) - 1
	defer ctx.begins("composition", int64(doublings))()
	for i := doublings - 1; i >= 0; i-- {
		ctx.advance(1)
		if err := multiply(&out); err != nil {
			return law{}, err
		}
		if c.times>>i&1 == 1 {
			if err := multiply(&base); err != nil {
				return law{}, err
			}
		}
	}
	return out, nil
}

// delta is δ(ε) of a composed law, rounded up: E (1 − e^{ε−L})₊, with all losses
// from end on counted as infinite.
func (c *composer) delta(l law, eps, end *big.Float) *big.Float {
	sum := new(big.Float).SetPrec(precision).SetInt(l.lost)
	shrink := exp(new(big.Float).Neg(c.step))
	var factor *big.Float // e^{ε−x}
	for i, f := range l.mass {
		x := mul(c.step, whole(l.low+int64(i)))
		over := sub(x, eps)
		if over.Sign() <= 0 {
			continue
		}
		switch {
		case over.Cmp(real(1000)) > 0 || x.Cmp(end) >= 0:
			factor = real(0) // it stays 0 for all larger i
		case factor == nil:
			factor = exp(over.Neg(over))
		default:
			factor = mul(factor, shrink)
		}
		m := new(big.Float).SetPrec(precision).SetInt(f)
		sum.Add(sum, m.Mul(m, sub(real(1), factor)))
	}
	sum.Add(sum, whole(1)) // rounding
	return sum.SetMantExp(sum, -int(c.bits))
}
