package sample

import (
	"fmt"
	"math"
	"math/big"
	"testing"
)

// named laws of all shapes: narrow and wide, skewed, small modes, odd and even.
type namedLaw struct {
	name     string
	make     func() (*Table, error)
	mean, sd float64
}

func tables() []namedLaw {
	var out []namedLaw
	bin := func(n int64, p float64) {
		out = append(out, namedLaw{fmt.Sprintf("Bin(%d, %v)", n, p), func() (*Table, error) { return NewBinomial(n, p) },
			float64(n) * p, math.Sqrt(float64(n) * p * (1 - p))})
	}
	poi := func(lambda float64) {
		out = append(out, namedLaw{fmt.Sprintf("Poisson(%v)", lambda), func() (*Table, error) { return NewPoisson(lambda) },
			lambda, math.Sqrt(lambda)})
	}
	for _, n := range []int64{1, 2, 7, 63, 64, 65, 100, 575, 576, 577, 1023, 4000, 100_000} {
		bin(n, .5)
	}
	bin(1, .3)
	bin(5, 1./128)
	bin(40, .9)
	bin(300, .02)
	bin(5000, .1)
	bin(5000, .95)
	bin(3_000_000, 1e-4)
	for _, l := range []float64{1e-9, .3, 1, 4.75, 100, 143.9, 577, 40_000.5} {
		poi(l)
	}
	for _, v := range []Ratio{{1, 1000}, {1, 9}, {3, 10}, {1, 1}, {19, 4}, {100, 1}, {500, 3}} {
		q := math.Exp(-float64(v.Den) / float64(v.Num))
		out = append(out, namedLaw{fmt.Sprintf("Laplace(%v)", v), func() (*Table, error) { return NewLaplace(v) }, 0, math.Sqrt(2*q) / (1 - q)})
	}
	for _, v := range []Ratio{{1, 5000}, {1, 6}, {1, 1}, {9, 4}, {250, 1}, {20_000, 7}} {
		sd := math.Sqrt(float64(v.Num) / float64(v.Den))
		if sd < 1 {
			g := 2 * math.Exp(-1/(2*sd*sd)) // and the next term is below 1e-5 of it
			sd = math.Sqrt(g / (1 + g))
		}
		out = append(out, namedLaw{fmt.Sprintf("Gaussian(%v)", v), func() (*Table, error) { return NewDiscreteGaussian(v) }, 0, sd})
	}
	return out
}

func wideTables() []namedLaw {
	var out []namedLaw
	for _, n := range []int64{10_000_000, 10_000_000_000, 1_000_000_000_001, 1 << 53} {
		out = append(out, namedLaw{fmt.Sprintf("Bin(%d, 1/2)", n), func() (*Table, error) { return NewBinomial(n, .5) },
			float64(n) / 2, math.Sqrt(float64(n)) / 2})
	}
	out = append(out, namedLaw{"Bin(1e10, .003)", func() (*Table, error) { return NewBinomial(1e10, .003) }, 3e7, math.Sqrt(3e7 * .997)})
	out = append(out, namedLaw{"Poisson(1e10+.5)", func() (*Table, error) { return NewPoisson(1e10 + .5) }, 1e10 + .5, 1e5})
	return out
}

// The law by exact products from the mode, normalised.
func (l namedLaw) pmf(t *testing.T, tab *Table) (first int64, probs []float64) {
	t.Helper()
	if tab.coins > 0 {
		total := math.Exp2(float64(tab.coins))
		for k := range tab.coins + 1 {
			c, _ := new(big.Float).SetInt(new(big.Int).Binomial(int64(tab.coins), int64(k))).Float64()
			probs = append(probs, c/total)
		}
		return 0, probs
	}
	reach := int64(25*l.sd + 40)
	first = tab.mode - reach
	var sum float64
	for x := -reach; x <= reach; x++ {
		lo, hi := tab.law.ratio(x)
		probs = append(probs, (lo+hi)/2)
		sum += (lo + hi) / 2
	}
	for i := range probs {
		probs[i] /= sum
	}
	return first, probs
}

