package certificate

import (
	"context"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// near says that a and b differ by at most 2^bits of a.
func near(a, b *big.Float, bits int) bool {
	d := sub(a, b)
	return d.Abs(d).Cmp(mul(new(big.Float).Abs(a), two(bits))) <= 0
}

func TestExp(t *testing.T) {
	e, _ := new(big.Float).SetPrec(precision).SetString("2.71828182845904523536028747135266249775724709369995957496696762772407663035354759457138217")
	if !near(e, exp(real(1)), -280) {
		t.Errorf("exp(1) = %.80g", exp(real(1)))
	}
	for _, x := range []float64{1e-30, .3, 7, 49.5, 700, 1e5, 1 << 19} {
		for _, y := range []float64{0, -.7, -x, x / 3} {
			if both := exp(add(real(x), real(y))); !near(both, mul(exp(real(x)), exp(real(y))), -330) {
				t.Errorf("exp(%v + %v) is not a product", x, y)
			}
		}
	}
	if got, want := power(real(1.5), 100), exp(mul(real(100), real(math.Log(1.5)))); !near(got, want, -45) {
		t.Errorf("1.5^100 = %v, want %v", got, want)
	}
}

// choose is n over k exactly.
func choose(n, k int64) *big.Float {
	return new(big.Float).SetPrec(precision).SetInt(new(big.Int).Binomial(n, k))
}

func TestBinomial(t *testing.T) {
	for _, n := range []int64{0, 1, 2, 7, 60, 61} {
		for _, p := range []float64{1e-3, .25, .5, .9, 1} {
			chance, tiny := real(p), two(-300)
			if p == 1 {
				tiny = two(-100)
			}
			got := map[int64]*big.Float{}
			law, err := binomial(begin(t.Context(), nil), n, chance, tiny, func(x int64) int64 { return x / 3 })
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range law {
				if got[s.block] == nil {
					got[s.block] = real(0)
				}
				got[s.block].Add(got[s.block], s.weight)
			}
			for b := int64(0); b <= n/3; b++ {
				want := real(0)
				for x := 3 * b; x <= min(n, 3*b+2); x++ {
					want = add(want, mul(choose(n, x), mul(power(chance, x), power(sub(real(1), chance), n-x))))
				}
				if got[b] == nil {
					got[b] = real(0)
				}
				if d := sub(want, got[b]); d.Abs(d).Cmp(two(-290)) > 0 {
					t.Errorf("Bin(%d, %v), block %d: %.20g, want %.20g", n, p, b, got[b], want)
				}
			}
		}
	}
}

// Where little is asked for little is looked at, and the bounds still hold.
func TestCoinBounds(t *testing.T) {
	for _, n := range []int64{0, 1, 2, 3, 40, 41, 400} {
		for _, tiny := range []*big.Float{two(-300), two(-30)} {
			var thresholds []int64
			for a := (n+1)/2 + 1; a <= n+1; a += 1 + n/37 {
				thresholds = append(thresholds, a)
			}
			point, tail, err := coin(begin(t.Context(), nil), n, thresholds, tiny)
			if err != nil {
				t.Fatal(err)
			}
			for i, a := range thresholds {
				at := mul(choose(n, a-1), two(-int(n)))
				above := real(0)
				for x := a; x <= n; x++ {
					above = add(above, mul(choose(n, x), two(-int(n))))
				}
				slack := add(mul(tiny, real(4)), two(-300))
				if d := sub(point[i], at); d.Sign() < 0 && !near(at, point[i], -300) || d.Cmp(slack) > 0 {
					t.Errorf("Bin(%d, 1/2) = %d: %.20g, exact %.20g", n, a-1, point[i], at)
				}
				if d := sub(above, tail[i]); d.Sign() < 0 && !near(above, tail[i], -300) || d.Cmp(slack) > 0 {
					t.Errorf("Bin(%d, 1/2) >= %d: %.20g, exact %.20g", n, a, tail[i], above)
				}
			}
		}
	}
}

// bruteDelta is D_g of one round by listing every outcome of every k, C and
// first count, in float64.
func bruteDelta(q Query, rate, g float64) float64 {
	who := q.reporters()
	chance, _ := who.chance.Float64()
	e := math.Exp(q.Eps0)
	pmf := func(n, x int64, p float64) float64 {
		c, _ := choose(n, x).Float64()
		return c * math.Pow(p, float64(x)) * math.Pow(1-p, float64(n-x))
	}
	var sum float64
	for k := int64(1); k <= who.asked; k++ {
		gamma := float64(k) / float64(who.n)
		big := 1 + (g-1)/gamma
		var d float64
		for c := int64(0); c < k; c++ {
			m := c + 1
			for a := int64(0); a <= m; a++ {
				w := pmf(k-1, c, rate) * pmf(m, a, .5) * 2 / (float64(m) * (e + 1))
				d += math.Max(0, w*(e*float64(a)+float64(m-a))-big*w*(e*float64(m-a)+float64(a)))
			}
		}
		sum += pmf(who.asked, k, chance) * gamma * d
	}
	return sum
}

// every lists each k as a block of its own.
func every(n int64) (out []int64) {
	for k := int64(1); k <= n; k++ {
		out = append(out, k)
	}
	return out
}

func TestCurveAgainstEveryOutcome(t *testing.T) {
	for _, q := range []Query{
		{Trust: dp.Shuffle, Participation: dp.All, Eps0: 1, N: 1},
		{Trust: dp.Shuffle, Participation: dp.All, Eps0: 1, N: 2},
		{Trust: dp.Shuffle, Participation: dp.All, Eps0: .1, N: 9},
		{Trust: dp.Shuffle, Participation: dp.All, Eps0: 5, N: 12},
		{Trust: dp.Shuffle, Participation: dp.Sampled, Eps0: 2, N: 20, K: 7},
		{Trust: dp.Shuffle, Participation: dp.Once, Eps0: 2, N: 20, K: 7},
		{Trust: dp.Shuffle, Participation: dp.CheckIn, Eps0: 1.5, N: 8, Gamma: .3},
		{Trust: dp.Shuffle, Participation: dp.Sampled, Eps0: 1.5, N: 11, K: 8, Dropout: .4},
		{Trust: dp.Local, Participation: dp.Sampled, Eps0: 1.5, N: 11, K: 8, Dropout: .4},
	} {
		for _, method := range []string{BlanketPLD, ClonesPLD} {
			rate := 2 / (math.Exp(q.Eps0) + 1)
			if method == ClonesPLD {
				rate = math.Exp(-q.Eps0)
			}
			d := Document{Query: q, Claim: Claim{Method: method}, Round: &Round{Infinite: 0x1p-100, Clones: 1, Reports: every(q.N)}}
			coarse := d
			coarse.Round = &Round{Infinite: 0x1p-100, Clones: 3, Reports: []int64{2, 5}}
			var g []*big.Float
			for i := range 25 {
				g = append(g, exp(real(q.Eps0*float64(i)/20)))
			}
			exact, err := d.curve(begin(context.Background(), nil), g)
			if err != nil {
				t.Fatal(err)
			}
			blocked, err := coarse.curve(begin(context.Background(), nil), g)
			if err != nil {
				t.Fatal(err)
			}
			for i := range g {
				at, _ := g[i].Float64()
				want := bruteDelta(q, rate, at)
				got, _ := exact[i].Float64()
				if math.Abs(got-want) > 1e-12 {
					t.Errorf("%+v %s at g = %v: %v, every outcome %v", q, method, at, got, want)
				}
				if b, _ := blocked[i].Float64(); b < want-1e-13 {
					t.Errorf("%+v %s at g = %v: in blocks %v, below %v", q, method, at, b, want)
				}
			}
		}
	}
}

func someLaw(r *rand.Rand, c *composer, cells int) law {
	l := law{low: int64(r.IntN(9)) - 6, lost: c.fixed(real(1e-9)), rounds: 1}
	for range cells {
		l.mass = append(l.mass, c.fixed(real(r.Float64()/float64(cells))))
	}
	return l
}

func TestProductAgainstSums(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := &composer{bits: 128, step: real(.1), times: 1 << 40, top: two(-100)} // trims next to nothing
	for range 20 {
		a, b := someLaw(r, c, 1+r.IntN(20)), someLaw(r, c, 1+r.IntN(50))
		got, err := c.product(a, b)
		if err != nil {
			t.Fatal(err)
		}
		if got.low != a.low+b.low || len(got.mass) != len(a.mass)+len(b.mass)-1 {
			t.Fatalf("a product of %d and %d cells has %d from %d", len(a.mass), len(b.mass), len(got.mass), got.low)
		}
		for k, m := range got.mass {
			want := new(big.Int)
			for i := range a.mass {
				if j := k - i; j >= 0 && j < len(b.mass) {
					want.Add(want, new(big.Int).Mul(a.mass[i], b.mass[j]))
				}
			}
			// Up by at most one unit.
			low := new(big.Int).Lsh(m, c.bits)
			if low.Cmp(want) < 0 || low.Sub(low, want).Cmp(new(big.Int).Lsh(big.NewInt(1), c.bits)) > 0 {
				t.Fatalf("cell %d is %v units, the sum %v/2^%d", k, m, want, c.bits)
			}
		}
	}
}

// Trimming and coarsening keep all mass, move none down but in exact splits, and
// keep E e^−L of finite losses where they split.
func TestTrimAndCoarsen(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		c := &composer{bits: 192, step: real(.05), times: 1, top: real(.1)}
		l := someLaw(r, c, 1+r.IntN(40))
		all := func(l law) *big.Int { return new(big.Int).Add(total(l.mass), l.lost) }
		under := func(l law, step *big.Float) *big.Float {
			sum := real(0)
			for i, f := range l.mass {
				x := mul(step, whole(l.low+int64(i)))
				sum = add(sum, mul(new(big.Float).SetPrec(precision).SetInt(f), exp(x.Neg(x))))
			}
			return sum
		}
		coarse := c.coarsen(l)
		if all(coarse).Cmp(all(l)) != 0 {
			t.Fatal("coarsening changes the mass")
		}
		if a, b := under(l, c.step), under(coarse, mul(c.step, real(2))); !near(a, b, -150) || b.Cmp(add(a, two(10))) > 0 {
			t.Fatalf("coarsening changes E e^-L from %.30g to %.30g", a, b)
		}
		mass := all(l)
		trimmed := law{low: l.low, mass: append([]*big.Int(nil), l.mass...), lost: new(big.Int).Set(l.lost), rounds: 1}
		c.trim(&trimmed)
		if all(trimmed).Cmp(mass) != 0 {
			t.Fatal("trimming changes the mass")
		}
		// The law above each loss only gains.
		for x := l.low; x < l.low+int64(len(l.mass)); x++ {
			above := func(l law) *big.Int {
				sum := new(big.Int).Set(l.lost)
				for i, f := range l.mass {
					if l.low+int64(i) >= x {
						sum.Add(sum, f)
					}
				}
				return sum
			}
			if above(trimmed).Cmp(above(l)) < 0 {
				t.Fatalf("trimming moves mass down past %d", x)
			}
		}
	}
}

// Randomised response T times, in closed form; small maxima of cells come from
// many rounds. Never below, and close.
func TestPowerAgainstRandomizedResponse(t *testing.T) {
	for _, times := range []int64{1, 2, 3, 13, 64, 1000} {
		const eps0 = .25
		c := &composer{bits: 192, step: real(eps0), times: times, top: two(-80)}
		p := quo(exp(real(eps0)), add(exp(real(eps0)), real(1)))
		base := law{low: -1, mass: []*big.Int{c.fixed(sub(real(1), p)), new(big.Int), c.fixed(p)}, lost: new(big.Int), rounds: 1}
		out, err := c.power(begin(context.Background(), nil), base)
		if err != nil {
			t.Fatal(err)
		}
		for _, eps := range []float64{0, .1, .25, .6, 1, 3, 10} {
			want := real(0)
			for x := int64(0); x <= times; x++ {
				loss := real(eps0 * float64(2*x-times))
				if over := sub(loss, real(eps)); over.Sign() > 0 {
					w := mul(choose(times, x), mul(power(p, x), power(sub(real(1), p), times-x)))
					want = add(want, mul(w, sub(real(1), exp(over.Neg(over)))))
				}
			}
			got := c.delta(out, real(eps), real(1e9))
			if d := sub(got, want); d.Sign() < 0 || d.Cmp(two(-36)) > 0 {
				t.Errorf("%d rounds at %v: %.20g, exact %.20g", times, eps, got, want)
			}
		}
	}
}