func TestTableLaw(t *testing.T) {
	n := draws(t, 400_000)
	for i, l := range tables() {
		tab, err := l.make()
		if err != nil {
			t.Fatal(err)
		}
		first, probs := l.pmf(t, tab)
		counts := make([]int64, len(probs))
		src := source(60, uint64(i))
		block := make([]int64, 1000)
		for range n / 1000 {
			tab.Fill(src, block)
			block[7] = tab.Draw(src) // one at a time follows the same law
			for _, v := range block {
				if k := v - first; k >= 0 && k < int64(len(counts)) {
					counts[k]++
				} else {
					t.Fatalf("%s: value %d", l.name, v)
				}
			}
		}
		if l.sd < 1e-3 {
			proportion(t, l.name, counts[len(counts)-1], n, probs[len(probs)-1])
			continue
		}
		chiSquare(t, l.name, counts, probs, n/1000*1000)
		// Tails, which privacy rests on: beyond 2.5 standard deviations, and
		// of those beyond 3.2.
		var out, farther int64
		var pOut, pFarther float64
		for k, p := range probs {
			z := math.Abs(float64(first+int64(k))-l.mean) / l.sd
			if z > 2.5 {
				out += counts[k]
				pOut += p
				if z > 3.2 {
					farther += counts[k]
					pFarther += p
				}
			}
		}
		proportion(t, l.name+" tails", out, n/1000*1000, math.Min(1, pOut))
		if out > 0 {
			proportion(t, l.name+" ratio of tails", farther, out, pFarther/pOut)
		}
	}
}

// Wide laws in 64 cells against the normal law with its first correction for
// skewness (at these widths the next one is below 1e-7), and their moments.
func TestWideTables(t *testing.T) {
	n := draws(t, 400_000)
	for i, l := range wideTables() {
		tab, err := l.make()
		if err != nil {
			t.Fatal(err)
		}
		src := source(61, uint64(i))
		values := make([]int64, n)
		tab.Fill(src, values)
		counts, probs := make([]int64, 66), make([]float64, 66)
		var m1, m2 float64
		for _, v := range values {
			x := float64(v-tab.mode) + (float64(tab.mode) - l.mean)
			z := x / l.sd
			m1 += z
			m2 += z * z
			counts[int(math.Max(0, math.Min(65, math.Floor(8*(x+.5)/l.sd)+33)))]++
		}
		skew := 0.
		if b, ok := tab.law.(*binomial); ok {
			skew = (1 - 2*b.p) / l.sd
		} else {
			skew = 1 / l.sd
		}
		cdf := func(z float64) float64 {
			return math.Erfc(-z/math.Sqrt2)/2 - skew*(z*z-1)/6*math.Exp(-z*z/2)/math.Sqrt(2*math.Pi)
		}
		for c := range probs {
			lo, hi := float64(c-33)/8, float64(c-32)/8
			switch c {
			case 0:
				probs[c] = cdf(hi)
			case 65:
				probs[c] = 1 - cdf(lo)
			default:
				probs[c] = cdf(hi) - cdf(lo)
			}
		}
		chiSquare(t, l.name, counts, probs, n)
		N := float64(n)
		if math.Abs(m1/N) > 7/math.Sqrt(N) || math.Abs(m2/N-1) > 7*math.Sqrt(2/N) {
			t.Errorf("%s: mean %.4g, variance %.6g in standard units", l.name, m1/N, m2/N)
		}
	}
}

// What the proof in table.md rests on, checked value by value: enclosures hold
// the exact ratio, the staircase lies above the law, and what is accepted
// quickly would be accepted anyway.
func TestTableStaircase(t *testing.T) {
	for _, l := range append(tables(), wideTables()...) {
		tab, err := l.make()
		if err != nil {
			t.Fatal(err)
		}
		if tab.coins > 0 {
			continue
		}
		var total uint64
		perBlock := make([]uint64, len(tab.blocks))
		for _, c := range tab.columns {
			if c.limit > columnWeight {
				t.Fatalf("%s: column with limit %d", l.name, c.limit)
			}
			if c.limit > 0 { // a column of no weight of its own names no block
				perBlock[c.self] += uint64(c.limit)
			}
			perBlock[c.other] += columnWeight - uint64(c.limit)
		}
		var refused uint64
		for i, b := range tab.blocks {
			width := int64(1) << tab.shift
			total += perBlock[i]
			if b.kind == refuse {
				refused = perBlock[i]
				continue
			}
			want := b.weight
			if b.kind == beyond { // a tail weighs twice its first block
				want <<= 1 + tab.spread
				width <<= tab.spread
			}
			if perBlock[i] != want {
				t.Errorf("%s: block %d has weight %d in the columns, not %d", l.name, i, perBlock[i], want)
			}
			step := max(1, (width-1)/5)
			for off := int64(0); off < width; off += step {
				x := b.base - tab.mode + b.dir*off
				lo, hi := tab.law.ratio(x)
				share := lo * float64(tab.scale) / float64(b.weight)
				if hi*float64(tab.scale) > float64(b.weight)*(1+1e-12) {
					t.Errorf("%s: block %d, offset %d: ratio %v above its step %d/%d", l.name, i, off, hi, b.weight, tab.scale)
				}
				quick := math.Ldexp(float64(b.quick+b.slope*uint64(width-1-off)), int(tab.shift)-32)
				if quick > share {
					t.Errorf("%s: block %d, offset %d: accepted quickly with %v, should be %v", l.name, i, off, quick, share)
				}
				if abs := max(x, -x); abs <= 3000 {
					e, _ := tab.law.exact(x, 200).Float64()
					if !(lo <= e*(1+1e-15) && e <= hi*(1+1e-15)) || hi > 1e-280 && hi-lo > 1e-9*hi {
						t.Errorf("%s: at %d: %v … %v, exactly %v", l.name, x, lo, hi, e)
					}
				}
			}
			if b.kind == beyond {
				for j := range int64(20) {
					x := b.base - tab.mode + b.dir*j*width
					if _, hi := tab.law.ratio(x); hi > 1e-280 && math.Ldexp(hi, int(j))*float64(tab.scale) > float64(b.weight)*(1+1e-9) {
						t.Errorf("%s: tail block %d above its step", l.name, j)
					}
				}
			}
		}
		if total != tableWeight || refused > tableWeight/1000 {
			t.Errorf("%s: weight %d in all, %d refused", l.name, total, refused)
		}
	}
}

// The last resort compares exactly: with the known bits of the uniform real set
// just below and just above the acceptance probability.
func TestTableAcceptsExactly(t *testing.T) {
	for _, c := range []struct {
		n int64
		p float64
		x int64
	}{{1000, .5, 3}, {1_000_000, .5, -700}, {5000, .1, 30}, {10_000_000_000, .5, 2000}} {
		tab, err := NewBinomial(c.n, c.p)
		if err != nil {
			t.Fatal(err)
		}
		const weight, known = 1 << 30, 96
		p := tab.law.exact(c.x, 600)
		p.Mul(p, new(big.Float).SetPrec(700).SetUint64(tab.scale))
		p.SetMantExp(p, known-30)
		if one := new(big.Float).SetMantExp(big.NewFloat(1), known); p.Cmp(one) >= 0 {
			t.Fatalf("probability above 1: choose another weight")
		}
		digits, _ := p.Int(nil)
		for _, side := range []struct {
			add  int64
			want bool
		}{{-1, true}, {1, false}} {
			v := new(big.Int).Add(digits, big.NewInt(side.add))
			high := new(big.Int).Rsh(v, 32).Uint64()
			low := new(big.Int).And(v, big.NewInt(math.MaxUint32)).Uint64() << 32
			if got := tab.acceptExactly(source(62), c.x, weight, 0, high, low, known); got != side.want {
				t.Errorf("%+v: digits off by %d: %v", c, side.add, got)
			}
		}
		// On the digits themselves what follows decides.
		high := new(big.Int).Rsh(digits, 32).Uint64()
		low := new(big.Int).And(digits, big.NewInt(math.MaxUint32)).Uint64() << 32
		frac := new(big.Float).SetPrec(700).Sub(p, new(big.Float).SetPrec(700).SetInt(digits))
		want, _ := frac.Float64()
		var hits int64
		src := source(63, uint64(c.n))
		const trials = 400
		for range trials {
			if tab.acceptExactly(src, c.x, weight, 0, high, low, known) {
				hits++
			}
		}
		proportion(t, fmt.Sprintf("%+v", c), hits, trials, want)
	}
}

func TestTableSequence(t *testing.T) {
	tab, err := NewBinomial(100_000, .5)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]int64, 600)
	tab.Fill(source(64), dst)
	got := [4]int64{dst[0], dst[1], dst[511], dst[599]}
	if want := [4]int64{49990, 49794, 49886, 50139}; got != want {
		t.Errorf("sequence begins %v, want %v", got, want)
	}
}

func TestTableRefuses(t *testing.T) {
	for _, c := range []struct {
		n int64
		p float64
	}{{0, .5}, {-1, .5}, {1<<53 + 1, .5}, {10, 0}, {10, 1}, {10, -.1}, {10, math.NaN()}, {10, 0x1p-61}} {
		if _, err := NewBinomial(c.n, c.p); err == nil {
			t.Errorf("Bin(%d, %v) was accepted", c.n, c.p)
		}
	}
	for _, l := range []float64{0, -1, math.NaN(), math.Inf(1), 0x1p51} {
		if _, err := NewPoisson(l); err == nil {
			t.Errorf("Poisson(%v) was accepted", l)
		}
	}
}