// Laws that outgrow maxCells go on coarser grids: still above, and by little.
func TestPowerCoarsens(t *testing.T) {
	const cells, times = 1<<12 + 1, 9
	fine := &composer{bits: 128, step: real(1e-3), times: times, top: two(-60)}
	base := law{low: -cells / 2, lost: new(big.Int), rounds: 1}
	for range cells {
		base.mass = append(base.mass, fine.fixed(real(1./cells)))
	}
	out, err := fine.power(begin(context.Background(), nil), base)
	if err != nil {
		t.Fatal(err)
	}
	if fine.step.Cmp(real(1e-3)) == 0 {
		t.Fatal("never coarsened")
	}
	// The same sum, cell by cell in float64.
	sum := []float64{1}
	for range times {
		next := make([]float64, len(sum)+cells-1)
		var window float64
		for i := range next {
			if i < len(sum) {
				window += sum[i]
			}
			if i >= cells {
				window -= sum[i-cells]
			}
			next[i] = window / cells
		}
		sum = next
	}
	for _, eps := range []float64{0, 1, 3, 6} {
		var want float64
		for i, f := range sum {
			if x := 1e-3 * float64(i-times*(cells/2)); x > eps {
				want += f * -math.Expm1(eps-x)
			}
		}
		got, _ := fine.delta(out, real(eps), real(1e9)).Float64()
		if got < want*(1-1e-9) || got > want*(1+1e-5) {
			t.Errorf("at %v: %v, exact %v", eps, got, want)
		}
	}
}
